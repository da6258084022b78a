"""`/diff`: what agents changed in files, as a unified diff, and what else git sees as changed."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from teamcli.cancel import CancelScope
from teamcli.commands.base import ArgumentKind, CommandOutput, Diff, Group, Job, command
from teamcli.errors import GitError, ToolError, UsageError
from teamcli.exec.command_host import CommandHost
from teamcli.session.session import Session
from teamcli.team.message import LEAD, find_name
from teamcli.text.counting import counted
from teamcli.workspace.bounds import TEAM_DIR, Workspace
from teamcli.workspace.changes import MAX_FILE_BYTES, FileChange
from teamcli.workspace.diff import unified_diff
from teamcli.workspace.file_access import read_content_if_there
from teamcli.workspace.text_files import decode_text
from teamcli.worktrees.checkouts import Checkouts
from teamcli.worktrees.git import Git

GIT_SECONDS = 5.0
MAX_NAMED = 50
MAX_DIFF = 500_000
GIT_STATUS = (
    *("-c", "status.relativePaths=true", "status", "--short", "--untracked-files=all", "--no-renames"),
    *("--ignore-submodules=all", "--", "."),
)


@command("diff", usage="[NAME]", arguments=(ArgumentKind.AGENT,), group=Group.REPORTS)
def diff(session: Session, arguments: str) -> Job:
    """Show what agents changed in files, and who changed it.

    With NAME, only files that NAME has changed; for a teammate with its own checkout, its whole branch, with what it
    has not committed. Compares each file with its content before an agent of this run first changed it. Changes by
    commands are not tracked: in a git repository, files that git sees as changed and no agent's file tool touched are
    listed at the end.
    """
    known = dict.fromkeys((LEAD, *session.team.roster.names(), *(agent.name for agent in session.agents)))
    name = find_name(arguments.removeprefix("@"), known) if arguments else ""
    if name is None:
        raise UsageError(f"there is no agent '{arguments.removeprefix('@')}'; there are: {', '.join(known)}")

    def compare(cancel: CancelScope) -> CommandOutput:
        if name and (session.state.worktrees / f"{name}.json").exists():
            return branch_diff(session.team.checkouts.open(), name)
        checkouts = session.state.worktrees.resolve()
        every_change = [each for each in session.record.changes.all() if not each.path.is_relative_to(checkouts)]
        text = describe_changes((each for each in every_change if not name or name in each.agents), session.workspace)
        host = session.command_hosts.agents
        others = "" if name else changed_otherwise(every_change, session.workspace.root, host, cancel)
        none = f"{name} has changed no file" if name else "No agent has changed a file"
        title = "Changed since teamcli was started here:" if text else f"{none} since teamcli was started."
        return Diff("\n\n".join(filter(None, (text, others))), title) if text or others else title

    return Job(compare, "")


def branch_diff(checkouts: Checkouts, name: str) -> CommandOutput:
    """All that an isolated member has changed since its base.

    Raises: ToolError
    """
    checkout = checkouts.directory / name
    status, text, new = checkouts.status(name), *checkouts.diff(name)
    parts = [text[:MAX_DIFF]]
    workspace = Workspace(checkout)
    for path in new[:MAX_NAMED]:
        parts.append(_describe(FileChange(checkout / path, None, None, (name,)), workspace))
    parts += [f"… and {counted(len(new) - MAX_NAMED, 'more new file')}"] if len(new) > MAX_NAMED else []
    parts += [f"… {len(text) - MAX_DIFF:,} more characters: git diff {status.base}..{status.branch}"] * (
        len(text) > MAX_DIFF
    )
    shown = "\n".join(filter(None, (part.rstrip("\n") for part in parts)))
    return Diff(shown, f"{status}:") if shown else f"{status}."


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
    """Nothing outside a repository, or if it is too large to scan in time.

    Raises: ToolError
    """
    git = Git(host, root, may_climb=True)
    has_git = host.programs.find("git") is not None
    if not has_git or not any((directory / ".git").exists() for directory in (root, *root.parents)):
        return
    try:
        off = git.filters_off(cancel)
        status = git.run(*GIT_STATUS, env=off, cancel=cancel, seconds=GIT_SECONDS)
    except GitError as e:
        if e.has_run:
            return
        raise
    # Each line is two letters, a space and a path, which git puts in quotes if it has special characters.
    yield from (line[3:].strip('"') for line in status.decode("utf-8", "replace").splitlines())
