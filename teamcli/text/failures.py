"""What went wrong, read from the result of a command.

A command's stdout and stderr share one pipe, because two pipes would lose the order of their lines. So nobody knows
which lines were stderr, and the line that says what went wrong is recognized by its words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_EXIT = re.compile(r"\[(exit code \d+|killed by signal .+)\]")
_NOTE = re.compile(r"\[.+\]")
_HOOK_NOTE = "\n<note>"
_LONGEST_LINE = 1000
_COLOR = re.compile(r"\x1b\[[\d;]*[A-Za-z]")
_RULE = re.compile(r"([=\-_*#~])\1{2,}.*\1{3}|\W+")
"""A headline such as `=== FAILURES ===`, or a line without words."""
_PYTEST = re.compile(r"E\s{3,}(?=\S)")
_TRACEBACK = re.compile(r"\s*Traceback \(most recent call last\):")
_USAGE = re.compile(r"usage:", re.IGNORECASE)
_SUMMARY = re.compile(r"\b(0|no) (errors?|fail\w*)\b|^found \d+ errors?\b", re.IGNORECASE)
_CERTAIN = re.compile(
    r"^E\s{3,}\S|^npm ERR!|\bFAIL(ED)?\b|\b[Pp]anic: |\b(([Ff]atal )?[Ee]rror|ERROR|[Ff]atal)\b[^:]{0,16}:( |$)"
)
_LIKELY = re.compile(
    r"\b(errors?|exception|fail(ed|ure|s)?|cannot|can't|could ?n[o']t|unable|no such"
    r"|not (found|permitted|allowed)|denied|refused|invalid|illegal|unknown"
    r"|unrecognized|undefined|unexpected|missing|aborted|timed out)\b",
    re.IGNORECASE,
)


def failed_exit(content: str) -> str:
    """How a command ended that failed, such as `exit code 1`. Empty if it did not fail.

    Notes, of the sandbox or of a hook, may follow after it.
    """
    for line in reversed(content.partition(_HOOK_NOTE)[0].rstrip().splitlines()):
        if ending := _EXIT.fullmatch(line):
            return ending[1]
        if not _NOTE.fullmatch(line):
            break
    return ""


def first_error_line(content: str) -> str:
    """The line of a failed command's result that says what went wrong; empty if it printed nothing.

    It is the first one that reads like an error, or else the first one. It is not escaped.
    """
    lines = [_COLOR.sub("", line[:_LONGEST_LINE]).rstrip() for line in _output(content) if line.strip()]
    lines = [line for line in lines if not _RULE.fullmatch(line)]
    if not lines:
        return ""
    likely = _before_usage(lines)
    found = _exception(lines) or _first(_CERTAIN.search, lines) or _first(_LIKELY.search, likely) or lines[0]
    return _PYTEST.sub("", found, count=1).strip()


def _output(content: str) -> list[str]:
    """The lines that the command printed, without the notes below them."""
    lines = content.partition(_HOOK_NOTE)[0].rstrip().splitlines()
    while lines and _NOTE.fullmatch(lines[-1]):
        lines.pop()
    return [] if lines == ["(no output)"] else lines


def _exception(lines: Sequence[str]) -> str:
    """The last line of a Python traceback, which ends at the first line that is not indented further."""
    for number, line in enumerate(lines):
        if _TRACEBACK.match(line):
            margin = len(line) - len(line.lstrip())
            return next((each for each in lines[number + 1 :] if not each[margin : margin + 1].isspace()), "")
    return ""


def _before_usage(lines: Sequence[str]) -> Sequence[str]:
    """Without the usage text that follows an error: its options may speak of errors, too."""
    usage = next((number for number, line in enumerate(lines) if _USAGE.match(line)), 0)
    return lines[:usage] or lines


def _first(matches: Callable[[str], object], lines: Sequence[str]) -> str:
    return next((line for line in lines if not _SUMMARY.search(line) and matches(line)), "")
