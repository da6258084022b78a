"""`/merge`: bring the work of a teammate with a worktree into the main checkout."""

from __future__ import annotations

from teamcli.cancel import CancelScope
from teamcli.commands.base import ArgumentKind, Group, Job, command
from teamcli.errors import UsageError
from teamcli.session.session import Session
from teamcli.team.message import USER


@command("merge", usage="NAME [MESSAGE]", arguments=(ArgumentKind.TEAMMATE, ArgumentKind.TEXT), group=Group.TEAM)
def merge(session: Session, arguments: str) -> Job:
    """Merge the branch of a teammate that has a worktree.

    Commits what is uncommitted there (with MESSAGE), merges your branch into it, runs the gate (setting
    `worktree.gate`), and moves your branch, with the files here, to the result. If there is a conflict or the gate
    fails, nothing changes here, and the teammate is asked to fix it. The same from another shell: teamcli merge NAME
    """
    name, _, message = arguments.strip().partition(" ")
    if not name:
        raise UsageError("say whose work to merge: /merge NAME")
    name = name.removeprefix("@")

    def run(cancel: CancelScope) -> str:
        return session.team.merging.merge(USER, name, message.strip(), cancel, lambda text: None)

    return Job(run, f"Merging team/{name}; Ctrl-C stops it.")
