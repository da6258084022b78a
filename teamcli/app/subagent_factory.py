"""Builds sub-agents: a specialist that knows only its job, or a fork that knows all that its parent knows."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from teamcli.agent.compaction import FORK_FRAME
from teamcli.agent.conversation import Conversation, History, open_calls, text_block
from teamcli.agent.events import Event, Recorded
from teamcli.agent.hooks import SUBAGENT_STOP
from teamcli.agent.loop import Agent, Delivery
from teamcli.agent.outside_tools import TOOL_SEARCH
from teamcli.agent.prompt import SUBAGENT_PROMPT, system_prompt
from teamcli.agent.tool import Access
from teamcli.app.briefing import WORKS_IN
from teamcli.app.workplaces import Workplace
from teamcli.claude_code.names import our_role
from teamcli.config.roles import Role, turns_of
from teamcli.errors import ToolError
from teamcli.llm.pricing import meant_model
from teamcli.llm.types import Block, Message, Preamble
from teamcli.permissions.policy import Mode
from teamcli.storage.append_log import AppendLog
from teamcli.storage.files import VERSION
from teamcli.subagents.ledger import Ledger
from teamcli.subagents.manager import SubAgentManager
from teamcli.subagents.runner import Limits, Parent
from teamcli.subagents.subagent import BuiltAgent, SubAgent
from teamcli.team.message import LEAD
from teamcli.team.message import Message as Mail
from teamcli.tools.base.context import SubAgentTask
from teamcli.tools.catalog import LazyTool, ToolDefinition, bind_tools
from teamcli.workspace.bounds import Workspace

if TYPE_CHECKING:
    from teamcli.app.agent_factory import AgentFactory
    from teamcli.app.agent_mcp import AgentMcp
    from teamcli.team.manager import TeammateManager

GENERAL = Role("general", "any job")
"""The role for any job, which needs no role file."""
FORKED = "A copy of you continues from here as the sub-agent {id}."
AGENT = LazyTool("agent")
YOU_ARE_A_FORK = f"""\
{FORK_FRAME}You are {{id}}, a sub-agent: a copy of the agent above, made for one job. Do only this job; the rest is \
its own. You can use {{tools}} and nothing else. Nobody answers questions. Your last text, and nothing else of what \
you do, goes back to it as your result: make it complete and brief.</fork>"""


def open_subagents(factory: AgentFactory, team: TeammateManager) -> SubAgentManager:
    settings = factory.runtime.choices.settings.subagents
    return SubAgentManager(
        SubAgentFactory(factory, team),
        Limits(settings.max_concurrent, settings.timeout_seconds, factory.runtime.choices.settings.limits.subagents),
        factory.runtime.state.subagent_transcripts,
        Ledger(factory.runtime.state.subagents, factory.runtime.engine.shared_ledger()),
        factory.runtime.events,
        factory.runtime.cancel,
    )


class Plan(NamedTuple):
    """What a sub-agent is made from."""

    preamble: Preamble
    history: History
    tools: tuple[ToolDefinition, ...]
    """The tools in its requests."""
    usable: tuple[str, ...]
    """The names of those it may use."""
    opening: Sequence[Block]
    identity: tuple[str, ...] = ()
    """Who it is, if its system prompt does not say so."""
    mcp: AgentMcp | None = None


class SubAgentFactory:
    def __init__(self, factory: AgentFactory, team: TeammateManager) -> None:
        self._factory = factory
        self._team = team

    def parent(self, name: str) -> Parent | None:
        thread = self._team.agents.get(name)
        return Parent(thread.agent, thread.scope) if thread else None

    def has_member(self, name: str) -> bool:
        return name == LEAD or name in self._team.names()

    def post(self, message: Mail, once: bool = False) -> None:
        self._team.outbox.post(message._replace(timestamp=time.time()), once)

    def on_subagent_end(self) -> None:
        self._team.quiescence.notify()

    def build(self, sub: SubAgent, parent: Agent, path: Path) -> BuiltAgent:
        factory, task = self._factory, sub.task
        self._check_tools(sub)
        role = self._role(task.role)
        model = self._model(task, role, parent)
        place = factory.places.named(sub.root)
        member = factory.runtime.roster.find(sub.root)
        cwd = task.cwd or (role.cwd if role else "") or (member.cwd if member else "")
        start = self._start(cwd, place.workspace)
        if place is not factory.places.shared:  # paths of skills and memory are not relative to a checkout
            start = start or place.workspace.root
        cwd = str(start or "")
        mcp = self._mcp(sub, role, parent, place)
        plan = self._fresh(sub, role, model, parent, cwd, mcp) if role else self._fork(sub, model, parent, cwd, mcp)
        context = factory.context(self._team, sub.id, plan.history, place)
        remembers_as = self._remembers_as(sub, role)
        if remembers_as:
            context = factory.briefing.with_memory(context, remembers_as)
        context = context._replace(
            workspace=context.workspace._replace(start=start),
            subagents=context.subagents if AGENT.name in plan.usable else None,
        )

        def emit(event: Event) -> None:
            sub.take(event)
            factory.runtime.events(event)

        tools = bind_tools(plan.tools, context)
        show_waiting = lambda agent, what: sub.show_waiting(what)  # noqa: E731 - shorter than its name
        gate = self._gate(plan, sub.root)
        mode = role.mode if role else Mode.DEFAULT
        toolset = factory.tools.toolset(sub.id, tools, gate, show_waiting, emit, place, sub.root, mode)
        toolset = toolset._replace(outside=mcp) if mcp else toolset
        log = AppendLog(path, factory.runtime.choices.settings.durable, is_shared=False)
        factory.runtime.watching.opened(sub.id, log.end)

        def recorded(message: Message, marks: Mapping[str, Any]) -> None:
            emit(Recorded(sub.id, message, log.end, marks))

        conversation = Conversation(log, plan.history, recorded)
        conversation.note(_first_row(sub, model, len(plan.history.messages)))
        agent = Agent(
            llm=factory.models.connect(),
            preamble=plan.preamble,
            conversation=conversation,
            toolset=toolset,
            meter=factory.runtime.budgets.subagent_meter(
                sub.id,
                parent.name,
                factory.runtime.options.max_turns,
                turns_of(role, factory.runtime.choices.settings.subagents.turns),
                is_waited_for=not sub.is_detached,
                on_wait=lambda what: sub.show_phase(f"waiting for {what}" if what else "thinking"),
            ),
            stop_event=SUBAGENT_STOP,
            context=factory.models.context_window(lambda: plan.identity),
        )

        def release() -> None:
            factory.runtime.budgets.close(sub.id)
            context.commands.close()
            agent.llm.close()
            log.close()
            conversation.switch_to(History())  # what it used is still counted; what it said is on disk

        return BuiltAgent(agent, Delivery(plan.opening), plan.usable, release, cwd, remembers_as)

    def _role(self, wanted: str) -> Role | None:
        """None for a fork."""
        if not wanted:
            return None
        roles = self._factory.briefing.roles
        for name in (wanted.strip(), our_role(wanted.strip())):
            if role := roles.match(name) or (GENERAL if name.casefold() == GENERAL.name else None):
                return role
        there_are = sorted({role.name for role in roles.found.values()} | {GENERAL.name})
        raise ToolError(f"subagent_type: there is no role '{wanted}'; there are: {', '.join(there_are)}")

    def _check_tools(self, sub: SubAgent) -> None:
        """Raises: ToolError."""
        known = [tool.name for tool in self._tools(sub)]
        for name in sub.task.tools or ():
            if name not in known and not self._factory.may_be_outside(name):
                raise ToolError(f"tools: a sub-agent has no tool '{name}' (there are: {', '.join(known)})")

    def _model(self, task: SubAgentTask, role: Role | None, parent: Agent) -> str:
        model = meant_model(task.model or (role.model if role else ""), parent.preamble.model)
        if self._factory.runtime.budgets.subagent_is_bounded_in_usd(parent.name):
            self._factory.models.check_price(model)
        return model

    def _mcp(self, sub: SubAgent, role: Role | None, parent: Agent, place: Workplace) -> AgentMcp | None:
        """What it sees of MCP servers: as much as its parent, its role and its task leave it."""
        mcp = self._factory.agent_mcp(place, parent.conversation.history, role, sub.task.tools)
        if mcp is None or (TOOL_SEARCH not in parent.toolset.tools and not (role and role.mcp_servers)):
            return None
        if isinstance(parent.toolset.outside, type(mcp)):
            mcp.use_view(mcp.view._replace(parent=parent.toolset.outside.view))
        if role is not None:
            mcp.decide(self._factory.runtime.cancel)
        return mcp

    def _fresh(self, sub: SubAgent, role: Role, model: str, parent: Agent, cwd: str, mcp: AgentMcp | None) -> Plan:
        text = self._factory.briefing.role_prompt(role)
        parts = (SUBAGENT_PROMPT.format(name=sub.id), text, WORKS_IN.format(cwd=cwd) if cwd else "")
        tools = tuple(
            tool
            for tool in self._tools(sub)
            if tool.name in parent.toolset.tools
            and (role.tools is None or tool.name in role.tools)
            and tool.name not in role.disallowed_tools
            and _is_wanted(tool, sub.task)
        )
        tools = (*tools, *mcp.tools) if mcp else tools
        skills = self._factory.briefing.skills_for(tools, is_in_root=not cwd)
        memory = self._memory(role, tools, cwd)
        system = system_prompt("\n\n".join(filter(None, parts)), self._factory.briefing.instructions, skills, memory)
        preamble = self._factory.models.preamble(model, system, tools)
        usable = tuple(tool.name for tool in tools)
        return Plan(preamble, History(), tools, usable, [text_block(sub.task.prompt)], mcp=mcp)

    def _fork(self, sub: SubAgent, model: str, parent: Agent, cwd: str, mcp: AgentMcp | None) -> Plan:
        """Its requests begin like its parent's next one, so that the model's cache is used."""
        known = parent.conversation.history
        history = History(list(known.messages), dict(known.seen_files))
        outside: dict[str, ToolDefinition] = {tool.name: tool for tool in mcp.tools} if mcp else {}
        tools = tuple(outside.get(name) or self._factory.find_tool(name) for name in parent.toolset.tools)
        usable = tuple(tool.name for tool in self._tools(sub) if tool in tools and _is_wanted(tool, sub.task))
        usable += () if mcp is None or mcp.view.is_empty else tuple(outside)
        notes = [YOU_ARE_A_FORK.format(id=sub.id, tools=", ".join(usable))]
        notes += [f"<note>{WORKS_IN.format(cwd=cwd)}</note>"] if cwd else []
        opening = [*_answers(history.messages, sub.id), *map(text_block, notes), text_block(sub.task.prompt)]
        preamble = parent.preamble if model == parent.preamble.model else replace(parent.preamble, model=model)
        return Plan(preamble, history, tools, usable, opening, tuple(notes), mcp)

    def _memory(self, role: Role, tools: tuple[ToolDefinition, ...], cwd: str) -> str:
        """What its role has learned. Without a role file there is no memory."""
        if role is GENERAL or LazyTool("read_file") not in tools:
            return ""
        return self._factory.briefing.memory(role.name, may_write=LazyTool("write_file") in tools, is_in_root=not cwd)

    def _remembers_as(self, sub: SubAgent, role: Role | None) -> str:
        """The role whose memory in the user's home it can use. A fork uses that of its parent."""
        if role is not None:
            return "" if role is GENERAL else role.name
        if sub.above is None:
            return LEAD if sub.parent == LEAD else self._factory.runtime.roster.get(sub.parent).role
        return sub.above.built.remembers_as if sub.above.built else ""

    def _tools(self, sub: SubAgent) -> tuple[ToolDefinition, ...]:
        may_go_deeper = sub.depth < self._factory.runtime.choices.settings.subagents.depth
        return (*self._factory.base_tools, AGENT) if may_go_deeper else self._factory.base_tools

    def _start(self, cwd: str, workspace: Workspace) -> Path | None:
        """Raises: ToolError."""
        if not cwd:
            return None
        start = workspace.resolve(cwd)
        if not start.is_dir():
            raise ToolError(f"cwd: {cwd} is not a directory in the workspace")
        return start

    def _gate(self, plan: Plan, root: str) -> Callable[[str, str, Access], str]:
        """Refuses what the agent at the root of its parents may not do either."""

        def gate(agent: str, tool: str, access: Access) -> str:
            if tool not in plan.usable and not (plan.mcp and plan.mcp.view.may_use(tool)):
                return f"{tool} is not for a sub-agent: it has {', '.join(plan.usable)}"
            return self._team.protocols.gate(root, tool, access)

        return gate


def _is_wanted(tool: ToolDefinition, task: SubAgentTask) -> bool:
    return task.tools is None or tool.name in task.tools


def _answers(messages: Sequence[Message], id: str) -> list[Block]:
    """A result for each call that its parent is making. Without them the API would reject the conversation."""
    calls = open_calls(messages[-1]) if messages else []
    text = FORKED.format(id=id)
    return [{"type": "tool_result", "tool_use_id": call["id"], "content": text} for call in calls]


def _first_row(sub: SubAgent, model: str, inherited: int) -> dict[str, object]:
    return {
        "v": VERSION,
        "kind": "subagent",
        "id": sub.id,
        "parent": sub.parent,
        "description": sub.task.description,
        "role": sub.task.role,
        "model": model,
        "background": sub.is_background,
        "inherited_messages": inherited,
    }
