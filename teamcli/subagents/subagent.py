"""One sub-agent: who it is, its state and its mail. Its final state is set once and stays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

from teamcli.agent.conversation import text_block
from teamcli.agent.events import Event
from teamcli.agent.loop import Agent, Delivery
from teamcli.cancel import CancelScope
from teamcli.subagents.activity import ActivityLog
from teamcli.subagents.snapshot import Snapshot, State
from teamcli.team.message import Message, frame
from teamcli.text.escaping import one_line
from teamcli.tools.base.context import SubAgentTask

NAME_LIMIT, TASK_LIMIT = 60, 120


class BuiltAgent(NamedTuple):
    """The agent behind a sub-agent, ready to work."""

    agent: Agent
    opening: Delivery
    """Its first user message."""
    tools: tuple[str, ...]
    """Those that it may use."""
    release: Callable[[], None]
    """Stops what it has running, and closes its files and connections."""
    cwd: str = ""
    """Where it works; empty for the workspace root."""
    remembers_as: str = ""
    """The role whose memory it uses; empty for none."""


class Ending(NamedTuple):
    state: State
    result: str
    error: str = ""

    @property
    def text(self) -> str:
        """The report to its parent."""
        return "\n\n".join(filter(None, (self.error, self.result)))


class Observer(Protocol):
    def changed(self, sub: SubAgent) -> None: ...

    def waits(self, sub: SubAgent, what: str) -> None:
        """It waits for the user; an empty `what` means no longer."""
        ...


class SubAgent:
    def __init__(
        self,
        id: str,
        parent: str,
        task: SubAgentTask,
        scope: CancelScope,
        is_background: bool,
        observer: Observer,
        above: SubAgent | None = None,
    ) -> None:
        """`above` is the parent, if that is a sub-agent itself."""
        self.id = id
        self.parent = parent
        self.task = task
        self.scope = scope
        self.is_background = is_background
        self.above = above
        self.activity = ActivityLog()
        self.created_at = time.time()
        # The fields below are written by the methods of this class alone.
        self.built: BuiltAgent | None = None
        self.state = State.PENDING
        self.ending: Ending | None = None
        self.is_ending = False
        """Its end is being reported to its parent; `state` follows in a moment."""
        self.stopped_by_user = False
        self._observer = observer
        self._started_at: float | None = None
        self._ended_at: float | None = None
        self._children_awaited = 0
        self._mail: list[Message] = []
        self._reads_mail = True
        self._lock = threading.Lock()

    @property
    def depth(self) -> int:
        return self.above.depth + 1 if self.above else 1

    @property
    def root(self) -> str:
        """The lead or the teammate at the top of its line of parents."""
        return self.above.root if self.above else self.parent

    @property
    def is_detached(self) -> bool:
        """Whether it runs while no agent waits for it."""
        return self.is_background or self.task.by_user

    @property
    def name(self) -> str:
        """A short label."""
        return one_line(self.task.description or self.task.prompt, NAME_LIMIT)

    def snapshot(self) -> Snapshot:
        activity = self.activity.look()
        with self._lock:
            ending = self.ending or Ending(self.state, "")
            return Snapshot(
                id=self.id,
                name=self.name,
                parent=self.parent,
                task=self.task.prompt,
                display_task=one_line(self.task.prompt, TASK_LIMIT),
                tools=self.built.tools if self.built else (),
                state=self.state,
                is_background=self.is_background,
                activity=activity,
                result=ending.result,
                error=ending.error,
                created_at=self.created_at,
                started_at=self._started_at,
                ended_at=self._ended_at,
            )

    def attach(self, built: BuiltAgent) -> None:
        """Called once, when its agent has been built."""
        self.built = built

    def begin(self) -> None:
        with self._lock:
            self.state, self._started_at = State.RUNNING, time.time()
        self._observer.changed(self)

    def stop(self, reason: str, by_user: bool = False) -> bool:
        """Cancel its work; false if it has ended."""
        if self.state.is_final:
            return False
        self.stopped_by_user = by_user
        self.scope.cancel(reason)
        return True

    def begin_ending(self) -> None:
        self.is_ending = True

    def finish(self, ending: Ending) -> bool:
        """Set the final state; false, with nothing changed, if it has one."""
        with self._lock:
            if self.state.is_final:
                return False
            self.state, self.ending, self._ended_at = ending.state, ending, time.time()
            self._reads_mail = False
            # A child scope keeps its parent alive, and a finished sub-agent is remembered for long.
            self.scope = CancelScope()
        self.show_phase("")
        return True

    def begin_waiting(self) -> bool:
        """It waits for a sub-agent that it has started; true if it waited for none before."""
        with self._lock:
            self._children_awaited += 1
            return self._children_awaited == 1

    def end_waiting(self) -> bool:
        """True if it waits for no other one."""
        with self._lock:
            self._children_awaited -= 1
            return not self._children_awaited

    def take(self, event: Event) -> None:
        """Take an event of its agent."""
        self.activity.take(event)
        self._observer.changed(self)

    def show_phase(self, phase: str) -> None:
        self.activity.show_phase(phase)
        self._observer.changed(self)

    def show_waiting(self, what: str) -> None:
        """It waits for the user's answer."""
        self.show_phase(f"waiting for {what}" if what else "running tools")
        self._observer.waits(self, what)

    def send(self, message: Message) -> bool:
        """Deliver a message at its next step; false if there will be none."""
        with self._lock:
            if self._reads_mail:
                self._mail.append(message)
            return self._reads_mail

    def incoming(self, noted: Mapping[str, Any]) -> Delivery:
        with self._lock:
            mail, self._mail = self._mail, []
        return Delivery([text_block(frame(message)) for message in mail])

    def last_incoming(self) -> Delivery:
        """What arrived during its last answer. If nothing did, nothing is accepted from now on."""
        with self._lock:
            self._reads_mail = bool(self._mail)
        return self.incoming({})
