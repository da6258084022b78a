"""Merging as the team sees it: who may be merged when, what its member reads, and what everyone else sees of it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol

from teamcli.agent.events import Emit, MergeEnded
from teamcli.agent.tool import Progress
from teamcli.cancel import CancelScope
from teamcli.errors import MergeBlocked, MergeRefused, TeamcliError, UnknownTeammate
from teamcli.team.message import USER, Message, MessageType, new_id
from teamcli.team.roster_file import Member, Status
from teamcli.worktrees.merge import Merged, Merger


class TravelPort(Protocol):
    """How the work of members on other hosts comes here, and goes back. Both raise MergeRefused and GitError."""

    def fetch(self, member: Member, cancel: CancelScope | None = None) -> None:
        """Bring what it has pushed into its checkout here."""

    def send(self, member: Member, blocked: MergeBlocked | None) -> str:
        """Push what was merged; or, for a merge that failed, what it needs. Returns what it should read then."""


class Merging:
    def __init__(
        self,
        merger: Merger,
        find: Callable[[str], Member],
        post: Callable[[Message], None],
        emit: Emit,
        travel: TravelPort | None = None,
    ) -> None:
        """`find` returns a member, up to date, or raises UnknownTeammate. `post` sends a message."""
        self._travel = travel
        self._merger = merger
        self._find = find
        self._post = post
        self._emit = emit

    def preview(self, name: str) -> str:
        try:
            member = self._member(name)
            if self._travel:
                self._travel.fetch(member)
            return self._merger.preview(member.name)
        except TeamcliError:  # the merge itself says what is wrong
            return ""

    def recover(self, cancel: CancelScope) -> str:
        """Complete or undo a merge that was cut off. Returns what to tell the user; usually nothing.

        Raises: TeamcliError
        """
        return self._merger.recover(cancel)

    def merge(self, asker: str, name: str, message: str, cancel: CancelScope, progress: Progress) -> str:
        """Raises: MergeRefused, UnknownTeammate, ToolError, StateError, Cancelled."""
        return self.run(asker, name, message, cancel, progress).text

    def run(self, asker: str, name: str, message: str, cancel: CancelScope, progress: Progress) -> Merged:
        """Raises: MergeRefused, UnknownTeammate, ToolError, StateError, Cancelled."""
        member = self._member(name)
        if not member.worktree and not self._merger.knows(member.name):
            raise MergeRefused(f"'{member.name}' works in the main directory, where its changes are")

        def why_busy() -> str:
            now = self._member(member.name)
            if now.status in (Status.WORKING, Status.SPAWNING):
                return f"'{now.name}' is currently working; merge when it is idle"
            # It may have worked in between, and then the gate has looked at something else.
            return "" if now.since == member.since else f"'{now.name}' has worked during the merge; merge again"

        by_user = asker == USER
        if self._travel:
            self._travel.fetch(member, cancel)
        try:
            merged = self._merger.merge(member.name, message, cancel, progress, why_busy)
        except MergeBlocked as e:
            self._emit(MergeEnded(member.name, e.target, e.outcome, str(e), files=e.files, by_user=by_user))
            if member.is_active:
                advice = self._travel.send(member, e) if self._travel else e.advice
                self._post(Message(MessageType.MESSAGE, asker, member.name, advice, time.time(), new_id()))
                raise MergeRefused(f"{e}\n'{member.name}' was asked to fix it, and reports when it is done.") from e
            raise
        if merged.commit:
            if self._travel:
                self._travel.send(member, None)
            facts = merged.commits, merged.files
            self._emit(MergeEnded(member.name, merged.target, "merged", merged.text, *facts, by_user))
        return merged

    def _member(self, name: str) -> Member:
        """Raises: UnknownTeammate"""
        try:
            return self._find(name)
        except UnknownTeammate:
            if self._merger.knows(name):  # the member was forgotten, and its work is still there
                return Member(name, "", Status.SHUTDOWN, worktree=True)
            raise
