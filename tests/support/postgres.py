"""A private PostgreSQL server for tests: on a socket in a temporary directory, never as root, without the network.

All workers of a test run share one server. The first one that needs it starts it; a supervisor, which is this module as
a program, ends it when the last one is gone, however that ended. Each worker has a database of its own.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from teamcli.cancel import CancelScope
from tests.support.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
PASSWORD = "correct horse"
"""Of the role `guarded`, which has to log in. All other roles need no password."""
HAND = "hand"
"""A role with the rights of a worker and no more, in each database of a test worker."""
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",  # these databases need not survive a crash of the machine
    "full_page_writes": "off",
    "wal_level": "minimal",
    "max_wal_senders": "0",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "autovacuum": "off",
    "jit": "off",
}
_HBA = "local all guarded scram-sha-256\nlocal all all trust\n"
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


def programs() -> Path | None:
    """Where `initdb` and `postgres` are. Debian does not put them in the path."""
    found = shutil.which("initdb")
    places = [Path(found).parent] if found else []
    places += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda place: -_number(place.parent.name))
    return next((place for place in places if (place / "postgres").exists()), None)


def _number(version: str) -> int:
    return int(version) if version.isdigit() else 0


class Server:
    """One server, in the directory that it is given. `start` and `stop` may alternate."""

    def __init__(self, directory: Path, **settings: str) -> None:
        """`settings` are those of PostgreSQL that are not the usual ones here."""
        self.directory = directory
        self._settings = {**_SETTINGS, **settings}
        self._data = directory / "pg" / "data"
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        private = self._data.parent
        private.mkdir(0o700)
        if user := _user():
            os.chown(private, user.pw_uid, user.pw_gid)
            self.directory.chmod(0o711)
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        (self._data / "pg_hba.conf").write_text(_HBA)

    def start(self) -> None:
        settings = (part for name, value in self._settings.items() for part in ("-c", f"{name}={value}"))
        self._process = self._popen("postgres", "-D", self._data, "-k", self._data.parent, *settings)
        wait_until(lambda: self._is_ready() or self._process is None or self._process.poll() is not None)
        assert self._is_ready(), (self._data.parent / "log").read_text()

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT rolls back what is running. SIGQUIT is `pg_ctl -m immediate`: a crash, with recovery at the start."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(60)
            self._process = None

    def restart(self, how: signal.Signals = signal.SIGQUIT) -> None:
        self.stop(how)
        self.start()

    @property
    def socket(self) -> Path:
        """The directory with its socket."""
        return self._data.parent

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@/{database}?host={self._data.parent}"

    def _is_ready(self) -> bool:
        with suppress(OSError):
            lines = (self._data / "postmaster.pid").read_text().splitlines()
            is_own = self._process is not None and lines[:1] == [str(self._process.pid)]
            return is_own and len(lines) > 7 and lines[7].strip() == "ready"
        return False

    def _run(self, name: str, *arguments: object) -> None:
        process = self._popen(name, *arguments)
        assert process.wait(60) == 0, (self._data.parent / "log").read_text()

    def _popen(self, name: str, *arguments: object) -> subprocess.Popen[bytes]:
        place, user = programs(), _user()
        assert place is not None
        as_user: dict[str, Any] = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []} if user else {}
        with (self._data.parent / "log").open("ab") as log:
            return subprocess.Popen(
                [str(place / name), *map(str, arguments)],
                cwd="/",
                env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                process_group=0,  # Ctrl-C is for pytest
                preexec_fn=_die_with_parent,
                **as_user,
            )


def _die_with_parent() -> None:
    """Linux only. In the child, after it has changed its user, which would reset this."""
    if hasattr(_libc, "prctl"):
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _user() -> pwd.struct_passwd | None:
    """Whom the server runs as if this is root, whom it refuses."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres")
    except KeyError:
        return pwd.getpwnam("nobody")


def _supervise(directory: Path) -> None:
    """Run the shared server until nobody holds the lock of its users."""
    server = Server(directory)
    server.create()
    server.start()
    prepare(server)
    (directory / "ready").touch()
    with (directory / "users").open() as users:
        fcntl.flock(users, fcntl.LOCK_EX)
        server.stop(signal.SIGQUIT)  # nobody needs what is in it
        shutil.rmtree(directory)


def prepare(server: Server) -> None:
    """A role that needs a password, one with the rights of a worker only, and a database with the tables, which is
    copied for each test worker."""
    import psycopg

    from teamcli.store.postgres.roles import role_script
    from teamcli.store.postgres.schema import migrate

    with psycopg.connect(server.url(), autocommit=True) as connection:
        connection.execute(f"create role guarded login password '{PASSWORD}'")
        connection.execute("create database migrated")
    with psycopg.connect(server.url("migrated")) as connection, connection.cursor() as cursor:
        migrate(cursor)
        cursor.execute(role_script().encode())
        cursor.execute(f"create role {HAND} login in role teamcli_worker")


@contextmanager
def _joined(directory: Path) -> Iterator[Server]:
    """Use the shared server in this directory; the first one starts it."""
    directory.mkdir(0o700, exist_ok=True)
    supervisor: subprocess.Popen[bytes] | None = None
    with (directory / "start").open("w") as start, (directory / "users").open("w") as users:
        fcntl.flock(start, fcntl.LOCK_EX)
        fcntl.flock(users, fcntl.LOCK_SH)
        if not (directory / "ready").exists():
            line = [sys.executable, "-m", "tests.support.postgres", str(directory)]
            supervisor = subprocess.Popen(line, cwd=ROOT, stdin=subprocess.DEVNULL, start_new_session=True)
            wait_until(lambda: (directory / "ready").exists() or supervisor.poll() is not None)
            assert supervisor.poll() is None, "PostgreSQL could not be started"
        fcntl.flock(start, fcntl.LOCK_UN)
        yield Server(directory)
    if supervisor is not None:
        supervisor.wait(120)  # until the other workers have ended, too


def _skip_without() -> None:
    pytest.importorskip("psycopg", reason="psycopg is not installed")
    if programs() is None:
        pytest.skip("PostgreSQL is not installed (Debian: apt-get install postgresql)")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Server]:
    """The server that the whole test run shares. Do not stop it."""
    _skip_without()
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or secrets.token_hex(8)
    # Not below pytest's own directories, which only its user can enter. Sockets need a short path.
    with _joined(Path("/tmp") / f"teamcli-pg-{os.geteuid()}-{run[:16]}") as server:
        yield server


@pytest.fixture(scope="session")
def _worker_database(postgres_server: Server) -> Iterator[tuple[str, Any]]:
    import psycopg

    name = f"worker_{os.environ.get('PYTEST_XDIST_WORKER', 'only')}_{os.getpid()}"
    with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
        admin.execute(f"create database {name} template migrated")
    url = postgres_server.url(name)
    with psycopg.connect(url, autocommit=True) as connection:
        yield url, connection


@pytest.fixture
def postgres_url(_worker_database: tuple[str, Any]) -> str:
    """A database with the tables and without any team. Connections of earlier tests are closed."""
    url, connection = _worker_database
    connection.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    connection.execute("delete from team")
    return url


@pytest.fixture
def empty_postgres_url(postgres_server: Server) -> Iterator[str]:
    """A database without tables, for this test only."""
    import psycopg

    name = f"empty_{secrets.token_hex(8)}"
    with psycopg.connect(postgres_server.url(), autocommit=True) as admin:
        admin.execute(f"create database {name}")
        yield postgres_server.url(name)
        admin.execute(f"drop database {name} with (force)")


@pytest.fixture(scope="session")
def _worker_server() -> Iterator[Server]:
    _skip_without()
    with tempfile.TemporaryDirectory(prefix="teamcli-pg-", dir="/tmp") as place:
        server = Server(Path(place))
        server.create()
        server.start()
        prepare(server)
        yield server
        server.stop(signal.SIGQUIT)


@pytest.fixture
def own_postgres(_worker_server: Server) -> Server:
    """A server that the test may stop and start. `url("migrated")` has the tables, and no team."""
    import psycopg

    _worker_server.restart()
    with psycopg.connect(_worker_server.url("migrated"), autocommit=True) as connection:
        connection.execute("delete from team")
    return _worker_server


def open_test_team(url: str, name: str = "", key: bytes = b"", waits: bool = True) -> Any:
    """A `Team` in this database: a new one, unless one with this name is there. Close its `database` at the end."""
    from teamcli.store.postgres.database import Database
    from teamcli.store.postgres.team_rows import Team

    name = name or f"test {secrets.token_hex(8)}"
    database = Database(url, CancelScope(), waits=waits)

    def act(cursor: Any) -> tuple[int, str]:
        cursor.execute(
            "insert into team (uid, root, name) values (%s, 'test', %s)"
            " on conflict (root, name) do update set name = excluded.name returning id, uid",
            (secrets.token_hex(16), name),
        )
        row = cursor.fetchone()
        return int(row[0]), str(row[1])

    return Team(database, *database.run(act), key or b"the key of the team, for tests. ")


def hold_lease(team: Any, *agents: str) -> Any:
    """A `Fence` of a host that has just taken these agents over from whichever host ran them."""
    from teamcli.store.postgres.team_rows import Fence

    fence = Fence(team)

    def act(cursor: Any, agent: str) -> int:
        cursor.execute(
            "insert into lease as l (team, name, epoch, host, host_epoch) values (%s, %s, 1, 'test', 1)"
            " on conflict (team, name) do update set epoch = l.epoch + 1 returning epoch",
            (team.id, agent),
        )
        return int(cursor.fetchone()[0])

    for agent in agents:
        fence.hold(agent, team.database.run(lambda cursor, agent=agent: act(cursor, agent)))
    return fence


def expire(team: Any, host: str) -> None:
    """Let the lease of a host run out."""
    sql = "update host set expires_at = clock_timestamp() - interval '1 second' where team = %s and name = %s"
    team.database.run(lambda cursor: cursor.execute(sql, (team.id, host)))


if __name__ == "__main__":
    _supervise(Path(sys.argv[1]))
