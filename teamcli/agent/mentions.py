"""Files that the user mentions with `@path`: they go to the model with the user's message, as `read_file` shows them.

The rules for tools apply: the workspace, what is denied, and which files count as read for a later change.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from teamcli.agent.conversation import text_block
from teamcli.agent.loop import Delivery
from teamcli.agent.tool import ToolOutput
from teamcli.agent.tool_calls import Toolset
from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, ToolError
from teamcli.llm.types import Block
from teamcli.text.counting import counted
from teamcli.text.escaping import one_line
from teamcli.text.redaction import redact
from teamcli.text.tags import one_fact, tagged, without_end
from teamcli.workspace.bounds import Workspace

MAX_FILES = 10
MAX_CHARACTERS = 200_000
"""For all files together. A file that might exceed it is not attached."""
MOST_OF_ONE = 50_000

# Patterns are strings, which `re` compiles at first use: most lines mention nothing.
_CODE = r"(?s)```.*?(?:```|\Z)|`[^`\n]*`"
_MENTION = r"""(?<![^\s(\[{<'",;:])@(?:"([^"\n]+)"|([^\s"'`<>]+))"""
_PLACE_IN_FILE = r"(?::\d+(?:-\d+|:\d+)?|#L?\d+(?:-L?\d+)?)\Z"
_REST = r"(?m)^\.\.\. \((?:at least )?(\d+) more\) "
"""The end of a listing or a file that is not shown in full."""
_PACKAGE = r"[a-z0-9][\w.-]*/[a-z0-9][\w-]*(?:@\S+)?"
_PUNCTUATION = ".,;:!?)]}"


def mentioned_paths(text: str, workspace: Workspace) -> list[Path]:
    """The existing paths that the text mentions, resolved, each once."""
    paths = (_find(_spellings(found), workspace) for found in _mentions(text))
    return list(dict.fromkeys(path for path in paths if path is not None))


def mentioned_resources(text: str, is_resource: Callable[[str], bool]) -> list[str]:
    """The resources of other programs that the text mentions, each once."""
    words = (found[1] or found[2].rstrip(_PUNCTUATION) for found in _mentions(text))
    return list(dict.fromkeys(word for word in words if is_resource(word)))


def unknown_mentions(
    text: str, workspace: Workspace, names: Collection[str], is_resource: Callable[[str], bool] = lambda word: False
) -> list[str]:
    """The words after `@` that are neither an existing path nor one of `names` nor a resource, each once. Packages such
    as `@types/node` are not meant as paths."""
    unknown: dict[str, None] = {}
    for found in _mentions(text):
        spellings = list(_spellings(found))
        is_name = any(spelling.casefold() in names for spelling in spellings)
        is_name = is_name or bool(spellings and is_resource(spellings[0]))
        if not spellings or is_name:
            continue
        word = spellings[-1]
        is_package = re.fullmatch(_PACKAGE, word) and not (workspace.root / word.partition("/")[0]).is_dir()
        if not is_package and not _find(iter(spellings), workspace):
            unknown[word] = None
    return list(unknown)


def attach_mentioned(
    text: str, toolset: Toolset, workspace: Workspace, cancel: CancelScope, report: Callable[[str], None]
) -> Delivery:
    """The files and directories that the text mentions, as blocks for the model; fewer if cancelled. If there are any,
    `report` gets one line that says what became of them."""
    blocks: list[Block] = []
    attached: list[str] = []
    left_out: list[str] = []
    seen: dict[str, str] = {}
    paths = mentioned_paths(text, workspace)
    room = MAX_CHARACTERS
    try:
        while paths and len(blocks) < MAX_FILES and room >= MOST_OF_ONE:
            path = paths.pop(0)
            kind = "directory" if path.is_dir() else "file"
            name, more = ("glob", {"pattern": "*"}) if kind == "directory" else ("read_file", {})
            try:
                output = toolset.run_for_user(name, {"path": str(path), **more}, cancel)
                attached.append(_summary(kind, one_fact(workspace.relative(path)), output.content))
            except ToolError as e:
                output = ToolOutput(f"(not attached: {e})")
                left_out.append(str(e))
            room -= len(output.content)
            seen.update(output.seen_files)
            blocks.append(text_block(_framed(kind, workspace.relative(path), output.content)))
        for word in mentioned_resources(text, toolset.outside.owns)[:MAX_FILES]:
            try:
                blocks.append(text_block(redact(toolset.outside.read(word, cancel))))
                attached.append(one_fact(word))
            except ToolError as e:
                blocks.append(text_block(tagged("note", f"@{one_fact(word)} is not attached: {e}", "", "")))
                left_out.append(one_line(str(e)))
    except Cancelled:  # the turn ends at its next step, with a valid history
        pass
    if paths:
        names = ", ".join(one_fact(workspace.relative(path)) for path in paths)
        words = f"Not attached, because that would be too much at once: {names}"
        blocks.append(text_block(tagged("note", words, "", "")))
        left_out.append(f"{names} (too much at once)")
    parts = [f"attached {', '.join(attached)}"] * bool(attached) + [f"not attached: {each}" for each in left_out]
    if parts:
        report("; ".join(parts))
    return Delivery(blocks, seen_files=seen)


def _summary(kind: str, path: str, content: str) -> str:
    """For the user: `main.py (120 lines)`."""
    shown = content.split("\n")
    rest = re.search(_REST, content)
    more = int(rest[1].replace(",", "")) if rest else 0
    if kind == "directory":
        listed = 0 if content.startswith("(") else len(shown) - bool(rest) + more
        return f"{path}/ ({counted(listed, 'entry', 'entries')})"
    lines = sum(line.partition("\t")[0].isdigit() for line in shown)
    return f"{path} (lines 1-{lines:,} of {lines + more:,})" if more else f"{path} ({counted(lines, 'line')})"


def _mentions(text: str) -> Iterator[re.Match[str]]:
    """Text in backticks is code: what it mentions is not meant."""
    if "@" not in text:
        return
    code = [found.span() for found in re.finditer(_CODE, text)]
    for found in re.finditer(_MENTION, text):
        if not any(start <= found.start() < end for start, end in code):
            yield found


def _spellings(found: re.Match[str]) -> Iterator[str]:
    """The path as written, then without a line number, then without the punctuation of the sentence."""
    quoted, bare = found.groups()
    if quoted:
        yield quoted
        return
    while bare:
        yield bare
        shorter = re.sub(_PLACE_IN_FILE, "", bare)
        if shorter == bare:
            shorter = bare[:-1] if bare[-1] in _PUNCTUATION else ""
        bare = shorter


def _find(spellings: Iterator[str], workspace: Workspace) -> Path | None:
    for spelling in spellings:
        try:
            path = workspace.resolve(spelling)
        except ToolError:  # outside the workspace, or in `.team`: not visible to file tools
            continue
        if os.path.exists(path):  # noqa: PTH110 - Path.exists raises for names that are too long
            return path
    return None


def _framed(kind: str, path: str, content: str) -> str:
    """In a frame that the content cannot close: the tag grows until the content does not contain it."""
    tag = kind
    while without_end(tag, content) != content:
        tag += "-x"
    # File names are not trustworthy: one could contain a quote, a tag or control characters.
    plain = "".join(character if character.isprintable() else f"&#{ord(character)};" for character in path)
    escaped = plain.replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
    return f'<{tag} path="{escaped}">\n{content}\n</{tag}>'
