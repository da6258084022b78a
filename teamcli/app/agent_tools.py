"""What the tools of agents work with, and what they may do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from teamcli.agent.conversation import History
from teamcli.agent.events import Emit, Notice, Severity
from teamcli.agent.permission_question import Permissions
from teamcli.agent.tool import Access, AnyTool, Executes
from teamcli.agent.tool_calls import Toolset
from teamcli.app.runtime import Runtime
from teamcli.app.workplaces import Workplace
from teamcli.config.instructions import InstructionsBelow
from teamcli.config.memory import is_memory
from teamcli.errors import StateError
from teamcli.exec.commands import Commands, Report
from teamcli.permissions.policy import Decision, Mode
from teamcli.team.message import LEAD
from teamcli.tools.base.context import AgentContext, SubAgentPort, TeamPort
from teamcli.workspace.known_files import KnownFiles, PathLocks

if TYPE_CHECKING:
    from teamcli.workspace.file_access import Content


class AgentTools:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._root = runtime.choices.workspace.root
        self._locks = PathLocks()
        self._commands: WeakSet[Commands] = WeakSet()

    def context(
        self,
        team: TeamPort,
        name: str,
        history: History,
        subagents: Callable[[], SubAgentPort],
        on_end: Callable[[Report], None] | None,
        place: Workplace,
    ) -> AgentContext:
        """`on_end` is called when a background command of the agent has ended."""
        commands = Commands(place.host, on_end, name, self._runtime.jobs, self._runtime.prelude)
        self._commands.add(commands)
        known_files = KnownFiles(self._locks, history.seen_files)
        changed = partial(self._file_changed, name)
        may_see, tasks = partial(self._may_see, place.workspace.root), self._runtime.board.tools
        instructions_for = self._instructions_below(place.workspace.root, may_see)
        return AgentContext(
            place.workspace, commands, known_files, name, team, may_see, changed, subagents, tasks, instructions_for
        )

    def _instructions_below(self, root: Path, may_see: Callable[[Path], bool]) -> Callable[[Path], str]:
        project = self._runtime.project
        if not project.sources.project:
            return lambda file: ""
        return InstructionsBelow(root, project.claude.excludes, may_see).new_for

    def toolset(
        self,
        name: str,
        tools: Mapping[str, AnyTool],
        gate: Callable[[str, str, Access], str],
        show_waiting: Callable[[str, str], None],
        emit: Emit,
        place: Workplace,
        works_for: str = "",
        mode: Mode = Mode.DEFAULT,
    ) -> Toolset:
        """`gate` refuses calls whatever the rules say; `show_waiting` is called when an agent waits for the user.
        `works_for` is the agent whose sub-agent this is. `mode` is that of its role."""
        runtime = self._runtime

        def wait_for_answer(agent: str, what: str) -> None:
            runtime.budgets.wait_for_user(agent, bool(what))
            show_waiting(agent, what)

        policy = runtime.live_policy
        permissions = Permissions(
            partial(self._decide, place, (works_for or name) == LEAD, mode),
            runtime.ask,
            policy.always_allow,
            gate,
            wait_for_answer,
            policy.on_change,
            policy.loosen,
        )
        return Toolset(name, tools, permissions, emit, runtime.hooks)

    def close(self) -> None:
        """Wait for the threads that follow commands, once their host is closed."""
        for commands in tuple(self._commands):
            commands.close()

    def _decide(
        self, place: Workplace, is_leads: bool, mode: Mode, tool: str, access: Access, given: Mapping[str, Any]
    ) -> Decision:
        from teamcli.permissions.decide import decide  # late: the first request does without it

        live = self._runtime.live_policy
        policy = (live.with_grants if is_leads else live.policy)._replace(hook_files=place.hook_files)
        if policy.mode is Mode.DEFAULT:  # whatever the user has chosen for the session wins over a role
            policy = policy._replace(mode=mode)
        # Whether there is a sandbox is asked only if it matters: it may have to start first.
        if self._runtime.choices.settings.sandbox_allows_bash and isinstance(access, Executes):
            policy = policy._replace(commands_are_confined=not place.host.why_unconfined())
        return decide(policy, tool, access, place.workspace.root, place.workspace.can_change, given)

    def _may_see(self, root: Path, path: Path) -> bool:
        from teamcli.permissions.decide import may_see  # late, for the same reason

        return may_see(self._runtime.live_policy.policy, path, root)

    def _file_changed(self, agent: str, path: Path, before: Content | None, after: bytes) -> None:
        self._runtime.changes.note(agent, path, before)
        if is_memory(path, self._root) and (before is None or before.data is not None):
            try:
                self._runtime.project.agreement.file_written(path, before.data if before else None, after)
            except StateError as e:  # the file is written; the next start asks about it
                text = f"{path.name} is not remembered as agreed to: {e}."
                self._runtime.events(Notice(agent, text, Severity.WARNING))
