"""What one teammate uses: its checkout, its branch, and what has to be closed with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from teamcli.agent.events import Notice, Severity
from teamcli.agent.loop import Agent
from teamcli.app.member_branches import MemberBranches
from teamcli.cancel import CancelScope
from teamcli.errors import StateError, ToolError
from teamcli.team.message import LEAD
from teamcli.team.ports import AgentSetup
from teamcli.team.roster import Member
from teamcli.team.roster_file import NOT_ENFORCED
from teamcli.tools.base.context import AgentContext

if TYPE_CHECKING:
    from teamcli.worktrees.checkouts import Checkouts


class TeammateResources:
    """What one teammate uses."""

    def __init__(
        self,
        agent: Agent,
        context: AgentContext,
        max_wakes: int | None,
        set_up: Callable[[Member], AgentSetup],
        checkouts: Checkouts | None,
        travels: MemberBranches | None,
        end: Callable[[], str],
    ) -> None:
        """`checkouts` only if it works in one of them. `travels` only if other hosts may run it, too. `end` is called
        when it is gone, and returns what is left of its checkout and its branch."""
        self.max_wakes = max_wakes
        self.set_up = set_up
        self._agent = agent
        self._context = context
        self._checkouts = checkouts
        self._travels = travels
        self._end = end

    def begin_work(self, cancel: CancelScope) -> bool:
        if self._checkouts is None:
            return True
        said = self._checkouts.repair(self._agent.name, cancel)
        if self._travels and not said:
            said = self._travels.catch_up(self._agent.name, cancel)
        why = self._checkouts.hosts.of(self._agent.name).why_unconfined()
        if said:
            said = f"{said} This is {NOT_ENFORCED}: {why}." if why else said
            self._agent.emit(Notice(LEAD, said, Severity.INFO))  # the text names the member
        return not why

    def end_work(self, cancel: CancelScope | None = None) -> str:
        if self._checkouts is None:
            return ""
        try:
            pushed = self._travels.share(self._agent.name, cancel) if self._travels else ""
            self._checkouts.bring(self._agent.name)
            return f"[{self._checkouts.status(self._agent.name)}{f', {pushed}' if pushed else ''}]"
        except (ToolError, StateError) as e:
            return f"[The commits of {self._agent.name} are not in the main repository: {e}]"
        finally:
            self._checkouts.hosts.idle(self._agent.name)

    def release(self) -> str:
        self._context.commands.close()
        self._agent.llm.close()
        self._agent.conversation.close()
        return self._end()
