"""The connections to the database: what happens if it is away, refuses, or is asked for the same thing at once."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg
import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import StateError
from teamcli.store.postgres import database as module
from teamcli.store.postgres.database import Database, Topic, connect
from teamcli.store.postgres.listener import Listener
from teamcli.store.postgres.schema import MIGRATIONS, check_version, migrate
from tests.support.postgres import PASSWORD, Server
from tests.support.program import ROOT
from tests.support.proxy import Proxy
from tests.support.waiting import DEADLINE_SECONDS, wait_until

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")


class Opened:
    """A database, and the sentences about its outages."""

    def __init__(self, url: str, waits: bool = True) -> None:
        self.cancel = CancelScope()
        self.notices: list[str] = []
        self.database = Database(url, self.cancel, self.notices.append, waits)

    def one(self, query: str = "select 1", **values: object) -> Any:
        rows = self.database.fetch(query, values)
        return rows[0][0] if rows else None

    def pid(self) -> int:
        return int(self.one("select pg_backend_pid()"))


@pytest.fixture
def opened(postgres_url: str) -> Iterator[Opened]:
    made = Opened(postgres_url)
    yield made
    made.database.close()


@pytest.fixture
def other(postgres_url: str) -> Iterator[psycopg.Connection[Any]]:
    """Another client."""
    with connect(postgres_url) as connection:
        yield connection


def in_thread(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Runs `work`; the list gets its result or its error."""
    results: list[object] = []

    def run() -> None:
        try:
            results.append(work())
        except StateError as e:
            results.append(e)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread, results


# Transactions


def test_what_raises_is_rolled_back(opened: Opened, other: psycopg.Connection[Any]) -> None:
    def act(cursor: psycopg.Cursor[Any]) -> None:
        cursor.execute("insert into team (uid, root, name) values ('u', 'r', 'n')")
        raise KeyError("a bug")

    with pytest.raises(KeyError):
        opened.database.run(act)
    assert other.execute("select count(*) from team").fetchone() == (0,)
    assert opened.one() == 1


def test_many_threads_share_one_connection(opened: Opened) -> None:
    pids: set[int] = set()
    threads = [threading.Thread(target=lambda: pids.add(opened.pid())) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(pids) == 1


def test_a_deadlock_is_repeated_until_both_have_succeeded(postgres_url: str) -> None:
    both = [Opened(postgres_url), Opened(postgres_url)]
    for name in ("a", "b"):
        both[0].database.run(
            lambda cursor, name=name: cursor.execute(
                "insert into team (uid, root, name) values (%s, '', %s)", [name] * 2
            )
        )
    first = threading.Barrier(2)
    tries: list[str] = []

    def act(cursor: psycopg.Cursor[Any], names: tuple[str, str]) -> None:
        tries.append(names[0])
        cursor.execute("set local deadlock_timeout = '10ms'")
        cursor.execute("update team set last_task = last_task + 1 where name = %s", names[:1])
        if len(tries) <= 2:
            first.wait(DEADLINE_SECONDS)
        cursor.execute("update team set last_task = last_task + 1 where name = %s", names[1:])

    started = [
        in_thread(lambda one=one, names=names: one.database.run(lambda cursor: act(cursor, names)))
        for one, names in zip(both, (("a", "b"), ("b", "a")), strict=True)
    ]
    for thread, _ in started:
        thread.join(DEADLINE_SECONDS)
    assert [results for _, results in started] == [[None], [None]]
    assert both[0].database.fetch("select name, last_task from team order by name", {}) == [("a", 2), ("b", 2)]
    assert len(tries) == 3
    for one in both:
        one.database.close()
        assert one.notices == []


def test_a_conflict_that_does_not_end_is_an_error(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CONFLICT_PAUSE_SECONDS", 0.0001)
    tries: list[int] = []

    def act(cursor: psycopg.Cursor[Any]) -> None:
        tries.append(1)
        cursor.execute("do $$ begin raise exception 'try again' using errcode = '40001'; end $$")

    with pytest.raises(StateError, match="the database refuses: try again"):
        opened.database.run(act)
    assert len(tries) == 1 + module.MOST_CONFLICTS


def test_a_statement_that_takes_too_long_is_repeated_once_and_others_go_first(postgres_url: str) -> None:
    opened = Opened(f"{postgres_url}&options=-c%20statement_timeout%3D300ms")
    tries: list[int] = []
    ended: list[str] = []

    def act(cursor: psycopg.Cursor[Any]) -> None:
        tries.append(1)
        cursor.execute("select pg_sleep(600)")

    def slow() -> None:
        try:
            opened.database.run(act)
        finally:
            ended.append("slow")

    thread, results = in_thread(slow)
    wait_until(lambda: tries)
    other, _ = in_thread(lambda: (opened.one(), ended.append("other")))  # as the renewal of a lease
    for each in (thread, other):
        each.join(DEADLINE_SECONDS)
    assert "canceling statement due to statement timeout" in str(results)
    assert len(tries) == 2
    assert ended == ["other", "slow"]
    opened.database.close()


def test_a_transaction_whose_commit_was_not_answered_runs_again(opened: Opened, other: psycopg.Connection[Any]) -> None:
    """It is killed before the commit, which looks the same to the client."""
    tries: list[int] = []

    def act(cursor: psycopg.Cursor[Any]) -> None:
        cursor.execute("insert into team (uid, root, name) values ('u', 'r', 'n') on conflict do nothing")
        if not tries:
            other.execute("select pg_terminate_backend(%s, 5000)", (cursor.connection.info.backend_pid,))
        tries.append(1)

    opened.database.run(act)
    assert len(tries) == 2
    assert other.execute("select count(*) from team").fetchone() == (1,)
    assert opened.notices == []


def test_topics_are_notified_after_the_commit_and_not_after_a_rollback(
    opened: Opened, other: psycopg.Connection[Any]
) -> None:
    other.execute("listen one")

    def refuse(cursor: psycopg.Cursor[Any]) -> None:
        raise StateError("no")

    with pytest.raises(StateError):
        opened.database.run(refuse, Topic("one", "never"))
    opened.database.run(lambda cursor: cursor.execute("select 1"), Topic("one", "inbox/a"), Topic("one", "task"))
    found = [notification.payload for notification in other.notifies(timeout=DEADLINE_SECONDS, stop_after=2)]
    assert found == ["inbox/a", "task"]


# Outages


def test_a_connection_that_was_killed_is_replaced_without_a_word(
    opened: Opened, other: psycopg.Connection[Any]
) -> None:
    first = opened.pid()
    other.execute("select pg_terminate_backend(%s, 5000)", (first,))
    assert opened.pid() != first
    assert opened.notices == []


def test_all_threads_wait_until_the_database_is_back_and_one_sentence_says_so(own_postgres: Server) -> None:
    opened = Opened(own_postgres.url())
    assert opened.one() == 1
    own_postgres.stop()
    waiting = [in_thread(lambda n=n: opened.one("select %(n)s::int", n=n)) for n in range(10)]
    wait_until(lambda: opened.notices)
    assert opened.database.is_away
    own_postgres.start()
    for thread, _ in waiting:
        thread.join(DEADLINE_SECONDS)
    assert [results for _, results in waiting] == [[n] for n in range(10)]
    wait_until(lambda: len(opened.notices) == 2)
    assert "cannot be reached" in opened.notices[0]
    assert opened.notices[1] == "The database is back."
    assert not opened.database.is_away
    opened.database.close()


def wake_ups(*threads: threading.Thread) -> int:
    """How often these threads ran again after they had waited, so far."""
    texts = [Path(f"/proc/self/task/{thread.native_id}/status").read_text() for thread in threads]
    return sum(int(text.split("\nvoluntary_ctxt_switches:")[1].split()[0]) for text in texts)


@on_linux
def test_an_outage_costs_no_cpu_and_ends_for_everyone_when_teamcli_exits(tmp_path: Path) -> None:
    opened = Opened(f"postgresql://postgres@/x?host={tmp_path}")
    waiting = [in_thread(opened.one) for _ in range(5)]
    wait_until(lambda: opened.notices)
    threads = [thread for thread, _ in waiting]
    before = wake_ups(*threads)
    opened.cancel.wait(0.3)
    assert wake_ups(*threads) - before < 50
    opened.cancel.cancel("exit")
    for thread, _ in waiting:
        thread.join(DEADLINE_SECONDS)
    assert [str(results[0]) for _, results in waiting] == [
        "the database could not be reached before teamcli exited"
    ] * 5
    assert len(opened.notices) == 1


@pytest.fixture
def proxy(postgres_server: Server) -> Iterator[Proxy]:
    with Proxy(postgres_server.directory / "pg") as made:
        yield made


def in_proxy(proxy: Proxy, postgres_url: str) -> str:
    return proxy.url(postgres_url.partition("@/")[2].partition("?")[0])


@pytest.mark.parametrize("damage", [Proxy.cut, Proxy.stall])
def test_a_network_that_is_cut_or_stalls_is_an_outage_that_ends(
    proxy: Proxy,
    postgres_url: str,
    monkeypatch: pytest.MonkeyPatch,
    damage: Callable[[Proxy], None],
    gives_up: Callable[[], bool],
) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.2)
    opened = Opened(f"{in_proxy(proxy, postgres_url)}?connect_timeout=2")
    heard = Heard(in_proxy(proxy, postgres_url), silence_seconds=0.1)
    heard.listener.start()
    assert opened.one() == 1
    wait_until(lambda: heard.gaps)
    damage(proxy)
    thread, results = in_thread(lambda: opened.one("select 2"))
    wait_until(lambda: opened.notices)
    wait_until(gives_up)
    proxy.restore()
    thread.join(DEADLINE_SECONDS)
    assert results == [2]
    count = len(heard.gaps)
    wait_until(lambda: len(heard.gaps) > count)
    heard.listener.close(DEADLINE_SECONDS)
    opened.database.close()


def test_an_answer_that_takes_long_is_waited_for(opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 0.5)
    assert opened.database.run(lambda cursor: [cursor.execute("select pg_sleep(0.3)") for _ in range(2)])


def test_an_answer_that_takes_long_to_arrive_is_waited_for(postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ANSWER_SECONDS", 1.0)
    opened = Opened(postgres_url, waits=False)
    slow = "select repeat('x', 100000) from generate_series(1, 8) n, lateral (select pg_sleep(0.2), n) as pause"
    assert len(opened.database.fetch(slow, {})) == 8
    opened.database.close()


def test_whoever_gets_the_sentence_may_use_the_database(own_postgres: Server) -> None:
    found: list[Any] = []
    database = Database(own_postgres.url(), CancelScope(), lambda text: found.append(database.fetch("select 1", {})))
    database.fetch("select 1", {})
    own_postgres.stop()
    thread, _ = in_thread(lambda: database.fetch("select 2", {}))
    wait_until(lambda: database.is_away)
    own_postgres.start()
    thread.join(DEADLINE_SECONDS)
    wait_until(lambda: found == [[(1,)], [(1,)]])
    database.close()


def test_a_command_does_not_wait_for_a_database_that_is_away(tmp_path: Path) -> None:
    opened = Opened(f"postgresql://postgres@/x?host={tmp_path}", waits=False)
    with pytest.raises(StateError, match=r"the database cannot be reached: .*Is the server running"):
        opened.one()


def test_a_last_write_is_possible_after_a_cancel(opened: Opened) -> None:
    opened.cancel.cancel("exit")
    assert opened.one() == 1


# Errors that waiting does not help against


@pytest.mark.parametrize(
    ("database", "user", "problem", "remedy"),
    [
        ("postgres", "guarded:wrong", "password authentication failed", "check the user and the password"),
        ("postgres", "guarded", "no password supplied", "put the password into ~/.pgpass"),
        ("postgres", "stranger", 'role "stranger" does not exist', "create the user"),
        ("missing", "postgres", 'database "missing" does not exist', "createdb"),
    ],
)
def test_an_error_names_its_remedy_and_nobody_waits(
    postgres_server: Server, database: str, user: str, problem: str, remedy: str
) -> None:
    opened = Opened(postgres_server.url(database, user))
    with pytest.raises(StateError) as raised:
        opened.one()
    assert problem in str(raised.value)
    assert remedy in str(raised.value)
    assert opened.notices == []


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:hunter2@127.0.0.1:port/x",
        "u:hunter2@h",
        "postgresql://u:hunter2@127.0.0.1/x?sslmode=hunter2",
        "//hunter2",
    ],
)
def test_an_invalid_url_is_an_error_that_does_not_show_its_password(url: str) -> None:
    opened = Opened(url, waits=False)
    with pytest.raises(StateError, match="is not valid: write postgresql://USER@HOST/DATABASE") as raised:
        opened.one()
    assert "hunter2" not in str(raised.value)
    assert opened.notices == []


def test_a_user_with_the_right_password_gets_in(postgres_server: Server) -> None:
    opened = Opened(f"{postgres_server.url(user='guarded')}&password={PASSWORD.replace(' ', '%20')}")
    assert opened.one("select current_user::text") == "guarded"
    opened.database.close()


def test_missing_tables_name_the_command_that_makes_them(empty_postgres_url: str) -> None:
    opened = Opened(empty_postgres_url)
    with pytest.raises(StateError, match=r"has no tables of teamcli.*: teamcli store migrate"):
        opened.database.run(check_version)
    with pytest.raises(StateError, match="teamcli store migrate"):
        opened.one("select 1 from team")
    opened.database.close()


def test_a_missing_right_is_an_error_that_says_so(postgres_server: Server, postgres_url: str) -> None:
    url = postgres_url.replace("postgres@", "guarded@") + f"&password={PASSWORD.replace(' ', '%20')}"
    opened = Opened(url)
    with pytest.raises(StateError, match=r"permission denied for table team .*grant it"):
        opened.one("select 1 from team")
    opened.database.close()


def test_without_psycopg_the_error_names_the_extra() -> None:
    script = "import sys; sys.modules['psycopg'] = None; import teamcli.store.postgres.database"
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stderr.splitlines()[-1].endswith("a team in a database needs psycopg: pip install 'teamcli[postgres]'")


def test_options_in_the_url_are_kept(postgres_url: str) -> None:
    opened = Opened(f"{postgres_url}&options=-c%20work_mem%3D5MB&application_name=mine")
    assert opened.one("show work_mem") == "5MB"
    assert opened.one("show application_name") == "mine"
    assert opened.one("show statement_timeout") == "10s"
    opened.database.close()


# Migrations


def test_migrating_twice_changes_nothing(empty_postgres_url: str) -> None:
    opened = Opened(empty_postgres_url)
    assert opened.database.run(migrate) == (0, len(MIGRATIONS))
    assert opened.database.run(migrate) == (len(MIGRATIONS), len(MIGRATIONS))
    opened.database.run(check_version)
    opened.database.close()


def test_programs_that_migrate_at_once_agree(empty_postgres_url: str) -> None:
    several = [Opened(empty_postgres_url) for _ in range(4)]
    started = [in_thread(lambda one=one: one.database.run(migrate)) for one in several]
    for thread, _ in started:
        thread.join(DEADLINE_SECONDS)
    for one in several:
        one.database.close()
    assert sorted(results[0] for _, results in started if results) == [  # type: ignore[type-var]
        (0, len(MIGRATIONS)),
        *[(len(MIGRATIONS), len(MIGRATIONS))] * 3,
    ]


def test_a_database_of_a_newer_teamcli_is_left_alone(empty_postgres_url: str) -> None:
    opened = Opened(empty_postgres_url)
    opened.database.run(migrate)
    opened.database.run(lambda cursor: cursor.execute("update meta set version = 99"))
    for act in (migrate, check_version):
        with pytest.raises(StateError, match=r"by a newer teamcli .*update teamcli"):
            opened.database.run(act)
    opened.database.close()


# The listener


class Heard:
    """A listener, and what it reports."""

    def __init__(self, url: str, silence_seconds: float = 60) -> None:
        self.topics: list[str] = []
        self.gaps: list[float] = []
        self.listener = Listener(
            url, ["one", "two"], self._topics, lambda: self.gaps.append(time.monotonic()), silence_seconds
        )

    def _topics(self, topics: Sequence[str]) -> None:
        self.topics += [topic for topic in topics if topic != "fail"]
        if "fail" in topics:
            raise KeyError("a bug")


@pytest.fixture
def heard(postgres_url: str) -> Iterator[Heard]:
    made = Heard(postgres_url)
    made.listener.start()
    wait_until(lambda: made.gaps)
    yield made
    made.listener.close()


@pytest.fixture
def gives_up(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], bool]]:
    """Whether a listener has found that it has no connection."""
    logger = logging.getLogger("teamcli.store.postgres.listener")
    logger.addHandler(caplog.handler)  # its lines go no further once a session has run in this process
    caplog.set_level(logging.INFO, logger.name)
    yield lambda: "the listener has no connection" in caplog.text
    logger.removeHandler(caplog.handler)


def pids_of_listeners(connection: psycopg.Connection[Any]) -> list[int]:
    query = "select pid from pg_stat_activity where datname = current_database() and query = 'listen two'"
    return [pid for (pid,) in connection.execute(query).fetchall()]


def test_a_listener_hears_what_is_notified(opened: Opened, heard: Heard) -> None:
    opened.database.fetch("select 1", {}, Topic("one", "task"), Topic("one", "inbox/a"))
    wait_until(lambda: heard.topics == ["task", "inbox/a"])
    assert len(heard.gaps) == 1


def test_a_notification_that_waits_for_others_is_sent_before_the_end(opened: Opened, heard: Heard) -> None:
    opened.database.fetch("select 1", {}, Topic("one", "inbox/lead", seconds=600))
    opened.database.close()
    wait_until(lambda: heard.topics == ["inbox/lead"])


def test_a_notification_outlives_the_connection_of_its_transaction(
    opened: Opened, heard: Heard, other: psycopg.Connection[Any]
) -> None:
    opened.database.fetch("select 1", {}, Topic("one", "member/alice", seconds=0.5))
    other.execute("select pg_terminate_backend(%s, 5000)", (opened.database.pid,))
    wait_until(lambda: heard.topics == ["member/alice"])
    assert len(heard.gaps) == 1


@on_linux
def test_an_idle_listener_sleeps(heard: Heard) -> None:
    before = wake_ups(heard.listener._thread)
    CancelScope().wait(0.3)
    assert wake_ups(heard.listener._thread) - before <= 1


def test_a_listener_that_loses_its_connection_asks_everyone_to_look_again(
    opened: Opened, heard: Heard, other: psycopg.Connection[Any]
) -> None:
    (pid,) = pids_of_listeners(other)
    other.execute("select pg_terminate_backend(%s, 5000)", (pid,))
    wait_until(lambda: len(heard.gaps) == 2)
    opened.database.fetch("select 1", {}, Topic("one", "task"))
    wait_until(lambda: heard.topics == ["task"])


def test_a_listener_looks_again_from_time_to_time(postgres_url: str) -> None:
    heard = Heard(postgres_url, silence_seconds=0.01)
    heard.listener.start()
    wait_until(lambda: len(heard.gaps) >= 3)
    heard.listener.close()


def test_a_listener_survives_an_outage(own_postgres: Server, gives_up: Callable[[], bool]) -> None:
    heard = Heard(own_postgres.url())
    heard.listener.start()
    wait_until(lambda: heard.gaps)
    own_postgres.stop()
    wait_until(gives_up)
    own_postgres.start()
    wait_until(lambda: len(heard.gaps) == 2)
    heard.listener.close()


def test_a_bug_in_who_listens_ends_nothing(opened: Opened, heard: Heard) -> None:
    opened.database.fetch("select 1", {}, Topic("one", "fail"), Topic("one", "task"))
    wait_until(lambda: heard.topics == ["task"])


def test_closing_a_listener_takes_no_time_whatever_it_does(
    postgres_url: str, tmp_path: Path, gives_up: Callable[[], bool]
) -> None:
    for url in (postgres_url, f"postgresql://x@/x?host={tmp_path}"):
        heard = Heard(url)
        heard.listener.start()
        wait_until(lambda listens_now=heard.gaps: listens_now or gives_up())
        heard.listener.close(DEADLINE_SECONDS)
        assert not heard.listener._thread.is_alive()
    Heard(postgres_url).listener.close()  # never started
