"""The connection to the database for all that this process reads and writes.

Every transaction may run twice: if the connection is lost while it commits, nobody knows whether it has. So each one
must be harmless to repeat, by the ids, numbers and versions of what it writes.
"""

from __future__ import annotations

import logging
import math
import random
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar, cast

from teamcli.cancel import CancelScope, NoThreadLeft, run_abandonable
from teamcli.errors import Cancelled, ConfigError, StateError
from teamcli.store.later import Later

try:
    import psycopg
    from psycopg import Cursor
    from psycopg.abc import PQGen
    from psycopg.conninfo import conninfo_to_dict
except ImportError as e:
    raise ConfigError("a team in a database needs psycopg: pip install 'teamcli[postgres]'") from e

T = TypeVar("T")
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
CONFLICT_PAUSE_SECONDS, MOST_CONFLICTS = 0.01, 8
TIMEOUT_PAUSE_SECONDS, MOST_TIMEOUTS = 0.5, 1
"""The same for a statement that has taken too long. It will hardly be faster soon, and others wait for it."""
ANSWER_SECONDS = 15.0
"""How long nothing of an answer may arrive. More than a statement may take."""
LAST_ANSWER_SECONDS = 1.0
"""How long a whole answer may take while teamcli exits."""
NOTIFY_AGAIN_SECONDS = 0.2
"""When a notification that could not be sent is tried again."""
_SETTINGS = "-c statement_timeout=10s -c lock_timeout=3s -c idle_in_transaction_session_timeout=10s"
_DEFAULTS: Mapping[str, Any] = {
    "connect_timeout": 5,
    "target_session_attrs": "read-write",  # a standby would refuse each write
    "client_encoding": "utf8",
    "application_name": "teamcli",
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,  # keepalives do not help while something sent is not acknowledged
}
_CONFLICTS = frozenset({"40001", "40P01", "55P03"})
"""Serialization, deadlock, lock timeout."""
_TIMEOUT = "57014"
"""Of a statement."""
_RECONNECTED = frozenset({"57P01", "57P02", "57P03", "53300", "25006", "25P03"})
"""Shutdown, crash, starting up, too many connections, a standby, idle in a transaction."""
_REFUSED = {
    "authentication failed": "check the user and the password, in the URL or in ~/.pgpass",
    "no password supplied": "put the password into ~/.pgpass",
    "no pg_hba.conf entry": "allow this host and user in pg_hba.conf",
    'role ".*" does not exist': "create the user, or name another one in the URL",
    'database ".*" does not exist': "create it (createdb), or name another one in the URL",
    "certificate": "check sslmode and sslrootcert in the URL",
}
"""Why waiting for the database cannot help, and what can."""
_LEFT = "the database could not be reached before teamcli exited"
_INVALID = "the URL of the database is not valid: write postgresql://USER@HOST/DATABASE"
_REMEDIES = {
    "42P01": "its tables are missing: teamcli store migrate",
    "42703": "its tables are of another version: teamcli store migrate",
    "42501": "grant it to the user in the URL, or use the owner's URL",
    "53100": "its disk is full",
}
logger = logging.getLogger(__name__)


class Topic(NamedTuple):
    """What a notification says."""

    channel: str
    name: str
    seconds: float = 0.0
    """How long it may wait for others that travel with it. Each notification wakes the server's process of every
    listener of the database, so there should be few."""


class Database:
    """The connection that all threads of a process share, one transaction at a time."""

    def __init__(
        self,
        url: str,
        cancel: CancelScope,
        on_outage: Callable[[str], None] = lambda text: None,
        waits: bool = True,
    ) -> None:
        """`on_outage` gets a sentence when the database cannot be reached, and one when it can again, in a thread of
        its own. Unless `waits`, that is an error; otherwise all callers wait until it is back, or `cancel` is
        cancelled."""
        self._url = url
        self._cancel = cancel
        self._on_outage = on_outage
        self._waits = waits
        self._lock = threading.Lock()
        self._connection: psycopg.Connection[Any] | None = None
        self._outage: threading.Event | None = None
        """Set when the present outage is over."""
        self._gathered: dict[Topic, None] = {}
        """What is still to be notified."""
        self._later = Later(self._notify_gathered)
        self._waiting_since: float | None = None
        """When the present transaction began."""

    @property
    def silent_seconds(self) -> float:
        """How long a caller has been waiting for an answer; 0 if none is. It may not be known yet that this is an
        outage."""
        since = self._waiting_since
        return 0.0 if since is None else time.monotonic() - since

    @property
    def is_away(self) -> bool:
        """Whether callers have to wait now."""
        return self._outage is not None

    @property
    def is_closing(self) -> bool:
        """Whether nobody waits for the database anymore."""
        return self._cancel.cancelled

    @property
    def pid(self) -> int:
        """Of the server's process for this connection, which its notifications name; 0 without a connection."""
        connection = self._connection
        return connection.info.backend_pid if connection is not None and not connection.closed else 0

    def run(self, act: Callable[[Cursor[Any]], T], *topics: Topic) -> T:
        """Run `act` in a transaction, then wake those who listen for these topics. `act` must be harmless to repeat.

        Raises: StateError, and what `act` raises, after a rollback
        """

        def in_transaction(connection: psycopg.Connection[Any]) -> T:
            with connection.transaction(), connection.cursor() as cursor:
                return act(cursor)

        return self._run(in_transaction, topics)

    def fetch(self, query: str, values: Mapping[str, Any], *topics: Topic) -> list[tuple[Any, ...]]:
        """The same for a single statement, which needs no round trips to begin and to commit.

        Raises: StateError
        """
        return self._run(lambda connection: connection.execute(query.encode(), values).fetchall(), topics)

    def notify(self, *topics: Topic) -> None:
        """Wake those who listen for these topics, after a transaction that only sometimes changes something."""
        with self._held():
            self._gather(topics)

    def close(self) -> None:
        with self._lock:
            self._notify()  # what would have waited for others
            self._gathered = {}  # nothing tries that again
            self._drop()
            self._note_recovery()

    def _run(self, act: Callable[[psycopg.Connection[Any]], T], topics: tuple[Topic, ...]) -> T:
        with self._held():
            result = self._repeat(act)
            self._gather(topics)
        return result

    @contextmanager
    def _held(self) -> Iterator[None]:
        with self._lock:
            self._waiting_since = time.monotonic()
            try:
                yield
            finally:
                self._waiting_since = None

    def _repeat(self, act: Callable[[psycopg.Connection[Any]], T]) -> T:
        """With the lock held, in an outage also in the pauses: if many threads wait, only one of them tries."""
        pause, conflicts, timeouts = FIRST_PAUSE_SECONDS, 0, 0
        has_reconnected = False
        while True:
            try:
                result = self._try(act)
                self._note_recovery()
                return result
            except psycopg.Error as e:
                if e.sqlstate in _CONFLICTS and conflicts < MOST_CONFLICTS:
                    self._let_others(CONFLICT_PAUSE_SECONDS * 2**conflicts)
                    conflicts += 1
                elif e.sqlstate == _TIMEOUT and timeouts < MOST_TIMEOUTS:
                    self._let_others(TIMEOUT_PAUSE_SECONDS)
                    timeouts += 1
                elif not self._is_outage(e):
                    raise StateError(f"the database refuses: {_words(e)}") from e
                elif self._connection is not None and not has_reconnected:
                    has_reconnected = True  # losing a connection is not an outage yet: a new one may work
                    self._drop()
                else:
                    self._note_outage(e)
                    wait_about(self._cancel, pause)
                    self._check_cancelled()
                    pause = min(2 * pause, LONGEST_PAUSE_SECONDS)

    def _let_others(self, seconds: float) -> None:
        """Wait without the lock: the lease of this host may have to be renewed meanwhile."""
        self._waiting_since = None
        self._lock.release()
        try:
            wait_about(self._cancel, seconds)
        finally:
            self._lock.acquire()
            self._waiting_since = time.monotonic()

    def _try(self, act: Callable[[psycopg.Connection[Any]], T]) -> T:
        if self._outage is not None:
            self._check_cancelled()  # those who waited for the lock must not try for long, one after the other
        if self._connection is None:
            self._connection = self._connect()
        return act(self._connection)

    def _connect(self) -> psycopg.Connection[Any]:
        """In a thread: an attempt cannot be interrupted, and teamcli must not wait for one before it exits."""

        def attempt() -> _PatientConnection:
            return connect(self._url, self._cancel)

        if self._cancel.cancelled:  # for a last write
            return attempt()
        try:
            return run_abandonable(attempt, self._cancel, "database connection", discard=lambda late: late.close())
        except NoThreadLeft:
            return attempt()
        except Cancelled:
            raise StateError(_LEFT) from None

    def _gather(self, topics: tuple[Topic, ...]) -> None:
        """Notify at once, unless all of these may wait."""
        self._gathered.update(dict.fromkeys(topics))
        seconds = min((topic.seconds for topic in topics), default=math.inf)
        if seconds <= 0:
            self._notify()
        else:
            self._later.soon(seconds)

    def _notify_gathered(self) -> None:
        with self._held():
            if not self._cancel.cancelled:
                self._notify(reconnects=True)

    def _notify(self, reconnects: bool = False) -> None:
        """After the commit: inside the transaction, all commits of the database would wait for each other. If it cannot
        be sent now, it is tried again in another thread: what the caller wanted is done."""
        topics, self._gathered = self._gathered, {}
        if not topics:
            return
        try:
            if self._connection is None and reconnects:
                self._connection = self._connect()
            if self._connection is not None:
                self._connection.execute(
                    "select pg_notify(channel, name) from unnest(%s::text[], %s::text[]) as topic (channel, name)",
                    ([topic.channel for topic in topics], [topic.name for topic in topics]),
                )
                return
        except (psycopg.Error, StateError) as e:
            logger.info("a notification is tried again: %s", e)
            self._drop()
        self._gathered = topics
        if not self._cancel.cancelled:
            self._later.soon(NOTIFY_AGAIN_SECONDS)

    def _is_outage(self, error: psycopg.Error) -> bool:
        if self._connection is None:  # it could not be opened
            return isinstance(error, psycopg.OperationalError)
        return self._connection.broken or self._connection.closed or error.sqlstate in _RECONNECTED

    def _note_outage(self, error: psycopg.Error) -> None:
        self._drop()
        if not self._waits:
            raise StateError(f"the database cannot be reached: {_words(error)}") from error
        if self._outage is None:
            self._outage = over = threading.Event()
            # Not in this thread, which has the lock: the consumer of the sentence may need the database.
            arguments = (over, f"The database cannot be reached ({_words(error)}). Everyone waits until it is back.")
            threading.Thread(target=self._report, args=arguments, name="database outage", daemon=True).start()

    def _report(self, over: threading.Event, text: str) -> None:
        self._on_outage(text)
        over.wait()
        if not self._cancel.cancelled:
            self._on_outage("The database is back.")

    def _note_recovery(self) -> None:
        if self._outage is not None:
            self._outage.set()
            self._outage = None

    def _check_cancelled(self) -> None:
        if self._cancel.cancelled:
            raise StateError(_LEFT)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class _PatientConnection(psycopg.Connection[Any]):
    """Does not wait forever for an answer, and not long if teamcli exits. The time limits of the server do not help if
    its answers do not arrive."""

    _cancel: CancelScope | None = None

    def end_with(self, cancel: CancelScope | None) -> None:
        self._cancel = cancel

    def wait(self, gen: PQGen[T], *arguments: Any, **options: Any) -> T:
        return super().wait(self._in_time(gen), *arguments, **options)

    def _in_time(self, gen: PQGen[T]) -> PQGen[T]:
        began = heard = time.monotonic()
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted  # at least ten times a second
                is_exiting = self._cancel is not None and self._cancel.cancelled
                heard = time.monotonic() if ready else heard
                since, most = (began, LAST_ANSWER_SECONDS) if is_exiting else (heard, ANSWER_SECONDS)
                if time.monotonic() > since + most:
                    self.pgconn.finish()  # so that it counts as lost: an answer that comes now is for nobody
                    raise psycopg.OperationalError(f"no answer for {most:g} s")
                wanted = gen.send(ready)
        except StopIteration as e:
            return cast(T, e.value)


def connect(url: str, cancel: CancelScope | None = None) -> _PatientConnection:
    """With `cancel`, answers are not waited for long once it is cancelled.

    Raises: StateError, if it makes no sense to wait for the database; psycopg.Error
    """
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError:  # whose text may quote a password
        raise StateError(_INVALID) from None
    given["options"] = f"{_SETTINGS} {given.get('options') or ''}".strip()
    try:
        connection = _PatientConnection.connect(autocommit=True, **{**_DEFAULTS, **given})
    except psycopg.OperationalError as e:
        text = _words(e)
        if re.search(r"invalid \S+ value", text):
            raise StateError(_INVALID) from None
        if remedy := next((remedy for pattern, remedy in _REFUSED.items() if re.search(pattern, text)), None):
            raise StateError(f"the database refuses the connection: {text}; {remedy}") from e
        raise
    connection.end_with(cancel)
    return connection


def wait_about(scope: CancelScope, seconds: float) -> None:
    """With jitter, or all hosts would come back at the same moment."""
    scope.wait(seconds * random.uniform(0.5, 1.0))


def _words(error: psycopg.Error) -> str:
    text = " ".join(str(error).split())[:300] or type(error).__name__
    remedy = _REMEDIES.get(error.sqlstate or "")
    return f"{text} ({remedy})" if remedy else text
