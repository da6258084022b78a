"""Sends what agents do to watchers in other processes, as JSON lines over a socket.

A watcher sends one line, `{"v": 1, "watch": NAME}` (an empty name: everyone). It gets `hello`, `snapshots`, and then
`event` lines. A watcher that reads too slowly gets `missed` and new snapshots instead of what did not fit.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import get_args

from teamcli.agent.events import Event, StillArriving
from teamcli.session.event_bus import EventBus
from teamcli.session.event_codec import encode_event
from teamcli.session.watching import AgentSnapshot, Watching
from teamcli.storage.files import VERSION, Json, decode_line, encode_line
from teamcli.storage.unix_socket import is_closed
from teamcli.team.message import is_address

logger = logging.getLogger(__name__)

KINDS: tuple[type[Event], ...] = tuple(kind for kind in get_args(Event) if kind is not StillArriving)
MOST_WATCHERS = 32
MOST_WAITING = 5_000
"""Events that wait for one watcher."""
MOST_WAITING_CHARACTERS = 4_000_000
REQUEST_SECONDS, LONGEST_REQUEST = 5.0, 4096
LAST_WORDS_SECONDS = 0.3
"""How long leaving waits for all watchers that still read."""


class WatchServer:
    def __init__(self, bus: EventBus, watching: Watching, names: Callable[[], list[str]]) -> None:
        """`names` returns all agents that there are."""
        self._bus = bus
        self._watching = watching
        self._names = names
        self._watchers: list[_Watcher] = []
        """Used by one thread: that of the program which looks for connections."""

    def add(self, connection: socket.socket) -> None:
        """Serve a watcher, in a thread of its own."""
        self.drop_closed()
        if len(self._watchers) >= MOST_WATCHERS:
            _refuse(connection, f"there are {MOST_WATCHERS} watchers already")
            return
        watcher = _Watcher(connection, self._bus, self._watching, self._names)
        try:
            watcher.start()
        except RuntimeError:  # the system has no thread left
            connection.close()
            return
        self._watchers.append(watcher)

    def drop_closed(self) -> None:
        """Let go of watchers that have left."""
        for watcher in self._watchers:
            if watcher.is_gone():
                watcher.close()
        self._watchers = [each for each in self._watchers if each.is_alive() and not each.is_gone()]

    def close(self) -> None:
        """Send what is left to those who still read it, and end."""
        for watcher in self._watchers:
            watcher.finish()
        deadline = time.monotonic() + LAST_WORDS_SECONDS
        for watcher in self._watchers:
            watcher.join(max(0.0, deadline - time.monotonic()))
            watcher.close()


class _Watcher(threading.Thread):
    """One watcher. Agents only queue their events here; this thread encodes and sends them."""

    def __init__(
        self, connection: socket.socket, bus: EventBus, watching: Watching, names: Callable[[], list[str]]
    ) -> None:
        super().__init__(name="watcher", daemon=True)
        self._connection = connection
        self._bus = bus
        self._watching = watching
        self._all_names = names
        self._agent = ""
        self._changed = threading.Condition()
        self._queue: deque[Event | list[AgentSnapshot]] = deque()
        self._waiting_characters = 0
        self._is_behind = False
        """It reads too slowly: it gets snapshots instead of what it has missed."""
        self._is_ending = False

    def is_gone(self) -> bool:
        return is_closed(self._connection)

    def finish(self) -> None:
        """End when everything is sent."""
        with self._changed:
            self._is_ending = True
            self._changed.notify()

    def close(self) -> None:
        """End at once."""
        self.finish()
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def run(self) -> None:
        try:
            with self._connection:
                self._serve()
        except OSError as e:  # it has left
            logger.debug("a watcher has left: %s", e)
        finally:
            self._bus.unsubscribe(self._offer)

    def _serve(self) -> None:
        self._connection.settimeout(REQUEST_SECONDS)
        agent = _read_request(self._connection)
        self._connection.settimeout(None)
        if agent is None:
            _refuse(self._connection, "the request is not valid: update teamcli")
            return
        self._agent = agent
        self._send({"kind": "hello", "v": VERSION, "pid": os.getpid()})
        self._bus.subscribe(self._offer, *KINDS)
        self._begin()
        while (items := self._next()) is not None:
            if items:
                self._connection.sendall(b"".join(map(_line_if_possible, items)))
            else:
                self._send({"kind": "missed"})
                self._begin()

    def _begin(self) -> None:
        self._watching.watch_all(lambda: [self._agent] if self._agent else self._all_names(), self._take_over)

    def _take_over(self, snapshots: list[AgentSnapshot]) -> None:
        with self._changed:
            self._queue.clear()
            self._queue.append(snapshots)
            self._waiting_characters = 0
            self._is_behind = False

    def _offer(self, event: Event) -> None:
        """Called by agents: never waits."""
        if self._agent and event.agent != self._agent:
            return
        with self._changed:
            if self._is_behind:
                return
            self._queue.append(event)
            self._waiting_characters += _size(event)
            if len(self._queue) > MOST_WAITING or self._waiting_characters > MOST_WAITING_CHARACTERS:
                self._is_behind = True
                self._queue.clear()
            self._changed.notify()

    def _next(self) -> list[Event | list[AgentSnapshot]] | None:
        """What is waiting; an empty list if the watcher has missed something, None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._is_behind or self._is_ending)
            items = list(self._queue)
            self._queue.clear()
            self._waiting_characters = 0
            return None if self._is_ending and not items else items

    def _send(self, value: Json) -> None:
        self._connection.sendall(encode_line(value))


def _refuse(connection: socket.socket, why: str) -> None:
    with connection, suppress(OSError):
        connection.setblocking(False)
        connection.send(encode_line({"kind": "error", "text": why}))
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(LONGEST_REQUEST):  # what stays unread would make the system drop the answer
            pass


def _read_request(connection: socket.socket) -> str | None:
    """The name of the agent to watch, empty for everyone; None if the request is not valid.

    Raises: OSError
    """
    data = b""
    while not data.endswith(b"\n"):
        piece = connection.recv(LONGEST_REQUEST)
        data += piece
        if not piece or len(data) > LONGEST_REQUEST:
            return None
    request = decode_line(data) or {}
    name = request.get("watch")
    return name if isinstance(name, str) and (not name or is_address(name)) else None


def _size(event: Event) -> int:
    """About how much memory it keeps."""
    return 100 + sum(len(field) for field in event if isinstance(field, str))


def _line_if_possible(item: Event | list[AgentSnapshot]) -> bytes:
    try:
        return _line(item)
    except (TypeError, ValueError, RecursionError):  # such as the input of a call that is nested too deeply
        logger.warning("watchers do not get this: %.200r", type(item))
        # What is under way can be missing from snapshots, but not the snapshots themselves.
        return _line([each._replace(current=()) for each in item]) if isinstance(item, list) else b""


def _line(item: Event | list[AgentSnapshot]) -> bytes:
    if isinstance(item, list):
        return encode_line({"kind": "snapshots", "snapshots": [_snapshot(each) for each in item]})
    return encode_line({"kind": "event", **encode_event(item)})


def _snapshot(snapshot: AgentSnapshot) -> Json:
    current = [encode_event(event) for event in snapshot.current]
    return {"agent": snapshot.agent, "end": snapshot.end, "file": snapshot.file, "current": current}
