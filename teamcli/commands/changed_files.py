"""What has become of the files that agents changed, as a unified diff; and what git says was changed besides."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from teamcli.cancel import CancelScope
from teamcli.errors import ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.workspace.bounds import TEAM_DIR, Workspace
from teamcli.workspace.changes import MAX_FILE_BYTES, Change
from teamcli.workspace.diff import unified_diff
from teamcli.workspace.file_access import Content, read_content_if_there
from teamcli.workspace.text_files import decode_text

GIT_SECONDS = 5.0
MAX_NAMED = 50
# Git runs where commands of agents run: in the sandbox. Without one this must hold: a repository can name programs, as
# its file watcher, as filters of files, as hooks, as the other side of a fetch that completes a partial clone, and all
# of that again in its submodules. To look at it must start none of them.
GIT = ("--no-optional-locks", *("-c", "core.fsmonitor=false"), *("-c", "core.hooksPath=/dev/null"))
GIT_VARIABLES = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
GIT_FILTERS = (*GIT, "config", "--includes", "--null", "--name-only", "--get-regexp", r"^filter\..*\.(clean|process)$")
GIT_STATUS = (
    *GIT,
    *("-c", "core.quotePath=false", "-c", "status.relativePaths=true"),
    *("status", "--short", "--untracked-files=all", "--no-renames", "--ignore-submodules=all", "--", "."),
)


def describe_changes(changes: Iterable[Change], workspace: Workspace) -> str:
    """A heading that names the agents, and a diff, for each file that is not as it was."""
    return "\n\n".join(filter(None, (_describe(change, workspace) for change in changes)))


def changed_otherwise(changes: Iterable[Change], root: Path, host: CommandHost, cancel: CancelScope) -> str:
    """Names what git sees as changed below `root` and no agent's file tool has touched; empty without git."""
    touched = {os.path.relpath(change.path, root) for change in changes}
    try:
        changed = list(_git_changed(root, host, cancel))
    except ToolError as e:
        return f"Git was not asked what else has changed: {e}"
    paths = [path for path in changed if path not in touched and not path.startswith(f"{TEAM_DIR}/")]
    if not paths:
        return ""
    more = [f"… and {len(paths) - MAX_NAMED} more"] if len(paths) > MAX_NAMED else []
    return "\n".join(["Changed otherwise, by a command or by hand, now or earlier:", *paths[:MAX_NAMED], *more])


def _describe(change: Change, workspace: Workspace) -> str:
    shown = workspace.relative(change.path)
    try:
        now = read_content_if_there(change.path, workspace, MAX_FILE_BYTES)
    except ToolError as e:
        return _heading(change, shown, str(e))
    if (now.digest if now else None) == change.digest:
        return ""  # as it was
    try:
        before, after = _before(change, shown), _after(now, shown)
    except ToolError as e:
        return _heading(change, shown, str(e))
    compared = unified_diff(before, after, shown)
    lines = compared.splitlines()[2:]
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    what = "new" if change.digest is None else "deleted since" if now is None else ""
    return "\n".join(filter(None, [_heading(change, shown, what or f"+{added} -{removed}"), compared]))


def _heading(change: Change, shown: str, what: str) -> str:
    return f"{shown}: {', '.join(change.agents)} ({what})"


def _before(change: Change, shown: str) -> str | None:
    """Raises: ToolError."""
    if change.digest is None:
        return None
    if change.before is None:
        raise ToolError("changed; what stood there before was too large to keep")
    return decode_text(change.before, shown).content


def _after(now: Content | None, shown: str) -> str:
    """Raises: ToolError."""
    if now is None:
        return ""
    if now.data is None:
        raise ToolError("changed; it is too large to compare")
    return decode_text(now.data, shown).content


def _git_changed(root: Path, host: CommandHost, cancel: CancelScope) -> Iterator[str]:
    """Raises: ToolError"""
    git = host.programs.find("git")
    if git is None or not any((directory / ".git").exists() for directory in (root, *root.parents)):
        return
    said = _git_says((git, *GIT_FILTERS), {}, root, host, cancel)
    if "\ufffd" in said:
        raise ToolError("a filter in its config has a name that is not UTF-8")
    drivers = dict.fromkeys(name.rpartition(".")[0] for name in said.split("\0") if name)
    off = {f"{driver}.{key}": "" for driver in drivers for key in ("clean", "process")}
    off |= {f"{driver}.required": "false" for driver in drivers}
    said = _git_says((git, *GIT_STATUS), off, root, host, cancel)
    yield from (line[3:].strip('"') for line in said.splitlines())


def _git_says(
    command: Sequence[str], config: Mapping[str, str], root: Path, host: CommandHost, cancel: CancelScope
) -> str:
    """Empty outside a repository, or if it is too large to look through for this.

    Raises: ToolError
    """
    variables = {**GIT_VARIABLES, "GIT_CONFIG_COUNT": str(len(config))}
    for number, (key, value) in enumerate(config.items()):  # not by -c: a name may contain any character
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    assigned = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    said: list[str] = []
    with Path(os.devnull).open("rb") as nothing:
        running = host.start(f"{assigned} {shlex.join(command)}", root, nothing)
        with cancel.on_cancel(running.stop):
            ended = running.follow(said.append, lambda text: None, GIT_SECONDS)
    return "" if ended.exit_code else "".join(said)
