"""Builds the lead and teammates, and the sub-agents' manager when it is needed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from teamcli.agent.budgets import used_from
from teamcli.agent.context_window import ContextWindow
from teamcli.agent.conversation import SENDING_CALLS, Conversation, History, Marks, open_calls, text_block
from teamcli.agent.events import Recorded
from teamcli.agent.hooks import STOP, TEAMMATE_IDLE
from teamcli.agent.limits import Meter
from teamcli.agent.loop import Agent
from teamcli.agent.outside_tools import is_outside
from teamcli.agent.prompt import environment_facts
from teamcli.app.agent_tools import AgentTools
from teamcli.app.briefing import Briefing, identity
from teamcli.app.command_reports import report_end
from teamcli.app.lazy_subagents import LazySubAgents
from teamcli.app.models import Models
from teamcli.app.runtime import Runtime
from teamcli.app.team_file import CHANGING_TOOLS, can_change
from teamcli.app.teammate_resources import TeammateResources
from teamcli.app.workplaces import Workplace, Workplaces
from teamcli.cancel import CancelScope
from teamcli.config.roles import Role, turns_of
from teamcli.errors import ToolError
from teamcli.permissions.policy import Mode
from teamcli.storage.files import Json, read_lines
from teamcli.team.lead import Lead
from teamcli.team.mailbox import IDS, Mailbox
from teamcli.team.manager import TeammateManager
from teamcli.team.message import LEAD, is_subagent
from teamcli.team.piece_of_work import WORK, LatestWork, Work, calls_in_latest_work, used_in
from teamcli.team.ports import AgentSetup
from teamcli.team.roster import Member
from teamcli.team.roster_file import NOT_ENFORCED
from teamcli.team.teammate import Teammate
from teamcli.team.teammate_work import TeammateWork
from teamcli.text.tags import tagged
from teamcli.tools.base.context import AgentContext, SpawnRequest
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
from teamcli.workspace.known_files import KnownFiles

if TYPE_CHECKING:
    from teamcli.app.agent_mcp import AgentMcp
    from teamcli.config.team_file import PlannedMember
    from teamcli.storage.log import Log
    from teamcli.tools.mcp.view import View


class BuiltLead(NamedTuple):
    lead: Lead
    known_files: KnownFiles


ALWAYS_THERE = (
    "submit_plan",
    "shutdown_response",
    "send_message",
    "read_inbox",
    "wait_for_message",
    "task_create",
    "task_update",
    "task_list",
)
"""The tools that the protocols of a team need."""


class AgentFactory:
    """Builds the lead and teammates. They differ only in name, prompt, tools, model and what they remember."""

    def __init__(self, runtime: Runtime, briefing: Briefing, owns_process: bool = True) -> None:
        self.runtime = runtime
        self.models = Models(runtime.choices)
        self.briefing = briefing
        self.places = Workplaces(runtime, self.briefing.workspace, owns_process)
        self.tools = AgentTools(runtime)
        self.subagents = LazySubAgents(self)
        self._own_tools = runtime.choices.embedding.tools

    def build_lead(self, team: TeammateManager, log: Log, history: History, marks: Marks) -> BuiltLead:
        """`marks` are those of all sessions: how far mail is read belongs to the agent, not to a session."""
        runtime, has_team = self.runtime, self.runtime.has_team
        mailbox = Mailbox(runtime.bus, LEAD, marks, team.tasks.as_current)
        mailbox.rotate()
        place = self.places.shared
        context = self.briefing.with_memory(self.context(team, LEAD, history, place), LEAD)
        own = (*self._own_tools, *runtime.choices.embedding.lead_tools)
        tools = (*self._existing(LEAD_TOOLS if has_team else SOLO_TOOLS), *own)
        model, mcp = runtime.choices.model, self.agent_mcp(place, history)
        if (role := self.briefing.lead_role) is not None:
            tools = _subset(tools, None, role)
            model = model if runtime.options.model else self.briefing.teammate_model("", role)
        setup = self._setup(team, model, self.briefing.lead_system(has_team), tools, context, place, mcp)
        on_wait = partial(team.quiescence.show_waiting, LEAD)
        meter = runtime.budgets.lead_meter(LEAD, runtime.options.max_turns, on_wait=on_wait)
        facts = partial(environment_facts, runtime.choices.workspace.root)
        window = self.models.context_window(
            lambda: (_pinned_facts(team, LEAD, "You are the lead."), facts()) if has_team else (facts(),)
        )
        agent = self._agent(team, setup, log, history, mailbox, meter, window, mcp)
        lead = Lead(agent, mailbox, runtime.cancel, place.workspace, team.quiescence, runtime.options.headless)
        self.close_calls(team, agent)
        return BuiltLead(lead, context.known_files)

    def build_teammate(
        self, team: TeammateManager, member: Member, prompt: str | None, by_user: bool = False
    ) -> Teammate:
        runtime, settings = self.runtime, self.runtime.choices.settings
        path = runtime.state.transcripts / f"{member.name}.jsonl"
        if prompt is not None:
            runtime.engine.archive_log(member.name)
        log = runtime.engine.open_log(member.name, member.incarnation)
        rows = [row for _, row in read_lines(path) if row is not None] if prompt is None else []
        history = History.read(rows)
        mailbox = Mailbox(runtime.bus, member.name, {}, team.tasks.as_current)
        mailbox.replay(rows)
        place = self.places.of(member)
        context = self.context(team, member.name, history, place)
        meter = runtime.budgets.member_meter(
            member.name,
            member.budget,
            used_from(member.used).at_least(used_in(rows)),  # the roster may lag behind what was recorded
            runtime.options.max_turns,
            turns_of(self.briefing.roles.match(member.role), settings.limits.teammate_turns),
            work_turns=calls_in_latest_work(rows),
            on_wait=partial(team.quiescence.show_waiting, member.name),
        )
        window = self.models.context_window(
            lambda: (_pinned_facts(team, member.name, identity(runtime.roster.get(member.name))),), mail_is_work=True
        )
        mcp = self.agent_mcp(place, history, self.briefing.roles.match(member.role), member.tools)
        set_up = partial(self._teammate_setup, team, context=context, memories={}, place=place, mcp=mcp)
        agent = self._agent(team, set_up(member), log, history, mailbox, meter, window, mcp)
        latest = LatestWork.read(rows, history)
        if prompt is not None:
            latest = LatestWork(Work.begin(1, by_user), is_open=True)
            marks = {WORK: latest.work.to_mark(), **mailbox.skip_all()}
            agent.conversation.add_user([text_block(prompt)], marks=marks)
        else:
            mailbox.rotate()
            self.close_calls(team, agent)
        checkouts = self.places.open() if member.worktree else None
        travels = self.places.branches if member.host else None
        end = partial(self.places.leave, member)
        resources = TeammateResources(agent, context, settings.limits.wakes, set_up, checkouts, travels, end)
        scope = runtime.cancel.child()
        work = TeammateWork(agent, resources, runtime.roster, team.outbox, latest)
        return Teammate(agent, mailbox, scope, place.workspace, team, resources, work)

    def report_left(self, team: TeammateManager, name: str) -> None:
        self.subagents.report_left(team, [name])

    def prepare(self, member: Member, cancel: CancelScope | None) -> str:
        if not member.worktree:
            return ""
        checkouts = self.places.open()
        where = self.places.branches.follow(member, cancel) if member.host else checkouts.prepare(member.name, cancel)
        why = checkouts.hosts.of(member.name).why_unconfined()
        checkouts.hosts.idle(member.name)  # it may have nothing to do
        return f"{where} ({NOT_ENFORCED}: {why})" if why else where

    def check(self, request: SpawnRequest) -> SpawnRequest:
        known = [tool.name for tool in (*TEAMMATE_TOOLS, *self._own_tools)]
        for name in request.tools or ():
            if name not in known and not self.may_be_outside(name):
                raise ToolError(f"tools: a teammate has no tool '{name}' (there are: {', '.join(known)})")
        role = self.briefing.roles.match(request.role)
        if request.claims and not can_change(request.tools, role):
            raise ToolError(
                f"claims: '{request.name}' has none of {', '.join(CHANGING_TOOLS)}, so it could not do a task;"
                " give it one of them, or spawn it without claims"
            )
        model = self.briefing.teammate_model(request.model, role)
        chosen = next((each.budget for each in self.runtime.roster.members() if each.name == request.name), {})
        if self.runtime.budgets.member_is_bounded_in_usd(request.name, chosen):
            self.models.check_price(model)
        return request._replace(worktree=request.worktree or bool(role and role.is_isolated))

    def check_planned(self, planned: PlannedMember) -> None:
        """Raises: ToolError, for a member of the team file that could not be spawned."""
        terms = {term: getattr(planned, term) for term in ("model", "tools", "plan", "worktree", "claims")}
        self.check(SpawnRequest(planned.name, planned.role, "", **terms))
        if planned.budget_usd is not None:
            role = self.briefing.roles.match(planned.role)
            self.models.check_price(self.briefing.teammate_model(planned.model, role))

    def context(self, team: TeammateManager, name: str, history: History, place: Workplace) -> AgentContext:
        # The commands of a sub-agent end with it.
        on_end = None if is_subagent(name) else partial(report_end, team, name)
        return self.tools.context(team, name, history, lambda: self.subagents.open(team).tools, on_end, place)

    def agent_mcp(
        self, place: Workplace, history: History, role: Role | None = None, wanted: tuple[str, ...] | None = None
    ) -> AgentMcp | None:
        """What an agent sees of MCP servers; None if there are none."""
        view = self._mcp_view(place, role, wanted)
        if view is None:
            return None
        from teamcli.app.agent_mcp import AgentMcp  # late: most starts do without it

        return AgentMcp(view, history.offered)

    def _mcp_view(self, place: Workplace, role: Role | None, wanted: tuple[str, ...] | None) -> View | None:
        source = self.runtime.mcp
        servers = source.open() if role and role.mcp_servers else source.existing
        if servers is None:
            return None
        denied = role.disallowed_tools if role else ()
        return servers.view(place, role)._replace(wanted=_wanted(wanted, role), denied=denied)

    def may_be_outside(self, name: str) -> bool:
        """Whether a list of tools may contain this name of a tool of a server, which need not be known yet."""
        return self.runtime.mcp.existing is not None and is_outside(name)

    @property
    def base_tools(self) -> tuple[ToolDefinition, ...]:
        """Those that a sub-agent may use."""
        return (*self._existing(BASE_TOOLS), *self._own_tools)

    def _existing(self, tools: Sequence[ToolDefinition], always: Collection[str] = ()) -> tuple[ToolDefinition, ...]:
        """Those that the command line leaves."""
        chosen = self.runtime.options.tools
        return tuple(tool for tool in tools if chosen is None or tool.name in chosen or tool.name in always)

    def find_tool(self, name: str) -> ToolDefinition:
        """The tool of that name, built in or provided by the host program."""
        return next((tool for tool in self._own_tools if tool.name == name), LazyTool(name))

    def close(self) -> None:
        """Close what all agents have shared."""
        self.places.close()
        self.tools.close()
        self.models.close()

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

    def _teammate_setup(
        self,
        team: TeammateManager,
        member: Member,
        context: AgentContext,
        memories: dict[tuple[str, Path | None], str],
        place: Workplace,
        mcp: AgentMcp | None,
    ) -> AgentSetup:
        # What a role has learned is read once: the system prompt must stay the same from call to call.
        start = _start(context.workspace, member.cwd)
        is_in_root = start is None and not member.worktree
        if (member.role, start) not in memories:
            memories[member.role, start] = self.briefing.memory(member.role, is_in_root=is_in_root)
        role = self.briefing.roles.match(member.role)
        model = self.briefing.teammate_model(member.model, role)
        tools = _subset((*self._existing(TEAMMATE_TOOLS, ALWAYS_THERE), *self._own_tools), member.tools, role)
        system = self.briefing.teammate_system(member, tools, memories[member.role, start], start)
        context = context._replace(workspace=context.workspace._replace(start=start))
        if mcp is not None and (view := self._mcp_view(place, role, member.tools)):
            mcp.use_view(view)
        mode = role.mode if role else Mode.DEFAULT
        context = self.briefing.with_memory(context, member.role)
        return self._setup(team, model, system, tools, context, place, mcp, mode)

    def _setup(
        self,
        team: TeammateManager,
        model: str,
        system: str,
        tools: tuple[ToolDefinition, ...],
        context: AgentContext,
        place: Workplace,
        mcp: AgentMcp | None,
        mode: Mode = Mode.DEFAULT,
    ) -> AgentSetup:
        tools = (*tools, *mcp.tools) if mcp else tools
        bound, gate, show_waiting = bind_tools(tools, context), team.protocols.gate, team.quiescence.show_waiting
        toolset = self.tools.toolset(context.agent, bound, gate, show_waiting, self.runtime.events, place, mode=mode)
        toolset = toolset._replace(outside=mcp) if mcp else toolset
        return AgentSetup(self.models.preamble(model, system, tools), toolset)

    def _agent(
        self,
        team: TeammateManager,
        setup: AgentSetup,
        log: Log,
        history: History,
        mailbox: Mailbox,
        meter: Meter,
        window: ContextWindow,
        mcp: AgentMcp | None,
    ) -> Agent:
        name = setup.toolset.agent

        def recorded(message: Any, marks: Mapping[str, Any]) -> None:
            mailbox.recorded(marks)
            team.tasks.mail_read(marks.get(IDS, ()))
            if message.role == "assistant":
                mailbox.answered()
            self.runtime.events(Recorded(name, message, log.end, marks))

        self.runtime.watching.opened(name, log.end)
        return Agent(
            llm=self.models.connect(),
            preamble=setup.preamble,
            conversation=Conversation(log, history, recorded),
            toolset=setup.toolset,
            meter=meter,
            stop_event=STOP if name == LEAD else TEAMMATE_IDLE,
            context=window,
            **({"settle_tools": mcp.settle_tools} if mcp else {}),
        )


def _start(workspace: Workspace, cwd: str) -> Path | None:
    """Where a member's commands start, if not in the root. The directory may be gone: then they say so."""
    if not cwd:
        return None
    start = (workspace.root / cwd).resolve()
    return start if start != workspace.root and workspace.contains(start) else None


def _pinned_facts(team: TeammateManager, name: str, who: str) -> str:
    """What an agent must know of its team after a compaction."""
    requests = [f"  {request}" for request in team.protocols.open_requests()]
    lines = [who, team.describe(), *(["Open requests:", *requests] if requests else []), team.tasks.reminder(name)]
    return tagged("team", "\n".join(filter(None, lines)))


def _repeat(agent: Agent, call: Json, key: str) -> Json | None:
    tool = agent.toolset.tools.get(call["name"])
    if tool is None:
        return None
    try:
        output = tool.prepare(call["input"]).run(CancelScope(), lambda text: None, call["id"], key)
    except ToolError as e:
        return {"type": "tool_result", "tool_use_id": call["id"], "content": f"Error: {e}", "is_error": True}
    return {"type": "tool_result", "tool_use_id": call["id"], "content": output.content}


def _wanted(wanted: tuple[str, ...] | None, role: Role | None) -> tuple[str, ...] | None:
    """The tools that spawn or role name; None for all."""
    return wanted if wanted is not None else role.tools if role else None


def _subset(
    tools: tuple[ToolDefinition, ...], wanted: tuple[str, ...] | None, role: Role | None
) -> tuple[ToolDefinition, ...]:
    """The tools that spawn and role leave; what the protocols need is always there."""
    allowed = _wanted(wanted, role)
    denied = role.disallowed_tools if role else ()
    return tuple(
        tool
        for tool in tools
        if tool.name in ALWAYS_THERE or ((allowed is None or tool.name in allowed) and tool.name not in denied)
    )
