"""Builds agents: they differ only in name, prompt, tools, model and what they remember."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakSet

from teamcli.agent.approval import Ask, Permissions
from teamcli.agent.budgets import Budgets, used_from
from teamcli.agent.context_window import ContextWindow
from teamcli.agent.conversation import SENDING_CALLS, Conversation, History, Marks, open_calls, text_block
from teamcli.agent.events import Emit, Notice, Recorded, Severity
from teamcli.agent.hooks import STOP, TEAMMATE_IDLE, Hooks
from teamcli.agent.limits import Meter
from teamcli.agent.loop import Agent
from teamcli.agent.prompt import (
    LEAD_PROMPT,
    LEAD_TEAM_PROMPT,
    TEAMMATE_PROMPT,
    environment_facts,
    system_prompt,
)
from teamcli.agent.tool import Access, AnyTool, Executes
from teamcli.agent.tool_calls import Toolset
from teamcli.app.embedding import NOTHING_EMBEDDED, Embedding
from teamcli.cancel import CancelScope
from teamcli.config.instructions import find_instructions
from teamcli.config.memory import is_memory, memory_dirs, offer, users_memory
from teamcli.config.options import Options
from teamcli.config.project import Project
from teamcli.config.roles import Role, Roles, load_roles, role_dirs
from teamcli.config.settings import Settings
from teamcli.config.skills import Skills, find_skills, skill_dirs
from teamcli.errors import StateError, ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.commands import Commands
from teamcli.llm.backoff import Backoff
from teamcli.llm.credentials import Endpoint
from teamcli.llm.pricing import context_tokens, is_window_known
from teamcli.llm.redacted import RedactedModel
from teamcli.llm.types import LLM, Preamble, Usage
from teamcli.permissions.policy import Decision, Policy
from teamcli.session.event_bus import EventBus
from teamcli.session.live_policy import LivePolicy
from teamcli.storage.files import PRIVATE_DIR, AppendLog, Json, read_lines
from teamcli.storage.team_dir import TeamDir
from teamcli.team.bus import MessageBus
from teamcli.team.lead import Lead
from teamcli.team.mailbox import Mailbox
from teamcli.team.manager import SpawnRequest, TeammateManager
from teamcli.team.message import LEAD
from teamcli.team.roster import Member, Roster
from teamcli.team.teammate import AgentSetup, Teammate
from teamcli.team.work import WORK, LatestWork, Work, calls_in_latest_work, used_in
from teamcli.text.escaping import one_line
from teamcli.text.tags import one_fact, tagged
from teamcli.tools.base.context import AgentContext
from teamcli.tools.catalog import (
    BASE_TOOLS,
    LEAD_TOOLS,
    SOLO_TOOLS,
    TEAMMATE_TOOLS,
    LazyTool,
    ToolDefinition,
    bind_tools,
)
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.changes import Changes
from teamcli.workspace.known_files import KnownFiles, PathLocks

if TYPE_CHECKING:
    from teamcli.subagents.manager import SubAgentManager
    from teamcli.workspace.file_access import Content

ROLES_SHOWN, ROLE_LENGTH, ROLE_NAME_LENGTH = 30, 160, 1000
SAID_ONCE = frozenset(("read_inbox", "wait_for_message"))
"""Their results hold mail, which a second call would not bring again."""


class Choices(NamedTuple):
    """What was chosen before anything is touched."""

    settings: Settings
    workspace: Workspace
    policy: Policy
    endpoint: Endpoint | None
    model: str
    price: Callable[[Usage, str], float | None]
    embedding: Embedding = NOTHING_EMBEDDED


class BuiltLead(NamedTuple):
    lead: Lead
    known_files: KnownFiles


class LazySubAgents:
    """All sub-agents of the program. What they need is loaded when the first is wanted."""

    def __init__(self, factory: AgentFactory) -> None:
        self._factory = factory
        self._manager: SubAgentManager | None = None
        self._lock = threading.Lock()

    @property
    def existing(self) -> SubAgentManager | None:
        return self._manager

    def open(self, team: TeammateManager) -> SubAgentManager:
        with self._lock:
            if self._manager is None:
                from teamcli.app.subagent_factory import open_subagents

                self._manager = open_subagents(self._factory, team)
        return self._manager

    def report_lost(self, team: TeammateManager) -> None:
        if self._factory.state.subagents.exists():
            self.open(team).report_lost()

    def parent_of(self, agent: str) -> str:
        """Who started a sub-agent; the name itself for any other agent."""
        return self._manager.parent_of(agent) if self._manager else agent

    def running_detached(self) -> list[str]:
        return self._manager.running_detached() if self._manager else []


class TeammateResources:
    """What one teammate uses."""

    def __init__(
        self, agent: Agent, context: AgentContext, max_wakes: int | None, set_up: Callable[[Member], AgentSetup]
    ) -> None:
        self.max_wakes = max_wakes
        self.set_up = set_up
        self._agent = agent
        self._context = context

    def release(self) -> None:
        self._context.commands.close()
        self._agent.llm.close()
        self._agent.conversation.close()


class AgentFactory:
    """Holds what all agents of a program share."""

    def __init__(
        self,
        choices: Choices,
        options: Options,
        project: Project,
        state: TeamDir,
        events: EventBus,
        roster: Roster,
        bus: MessageBus,
        host: CommandHost,
        live_policy: LivePolicy,
        ask: Ask,
        cancel: CancelScope,
        hooks: Hooks,
        changes: Changes,
    ) -> None:
        self.hooks = hooks
        self.choices = choices
        self.options = options
        self._home = project.home
        self._project = project
        self.state = state
        self.events = events
        self._roster = roster
        self._bus = bus
        self._host = host
        self._live_policy = live_policy
        self._ask = ask
        self.cancel = cancel
        self._backoff = Backoff(
            patience_seconds=60 * choices.settings.retry_minutes, max_calls=choices.settings.max_concurrent_calls
        )
        self._locks = PathLocks()
        self._commands: WeakSet[Commands] = WeakSet()
        self.changes = changes
        self.budgets = Budgets(choices.settings.budgets, options.max_budget_usd)
        self.has_team = not state.is_private
        self.subagents = LazySubAgents(self)
        self.notes: list[str] = []

    def build_lead(self, team: TeammateManager, log: AppendLog, history: History, marks: Marks) -> BuiltLead:
        """`marks` are those of all sessions: how far mail is read belongs to the agent, not to a session."""
        mailbox = Mailbox(self._bus, LEAD, marks)
        mailbox.rotate()
        base = f"{LEAD_PROMPT}\n\n{LEAD_TEAM_PROMPT}" if self.has_team else LEAD_PROMPT
        context = self.with_memory(self.agent_context(team, LEAD, history), LEAD)
        setup = self._setup(
            team,
            self.choices.model,
            system_prompt(
                base + self._known_roles,
                self.instructions,
                self.skills.offer(),
                self.memory(LEAD),
                self.options.append_system_prompt,
            ),
            (*(LEAD_TOOLS if self.has_team else SOLO_TOOLS), *self._own_tools),
            context,
        )
        meter = self.budgets.lead_meter(
            LEAD, self.options.max_turns, on_wait=partial(team.quiescence.show_waiting, LEAD)
        )
        facts = partial(environment_facts, self.choices.workspace.root)
        window = self.context_window(
            lambda: (_standing(team, "You are the lead."), facts()) if self.has_team else (facts(),)
        )
        agent = self._agent(LEAD, setup, log, history, mailbox, meter, window)
        lead = Lead(agent, mailbox, self.cancel, self.workspace, team.quiescence, self.options.headless)
        self.close_calls(team, agent)
        return BuiltLead(lead, context.known_files)

    def build_teammate(
        self, team: TeammateManager, member: Member, prompt: str | None, by_user: bool = False
    ) -> Teammate:
        path = self.state.transcripts / f"{member.name}.jsonl"
        if prompt is not None:
            self._archive(path)
        rows = [row for _, row in read_lines(path) if row is not None]
        history = History.read(rows)
        mailbox = Mailbox(self._bus, member.name, {})
        mailbox.replay(rows)
        settings = self.choices.settings
        context = self.agent_context(team, member.name, history)
        meter = self.budgets.member_meter(
            member.name,
            member.budget,
            used_from(member.used).at_least(used_in(rows)),  # the roster may lag behind what was recorded
            self.options.max_turns,
            settings.limits.teammate_turns,
            work_turns=calls_in_latest_work(rows),
            on_wait=partial(team.quiescence.show_waiting, member.name),
        )
        window = self.context_window(
            lambda: (_standing(team, _identity(self._roster.get(member.name))),), mail_is_work=True
        )
        log = AppendLog(path, settings.durable, is_shared=False)
        memories: dict[str, str] = {}
        set_up = partial(self._teammate_setup, team, context=context, memories=memories)
        agent = self._agent(member.name, set_up(member), log, history, mailbox, meter, window)
        latest = LatestWork.read(rows, history)
        if prompt is not None:
            latest = LatestWork(Work.begin(1, by_user), is_open=True)
            marks = {WORK: latest.work.to_mark(), **mailbox.skip_all()}
            agent.conversation.add_user([text_block(prompt)], marks=marks)
        else:
            mailbox.rotate()
            self.close_calls(team, agent)
        resources = TeammateResources(agent, context, settings.limits.wakes, set_up)
        return Teammate(agent, mailbox, self.cancel.child(), self.workspace, team, resources, latest)

    def check(self, recruit: SpawnRequest) -> None:
        known = [tool.name for tool in (*TEAMMATE_TOOLS, *self._own_tools)]
        for name in recruit.tools or ():
            if name not in known:
                raise ToolError(f"tools: a teammate has no tool '{name}' (there are: {', '.join(known)})")
        model = self._teammate_model(recruit.model, self.roles.match(recruit.role))
        chosen = next((each.budget for each in self._roster.members() if each.name == recruit.name), {})
        if self.budgets.member_is_bounded_in_usd(recruit.name, chosen):
            self.check_price(model)

    def check_price(self, model: str) -> None:
        """Raises: ToolError, for a model whose calls no budget in dollars could count."""
        if self.choices.price(Usage(), model) is None:
            raise ToolError(f"model: no price is known for {model}, and there is a budget in dollars; use another")

    def _agent(
        self,
        name: str,
        setup: AgentSetup,
        log: AppendLog,
        history: History,
        mailbox: Mailbox,
        meter: Meter,
        window: ContextWindow,
    ) -> Agent:
        def recorded(message: Any, marks: Mapping[str, Any]) -> None:
            mailbox.recorded(marks)
            if message.role == "assistant":
                mailbox.answered()
            self.events(Recorded(name, message))

        return Agent(
            name=name,
            llm=self.llm(),
            preamble=setup.preamble,
            conversation=Conversation(log, history, recorded),
            toolset=setup.toolset,
            meter=meter,
            price=self.choices.price,
            emit=self.events,
            hooks=self.hooks,
            stop_event=STOP if name == LEAD else TEAMMATE_IDLE,
            context=window,
        )

    def context_window(self, pinned_facts: Callable[[], Sequence[str]], mail_is_work: bool = False) -> ContextWindow:
        return ContextWindow(
            self._window,
            self._is_window_known,
            self.choices.settings.compact_at,
            self._has_real_model,
            SAID_ONCE,
            mail_is_work,
            pinned_facts,
        )

    def _is_window_known(self, model: str) -> bool:
        return self.choices.settings.context_tokens is not None or is_window_known(model)

    def _window(self, model: str) -> int:
        return self.choices.settings.context_tokens or context_tokens(model)

    def agent_context(self, team: TeammateManager, name: str, history: History) -> AgentContext:
        workspace = self.workspace
        known_files = KnownFiles(self._locks, history.seen_files)
        changed = partial(self._file_changed, name)
        commands = Commands(self._host)
        self._commands.add(commands)
        return AgentContext(
            workspace,
            commands,
            known_files,
            name,
            team,
            self._may_see,
            changed,
            partial(self.subagents.open, team),
        )

    @property
    def _has_real_model(self) -> bool:
        """Whether it can write a summary."""
        return self.choices.endpoint is not None or self.choices.embedding.llm is not None

    @property
    def _own_tools(self) -> tuple[ToolDefinition, ...]:
        return self.choices.embedding.tools

    @property
    def base_tools(self) -> tuple[ToolDefinition, ...]:
        """Those that a sub-agent may use."""
        return (*BASE_TOOLS, *self._own_tools)

    def offered(self, name: str) -> ToolDefinition:
        """The tool of that name, ours or not."""
        return next((tool for tool in self._own_tools if tool.name == name), LazyTool(name))

    def close(self) -> None:
        """End what all agents have shared, and wait for those who follow their commands."""
        for commands in tuple(self._commands):
            commands.close()
        self._backoff.close()

    def _teammate_setup(
        self, team: TeammateManager, member: Member, context: AgentContext, memories: dict[str, str]
    ) -> AgentSetup:
        """`memories` holds what was offered to each role: once it has begun, its system prompt stays the same."""
        if member.role not in memories:
            memories[member.role] = self.memory(member.role)
        role = self.roles.match(member.role)
        model = self._teammate_model(member.model, role)
        tools = _subset((*TEAMMATE_TOOLS, *self._own_tools), member.tools, role)
        system = self._teammate_system(member, role, self.skills_for(tools), memories[member.role])
        return self._setup(team, model, system, tools, self.with_memory(context, member.role))

    def _teammate_model(self, wanted: str, role: Role | None) -> str:
        return wanted or (role.model if role else "") or self.choices.model

    def _file_changed(self, agent: str, path: Path, before: Content | None, after: bytes) -> None:
        self.changes.note(agent, path, before)
        if is_memory(path, self.choices.workspace.root) and (before is None or before.data is not None):
            try:
                self._project.agreement.file_written(path, before.data if before else None, after)
            except StateError as e:  # it is written all the same, and asked about at the next start
                self.events(Notice(agent, f"{path.name} is not remembered as agreed to: {e}.", Severity.WARNING))

    def with_memory(self, context: AgentContext, role: str) -> AgentContext:
        """Open the role's memory in the user's home to file tools.

        Not from a stranger's directory: its files could have something noted there that comes up in all others.
        """
        memory = users_memory(self._home, role) if self._project.trusted.config else None
        return context._replace(workspace=replace(context.workspace, memory=memory))

    def role_of(self, name: str) -> str:
        """The role of the lead or a teammate."""
        return LEAD if name == LEAD else self._roster.get(name).role

    def memory(self, role: str, may_write: bool = True, is_in_root: bool = True) -> str:
        """What the role has learned so far: the user's own, and of the project's what the user has agreed to. An agent
        that works elsewhere than in the root needs whole paths."""
        root, covers = self.choices.workspace.root, self._project.agreement.covers
        places = memory_dirs(role, root, self._home, covers, is_in_root)
        return offer(role, places, may_write and self._project.trusted.config)

    def _setup(
        self, team: TeammateManager, model: str, system: str, tools: tuple[ToolDefinition, ...], context: AgentContext
    ) -> AgentSetup:
        bound = bind_tools(tools, context)
        toolset = self.toolset(context.agent, bound, team.protocols.gate, team.quiescence.show_waiting, self.events)
        return AgentSetup(self.preamble(model, system, tools), toolset)

    def preamble(self, model: str, system: str, tools: tuple[ToolDefinition, ...]) -> Preamble:
        settings = self.choices.settings
        return Preamble(
            model,
            system,
            tuple(tool.spec for tool in tools),
            settings.max_tokens,
            settings.prompt_caching,
            {"thinking": settings.thinking} if settings.thinking else {},
        )

    def _decide(self, tool: str, access: Access) -> Decision:
        from teamcli.permissions.decide import decide  # late: the first request does without it

        return decide(self._policy_for(access), tool, access, self.choices.workspace.root, self.workspace.can_change)

    def _may_see(self, path: Path) -> bool:
        from teamcli.permissions.decide import may_see  # late as well

        return may_see(self._live_policy.policy, path, self.choices.workspace.root)

    def _policy_for(self, access: Access) -> Policy:
        """Asks whether there is a sandbox only where the answer counts: it may have to start first."""
        policy = self._live_policy.policy
        if not self.choices.settings.sandbox_allows_bash or not isinstance(access, Executes):
            return policy
        return policy._replace(commands_are_confined=not self._host.why_unconfined())

    def toolset(
        self,
        name: str,
        tools: Mapping[str, AnyTool],
        gate: Callable[[str, str, Access], str],
        show_waiting: Callable[[str, str], None],
        emit: Emit,
    ) -> Toolset:
        live_policy = self._live_policy

        def wait_for_answer(agent: str, what: str) -> None:
            self.budgets.wait_for_user(agent, bool(what))
            show_waiting(agent, what)

        permissions = Permissions(
            self._decide,
            self._ask,
            live_policy.always_allow,
            gate,
            wait_for_answer,
            live_policy.on_change,
        )
        return Toolset(name, tools, permissions, emit, self.hooks)

    def llm(self) -> LLM:
        if self.choices.embedding.llm is not None:
            return RedactedModel(self.choices.embedding.llm())
        endpoint = self.choices.endpoint
        if endpoint is not None:
            from teamcli.llm.client import connect  # late: the embedded model, and one of a host program, do without it

            return RedactedModel(connect(endpoint, self._backoff, self.choices.settings.retries))
        from teamcli.llm.embedded.model import EmbeddedModel  # late: most starts do without it

        return EmbeddedModel()

    def _teammate_system(self, member: Member, role: Role | None, *appended: str) -> str:
        base = (
            TEAMMATE_PROMPT.format(name=member.name, role=one_fact(member.role, ROLE_NAME_LENGTH)) + self._known_roles
        )
        return system_prompt(f"{base}\n\n{role.prompt}" if role else base, self.instructions, *appended)

    @cached_property
    def instructions(self) -> list[tuple[str, str]]:
        workspace = self.choices.workspace.root
        instructions = find_instructions(workspace, (Path.home() / ".claude", self._home))
        self.notes += instructions.problems
        return instructions.found

    @cached_property
    def roles(self) -> Roles:
        roles = load_roles(role_dirs(self._project.directory, self._home, self._project.agreement.covers))
        self.notes += roles.problems
        return roles

    @cached_property
    def skills(self) -> Skills:
        skills = find_skills(skill_dirs(self._project.directory, self._home, self._project.agreement))
        self.notes += skills.problems
        return skills

    def skills_for(self, tools: tuple[ToolDefinition, ...], is_in_root: bool = True) -> str:
        """What an agent with these tools is told of the skills there are: nothing where it could not read them."""
        return self.skills.offer(is_in_root) if LazyTool("read_file") in tools else ""

    @cached_property
    def workspace(self) -> Workspace:
        """What all agents may look at."""
        return replace(self.choices.workspace, skills=self.skills.folders)

    @property
    def _known_roles(self) -> str:
        """What an agent should know of the roles there are; nothing where there are none."""
        lines = [f"- {role.name}: {one_line(role.description, ROLE_LENGTH)}" for role in self.roles.found.values()]
        shown = lines[:ROLES_SHOWN]
        return "\n\nRoles for spawn_teammate and agent:\n" + "\n".join(shown) if shown else ""

    def _archive(self, path: Path) -> None:
        if path.exists():
            archive = path.parent / "archive"
            archive.mkdir(exist_ok=True, mode=PRIVATE_DIR)
            number = time.time_ns()
            while (archived := archive / f"{path.stem}.{number}.jsonl").exists():  # whatever the clock says
                number += 1
            path.rename(archived)

    def close_calls(self, team: TeammateManager, agent: Agent) -> None:
        """Answer what a crash left open: messages are sent if they were not, everything else counts as interrupted."""
        messages = agent.conversation.messages
        calls = open_calls(messages[-1]) if messages else []
        with team.outbox.repeating():
            repeated = [
                _repeat(agent, call, agent.conversation.key_of_call(position))
                for position, call in enumerate(calls)
                if call["name"] in SENDING_CALLS
            ]
        results = [result for result in repeated if result]
        agent.conversation.close_open_calls(results)


def _standing(team: TeammateManager, who: str) -> str:
    """What an agent must know of its team whatever it has forgotten."""
    requests = [f"  {request}" for request in team.protocols.open_requests()]
    lines = [who, team.describe(), *(["Open requests:", *requests] if requests else [])]
    return tagged("team", "\n".join(lines))


def _identity(member: Member) -> str:
    return f"You are {member.name}, {one_fact(member.role, ROLE_NAME_LENGTH)}, a teammate of the lead."


def _repeat(agent: Agent, call: Json, key: str) -> Json | None:
    tool = agent.toolset.tools.get(call["name"])
    if tool is None:
        return None
    try:
        output = tool.prepare(call["input"]).run(CancelScope(), lambda text: None, call["id"], key)
    except ToolError as e:
        return {"type": "tool_result", "tool_use_id": call["id"], "content": f"Error: {e}", "is_error": True}
    return {"type": "tool_result", "tool_use_id": call["id"], "content": output.content}


def _subset(
    tools: tuple[ToolDefinition, ...], wanted: tuple[str, ...] | None, role: Role | None
) -> tuple[ToolDefinition, ...]:
    """The tools that spawn and role leave; what the protocols need is always there."""
    allowed = wanted if wanted is not None else role.tools if role else None
    denied = role.disallowed_tools if role else ()
    always = ("submit_plan", "shutdown_response", "send_message", "read_inbox", "wait_for_message")
    return tuple(
        tool
        for tool in tools
        if tool.name in always or ((allowed is None or tool.name in allowed) and tool.name not in denied)
    )
