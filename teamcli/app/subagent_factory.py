"""Builds sub-agents: a specialist that knows only its job, or a fork that knows all that its parent knows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from teamcli.agent.compaction import FORK_FRAME
from teamcli.agent.conversation import Conversation, History, open_calls, text_block
from teamcli.agent.events import Event, Recorded
from teamcli.agent.hooks import SUBAGENT_STOP
from teamcli.agent.loop import Agent, Delivery
from teamcli.agent.prompt import SUBAGENT_PROMPT, system_prompt
from teamcli.agent.tool import Access
from teamcli.config.roles import Role
from teamcli.errors import ToolError
from teamcli.llm.types import Block, Message, Preamble
from teamcli.storage.files import VERSION, AppendLog
from teamcli.subagents.ledger import Ledger
from teamcli.subagents.manager import Limits, Parent, SubAgentManager
from teamcli.subagents.subagent import Staffed, SubAgent
from teamcli.team.message import LEAD
from teamcli.team.message import Message as Mail
from teamcli.tools.catalog import Entry, Offered, bind_tools
from teamcli.tools.toolbox import Errand

if TYPE_CHECKING:
    from teamcli.app.agent_factory import AgentShop

GENERAL = Role("general", "any job")
"""A specialist in nothing, so that there is one without role files."""
FORKED = "A copy of you goes on from here as the sub-agent {id}."
WORKS_IN = "You work in {cwd}: your commands start there, and relative paths are relative to it."
AGENT = Entry("agent")
YOU_ARE_A_FORK = f"""\
{FORK_FRAME}You are {{id}}, a sub-agent: a copy of the agent above, made for one job. Do only this job; the rest is \
its own. You can use {{tools}} and nothing else. Nobody answers questions. Your last text, and nothing else of what \
you do, goes back to it as your result: make it complete and brief.</fork>"""


def open_subagents(shop: AgentShop) -> SubAgentManager:
    settings = shop.choices.settings.subagents

    def post(message: Mail, once: bool = False) -> None:
        (shop.team.post_again if once else shop.team.post_report)(message)

    return SubAgentManager(
        SubAgentShop(shop),
        Limits(settings.max_concurrent, settings.timeout_seconds, shop.choices.settings.limits.subagents),
        shop.state.subagent_transcripts,
        Ledger(shop.state.subagents),
        post,
        shop.events,
        shop.cancel,
        on_rest=shop.team.at_rest,
    )


class Plan(NamedTuple):
    """What a sub-agent is made from."""

    preamble: Preamble
    history: History
    tools: tuple[Offered, ...]
    """Those in its requests."""
    usable: tuple[str, ...]
    """Those that the pipeline lets through."""
    opening: Sequence[Block]
    identity: tuple[str, ...] = ()
    """Who it is, where its system prompt does not say so."""


class SubAgentShop:
    def __init__(self, shop: AgentShop) -> None:
        self._shop = shop

    def parent(self, name: str) -> Parent | None:
        found = self._shop.team.scope_of(name)
        return Parent(*found) if found else None

    def has_member(self, name: str) -> bool:
        return name == LEAD or name in self._shop.team.names()

    def staff(self, sub: SubAgent, parent: Agent, path: Path) -> Staffed:
        shop, errand = self._shop, sub.errand
        self._check_tools(sub)
        role = self._role(errand.role)
        model = self._model(errand, role, parent)
        start = self._start(errand.cwd or (role.cwd if role else ""))
        sub.cwd = str(start or "")
        plan = self._fresh(sub, role, model, parent) if role else self._fork(sub, model, parent)
        toolbox = shop.toolbox(sub.id, plan.history)
        sub.remembers_as = self._remembers_as(sub, role)
        if sub.remembers_as:
            toolbox = shop.with_memory(toolbox, sub.remembers_as)
        toolbox = toolbox._replace(
            workspace=replace(toolbox.workspace, start=start),
            subagents=toolbox.subagents if AGENT.name in plan.usable else None,
        )

        def emit(event: Event) -> None:
            sub.take(event)
            shop.events(event)

        tools = bind_tools(plan.tools, toolbox)
        show_waiting = lambda agent, what: sub.show_waiting(what)  # noqa: E731 - shorter than its name
        toolset = shop.toolset(sub.id, tools, self._gate(plan.usable, sub.root), show_waiting, emit)
        log = AppendLog(path, shop.choices.settings.durable, is_shared=False)
        conversation = Conversation(log, plan.history, lambda message, marks: emit(Recorded(sub.id, message)))
        conversation.note(_first_row(sub, model, len(plan.history.messages)))
        agent = Agent(
            name=sub.id,
            llm=shop.llm(),
            preamble=plan.preamble,
            conversation=conversation,
            toolset=toolset,
            meter=shop.budgets.subagent_meter(
                sub.id,
                parent.name,
                shop.options.max_turns,
                shop.choices.settings.subagents.turns,
                is_waited_for=not sub.is_aside,
            ),
            price=shop.choices.price,
            emit=emit,
            hooks=shop.hooks,
            stop_event=SUBAGENT_STOP,
            room=shop.room(),
        )
        agent.room.restate = lambda: plan.identity
        agent.meter.on_wait = lambda what: sub.show_phase(f"waiting for {what}" if what else "thinking")

        def release() -> None:
            shop.budgets.close(sub.id)
            toolbox.commands.close()
            agent.llm.close()
            log.close()
            conversation.take_up(History())  # what it used is still counted; what it said is on disk

        return Staffed(agent, Delivery(plan.opening), plan.usable, release)

    def _role(self, wanted: str) -> Role | None:
        """None for a fork."""
        if not wanted:
            return None
        roles = self._shop.roles
        if role := roles.match(wanted) or (GENERAL if wanted.strip().casefold() == GENERAL.name else None):
            return role
        there_are = sorted({role.name for role in roles.found.values()} | {GENERAL.name})
        raise ToolError(f"subagent_type: there is no role '{wanted}'; there are: {', '.join(there_are)}")

    def _check_tools(self, sub: SubAgent) -> None:
        """Raises: ToolError."""
        known = [tool.name for tool in self._tools(sub)]
        for name in sub.errand.tools or ():
            if name not in known:
                raise ToolError(f"tools: a sub-agent has no tool '{name}' (there are: {', '.join(known)})")

    def _model(self, errand: Errand, role: Role | None, parent: Agent) -> str:
        model = errand.model or (role.model if role else "") or parent.preamble.model
        if self._shop.budgets.subagent_is_bounded_in_usd(parent.name):
            self._shop.check_price(model)
        return model

    def _fresh(self, sub: SubAgent, role: Role, model: str, parent: Agent) -> Plan:
        parts = (SUBAGENT_PROMPT.format(name=sub.id), role.prompt, WORKS_IN.format(cwd=sub.cwd) if sub.cwd else "")
        tools = tuple(
            tool
            for tool in self._tools(sub)
            if tool.name in parent.toolset.tools
            and (role.tools is None or tool.name in role.tools)
            and tool.name not in role.disallowed_tools
            and _is_wanted(tool, sub.errand)
        )
        skills = self._shop.skills_for(tools, is_in_root=not sub.cwd)
        memory = self._memory(sub, role, tools)
        system = system_prompt("\n\n".join(filter(None, parts)), self._shop.instructions, skills, memory)
        preamble = self._shop.preamble(model, system, tools)
        usable = tuple(tool.name for tool in tools)
        return Plan(preamble, History(), tools, usable, [text_block(sub.errand.prompt)])

    def _fork(self, sub: SubAgent, model: str, parent: Agent) -> Plan:
        """The same request as its parent's next one up to the calls it is making: so the model's cache holds."""
        known = parent.conversation.history
        history = History(list(known.messages), dict(known.seen_files))
        tools = tuple(map(self._shop.offered, parent.toolset.tools))
        usable = tuple(tool.name for tool in self._tools(sub) if tool in tools and _is_wanted(tool, sub.errand))
        notes = [YOU_ARE_A_FORK.format(id=sub.id, tools=", ".join(usable))]
        notes += [f"<note>{WORKS_IN.format(cwd=sub.cwd)}</note>"] if sub.cwd else []
        opening = [*_answers(history.messages, sub.id), *map(text_block, notes), text_block(sub.errand.prompt)]
        preamble = parent.preamble if model == parent.preamble.model else replace(parent.preamble, model=model)
        return Plan(preamble, history, tools, usable, opening, tuple(notes))

    def _memory(self, sub: SubAgent, role: Role, tools: tuple[Offered, ...]) -> str:
        """What its role has learned; one without a role file begins with nothing and leaves nothing."""
        if role is GENERAL or Entry("read_file") not in tools:
            return ""
        return self._shop.memory(role.name, may_write=Entry("write_file") in tools, is_in_root=not sub.cwd)

    def _remembers_as(self, sub: SubAgent, role: Role | None) -> str:
        """Whose memory in the user's home it reaches: its role's; a copy, that of the one it is a copy of."""
        if role is not None:
            return "" if role is GENERAL else role.name
        return self._shop.role_of(sub.parent) if sub.depth == 1 else sub.remembers_as

    def _tools(self, sub: SubAgent) -> tuple[Offered, ...]:
        may_go_deeper = sub.depth < self._shop.choices.settings.subagents.depth
        return (*self._shop.base_tools, AGENT) if may_go_deeper else self._shop.base_tools

    def _start(self, cwd: str) -> Path | None:
        """Raises: ToolError."""
        if not cwd:
            return None
        start = self._shop.workspace.resolve(cwd)
        if not start.is_dir():
            raise ToolError(f"cwd: {cwd} is no directory of the workspace")
        return start

    def _gate(self, usable: tuple[str, ...], root: str) -> Callable[[str, str, Access], str]:
        """What the agent that it works for may not do, it may not do either."""

        def gate(agent: str, tool: str, access: Access) -> str:
            if tool not in usable:
                return f"{tool} is not for a sub-agent: it has {', '.join(usable)}"
            return self._shop.team.gate(root, tool, access)

        return gate


def _is_wanted(tool: Offered, errand: Errand) -> bool:
    return errand.tools is None or tool.name in errand.tools


def _answers(messages: Sequence[Message], id: str) -> list[Block]:
    """A result for each call that its parent is making, without which the API would refuse the conversation."""
    calls = open_calls(messages[-1]) if messages else []
    text = FORKED.format(id=id)
    return [{"type": "tool_result", "tool_use_id": call["id"], "content": text} for call in calls]


def _first_row(sub: SubAgent, model: str, inherited: int) -> dict[str, object]:
    return {
        "v": VERSION,
        "kind": "subagent",
        "id": sub.id,
        "parent": sub.parent,
        "description": sub.errand.description,
        "role": sub.errand.role,
        "model": model,
        "background": sub.is_background,
        "inherited_messages": inherited,
    }
