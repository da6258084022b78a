"""`write_file`: write a whole file in one step, never over content that the agent does not know."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.agent.tool import Display, ToolOutput, Writes
from teamcli.errors import ToolError
from teamcli.text.redaction import MASK, holds_secret
from teamcli.tools.base.context import AgentContext, CallContext
from teamcli.tools.base.tool import Tool
from teamcli.workspace.diff import unified_diff
from teamcli.workspace.file_access import MAX_SHOWN_BYTES, Content, read_content_if_there, replace_file
from teamcli.workspace.known_files import digest
from teamcli.workspace.text_files import UTF8, Text, decode_text, encode_text, line_end


class WriteFileInput(NamedTuple):
    """Create a file (and its directories) or replace all of it. An existing file must have been read first;
    to change parts of it use edit_file."""

    path: str
    content: str


def run(args: WriteFileInput, context: AgentContext, call: CallContext) -> ToolOutput:
    path = context.workspace.resolve_to_change(args.path)
    shown = context.workspace.relative(path)
    data = encode_text(args.content, UTF8, shown)
    with context.known_files.hold(path):
        before = read_content_if_there(path, context.workspace)
        # Writing the content that is there already loses nothing, so it is allowed without reading the file first.
        is_same = before is not None and before.digest == digest(data)
        if before is not None and not is_same:
            _refuse_unknown(before, context.known_files.digest_of(path), shown)
            # A mask that the agent has read in place of the user's key must not replace that key.
            if MASK in args.content and before.data and holds_secret(before.data.decode("utf-8", "replace")):
                raise ToolError(f"{shown} holds a key, which you read as {MASK}: change its other lines with edit_file")
        if not is_same:
            replace_file(path, data, context.workspace)
            context.changed(path, before, data)
        seen = context.known_files.remember(path, digest(data))
    notes = ["it had this content already"] if is_same else _what_changed(before, args.content, shown)
    report = f"Wrote {len(data)} bytes to {shown}{''.join(f' ({note})' for note in notes)}"
    return ToolOutput(report, display=_display(before, args.content, shown), seen_files=seen)


def _refuse_unknown(before: Content, known: str | None, shown: str) -> None:
    if known is None:
        raise ToolError(f"{shown} exists and you have not read its present content: read it first, then write it")
    if known != before.digest:
        raise ToolError(f"{shown} has changed since you last read or wrote it: read it again, then write it")


def _what_changed(before: Content | None, content: str, shown: str) -> list[str]:
    """What the new content does not show: the old one was stored differently."""
    old = _text(before, shown)
    if old is None:
        return []
    notes = [] if old.encoding is UTF8 else [f"it was {old.encoding.name}, it is UTF-8 now"]
    if line_end(old.content) == "\r\n" and line_end(content) == "\n":
        notes.append("it had CRLF line ends, it has LF now")
    return notes


def _text(content: Content | None, shown: str) -> Text | None:
    if content is None or content.data is None:
        return None
    try:
        return decode_text(content.data, shown)
    except ToolError:  # not text before, so there is nothing to compare with
        return None


def _display(before: Content | None, content: str, shown: str) -> Display:
    old = _text(before, shown)
    # What cannot be compared is shown as new: a person who is asked sees all that would be written.
    is_comparable = old is not None and len(old.content) <= MAX_SHOWN_BYTES
    diff = unified_diff(old.content if old and is_comparable else None, content, shown)
    lost = before is not None and not is_comparable
    text = f"write {shown}: replaces all of a file that is not text, or too large to compare" if lost else ""
    return Display(f"write {shown}", diff=diff, text=text, path=shown)


def access(args: WriteFileInput, context: AgentContext) -> Writes:
    return Writes(context.workspace.resolve_to_change(args.path))


def show(args: WriteFileInput, context: AgentContext) -> Display:
    """What would be written, compared with the present content."""
    path = context.workspace.resolve_to_change(args.path)
    shown = context.workspace.relative(path)
    try:
        before = read_content_if_there(path, context.workspace, MAX_SHOWN_BYTES)
    except ToolError:  # the run itself reports it
        before = None
    return _display(before, args.content, shown)


def show_past(args: WriteFileInput, context: AgentContext) -> Display:
    return Display(f"write {context.workspace.relative(context.workspace.resolve(args.path))}")


WRITE_FILE = Tool("write_file", WriteFileInput, run, show, access, show_past)
