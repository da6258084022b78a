"""`glob`: find files by pattern, the newest first, without ignored ones."""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Annotated, NamedTuple

from teamcli.agent.tool import Display, Reads, ToolOutput
from teamcli.cancel import CancelScope
from teamcli.errors import ToolError
from teamcli.tools.base.context import AgentContext, CallContext
from teamcli.tools.base.tool import Tool
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.file_walk import DirEntry, look_around, walk
from teamcli.workspace.globs import compile_glob, depth_of, has_wildcard, names_hidden, split_fixed_directory

MAX_RESULTS = 200
MAX_FOUND = 100_000
"""It stops searching after this many."""


class GlobInput(NamedTuple):
    """Find files by path pattern such as src/**/*.{ts,tsx}, newest first; `*` lists a directory. Leaves out ignored
    files, and hidden ones unless the pattern names them."""

    pattern: str
    path: Annotated[str, "Directory to search"] = "."


class _Query(NamedTuple):
    directory: Path
    pattern: str
    """Relative to `directory`."""


def _query(args: GlobInput, workspace: Workspace) -> _Query:
    """Raises: ToolError"""
    if not args.pattern.strip():
        raise ToolError("pattern: is empty; `**/*` finds all files")
    fixed, rest = split_fixed_directory(args.pattern)
    start = fixed if fixed.startswith(("/", "~/")) else f"{args.path}/{fixed}"
    if not has_wildcard(rest):
        named = workspace.resolve(start + rest)
        if named.is_dir():
            return _Query(named, "*")  # the pattern is a directory: list it
    return _Query(workspace.resolve(start), rest)


def run(args: GlobInput, context: AgentContext, call: CallContext) -> ToolOutput:
    workspace = context.workspace
    query = _query(args, workspace)
    if not query.directory.is_dir():
        raise ToolError(f"path: there is no directory {workspace.relative(query.directory)}")
    # The pipeline has checked only the directory. Rules may still hide single files in it.
    matches = (entry for entry in _matches(query, workspace, call.cancel) if context.may_see(Path(entry.path)))
    found = sorted(islice(matches, MAX_FOUND), key=lambda entry: (-_modified(entry), entry.path))
    paths = [Path(entry.path) for entry in found[:MAX_RESULTS]]
    lines = [workspace.relative(path) + ("/" if path.is_dir() else "") for path in paths]
    if len(found) > MAX_RESULTS:
        at_least = "at least " * (len(found) == MAX_FOUND)
        lines.append(f"... ({at_least}{len(found) - MAX_RESULTS} more) narrow the pattern or the path")
    return ToolOutput("\n".join(lines) or _nothing(query, workspace))


def _matches(query: _Query, workspace: Workspace, cancel: CancelScope) -> Iterator[DirEntry]:
    matches, depth = compile_glob(query.pattern), depth_of(query.pattern)
    surroundings = look_around(query.directory, workspace.top_of(query.directory))
    prefix = len(str(query.directory).rstrip("/")) + 1
    for entry in walk(query.directory, surroundings.ignores, names_hidden(query.pattern), depth):
        cancel.check()
        # With `**` every directory would match, which adds nothing to its files.
        if depth is None and entry.is_directory():
            continue
        if matches(entry.path[prefix:]) and (not entry.is_link() or _stays_inside(entry, workspace)):
            yield entry


def _stays_inside(link: DirEntry, workspace: Workspace) -> bool:
    try:
        target = Path(link.path).resolve(strict=True)
    except (OSError, RuntimeError):  # it leads nowhere, or in a circle
        return False
    return workspace.contains(target) and not workspace.is_team_state(target)


def _modified(entry: DirEntry) -> float:
    try:
        return os.lstat(entry.path).st_mtime
    except OSError:  # gone
        return 0.0


def _nothing(query: _Query, workspace: Workspace) -> str:
    where = workspace.relative(query.directory)
    deeper = "" if "**" in query.pattern else f"; **/{query.pattern} also looks in subdirectories"
    return f"(no matches for {query.pattern} in {where}; hidden and ignored files are left out{deeper})"


def access(args: GlobInput, context: AgentContext) -> Reads:
    return Reads(_query(args, context.workspace).directory)


def show(args: GlobInput, context: AgentContext) -> Display:
    query = _query(args, context.workspace)
    return Display(f"glob {query.pattern} in {context.workspace.relative(query.directory)}")


GLOB = Tool("glob", GlobInput, run, show, access)
