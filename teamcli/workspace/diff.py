"""Unified diffs for people: complete, and cheap however large the files are."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import SequenceMatcher
from itertools import takewhile

from teamcli.text.redaction import redact

_CONTEXT = 3
_MAX_COMPARED_LINES = 1000

Opcode = tuple[str, int, int, int, int]


def unified_diff(before: str | None, after: str, name: str) -> str:
    """What changes from `before` (None: the file is new) to `after`; empty if no line differs."""
    old, new = _lines(redact(before or "")), _lines(redact(after))
    changes = [line for group in _groups(old, new) for line in _hunk(old, new, group)]
    if not changes:
        return ""
    return "\n".join(["--- /dev/null" if before is None else f"--- a/{name}", f"+++ b/{name}", *changes])


def _lines(text: str) -> list[str]:
    lines = text.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _groups(old: list[str], new: list[str]) -> Iterator[list[Opcode]]:
    """Opcodes by hunk. Only the part between the first and the last difference is compared line by line."""
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    start = max(head - _CONTEXT, 0)
    old_end, new_end = len(old) - max(tail - _CONTEXT, 0), len(new) - max(tail - _CONTEXT, 0)
    a, b = old[start:old_end], new[start:new_end]
    # SequenceMatcher takes quadratic time. Beyond this, show everything between as replaced.
    if max(len(a), len(b)) > _MAX_COMPARED_LINES:
        yield [("replace", head, len(old) - tail, head, len(new) - tail)]
        return
    for group in SequenceMatcher(None, a, b).get_grouped_opcodes(_CONTEXT):
        yield [(tag, i1 + start, i2 + start, j1 + start, j2 + start) for tag, i1, i2, j1, j2 in group]


def _common(old: list[str], new: list[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(old, new, strict=False)))


def _hunk(old: list[str], new: list[str], group: list[Opcode]) -> Iterator[str]:
    first, last = group[0], group[-1]
    yield f"@@ -{_span(first[1], last[2])} +{_span(first[3], last[4])} @@"
    for tag, i1, i2, j1, j2 in group:
        if tag == "equal":
            yield from (f" {line}" for line in old[i1:i2])
            continue
        yield from (f"-{line}" for line in old[i1:i2])
        yield from (f"+{line}" for line in new[j1:j2])


def _span(start: int, stop: int) -> str:
    length = stop - start
    return f"{start + 1 if length else start},{length}"
