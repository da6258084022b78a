"""A session: the lead and its team, what they may do and what they have used. UIs drive it and listen to its events."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from teamcli.agent.budgets import Budgets
from teamcli.agent.conversation import text_block
from teamcli.agent.events import LimitHit, Notice, PermissionDenied, Severity, TurnEnded
from teamcli.agent.hooks import check_prompt
from teamcli.agent.limits import Budget
from teamcli.agent.loop import Agent
from teamcli.cancel import CancelScope
from teamcli.config.custom_commands import CustomCommands
from teamcli.config.instructions import add_instruction
from teamcli.config.roles import Role
from teamcli.config.settings import HookGroup
from teamcli.config.skills import Skill
from teamcli.errors import Cancelled, PromptBlocked, TeamcliError, UsageError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.job_list import JobList
from teamcli.llm.pricing import meant_model
from teamcli.llm.types import Block, Usage
from teamcli.session.event_bus import EventBus
from teamcli.session.lead_conversation import LeadConversation
from teamcli.session.live_policy import LivePolicy
from teamcli.session.ports import SubAgentSource, TeamHostPort
from teamcli.session.user_shell import UserShell
from teamcli.session.watching import Watching
from teamcli.storage.team_dir import TeamDir
from teamcli.team.lead import Lead
from teamcli.team.manager import TeammateManager
from teamcli.team.message import LEAD, USER
from teamcli.team.team_tasks import BoardSource
from teamcli.text.counting import counted
from teamcli.text.escaping import one_line
from teamcli.text.tags import tagged
from teamcli.tools.catalog import ALL_TOOLS
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.changes import Changes

if TYPE_CHECKING:
    from teamcli.session.mcp import McpAccess
    from teamcli.subagents.manager import SubAgentManager

EMBEDDED = "embedded"
OWN_MODEL = "own"
"""The name of a model that the host program provides, unless it gives another."""
LEAVING_SECONDS = 1.5
CONTINUE = "<note>Continue with what you were doing.</note>"


class Preferences(NamedTuple):
    """What the user likes at the terminal."""

    vi_mode: bool = False
    notify: Literal["off", "bell", "desktop"] = "bell"
    shows_subagents: bool = False
    """Show what sub-agents write as they write it."""
    verbose: bool = False
    """Show more from the start."""
    shares_shell: bool = True
    """The lead sees the user's own commands and their output."""
    wrap: Literal["terminal", "words"] = "terminal"


class Catalog(NamedTuple):
    """What the user can choose from."""

    custom_commands: CustomCommands
    skills: tuple[Skill, ...]
    models: tuple[str, ...]
    """Those whose price is known."""
    roles: tuple[Role, ...] = ()
    hooks: Mapping[str, Sequence[HookGroup]] = MappingProxyType({})
    """Those of settings files and plugins, by event."""
    plugins: Mapping[str, Path] = MappingProxyType({})
    """Where the plugins in use are, by name."""


class CommandHosts(NamedTuple):
    """What runs commands."""

    agents: CommandHost
    shell: UserShell
    """The user's own commands, which no sandbox confines."""
    jobs: JobList


@dataclass(eq=False)
class RunRecord:
    """What this run has to report."""

    changes: Changes
    """The files that agents have changed."""
    notes: list[str] = field(default_factory=list)
    """What the user should know about how this session was set up."""
    denials: list[PermissionDenied] = field(default_factory=list)
    limits: list[LimitHit] = field(default_factory=list)


@dataclass(eq=False)
class Session:
    """Everything about a running team. Built by `app`, and closed by what runs it."""

    workspace: Workspace
    state: TeamDir
    lead: Lead
    team: TeammateManager
    board: BoardSource
    conversation: LeadConversation
    """The lead's."""
    subagent_source: SubAgentSource
    live_policy: LivePolicy
    budgets: Budgets
    events: EventBus
    watching: Watching
    command_hosts: CommandHosts
    catalog: Catalog
    record: RunRecord
    preferences: Preferences
    cancel: CancelScope
    resources: ExitStack
    """Closes what was opened for this session, in the reverse order."""
    mcp: McpAccess | None = None
    """None if no MCP server is configured."""
    team_host: TeamHostPort | None = None
    """This process as a host of a team on several machines; None for a team in files."""

    def __post_init__(self) -> None:
        self.events.subscribe(self._line_blocked, TurnEnded)
        self.events.subscribe(self._end_use, TurnEnded)
        self._own_model: str | None = None

    @property
    def id(self) -> str:
        return self.conversation.id

    @property
    def model(self) -> str:
        return self.lead.agent.preamble.model

    @property
    def has_team_tools(self) -> bool:
        return not self.state.is_private

    def start(self, resume_all: bool = False) -> None:
        """Start the threads. `resume_all`: those that were interrupted resume as well."""
        self.board.look()
        self.subagent_source.report_lost(self.team)
        self._finish_merge()
        self.lead.start()
        self.team.start(resume_all)
        if self.team_host is not None:
            self.team_host.start()

    def submit(self, text: str, piped: str = "") -> Future[TurnEnded]:
        """A line from the user, with what was piped in: the lead's next turn, or part of the current one."""
        facts: list[Block] = []
        # A lead that starts over must know its tasks and the team that is already there.
        if not self.lead.agent.conversation.messages and self.has_team_tools:
            known = (self.team.tasks.reminder(LEAD), self.team.describe() if self.team.roster.members() else "")
            facts = [text_block(tagged("team", "\n".join(filter(None, known))))] if any(known) else []
        return self.lead.submit(self.conversation.line(text, piped), facts, text, piped)

    def say(self, name: str, text: str) -> str:
        """A message from the user to a teammate, unless a hook blocks it; returns what to show the user.

        Raises: PromptBlocked, TeamError, StateError, Cancelled
        """
        name = self.team.mail.recipient(USER, name)
        try:
            added = check_prompt(self.lead.agent.hooks, name, text, self.cancel)
        except PromptBlocked as e:
            raise PromptBlocked(f"a hook has blocked this line: {e}") from e
        return self.team.mail.say(name, f"{text}\n{added}" if added else text)

    def add_instruction(self, line: str) -> str:
        """A line from the user for the project's instructions (`#line`); the lead reads it with its next turn.

        Raises: ConfigError
        """
        name = add_instruction(self.workspace.root, line)
        self.conversation.add_note(f"The user has added to the instructions in {name}: {line}")
        return f"Added to {name}: {line}"

    def take_back(self) -> str | None:
        """Take back the newest line that the lead has not read yet; None if there is none."""
        text = self.lead.lines.take_back()
        if text is not None:
            self.conversation.line_not_read()
        return text

    def withdraw(self, turn: Future[TurnEnded]) -> bool:
        """Take back the line that `turn` belongs to; false if the lead has read it."""
        is_back = self.lead.lines.withdraw(turn)
        if is_back:
            self.conversation.line_not_read()
        return is_back

    def interrupt(self) -> bool:
        """End the lead's turn, from any thread; false if it was idle. Teammates continue: `/stop NAME` ends theirs."""
        return self.lead.interrupt("interrupted by the user")

    def use_for_turn(self, grants: Sequence[str], model: str) -> None:
        """Allow calls, and use another model, until the lead's turn has ended. For a command that the user called."""
        if unknown := self.live_policy.grant(grants):
            self.events(Notice(LEAD, f"allowed-tools: not used here: {one_line(', '.join(unknown))}."))
        if model and self._own_model is None:
            own = self.model
            try:
                self.use_model(model)
                self._own_model = own
            except UsageError as e:
                self.events(Notice(LEAD, f"The command asks for the model {one_line(model)}: {e}."))

    def _end_use(self, ended: TurnEnded) -> None:
        if ended.agent == LEAD:
            self.live_policy.grant(())
            if self._own_model is not None:
                self.lead.agent.use(replace(self.lead.agent.preamble, model=self._own_model))
                self._own_model = None

    def use_model(self, model: str) -> None:
        """Raises: UsageError."""
        if self.model == EMBEDDED:
            raise UsageError("the embedded model is on, and there is no other without a key (see teamcli doctor)")
        model = meant_model(model, self.model)
        agent = self.lead.agent
        is_bounded = any(budget.max_usd is not None for budget in agent.meter.budgets)
        if is_bounded and agent.meter.price(Usage(), model) is None:
            raise UsageError(f"no price is known for {model}, and there is a budget; give one under `prices`")
        agent.use(replace(agent.preamble, model=model))

    def warm_up(self) -> None:
        """Load what the first turn needs, in a separate thread while the user still types."""
        self.lead.agent.llm.warm_up()
        self.command_hosts.agents.prestart()
        for tool in ALL_TOOLS:
            tool.load()

    def is_resource(self, word: str) -> bool:
        """Whether a mention (`@word`) names a resource of an MCP server."""
        return self.mcp is not None and self.mcp.owns(word)

    @property
    def budget(self) -> Budget:
        """Of all agents together, in this run."""
        return self.budgets.session

    @property
    def agents(self) -> list[Agent]:
        """All that have worked in this run, the lead first."""
        return [*self.team.agents.agents, *(self.subagents.agents() if self.subagents else ())]

    @property
    def subagents(self) -> SubAgentManager | None:
        """None if there were none in this run."""
        return self.subagent_source.existing

    @property
    def usage(self) -> Usage:
        return sum((agent.meter.usage for agent in self.agents), Usage())

    def cost_line(self) -> str:
        """What this session has used, in one sentence."""
        used = self.usage
        tokens = f"{counted(used.context_tokens - used.output_tokens, 'token')} in, {used.output_tokens:,} out"
        price = f"${self.budget.spent_usd:.4f}" if self.budget.is_known else "price of the model unknown"
        calls = sum(agent.meter.turns for agent in self.agents)
        estimated = " (estimated)" if used.is_estimated else ""
        return f"{counted(calls, 'model call')}, {tokens}{estimated}, {price}."

    def close(self) -> None:
        """Stop everything, in this order: agents, their commands, then the files they write to."""
        self.cancel.cancel("teamcli is leaving")
        # A cancelled turn ends within milliseconds and records what it had. Leaving waits no longer than this.
        self.lead.join(LEAVING_SECONDS)
        if self.subagents:
            self.subagents.close()
        self.team.close()
        if self.team_host is not None:
            self.team_host.close()
        self.conversation.run_end_hooks("exit")
        if self.mcp is not None:
            self.mcp.close()  # before their host, so that they can end by themselves
        self.command_hosts.agents.close()  # before its commands are waited for, which `resources` does
        for agent in self.agents:
            agent.llm.close()
            agent.conversation.close()
        self.resources.close()

    def _finish_merge(self) -> None:
        """Complete or undo a merge that was cut off, before any agent works."""
        if not any(path.exists() for path in self.state.merge_journals):
            return
        try:
            note = self.team.merging.recover(self.cancel)
        except TeamcliError as e:
            note = f"A merge was cut off, and cannot be completed now: {e}. The next merge tries again."
        if note:
            self.events(Notice(LEAD, note, Severity.WARNING))

    def _line_blocked(self, ended: TurnEnded) -> None:
        if isinstance(ended.error, PromptBlocked | Cancelled):  # by a hook, or while one was checking it
            self.conversation.line_not_read()
