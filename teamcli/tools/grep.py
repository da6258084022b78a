"""`grep`: find lines by regular expression, with ripgrep if it is installed."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

from teamcli.agent.tool import Display, Reads, ToolOutput
from teamcli.cancel import CancelScope
from teamcli.errors import ToolError
from teamcli.text.redaction import redact
from teamcli.tools.base.context import AgentContext, CallContext
from teamcli.tools.base.tool import Tool
from teamcli.tools.base.tool_input import Between
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.file_access import open_file
from teamcli.workspace.globs import names_hidden
from teamcli.workspace.search.check_hits import Confirmer
from teamcli.workspace.search.engine import (
    TIME_LIMIT_SECONDS,
    EngineFailed,
    InvalidPattern,
    SearchHit,
    SearchProcess,
    python_command,
    ripgrep_command,
)
from teamcli.workspace.search.fallback import LARGEST_FILE_BYTES, Search, path_filter
from teamcli.workspace.text_files import HEAD_BYTES, refuse_binary

MAX_CHARACTERS = 30_000
MAX_LINE_LENGTH = 300
_BEFORE_MATCH = 100
_LINE_BREAK = re.compile(r"\n|(?<!\\)(?:\\\\)*\\n")


class GrepInput(NamedTuple):
    """Search file contents line by line for a regular expression. Leaves out binary, ignored and hidden files."""

    pattern: str
    path: Annotated[str, "File or directory"] = "."
    glob: Annotated[str, "Only files like *.py or src/**/*.ts"] = ""
    ignore_case: bool = False
    context: Annotated[int, Between(0, 50), "Lines around each match"] = 0
    output: Literal["content", "files", "count"] = "content"
    limit: Annotated[int, Between(1), "Most matches"] = 200


def run(args: GrepInput, context: AgentContext, call: CallContext) -> ToolOutput:
    workspace = context.workspace
    search = _search(args, workspace)
    try:
        results = _run_engine(args, search, context, call.cancel)
    except InvalidPattern as e:
        raise ToolError(f"pattern: {args.pattern!r} is not a valid regular expression: {e}") from e
    except EngineFailed as e:
        raise ToolError(f"The search for {args.pattern!r} failed: {e}") from e
    return ToolOutput(results.render() or _nothing(args, search, workspace))


def _search(args: GrepInput, workspace: Workspace) -> Search:
    """Raises: ToolError"""
    start = workspace.resolve(args.path)
    # Refuse here what the engines would skip without a word, such as a binary file that was named.
    _refuse_unsearchable(args.pattern, start, workspace)
    return Search(
        pattern=args.pattern,
        start=str(start),
        top=str(workspace.top_of(start)),
        glob=args.glob,
        hidden=names_hidden(args.glob),
        ignore_case=args.ignore_case,
        context=args.context,
        counts=args.output != "content",
        most_in_file=1 if args.output == "files" else None,
    )


def _refuse_unsearchable(pattern: str, start: Path, workspace: Workspace) -> None:
    if not pattern:
        raise ToolError("pattern: is empty; use glob to list files")
    if not pattern.isascii() and pattern.encode("utf-8", "ignore").decode() != pattern:
        raise ToolError("pattern: is not valid Unicode")
    if _LINE_BREAK.search(pattern) or "\0" in pattern:
        raise ToolError("pattern: has a line break or NUL in it, but the search goes line by line")
    if not start.is_dir():
        with open_file(start, workspace) as file:
            head = file.read(HEAD_BYTES)
            size = os.fstat(file.fileno()).st_size
            refuse_binary(head, size, workspace.relative(start))
            if size > LARGEST_FILE_BYTES:
                raise ToolError(f"path: {workspace.relative(start)} is too large to search; use a command for it")


@dataclass
class _Results:
    """What is shown of what was hit."""

    args: GrepInput
    workspace: Workspace
    lines: list[str] = field(default_factory=list)
    mark: str = ""
    _matches: int = 0
    _characters: int = 0
    _last: tuple[str, int] = ("", 0)

    def add(self, hit: SearchHit) -> bool:
        """False if it does not fit."""
        is_match = self.args.output != "content" or hit.column is not None
        self._matches += is_match
        lines = self._shown(hit)
        self._characters += sum(len(line) + 1 for line in lines)
        if self._matches > self.args.limit:
            self.mark = f"... (more than {self.args.limit}) narrow the search, or raise limit"
        elif self._characters > MAX_CHARACTERS:
            self.mark = "... (more, cut here) narrow the search"
        else:
            self.lines += lines
        return not self.mark

    def render(self) -> str:
        return "\n".join([*self.lines, self.mark] if self.mark else self.lines)

    def _shown(self, hit: SearchHit) -> list[str]:
        path = self.workspace.relative(Path(hit.path))
        if self.args.output == "files":
            return [path]
        if self.args.output == "count":
            return [f"{path}:{hit.number}"]
        sign = "-" if hit.column is None else ":"
        line = f"{path}{sign}{hit.number}{sign}{_cut(hit)}"
        is_apart = self.args.context and self.lines and self._last != (hit.path, hit.number - 1)
        self._last = (hit.path, hit.number)
        return ["--", line] if is_apart else [line]


def _cut(hit: SearchHit) -> str:
    """The line. Of a very long one, the part around the match."""
    text = redact(hit.text.decode("utf-8", "replace"))  # before it is cut
    if len(text) <= MAX_LINE_LENGTH:
        return text
    match_at = len(redact(hit.text[: (hit.column or 1) - 1].decode("utf-8", "replace")))
    start = min(max(match_at - _BEFORE_MATCH, 0), len(text) - MAX_LINE_LENGTH)
    end = start + MAX_LINE_LENGTH
    return f"{'...' * (start > 0)}{text[start:end]}{'...' * (end < len(text))} (line cut)"


def _run_engine(args: GrepInput, search: Search, context: AgentContext, cancel: CancelScope) -> _Results:
    """Raises: EngineFailed, Cancelled"""
    is_named = path_filter(search)

    # Cached, because hits come line by line and both checks depend only on the path.
    @cache
    def is_meant(path: str) -> bool:
        return is_named(path) and context.may_see(Path(path))

    command = ripgrep_command(context.commands.program("rg"), search)
    if command is not None:
        try:
            with Confirmer(context.workspace) as confirmer:
                return _collect(command, is_meant, _Results(args, context.workspace), cancel, confirmer.holds)
        except EngineFailed:  # ripgrep does not support look-around, say; Python does
            pass
    return _collect(python_command(search), is_meant, _Results(args, context.workspace), cancel)


def _collect(
    command: list[str | bytes],
    is_meant: Callable[[str], bool],
    results: _Results,
    cancel: CancelScope,
    is_there: Callable[[SearchHit], bool] = lambda hit: True,
) -> _Results:
    with SearchProcess(command, cancel) as process:
        for hit in process.hits():
            if is_meant(hit.path) and is_there(hit) and not results.add(hit):
                return results
    if process.is_out_of_time:
        results.mark = f"... (stopped after {TIME_LIMIT_SECONDS:.0f} seconds) narrow the search or simplify the pattern"
    return results


def _nothing(args: GrepInput, search: Search, workspace: Workspace) -> str:
    where = workspace.relative(Path(search.start)) + (f", files {args.glob}" if args.glob else "")
    return f"(no matches for {args.pattern} in {where}; binary, hidden and ignored files are left out)"


def access(args: GrepInput, context: AgentContext) -> Reads:
    return Reads(context.workspace.resolve(args.path))


def show(args: GrepInput, context: AgentContext) -> Display:
    where = context.workspace.relative(context.workspace.resolve(args.path))
    return Display(f"grep {args.pattern} in {where}" + (f" ({args.glob})" if args.glob else ""))


GREP = Tool("grep", GrepInput, run, show, access)
