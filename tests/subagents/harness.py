"""Sub-agents with the real manager and the real loop, whose model is a function."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from teamcli.agent.conversation import Conversation, History, text_block
from teamcli.agent.events import Event, Recorded
from teamcli.agent.limits import Budget, Meter
from teamcli.agent.loop import Agent, Delivery
from teamcli.agent.permission_question import Permissions
from teamcli.agent.tool import Display, Harmless, PreparedCall, ToolOutput
from teamcli.agent.tool_calls import Toolset
from teamcli.cancel import CancelScope
from teamcli.errors import StreamInterrupted
from teamcli.llm.types import OnEvent, Preamble, Reply, Request, TextDelta, ToolSpec, Usage
from teamcli.permissions.policy import Decision, Verdict
from teamcli.storage.append_log import AppendLog
from teamcli.subagents.ledger import Ledger
from teamcli.subagents.manager import SubAgentManager
from teamcli.subagents.runner import Limits, Parent
from teamcli.subagents.subagent import BuiltAgent, SubAgent
from teamcli.team.message import Message
from teamcli.tools.base.context import CallContext, SubAgentTask

USUAL = Limits()
Say = Callable[[Request, OnEvent, CancelScope], Reply]


def said(text: str, *blocks: dict[str, Any]) -> Reply:
    stop = "tool_use" if blocks else "end_turn"
    return Reply((text_block(text), *blocks), stop, Usage(1, 1))


def call(id: str, name: str = "poke", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": id, "name": name, "input": given}


def hang(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
    """Starts an answer and never ends it."""
    on_event(TextDelta("half of it"))
    cancel.wait()
    raise StreamInterrupted(cancel.reason, None)


class Model:
    def __init__(self, say: Say) -> None:
        self._say = say

    def stream(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        return self._say(request, on_event, cancel)

    def warm_up(self) -> None:
        pass

    def close(self) -> None:
        pass


class Poke:
    """A tool that does what the test says."""

    spec = ToolSpec("poke", "Pokes.", {"type": "object"})

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def prepare(self, raw: object) -> PreparedCall:
        def run(cancel: CancelScope, progress: Any, call_id: str = "", key: str = "") -> ToolOutput:
            return ToolOutput(str(self._act()))

        return PreparedCall(Display("poke"), Harmless(), run)


class Unobserved:
    """For a sub-agent outside a manager."""

    def changed(self, sub: SubAgent) -> None:
        pass

    def waits(self, sub: SubAgent, what: str) -> None:
        pass


class Harness:
    """A lead that takes no turns, and the sub-agents it starts."""

    def __init__(
        self,
        root: Path,
        say: Say = lambda request, on_event, cancel: said("done"),
        limits: Limits = USUAL,
        poke: Callable[[], object] = lambda: "poked",
    ) -> None:
        self._say = say
        self._root = root
        self._poke = poke
        self.program = CancelScope()
        self.lead_scope = self.program.child()
        self.is_there = True
        self.posted: list[Message] = []
        self.events: list[Event] = []
        self.failure: Exception | None = None
        self.released: list[str] = []
        self.ended_count = 0
        self.manager = self._open(limits)

    def _open(self, limits: Limits) -> SubAgentManager:
        ledger = Ledger(self._root / "subagents.json")
        return SubAgentManager(self, limits, self._root / "transcripts", ledger, self.events.append, self.program)

    def restarted(self) -> SubAgentManager:
        """The manager of a new program in the same directory."""
        return self._open(Limits())

    def parent(self, name: str) -> Parent | None:
        return Parent(self._agent("lead", self._root / "lead.jsonl", self.events.append), self.lead_scope)

    def has_member(self, name: str) -> bool:
        return self.is_there

    def build(self, sub: SubAgent, parent: Agent, path: Path) -> BuiltAgent:
        agent = self._agent(sub.id, path, lambda event: (sub.take(event), self.events.append(event))[0])
        opening = Delivery([text_block(sub.task.prompt)])

        def release() -> None:
            self.released.append(sub.id)
            agent.conversation.switch_to(History())

        return BuiltAgent(agent, opening, ("poke",), release)

    def start(self, prompt: str = "do it") -> str:
        """Start one in the background and return its id."""
        return self.manager.tools.start("lead", SubAgentTask(prompt)).split()[1]

    def run(self, prompt: str = "do it", cancel: CancelScope | None = None) -> str:
        return self.manager.tools.run(
            "lead", SubAgentTask(prompt), CallContext(cancel or CancelScope(), lambda text: None, "call")
        )

    def _agent(self, name: str, path: Path, emit: Callable[[Event], None]) -> Agent:
        permissions = Permissions(
            lambda tool, access, given: Decision(Verdict.ALLOW, ""),
            ask=lambda question: None,
            remember=lambda rule: None,
        )
        log = AppendLog(path, durable=False)
        return Agent(
            Model(self._say),
            Preamble("model", "", (), 100),
            Conversation(log, on_record=lambda message, marks: emit(Recorded(name, message))),
            Toolset(name, {"poke": Poke(self._poke)}, permissions, emit),
            Meter(Budget(), price=lambda usage, model: 0.5),
        )

    def post(self, message: Message, once: bool = False) -> None:
        if self.failure:
            raise self.failure
        if not once or message.id not in [posted.id for posted in self.posted]:
            self.posted.append(message)

    def on_subagent_end(self) -> None:
        self.ended_count += 1


class Together:
    """Counts how many are inside at the same time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._now = 0
        self.most = 0

    def __enter__(self) -> None:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._now -= 1
