"""Starts a server when it is needed, and again after a crash. Any number of threads may wait for one start."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, LoginNeeded, McpError
from teamcli.mcp.changes import ChangeNotifier
from teamcli.mcp.conversation import McpConversation
from teamcli.mcp.peer import AnswerBroken, ConversationLost, OpenTransport
from teamcli.mcp.server import Ask, Era, Kind, ServerConfig, ServerStatus

logger = logging.getLogger(__name__)

_MOST_STARTS, _STARTS_WITHIN_SECONDS = 3, 60.0
"""A server that crashes more often waits, so that it is not started in a loop."""
_MARGIN_SECONDS = 1.0
"""For those who wait for a start, so that they read why it failed and not only that it took too long."""


class McpStarter:
    """Owns the conversation with a server and its status."""

    def __init__(
        self,
        config: ServerConfig,
        open_transport: OpenTransport,
        root: Path,
        ask: Ask,
        on_change: Callable[[Kind], None],
        on_status: Callable[[ServerStatus], None],
    ) -> None:
        """As of `McpClient`."""
        self._config = config
        self._open_transport = open_transport
        self._root = root
        self._ask = ask
        self._on_status = on_status
        self._changes = ChangeNotifier(on_change)
        self._lock = threading.Lock()
        self._scope = CancelScope()
        self._status = ServerStatus()
        self._conversation: McpConversation | None = None
        self._was_ready = False
        self._starting: Future[McpConversation] | None = None
        self._started_at: deque[float] = deque(maxlen=_MOST_STARTS)
        self._era: Era = "modern" if config.url else "legacy"

    @property
    def status(self) -> ServerStatus:
        return self._status

    @property
    def era(self) -> Era:
        """That of the server; what is tried first until it has answered."""
        return self._era

    def conversation(self, cancel: CancelScope) -> McpConversation:
        """The one that there is, or a new one.

        Raises: McpError, Cancelled
        """
        cancel.check()
        with self._lock:
            if self._status.state == "closed":
                raise McpError(f"MCP server {self._config.name}: the connection is closed")
            if self._conversation is not None and not self._conversation.is_lost:
                return self._conversation
            starting, is_new = self._starting, self._starting is None
            if starting is None:
                starting = self._begin()
        if is_new:
            self._on_status(self._status)
            threading.Thread(
                target=self._start_into, args=(starting,), name=f"mcp start {self._config.name}", daemon=True
            ).start()
        return self._wait_for(starting, cancel)

    def start_over(self) -> None:
        """End the conversation. The user wants another one, so that earlier starts failed does not count."""
        with self._lock:
            self._started_at.clear()
            conversation, self._conversation = self._conversation, None
        if conversation is not None:
            conversation.close()

    def close(self) -> None:
        with self._lock:
            self._status = ServerStatus("closed")
            conversation, self._conversation = self._conversation, None
        self._on_status(self._status)
        self._scope.cancel("closed")
        self._changes.close()
        if conversation is not None:
            conversation.close()

    def fail(self, error: McpError) -> None:
        with self._lock:
            self._starting = None
            if self._status.state == "closed":
                return
            self._status = _failed(error)
        self._on_status(self._status)

    def _wait_for(self, starting: Future[McpConversation], cancel: CancelScope) -> McpConversation:
        """A waiter that is cancelled does not stop the start, for which others may wait."""
        ready: queue.SimpleQueue[bool] = queue.SimpleQueue()
        starting.add_done_callback(lambda _: ready.put(True))
        with cancel.on_cancel(lambda: ready.put(False)):
            try:
                is_ready = ready.get(timeout=self._config.timeouts.start_seconds + _MARGIN_SECONDS)
            except queue.Empty:
                raise McpError(f"MCP server {self._config.name} has not started in time") from None
        if not is_ready:
            raise Cancelled(cancel.reason)
        error = starting.exception()
        if isinstance(error, McpError):  # each waiter raises its own
            kind = McpError if isinstance(error, AnswerBroken) else type(error)  # a start is not repeated
            raise kind(str(error), error.detail) from error
        return starting.result()

    def _begin(self) -> Future[McpConversation]:
        """With the lock held. Raises: McpError"""
        now = time.monotonic()
        if len(self._started_at) == _MOST_STARTS and now - self._started_at[0] < _STARTS_WITHIN_SECONDS:
            raise McpError(
                f"MCP server {self._config.name} failed {_MOST_STARTS} times within a minute and is not started again "
                f"yet; fix it, or reconnect it with /mcp ({self._status.error})",
                self._status.error_detail,
            )
        self._started_at.append(now)
        self._status = ServerStatus("starting")
        starting = self._starting = Future()
        return starting

    def _start_into(self, starting: Future[McpConversation]) -> None:
        conversation = None
        try:
            conversation = self._open()
            conversation.begin(self._era, self._config.timeouts.start_seconds, self._scope)
            self._become_ready(conversation)
            starting.set_result(conversation)
            return
        except McpError as e:
            error = e
        except Cancelled:
            error = McpError(f"MCP server {self._config.name}: the connection is closed")
        except Exception as e:  # boundary: a bug must not leave the others waiting
            logger.exception("MCP server %s cannot be started", self._config.name)
            error = McpError(f"MCP server {self._config.name} cannot be started: {e}")
        self.fail(error)
        starting.set_exception(error)
        if conversation is not None:
            conversation.close()

    def _open(self) -> McpConversation:
        made: list[McpConversation] = []

        def on_lost(error: McpError) -> None:
            with self._lock:
                # One that is still starting, or was replaced, is not the one whose status is shown.
                if not made or self._conversation is not made[0]:
                    return
                self._conversation = None
                self._status = _failed(error)
                if isinstance(error, ConversationLost):  # not a crash
                    self._started_at.clear()
            self._on_status(self._status)

        conversation = McpConversation(
            self._config, self._root, self._ask, self._changes.note, on_lost, self._open_transport
        )
        made.append(conversation)
        return conversation

    def _become_ready(self, conversation: McpConversation) -> None:
        """Raises: McpError, Cancelled"""
        with self._lock:
            if self._status.state == "closed":
                raise Cancelled
            if conversation.is_lost:
                raise McpError(f"MCP server {self._config.name} ended as soon as it had started")
            self._starting = None
            self._conversation = conversation
            # Tried first the next time: asking in the wrong era costs a round trip.
            self._era = conversation.hello.era
            self._status = conversation.hello.status
            is_restart, self._was_ready = self._was_ready, True
        self._on_status(self._status)
        # What runs now may offer other things than what crashed.
        if is_restart:
            self._changes.note("tools", "prompts", "resources")


def _failed(error: McpError) -> ServerStatus:
    return ServerStatus("needs_login" if isinstance(error, LoginNeeded) else "failed", str(error), error.detail)
