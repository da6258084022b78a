"""An agent with a thread: it works when there is something to do, and otherwise waits at no cost.

`Lead` and `Teammate` say what there is to do (`step`) and what wakes them. Everything about the thread itself is here.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from enum import Enum, auto

from teamcli.agent.events import Notice
from teamcli.agent.loop import Agent, Delivery
from teamcli.agent.mentions import attach_mentioned
from teamcli.cancel import CancelScope
from teamcli.team.mailbox import Mailbox
from teamcli.workspace.bounds import Workspace

logger = logging.getLogger(__name__)


class ThreadState(Enum):
    IDLE = auto()
    HELD = auto()
    """No turn may begin: something else is using the conversation."""
    WORKING = auto()
    """A turn is running."""
    REPORTING = auto()
    """A turn has ended, or cannot begin, and this is being recorded and reported."""


class AgentThread(ABC):
    def __init__(self, agent: Agent, mailbox: Mailbox, scope: CancelScope, workspace: Workspace) -> None:
        """`scope` outlives the agent's turns: cancelling it ends the thread."""
        self.agent = agent
        self.mailbox = mailbox
        self.scope = scope
        self._workspace = workspace
        self._state = ThreadState.IDLE
        self._turn: CancelScope | None = None
        self._mail_wakes = True
        self.turns_begun = 0
        self._changed = threading.Condition()
        """Guards the state, and is notified when it changes."""
        self._wakes = threading.Event()
        self._thread = threading.Thread(target=self._run, name=agent.name, daemon=True)

    @property
    def name(self) -> str:
        return self.agent.name

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    @property
    def current_scope(self) -> CancelScope:
        """Cancelled when its turn ends early; without a turn, when it leaves."""
        return self._turn or self.scope

    @property
    def is_in_turn(self) -> bool:
        """A turn is running or being reported."""
        return self._state in (ThreadState.WORKING, ThreadState.REPORTING)

    @property
    def is_idle(self) -> bool:
        """Nothing is running or being reported, and there is nothing to act on."""
        with self._changed:
            return not self.is_in_turn and not self.has_work

    @property
    @abstractmethod
    def has_work(self) -> bool:
        """Whether there is something to act on, and nothing that prevents it."""

    @abstractmethod
    def step(self) -> bool:
        """Run one turn if there is something to do; false if there was nothing.

        Raises: StateError
        """

    @abstractmethod
    def mail_arrived(self) -> None:
        """There may be new mail; called from any thread."""

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_seconds: float | None = None) -> None:
        # A signal may end the program before the thread has started, and a listener may close the session it runs in.
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def wake(self) -> None:
        """There may be something to do."""
        self._wakes.set()

    def resume(self) -> None:
        """Let mail wake it again, and look for something to do."""
        self._mail_wakes = True
        self.wake()

    def interrupt(self, reason: str) -> bool:
        """End the turn, from any thread; false if there is none. Mail that is there already does not wake it again."""
        # Without the lock, which may be held while mail is read from disk: stopping must never wait.
        turn = self._turn
        if turn is None:
            return False
        self._mail_wakes = False
        turn.cancel(reason)
        return True

    def _begin_turn(self) -> CancelScope:
        self.mailbox.late.hold()
        with self._changed:
            self._state = ThreadState.WORKING
            self.turns_begun += 1
            self._turn = self.scope.child()
            self._changed.notify_all()
            return self._turn

    def _end_turn(self, state: ThreadState) -> None:
        with self._changed:
            self._turn = None
            self._state = state
            self._changed.notify_all()

    def _attach(self, text: str) -> Delivery:
        """The files that the user's words mention."""

        def report(words: str) -> None:
            self.agent.emit(Notice(self.name, words))

        return attach_mentioned(text, self.agent.toolset, self._workspace, self.current_scope, report)

    def _run(self) -> None:
        with self.scope.on_cancel(self.wake):
            self._on_start()
            while not self.scope.cancelled:
                self._wakes.wait(self._seconds_until_due())
                self._wakes.clear()
                try:
                    while not self.scope.cancelled and self.step():
                        pass
                except Exception as e:  # boundary: an agent's thread never dies silently
                    logger.exception("%s failed", self.name)
                    self._on_failure(e)
                self.mailbox.late.release()
                if self._state is ThreadState.REPORTING:  # only now has the end of every turn been reported
                    self._end_turn(ThreadState.IDLE)
                self._on_idle()
        self._on_exit()

    def _seconds_until_due(self) -> float | None:
        """How long to wait at most before the next step; None if only `wake` ends the wait."""
        return None

    @abstractmethod
    def _on_idle(self) -> None:
        """There is nothing to do right now."""

    @abstractmethod
    def _on_failure(self, error: Exception) -> None:
        """A step failed unexpectedly."""

    def _on_start(self) -> None:  # noqa: B027 - a teammate does nothing here
        """Runs in the thread, before the first step."""

    @abstractmethod
    def _on_exit(self) -> None:
        """Runs in the thread, after the last step."""
