"""`/diff`: what agents changed in files, as a unified diff, and what else git sees as changed."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from teamcli.cancel import CancelScope
from teamcli.commands.base import ArgumentKind, CommandOutput, Diff, Group, Job, command
from teamcli.errors import ToolError, UsageError
from teamcli.exec.command_host import CommandHost
from teamcli.session.session import Session
from teamcli.team.message import LEAD, find_name
from teamcli.workspace.bounds import TEAM_DIR, Workspace
from teamcli.workspace.changes import MAX_FILE_BYTES, FileChange
from teamcli.workspace.diff import unified_diff
from teamcli.workspace.file_access import read_content_if_there
from teamcli.workspace.text_files import decode_text

GIT_SECONDS = 5.0
MAX_NAMED = 50
# Git runs in the sandbox, as the commands of agents do. These options make it safe without a sandbox, too. A repository
# can name programs: a file watcher, filters, hooks, the other side of a fetch that completes a partial clone, and all
# of that again in its submodules. Looking at the repository must start none of them.
GIT = ("--no-optional-locks", *("-c", "core.fsmonitor=false"), *("-c", "core.hooksPath=/dev/null"))
GIT_VARIABLES = {"GIT_ALLOW_PROTOCOL": "none", "GIT_NO_LAZY_FETCH": "1", "GIT_TERMINAL_PROMPT": "0"}
GIT_FILTERS = (*GIT, "config", "--includes", "--null", "--name-only", "--get-regexp", r"^filter\..*\.(clean|process)$")
GIT_STATUS = (
    *GIT,
    *("-c", "core.quotePath=false", "-c", "status.relativePaths=true"),
    *("status", "--short", "--untracked-files=all", "--no-renames", "--ignore-submodules=all", "--", "."),
)


@command("diff", usage="[NAME]", arguments=(ArgumentKind.AGENT,), group=Group.REPORTS)
def diff(session: Session, arguments: str) -> Job:
    """Show what agents changed in files, and who changed it.

    With NAME, only files that NAME has changed. Compares each file with its content before an agent of this run first
    changed it. Changes by commands are not tracked: in a git repository, files that git sees as changed and no agent's
    file tool touched are listed at the end.
    """
    known = dict.fromkeys((LEAD, *session.team.roster.names(), *(agent.name for agent in session.agents)))
    name = find_name(arguments.removeprefix("@"), known) if arguments else ""
    if name is None:
        raise UsageError(f"there is no agent '{arguments.removeprefix('@')}'; there are: {', '.join(known)}")

    def compare(cancel: CancelScope) -> CommandOutput:
        every_change = session.record.changes.all()
        text = describe_changes((each for each in every_change if not name or name in each.agents), session.workspace)
        others = "" if name else changed_otherwise(every_change, session.workspace.root, session.hosts.agents, cancel)
        none = f"{name} has changed no file" if name else "No agent has changed a file"
        title = "Changed since teamcli was started here:" if text else f"{none} since teamcli was started."
        return Diff("\n\n".join(filter(None, (text, others))), title) if text or others else title

    return Job(compare, "")


def describe_changes(changes: Iterable[FileChange], workspace: Workspace) -> str:
    """For each file that changed: a heading that names the agents, and the diff."""
    return "\n\n".join(filter(None, (_describe(change, workspace) for change in changes)))


def changed_otherwise(changes: Iterable[FileChange], root: Path, host: CommandHost, cancel: CancelScope) -> str:
    """The files below `root` that git sees as changed and no agent's file tool has touched; empty without git."""
    touched = {os.path.relpath(change.path, root) for change in changes}
    try:
        changed = list(_git_changed(root, host, cancel))
    except ToolError as e:
        return f"Other changes are unknown, git was not asked: {e}"
    paths = [path for path in changed if path not in touched and not path.startswith(f"{TEAM_DIR}/")]
    if not paths:
        return ""
    more = [f"… and {len(paths) - MAX_NAMED} more"] if len(paths) > MAX_NAMED else []
    return "\n".join(["Changed otherwise, by a command or by hand, now or earlier:", *paths[:MAX_NAMED], *more])


def _describe(change: FileChange, workspace: Workspace) -> str:
    shown = workspace.relative(change.path)
    heading = f"{shown}: {', '.join(change.agents)} "
    try:
        now = read_content_if_there(change.path, workspace, MAX_FILE_BYTES)
        if (now.digest if now else None) == change.digest:
            return ""  # changed back
        if change.digest is not None and change.before is None:
            raise ToolError("changed; the original was too large to keep")
        before = None if change.before is None else decode_text(change.before, shown).content
        if now is not None and now.data is None:
            raise ToolError("changed; it is too large to compare")
        after = "" if now is None or now.data is None else decode_text(now.data, shown).content
        compared = unified_diff(before, after, shown)
    except ToolError as e:
        return f"{heading}({e})"
    lines = compared.splitlines()[2:]  # without the two that name the file
    added, removed = (sum(line.startswith(sign) for line in lines) for sign in "+-")
    what = "new" if change.digest is None else "deleted since" if now is None else f"+{added} -{removed}"
    return "\n".join(filter(None, [f"{heading}({what})", compared]))


def _git_changed(root: Path, host: CommandHost, cancel: CancelScope) -> Iterator[str]:
    """Raises: ToolError."""
    git = host.programs.find("git")
    if git is None or not any((directory / ".git").exists() for directory in (root, *root.parents)):
        return
    names = _run_git((git, *GIT_FILTERS), {}, root, host, cancel)
    if "\ufffd" in names:
        raise ToolError("a filter in its config has a name that is not UTF-8")
    # A filter is a program of the repository's choice. An empty command turns it off, unless it is required.
    drivers = dict.fromkeys(name.rpartition(".")[0] for name in names.split("\0") if name)
    off = {f"{driver}.{key}": "" for driver in drivers for key in ("clean", "process")}
    off |= {f"{driver}.required": "false" for driver in drivers}
    status = _run_git((git, *GIT_STATUS), off, root, host, cancel)
    # Each line is two letters, a space and a path, which git puts in quotes if it has special characters.
    yield from (line[3:].strip('"') for line in status.splitlines())


def _run_git(
    command: Sequence[str], config: Mapping[str, str], root: Path, host: CommandHost, cancel: CancelScope
) -> str:
    """What git prints; empty outside a repository, or if the repository is too large to scan in time.

    Raises: ToolError
    """
    variables = {**GIT_VARIABLES, "GIT_CONFIG_COUNT": str(len(config))}
    for number, (key, value) in enumerate(config.items()):  # not with -c: a name may contain any character
        variables |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    assigned = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    output: list[str] = []
    with Path(os.devnull).open("rb") as nothing:
        running = host.start(f"{assigned} {shlex.join(command)}", root, nothing)
        with cancel.on_cancel(running.stop):
            ended = running.follow(output.append, lambda text: None, GIT_SECONDS)
    return "" if ended.exit_code else "".join(output)
