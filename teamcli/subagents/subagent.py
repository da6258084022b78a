"""One sub-agent: who it is, how it stands, what waits for it. Its final state is set once and stays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from teamcli.agent.conversation import text_block
from teamcli.agent.events import Event
from teamcli.agent.loop import Agent, Delivery
from teamcli.cancel import CancelScope
from teamcli.subagents.activity import ActivityLog
from teamcli.subagents.snapshot import Snapshot, State
from teamcli.team.message import Message, frame
from teamcli.text.escaping import one_line
from teamcli.tools.context import SubAgentTask

NAME_LIMIT, TASK_LIMIT = 60, 120


class BuiltAgent(NamedTuple):
    """A sub-agent's agent, ready to work."""

    agent: Agent
    opening: Delivery
    """What it is told first."""
    tools: tuple[str, ...]
    """Those that it may use."""
    release: Callable[[], None]
    """Ends what it has running and gives up its files and connections."""


class Ending(NamedTuple):
    state: State
    result: str
    error: str = ""

    @property
    def text(self) -> str:
        """What its parent is told."""
        return "\n\n".join(filter(None, (self.error, self.result)))


class SubAgent:
    def __init__(
        self,
        id: str,
        parent: str,
        task: SubAgentTask,
        scope: CancelScope,
        is_background: bool,
        on_change: Callable[[SubAgent], None],
        above: SubAgent | None = None,
        on_wait: Callable[[SubAgent, str], None] = lambda sub, what: None,
    ) -> None:
        """`above` is the parent, where that is a sub-agent itself; `on_wait` is told what it waits for."""
        self.id = id
        self.parent = parent
        self.task = task
        self.scope = scope
        self.is_background = is_background
        self.depth: int = above.depth + 1 if above else 1
        self.root: str = above.root if above else parent
        """The lead or the teammate that it works for in the end."""
        self.remembers_as: str = above.remembers_as if above else ""
        """The role whose memory it reaches; a copy's is that of the one it is a copy of."""
        self.cwd = ""
        """Where it works; empty for the root of the workspace."""
        self.waited_for = 0
        """So many of its own it waits for at this moment."""
        self.activity = ActivityLog()
        self.agent: Agent | None = None
        self.tools: tuple[str, ...] = ()
        self.stopped_by_user = False
        self._on_change = on_change
        self._on_wait = on_wait
        self._state = State.PENDING
        self._ending: Ending | None = None
        self._created_at = time.time()
        self._started_at: float | None = None
        self._ended_at: float | None = None
        self.is_ending = False
        """Its parent is being told how it ended; its state says so in a moment."""
        self._mail: list[Message] = []
        self._reads_mail = True
        self._lock = threading.Lock()

    @property
    def is_aside(self) -> bool:
        """Whether it runs while no agent waits for it."""
        return self.is_background or self.task.by_user

    @property
    def number(self) -> int:
        """Its place among all, in the order in which they were started."""
        return int(self.id.partition("-")[2])

    @property
    def name(self) -> str:
        """A short label."""
        return one_line(self.task.description or self.task.prompt, NAME_LIMIT)

    @property
    def state(self) -> State:
        return self._state

    @property
    def ending(self) -> Ending | None:
        return self._ending

    @property
    def created_at(self) -> float:
        return self._created_at

    def snapshot(self) -> Snapshot:
        activity = self.activity.look()
        with self._lock:
            ending = self._ending or Ending(self._state, "")
            return Snapshot(
                id=self.id,
                name=self.name,
                parent=self.parent,
                task=self.task.prompt,
                display_task=one_line(self.task.prompt, TASK_LIMIT),
                tools=self.tools,
                state=self._state,
                is_background=self.is_background,
                activity=activity,
                result=ending.result,
                error=ending.error,
                created_at=self._created_at,
                started_at=self._started_at,
                ended_at=self._ended_at,
            )

    def begin(self) -> None:
        with self._lock:
            self._state, self._started_at = State.RUNNING, time.time()
        self._on_change(self)

    def finish(self, ending: Ending) -> bool:
        """Set how it ended; false, and nothing changes, where it has ended before."""
        with self._lock:
            if self._state.is_final:
                return False
            self._state, self._ending, self._ended_at = ending.state, ending, time.time()
            self._reads_mail = False
            self.scope = CancelScope()  # the one that it had is its parent's child, and must not stay for ever
        self.activity.show_phase("")
        self._on_change(self)
        return True

    def take(self, event: Event) -> None:
        """An event of its own."""
        self.activity.take(event)
        self._on_change(self)

    def show_phase(self, phase: str) -> None:
        self.activity.show_phase(phase)
        self._on_change(self)

    def show_waiting(self, what: str) -> None:
        """For the user's answer."""
        self.show_phase(f"waiting for {what}" if what else "running tools")
        self._on_wait(self, what)

    def send(self, message: Message) -> bool:
        """A message that it reads at its next step; false where there will be none."""
        with self._lock:
            if self._reads_mail:
                self._mail.append(message)
            return self._reads_mail

    def incoming(self, noted: Mapping[str, Any]) -> Delivery:
        with self._lock:
            mail, self._mail = self._mail, []
        return _as_delivery(mail)

    def last_incoming(self) -> Delivery:
        """What came while it said its last words; where nothing did, nothing can come any more."""
        with self._lock:
            mail, self._mail = self._mail, []
            self._reads_mail = bool(mail)
        return _as_delivery(mail)


def _as_delivery(mail: list[Message]) -> Delivery:
    return Delivery([text_block(frame(message)) for message in mail])
