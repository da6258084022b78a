"""The connection on which this process hears what others have changed.

A notification only says where to look, and may be lost. So after each gap, and from time to time, everyone looks.
"""

from __future__ import annotations

import logging
import selectors
import socket
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from teamcli.cancel import CancelScope
from teamcli.errors import StateError
from teamcli.store.postgres.database import FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, connect, wait_about

SILENCE_SECONDS = 20.0
"""After this time without a notification, the listener checks whether its connection still works."""
logger = logging.getLogger(__name__)


class Listener:
    """A thread that waits for notifications. After each gap, it asks everyone to look for themselves."""

    def __init__(
        self,
        url: str,
        channels: Sequence[str],
        on_topics: Callable[[Sequence[str]], None],
        on_gap: Callable[[], None],
        silence_seconds: float = SILENCE_SECONDS,
        is_known: Callable[[int, str], bool] = lambda pid, topic: False,
    ) -> None:
        """All are called in the listener's thread. `on_topics` gets the names of the topics that have arrived since the
        last call. `on_gap` is called when it begins to listen, and whenever it may have missed something. `is_known`
        gets the process of the server that a notification is from, and the name of its topic; if it says so, that is
        left out."""
        self._url = url
        self._channels = channels
        self._on_topics = on_topics
        self._on_gap = on_gap
        self._is_known = is_known
        self._silence_seconds = silence_seconds
        self._closed = CancelScope()
        self._woken, self._wake = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="database listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self, timeout_seconds: float = 1.0) -> None:
        self._closed.cancel("closed")
        self._wake.close()
        if self._thread.ident is None:
            self._woken.close()
        elif self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        with self._woken:
            self._stay_connected()

    def _stay_connected(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._closed.cancelled:
            try:
                with connect(self._url) as connection:
                    for channel in self._channels:
                        connection.execute(f"listen {channel}".encode())
                    self._call(self._on_gap)  # after `listen`: what is committed in between would be missed
                    pause = FIRST_PAUSE_SECONDS
                    self._listen(connection)
            except (psycopg.Error, OSError, StateError) as e:
                logger.info("the listener has no connection: %s", e)
            wait_about(self._closed, pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        # psycopg itself would wake up ten times a second to see a Ctrl-C.
        with selectors.DefaultSelector() as selector:
            selector.register(connection, selectors.EVENT_READ)
            selector.register(self._woken, selectors.EVENT_READ)
            looked_at = time.monotonic()
            while not self._closed.cancelled:
                # Before waiting: what came with the answer to a statement is read already, and would wake nobody.
                arrived = [(each.pid, each.payload) for each in connection.notifies(timeout=0)]
                news = [topic for pid, topic in arrived if not self._is_known(pid, topic)]
                if news:
                    self._call(self._on_topics, tuple(dict.fromkeys(news)))  # of several equal ones, one is enough
                if not selector.select(looked_at + self._silence_seconds - time.monotonic()):
                    connection.execute("select 1")  # half a connection would be silent forever
                    self._call(self._on_gap)  # a notification is lost if its sender dies right after the commit
                    looked_at = time.monotonic()

    def _call(self, callback: Callable[..., None], *arguments: Sequence[str]) -> None:
        if not self._closed.cancelled:
            try:
                callback(*arguments)
            except Exception:  # boundary: all others still have to hear what happens
                logger.exception("%s failed", callback)
