"""Connections to the database: one for what this process reads and writes, and one that listens.

Every transaction may run twice: if the connection is lost while it commits, nobody knows whether it has. So each one
must be harmless to repeat, by the ids, numbers and versions of what it writes.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable
from typing import Any, TypeVar

import psycopg
from psycopg import Cursor

from teamcli.cancel import CancelScope
from teamcli.errors import StateError

T = TypeVar("T")
CHANNEL = "teamcli"
CONNECT_SECONDS = 5
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
MOST_CONFLICTS = 8
SILENCE_SECONDS = 20.0
"""After this time without a notification, the listener checks whether its connection still works."""
_SETTINGS = "-c statement_timeout=10s -c lock_timeout=3s -c idle_in_transaction_session_timeout=10s"
_KEEPALIVE: dict[str, Any] = {"keepalives_idle": 10, "keepalives_interval": 5, "keepalives_count": 3}
_REPEATED = frozenset({"40001", "40P01", "55P03", "57014"})
"""Serialization, deadlock, lock timeout, statement timeout."""
_RECONNECTED = frozenset({"57P01", "57P02", "57P03", "53300", "25006", "25P03"})
"""Shutdown, crash, starting up, too many connections, a standby, idle in a transaction."""
logger = logging.getLogger(__name__)


class Database:
    """The connection that all threads of a process share, one transaction at a time."""

    def __init__(
        self,
        url: str,
        cancel: CancelScope,
        on_outage: Callable[[str], None] = lambda text: None,
        waits: bool = True,
    ) -> None:
        """`on_outage` gets a sentence when the database cannot be reached, and one when it can again. Unless `waits`,
        that is an error; otherwise all callers wait until it is back, or `cancel` is cancelled."""
        self._url = url
        self._cancel = cancel
        self._on_outage = on_outage
        self._waits = waits
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._has_outage = False

    def run(self, act: Callable[[Cursor[Any]], T], *topics: str) -> T:
        """Run `act` in a transaction, then wake those who listen for these topics. `act` must be harmless to repeat.

        Raises: StateError, and what `act` raises, after a rollback
        """
        pause, conflicts = FIRST_PAUSE_SECONDS, 0
        with self._lock:
            while True:
                try:
                    result = self._try(act)
                    break
                except psycopg.Error as e:
                    if _is_conflict(e) and conflicts < MOST_CONFLICTS:
                        conflicts += 1
                    elif not self._is_outage(e):
                        raise StateError(f"the database refuses: {_words(e)}") from e
                    else:
                        self._note_outage(e)
                self._pause(pause)
                pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
            self._note_recovery()
            for topic in topics:
                self._notify(topic)
        return result

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _try(self, act: Callable[[Cursor[Any]], T]) -> T:
        if self._connection is None:
            self._connection = connect(self._url)
        with self._connection.transaction(), self._connection.cursor() as cursor:
            return act(cursor)

    def _notify(self, topic: str) -> None:
        """After the commit: inside the transaction, all commits of the database would wait for each other."""
        try:
            if self._connection is not None:
                self._connection.execute("select pg_notify(%s, %s)", (CHANNEL, topic))
        except psycopg.Error as e:  # listeners look for themselves from time to time
            logger.warning("a notification was lost: %s", e)
            self._drop()

    def _is_outage(self, error: psycopg.Error) -> bool:
        if self._connection is None:  # it could not be opened
            return isinstance(error, psycopg.OperationalError) and not _is_refused(error)
        return self._connection.broken or self._connection.closed or error.sqlstate in _RECONNECTED

    def _note_outage(self, error: psycopg.Error) -> None:
        self._drop()
        if not self._waits:
            raise StateError(f"the database cannot be reached: {_words(error)}") from error
        if not self._has_outage:
            self._has_outage = True
            self._on_outage(f"The database cannot be reached ({_words(error)}). Everyone waits until it is back.")

    def _note_recovery(self) -> None:
        if self._has_outage:
            self._has_outage = False
            self._on_outage("The database is back.")

    def _pause(self, seconds: float) -> None:
        # With jitter, or all hosts would come back at the same moment.
        if self._cancel.wait(seconds * random.uniform(0.5, 1.0)):
            raise StateError("the database could not be reached before teamcli exited")

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Listener:
    """A thread that waits for notifications. After each gap, it asks everyone to look for themselves."""

    def __init__(self, url: str, on_topic: Callable[[str], None], on_gap: Callable[[], None]) -> None:
        """Both are called in the listener's thread. `on_gap` is called when it begins to listen, and whenever it may
        have missed something."""
        self._url = url
        self._on_topic = on_topic
        self._on_gap = on_gap
        self._closed = CancelScope()
        self._connection: psycopg.Connection[Any] | None = None
        self._is_listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="database listener", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def wait_until_listening(self, timeout_seconds: float) -> bool:
        return self._is_listening.wait(timeout_seconds)

    def close(self, timeout_seconds: float = 1.0) -> None:
        self._closed.cancel("closed")
        if (connection := self._connection) is not None:
            connection.cancel_safe(timeout=timeout_seconds)
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def _run(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while not self._closed.cancelled:
            try:
                with connect(self._url) as connection:
                    self._connection = connection
                    connection.execute(f"listen {CHANNEL}")
                    self._is_listening.set()
                    self._on_gap()
                    pause = FIRST_PAUSE_SECONDS
                    self._listen(connection)
            except psycopg.Error as e:
                logger.info("the listener lost its connection: %s", e)
            finally:
                self._connection = None
                self._is_listening.clear()
            self._closed.wait(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _listen(self, connection: psycopg.Connection[Any]) -> None:
        while not self._closed.cancelled:
            for notification in connection.notifies(timeout=SILENCE_SECONDS):
                self._on_topic(notification.payload)
                if self._closed.cancelled:
                    return
            connection.execute("select 1")  # half a connection would be silent forever
            self._on_gap()  # a notification is lost if its sender dies right after the commit


def connect(url: str) -> psycopg.Connection[Any]:
    """Raises: psycopg.Error"""
    settings: dict[str, Any] = {"connect_timeout": CONNECT_SECONDS, "target_session_attrs": "read-write"}
    return psycopg.connect(url, autocommit=True, options=_SETTINGS, **settings, **_KEEPALIVE)


def _is_conflict(error: psycopg.Error) -> bool:
    return error.sqlstate in _REPEATED


def _is_refused(error: psycopg.OperationalError) -> bool:
    """Whether waiting cannot help: a wrong password, user or database."""
    text = str(error)
    return any(words in text for words in ("authentication failed", "does not exist", "no pg_hba.conf entry"))


def _words(error: psycopg.Error) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
