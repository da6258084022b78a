"""`edit_file`: replace exact text. Everything else in the file stays as it is, to the byte."""

from __future__ import annotations

import re
from bisect import bisect_left
from itertools import accumulate
from typing import NamedTuple

from teamcli.agent.tool import Display, ToolOutput, Writes
from teamcli.errors import ToolError
from teamcli.text.counting import counted
from teamcli.tools.base.context import AgentContext, CallContext
from teamcli.tools.base.tool import Tool
from teamcli.workspace.diff import unified_diff
from teamcli.workspace.file_access import MAX_HELD_BYTES, MAX_SHOWN_BYTES, Content, read_content, replace_file
from teamcli.workspace.known_files import digest
from teamcli.workspace.text_files import (
    Text,
    decode_text,
    encode_text,
    line_end,
    with_line_ends,
    with_plain_ends,
)

_EXCERPT_CONTEXT = 2
_EXCERPT_LINES = 16
_EXCERPT_LINE_LENGTH = 200
_LISTED_LINES = 10
_LOOSE_SEARCH_LENGTH = 10_000
_MOST_PLACES = 100_000
_NUMBERED = re.compile(r"\s*\d+\t")

Span = tuple[int, int]


class EditFileInput(NamedTuple):
    """Replace old_text by new_text in a file. old_text must match exactly, indentation included, without read_file's
    line numbers, and occur only once unless replace_all is set."""

    path: str
    old_text: str
    new_text: str
    replace_all: bool = False


class _Edit(NamedTuple):
    before: Text
    after: str
    places: list[Span]
    """Where the new text is in `after`."""


def run(args: EditFileInput, context: AgentContext, call: CallContext) -> ToolOutput:
    path = context.workspace.resolve_to_change(args.path)
    shown = context.workspace.relative(path)
    known_files = context.known_files
    with known_files.hold(path):
        content = read_content(path, context.workspace)
        known = known_files.digest_of(path)
        has_changed = known is not None and known != content.digest
        may_see = context.may_see(path)
        edit = _plan(args, content, shown, has_changed, may_see)
        call.cancel.check()  # the last chance: from here on the edit is made
        data = encode_text(edit.after, edit.before.encoding, shown)
        replace_file(path, data, context.workspace)
        context.changed(path, content, data)
        # After an edit of a file that the agent has not read, write_file must still refuse to replace it.
        is_known = known == content.digest
        seen = known_files.remember(path, digest(data)) if is_known else known_files.forget(path)
    report = _report(edit, shown, has_changed) if may_see else f"Edited {shown}: {counted(len(edit.places), 'place')}"
    return ToolOutput(report, display=_display(args, edit, shown), seen_files=seen)


def _plan(args: EditFileInput, content: Content, shown: str, has_changed: bool, may_see: bool = True) -> _Edit:
    """Raises: ToolError, if the edit cannot be made."""
    if not args.old_text:
        raise ToolError("old_text: is empty; give the text to replace, or use write_file for a new file")
    if args.old_text == args.new_text:
        raise ToolError("new_text: is the same as old_text, so nothing would change")
    if content.data is None:
        raise ToolError(f"{shown} is larger than {MAX_HELD_BYTES:,} bytes; edit it with a command such as sed")
    before = decode_text(content.data, shown)
    spans = _occurrences(before.content, args.old_text)
    if not spans:
        hint = _why_not_found(before.content, args.old_text, has_changed) if may_see else ""
        raise ToolError(f"old_text is not in {shown}{hint}")
    if len(spans) > _MOST_PLACES:
        raise ToolError(f"old_text occurs more than {_MOST_PLACES:,} times in {shown}; edit it with a command like sed")
    if len(spans) > 1 and not args.replace_all:
        lines = f" (lines {_lines_of(before.content, spans)})" if may_see else ""
        raise ToolError(
            f"old_text occurs {len(spans)} times in {shown}{lines}; "
            f"add surrounding lines until it is unique, or set replace_all"
        )
    overlap = len(spans) == 2 and spans[1][0] < spans[0][1]
    kept = spans[:1] if overlap else spans
    if len(before.content) + len(kept) * len(args.new_text) > MAX_HELD_BYTES:
        raise ToolError(f"{shown} would become larger than {MAX_HELD_BYTES:,} bytes; edit it with a command like sed")
    return _replace(before, kept, args.new_text)


def _occurrences(content: str, old_text: str) -> list[Span]:
    """Where `old_text` occurs in `content`, whichever line ends either of them has.

    Overlapping places count once, unless there is no other: `aa` occurs twice in `aaa`.
    """
    plain, wanted = with_plain_ends(content), with_plain_ends(old_text)
    crlf = [match.start() - index for index, match in enumerate(re.finditer("\r\n", content))]

    def in_content(position: int) -> int:
        return position + bisect_left(crlf, position)  # each CRLF before it is one character longer there

    starts: list[int] = []
    start = plain.find(wanted)
    while start >= 0 and len(starts) <= _MOST_PLACES:
        starts.append(start)
        start = plain.find(wanted, start + len(wanted))
    # `find` above skips overlapping places, which would hide that a single match is ambiguous.
    if len(starts) == 1 and (overlapping := plain.find(wanted, starts[0] + 1)) >= 0:
        starts.append(overlapping)
    return [(in_content(start), in_content(start + len(wanted))) for start in starts]


def _replace(before: Text, spans: list[Span], new_text: str) -> _Edit:
    pieces: list[str] = []
    places: list[Span] = []
    position = length = 0
    usual_end = line_end(before.content)
    for start, end in spans:
        # The new text gets the line ends of what it replaces, even in a file that mixes them.
        own_end = line_end(before.content[start:end]) or usual_end
        kept, new = before.content[position:start], with_line_ends(new_text, own_end)
        pieces += [kept, new]
        places.append((length + len(kept), length + len(kept) + len(new)))
        position, length = end, places[-1][1]
    return _Edit(before, "".join([*pieces, before.content[position:]]), places)


def _why_not_found(content: str, old_text: str, has_changed: bool) -> str:
    if all(_NUMBERED.match(line) for line in old_text.splitlines()):
        return ": leave out the line numbers that read_file shows"
    if line := _line_without_whitespace(content, old_text):
        return f": line {line} differs from it only in spaces, tabs or line breaks, which must be exact"
    if has_changed:
        return ", which has changed since you last read or wrote it: read it again"
    return ": copy it exactly from what read_file shows"


def _line_without_whitespace(content: str, old_text: str) -> int | None:
    """The line where `old_text` would be if all white space were the same."""
    words = old_text.split()
    if not words or len(old_text) > _LOOSE_SEARCH_LENGTH:
        return None
    flat = " ".join(content.split())
    found = flat.find(" ".join(words))
    if found < 0:
        return None
    words_before = flat.count(" ", 0, found)
    counts = accumulate(len(line.split()) for line in content.split("\n"))
    return next(number for number, count in enumerate(counts, 1) if count > words_before)


def _line_at(content: str, position: int) -> int:
    return content.count("\n", 0, position) + 1


def _lines_of(content: str, spans: list[Span]) -> str:
    numbers = ", ".join(str(_line_at(content, start)) for start, _ in spans[:_LISTED_LINES])
    return numbers + (", …" if len(spans) > _LISTED_LINES else "")


def _report(edit: _Edit, shown: str, has_changed: bool) -> str:
    note = " (it had changed since you last read or wrote it, but still contained old_text)" if has_changed else ""
    if len(edit.places) > 1:
        return f"Edited {shown}{note}: {len(edit.places)} places, lines {_lines_of(edit.after, edit.places)}"
    return f"Edited {shown}{note}:\n{_excerpt(edit.after, edit.places[0])}"


def _excerpt(content: str, place: Span) -> str:
    """The changed lines with some context, numbered as in read_file. A long change is shown without its middle."""
    lines = with_plain_ends(content).removesuffix("\n").split("\n")
    first = max(_line_at(content, place[0]) - _EXCERPT_CONTEXT, 1)
    last = min(_line_at(content, place[1]) + _EXCERPT_CONTEXT, len(lines))
    numbered = [f"{number}\t{lines[number - 1][:_EXCERPT_LINE_LENGTH]}" for number in range(first, last + 1)]
    if len(numbered) > _EXCERPT_LINES:
        half = _EXCERPT_LINES // 2
        numbered = [*numbered[:half], f"... ({len(numbered) - 2 * half} more)", *numbered[-half:]]
    return "\n".join(numbered)


def _display(args: EditFileInput, edit: _Edit | None, shown: str) -> Display:
    """The change in its place, or only the texts if the place is unknown or the file is too large to compare."""
    has_place = edit is not None and len(edit.after) <= MAX_SHOWN_BYTES
    before, after = (edit.before.content, edit.after) if edit and has_place else (args.old_text, args.new_text)
    return Display(f"edit {shown}", diff=unified_diff(before, after, shown), path=shown)


def access(args: EditFileInput, context: AgentContext) -> Writes:
    return Writes(context.workspace.resolve_to_change(args.path))


def show(args: EditFileInput, context: AgentContext) -> Display:
    """What the edit would change in the file as it is now."""
    path = context.workspace.resolve_to_change(args.path)
    shown = context.workspace.relative(path)
    try:
        content = read_content(path, context.workspace, MAX_SHOWN_BYTES)
        edit = _plan(args, content, shown, has_changed=False)
    except ToolError:  # the run itself reports it; an earlier call of the same answer may make it possible
        edit = None
    return _display(args, edit, shown)


def show_past(args: EditFileInput, context: AgentContext) -> Display:
    shown = context.workspace.relative(context.workspace.resolve(args.path))
    return Display(f"edit {shown}", diff=unified_diff(args.old_text, args.new_text, shown))


EDIT_FILE = Tool("edit_file", EditFileInput, run, show, access, show_past)
