"""What has become of the files that agents changed, as a unified diff; and what git says was changed besides."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from teamcli.errors import ToolError
from teamcli.tools.changes import MAX_FILE_BYTES, Change
from teamcli.tools.command_host import command_environment
from teamcli.tools.diff import unified_diff
from teamcli.tools.file_access import Content, read_content_if_there
from teamcli.tools.text_files import decode_text
from teamcli.workspace import TEAM_DIR, Workspace

GIT_SECONDS = 5.0
MAX_NAMED = 50
# A repository can name programs: as its file watcher, as filters of files, in hooks that see the index change, and all
# of that again in its submodules. To look at it must start none of them.
GIT = ("git", "--no-optional-locks", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
GIT_FILTERS = (*GIT, "config", "--includes", "--null", "--name-only", "--get-regexp", r"^filter\..*\.(clean|process)$")
GIT_STATUS = (
    *GIT,
    *("-c", "status.relativePaths=true", "status", "--short", "--untracked-files=all", "--no-renames"),
    *("--ignore-submodules=all", "--", "."),
)


def describe_changes(changes: Iterable[Change], workspace: Workspace) -> str:
    """A heading that names the agents, and a diff, for each file that is not as it was."""
    return "\n\n".join(filter(None, (_describe(change, workspace) for change in changes)))


def changed_otherwise(changes: Iterable[Change], root: Path) -> str:
    """Names what git sees as changed below `root` and no agent's file tool has touched; empty without git."""
    touched = {os.path.relpath(change.path, root) for change in changes}
    paths = [path for path in _git_changed(root) if path not in touched and not path.startswith(f"{TEAM_DIR}/")]
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


def _git_changed(root: Path) -> Iterator[str]:
    names = filter(None, _git_says(root, GIT_FILTERS).split("\0"))
    drivers = dict.fromkeys(name.rpartition(".")[0] for name in names)
    off = {f"{driver}.{key}": "" for driver in drivers for key in ("clean", "process")}
    off |= {f"{driver}.required": "false" for driver in drivers}
    said = _git_says(root, GIT_STATUS, off)
    yield from (_printable(line[3:].strip('"')) for line in said.splitlines())


def _git_says(root: Path, command: Sequence[str], config: Mapping[str, str] = MappingProxyType({})) -> str:
    """Empty without git, or where a repository is too large to look through for this."""
    import subprocess  # late: every prompt loads this module, few look at changes

    environment = {**command_environment(os.environ), "GIT_CONFIG_COUNT": str(len(config))}
    for number, (key, value) in enumerate(config.items()):  # not by -c: a name may hold any sign
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, stdin=subprocess.DEVNULL, capture_output=True, timeout=GIT_SECONDS
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "surrogateescape") if done.returncode == 0 else ""


def _printable(path: str) -> str:
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
