"""What the bus in PostgreSQL does besides what every bus does: several processes, leases, orders and forged rows."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import LeaseLost, StateError, TeamError
from teamcli.store.postgres.database import connect
from teamcli.store.postgres.team_rows import Fence
from teamcli.team.message import MessageType
from teamcli.team.message_bus import Position
from tests.support.postgres import Server
from tests.support.postgres_bus import HostBus
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.team.engines import PostgresEngine
from tests.team.letters import KEY, contents, letter, outside

START = Position()
ORDER = letter("leave")._replace(type=MessageType.SHUTDOWN_REQUEST)


def received(bus: HostBus, position: Position = START) -> list[str]:
    return contents(bus.unread("alice", position).messages)


def execute(rows: PostgresEngine, query: str, *values: object) -> list[Any]:
    cursor = rows.connection.execute(query.encode(), values)
    return cursor.fetchall() if cursor.description else []


def take_lease(rows: PostgresEngine, agent: str, epoch: int) -> None:
    execute(
        rows,
        "insert into lease (team, name, epoch, host, host_epoch) values (%s, %s, %s, 'h', 1)"
        " on conflict (team, name) do update set epoch = excluded.epoch",
        rows.team.id,
        agent,
        epoch,
    )


# Several processes


def test_a_message_of_another_process_wakes_the_reader(here: HostBus, there: HostBus) -> None:
    heard: list[str] = []
    here.subscribe(heard.append)
    woken: list[bool] = []
    thread = threading.Thread(target=lambda: woken.append(here.wait("alice", START, CancelScope())))
    thread.start()
    there.send(letter("hello"))
    thread.join(DEADLINE_SECONDS)
    assert woken == [True]
    assert received(here) == ["hello"]
    wait_until(lambda: set(heard) == {"alice"})


def test_what_nobody_was_notified_of_is_found_after_a_gap(here: HostBus, rows: PostgresEngine) -> None:
    heard: list[str] = []
    here.subscribe(heard.append)
    assert not here.has_unread("alice", START)
    execute(rows, "insert into inbox (team, name, tail) values (%s, 'alice', 40)", rows.team.id)
    execute(
        rows,
        "insert into message (team, inbox, pos, id, body) values (%s, 'alice', 0, 'x', %s)",
        rows.team.id,
        outside("silent").decode().strip(),
    )
    here.look_again()
    assert here.has_unread("alice", START)
    assert heard == ["alice"]
    here.look_again()
    assert heard == ["alice"]


def test_an_idle_reader_asks_the_database_nothing(here: HostBus, monkeypatch: pytest.MonkeyPatch) -> None:
    here.send(letter("one"))
    position = here.unread("alice", START).position
    wait_until(lambda: not here.has_unread("alice", position))
    assert here.listener
    here.listener.close()  # so that no late notification is heard
    here.has_unread("alice", position)
    queries: list[str] = []
    monkeypatch.setattr(here.team.database, "fetch", lambda query, *_: queries.append(query))
    for _ in range(100):
        assert not here.has_unread("alice", position)
    assert here.has_unread("alice", START)
    assert queries == []


def test_after_a_gap_one_query_asks_for_all_inboxes(here: HostBus, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"a{n}" for n in range(50)]
    for name in names:
        here.has_unread(name, START)
    queries: list[str] = []
    fetch = here.team.database.fetch

    def counted(query: str, *values: Any) -> list[tuple[Any, ...]]:
        queries.append(query)
        return fetch(query, *values)

    monkeypatch.setattr(here.team.database, "fetch", counted)
    here.look_again()
    assert not any(here.has_unread(name, START) for name in names)
    assert len(queries) == 1


def test_a_repeated_send_is_stored_once_by_whichever_process(
    here: HostBus, there: HostBus, rows: PostgresEngine
) -> None:
    message = letter("once")
    assert here.send_once(message) is True
    assert there.send_once(message) is False
    assert there.send(message) is True
    assert rows.content().count(b"\n") == 1


def test_each_position_is_the_offset_of_the_line_in_a_file(here: HostBus, rows: PostgresEngine) -> None:
    for text in ("plain", "日本 🚀", "", "x" * 5000):
        here.send(letter(text))
    file = rows.content()
    found = execute(rows, "select pos, body from message where team = %s order by pos", rows.team.id)
    assert len(found) == 4
    assert all(file[pos:].startswith(body.encode() + b"\n") for pos, body in found)
    assert execute(rows, "select tail from inbox where team = %s", rows.team.id) == [(len(file),)]
    assert here.unread("alice", START).position.offset == len(file)


def test_long_inboxes_are_read_in_pages_and_in_pieces(here: HostBus, rows: PostgresEngine) -> None:
    rows.append(b"".join(outside(f"{n:04}", id=f"x{n}") for n in range(450)))
    assert received(here) == [f"{n:04}" for n in range(450)]
    position, pieces = START, []
    while batch := here.unread("alice", position, most=20_000).messages:
        pieces.append(contents(batch))
        position = here.unread("alice", position, most=20_000).position
    assert [text for piece in pieces for text in piece] == [f"{n:04}" for n in range(450)]
    assert len(pieces) > 1
    assert not here.has_unread("alice", position)


def test_a_member_that_is_spawned_again_gets_nothing_that_another_process_wrote_for_the_earlier_one(
    here: HostBus, there: HostBus, rows: PostgresEngine
) -> None:
    there.send(letter("old"))
    old = rows.content()
    position = here.begin_anew("alice")
    there.send(letter("new"))
    rows.append(old)
    assert received(here, position) == ["new"]


# Leases


def test_a_host_that_was_replaced_cannot_send(rows: PostgresEngine, tmp_path: Path) -> None:
    take_lease(rows, "bob", 1)
    bus = HostBus(rows.url, tmp_path, key=KEY, epochs={"bob": 1})
    bus.send(letter("in time", sender="bob"))
    take_lease(rows, "bob", 2)
    with pytest.raises(LeaseLost, match="'bob' runs on another host"):
        bus.send(letter("late", sender="bob"))
    bus.send(letter("from the user", sender="user"))
    assert received(bus) == ["in time", "from the user"]
    bus.close()


def test_a_host_that_was_replaced_makes_no_mail_void(rows: PostgresEngine, tmp_path: Path) -> None:
    take_lease(rows, "alice", 1)
    old = HostBus(rows.url, tmp_path / "old", key=KEY, epochs={"alice": 1})
    old.begin_anew("alice")
    take_lease(rows, "alice", 2)
    new = HostBus(rows.url, tmp_path / "new", key=KEY, epochs={"alice": 2})
    position = new.begin_anew("alice")
    new.send(letter("for the new one"))
    with pytest.raises(LeaseLost, match="'alice' runs on another host"):
        old.begin_anew("alice")
    assert received(new, position) == ["for the new one"]
    for bus in (old, new):
        bus.close()


def test_a_takeover_waits_for_a_write_that_has_begun(rows: PostgresEngine, there: HostBus) -> None:
    take_lease(rows, "bob", 1)
    fence = Fence(there.team)
    fence.hold("bob", 1)
    began, may_end = threading.Event(), threading.Event()

    def write(cursor: Any) -> None:
        fence.check(cursor, "bob")
        began.set()
        may_end.wait(DEADLINE_SECONDS)

    writer = threading.Thread(target=lambda: there.team.database.run(write))
    writer.start()
    assert began.wait(DEADLINE_SECONDS)
    taker = threading.Thread(target=lambda: take_lease(rows, "bob", 2))
    taker.start()
    with connect(rows.url) as onlooker:
        wait_until(lambda: onlooker.execute("select 1 from pg_locks where not granted").fetchall())
    may_end.set()
    writer.join(DEADLINE_SECONDS)
    taker.join(DEADLINE_SECONDS)
    with pytest.raises(LeaseLost):
        there.team.database.run(lambda cursor: fence.check(cursor, "bob"))


def test_an_agent_that_was_taken_over_cannot_write_here_until_it_is_held_again(here: HostBus) -> None:
    fence = Fence(here.team)
    fence.hold("bob", 1)
    fence.lose("bob", 1)
    assert fence.held() == {}
    with pytest.raises(LeaseLost):
        here.team.database.run(lambda cursor: fence.check(cursor, "bob"))
    fence.forget("bob")
    assert here.team.database.run(lambda cursor: fence.check(cursor, "bob")) == 0


def test_hosts_with_leases_that_write_to_one_inbox_at_once_lose_nothing(rows: PostgresEngine, tmp_path: Path) -> None:
    senders = [f"s{n}" for n in range(4)]
    for sender in senders:
        take_lease(rows, sender, 3)
    buses = [HostBus(rows.url, tmp_path, key=KEY, epochs={sender: 3}, listens=False) for sender in senders]

    def send_all(bus: HostBus, sender: str) -> None:
        for n in range(40):
            bus.send(letter(f"{sender} {n}", sender=sender))

    threads = [threading.Thread(target=send_all, args=pair) for pair in zip(buses, senders, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = received(buses[0])
    for bus in buses:
        bus.close()
    for sender in senders:
        assert [text for text in found if text.startswith(f"{sender} ")] == [f"{sender} {n}" for n in range(40)]


# Orders to the host of a member


def test_an_order_reaches_the_host_of_a_member_and_no_agent(here: HostBus, there: HostBus) -> None:
    heard: list[str] = []
    mail: list[str] = []
    here.subscribe_orders(heard.append)
    here.subscribe(mail.append)
    assert there.send_order(ORDER) is True
    wait_until(lambda: heard)
    batch = here.orders_after("alice", START)
    assert batch.messages == (ORDER,)
    assert here.orders_after("alice", batch.position).messages == ()
    assert there.send_order(ORDER) is False
    assert received(here) == []
    assert mail == []
    assert set(heard) == {"alice"}


def test_a_host_can_begin_after_all_earlier_orders(here: HostBus) -> None:
    assert here.skip_orders("alice") == START
    here.send_order(ORDER)
    position = here.skip_orders("alice")
    later = ORDER._replace(id="msg_later")
    here.send_order(later)
    assert here.orders_after("alice", position).messages == (later,)


def test_an_order_that_nobody_was_notified_of_is_found_after_a_gap(here: HostBus, rows: PostgresEngine) -> None:
    heard: list[str] = []
    here.subscribe_orders(heard.append)
    position = here.skip_orders("alice")
    assert here.listener
    here.listener.close()
    body = rows.codec().write(ORDER._replace(to="alice/orders")).decode().strip()
    rows.insert(body, "alice/orders", id=ORDER.id)
    here.look_again()
    assert heard == ["alice"]
    assert here.orders_after("alice", position).messages == (ORDER,)


@pytest.mark.parametrize(
    "act",
    [
        lambda bus: bus.send(letter(to="alice/orders")),
        lambda bus: bus.send_once(letter(to="alice/orders")),
        lambda bus: bus.unread("alice/orders", START),
        lambda bus: bus.has_unread("alice/orders", START),
        lambda bus: bus.peek("alice/orders"),
        lambda bus: bus.begin_anew("alice/orders"),
        lambda bus: bus.send_order(letter(to="../orders")),
    ],
)
def test_no_agent_can_use_the_inbox_of_orders(here: HostBus, act: Callable[[HostBus], object]) -> None:
    here.send_order(ORDER)
    with pytest.raises(TeamError):
        act(here)


def test_an_order_that_nobody_of_the_team_has_signed_is_no_order(
    here: HostBus, rows: PostgresEngine, notices: list[str]
) -> None:
    rows.append(outside("leave"), "alice/orders")
    rows.append(outside("leave", type="shutdown_request"), "alice/orders")
    rows.append(rows.codec().write(ORDER), "alice/orders")  # signed, but as mail to alice
    here.send_order(ORDER)
    assert here.orders_after("alice", START).messages == (ORDER,)
    assert len(notices) == 1


def test_an_order_is_not_mail_if_its_row_is_copied(here: HostBus, rows: PostgresEngine) -> None:
    here.send_order(ORDER)
    rows.append(rows.content("alice/orders"))
    assert received(here) == []
    assert "signature" in rows.set_aside()[0]["reason"]


# Forged rows


def test_of_a_row_without_end_only_the_beginning_is_fetched(
    here: HostBus, rows: PostgresEngine, notices: list[str]
) -> None:
    rows.insert(outside("é" * 1_000_000).decode().strip())
    here.send(letter("after"))
    assert received(here) == ["after"]
    assert len(rows.set_aside()[0]["line"]) == 1000
    assert len(notices) == 1


def test_a_row_that_cannot_be_delivered_ends_no_wait(here: HostBus, rows: PostgresEngine) -> None:
    rows.insert("nonsense")
    assert here.unread("alice", START).messages == ()
    assert not here.wait("alice", START, CancelScope(), 0.05)
    here.send(letter("real"))
    assert here.wait("alice", START, CancelScope(), DEADLINE_SECONDS)


def test_an_order_that_was_copied_from_another_team_is_set_aside(here: HostBus, rows: PostgresEngine) -> None:
    other = PostgresEngine(rows.directory, rows.url, "other")
    bus = other.start()
    bus.send(ORDER)
    rows.append(other.content())
    other.close()
    assert received(here) == []
    assert "without a valid signature" in rows.set_aside()[0]["reason"]


@pytest.mark.parametrize("pos", [0, 1, 10, 5000, 2**53 - 1, 2**53, 2**62, 2**63 - 1])
def test_a_forged_row_at_any_position_makes_no_message_disappear(here: HostBus, rows: PostgresEngine, pos: int) -> None:
    rows.insert(outside("forged " + "x" * 1000, id="f").decode().strip(), pos=pos)
    position, found = START, []
    for n in range(5):
        here.send(letter(f"{n}"))
        batch = here.unread("alice", position)
        position = batch.position
        found += contents(batch.messages)
    assert [text for text in found if not text.startswith("forged")] == [f"{n}" for n in range(5)]
    assert not here.has_unread("alice", position)


def test_a_forged_end_of_an_inbox_makes_no_message_disappear(here: HostBus, rows: PostgresEngine) -> None:
    here.send(letter("one"))
    position = here.unread("alice", START).position
    execute(rows, "update inbox set tail = 0 where team = %s", rows.team.id)
    here.look_again()
    assert not here.has_unread("alice", position)
    here.send(letter("two"))
    assert received(here, position) == ["two"]


def test_a_forged_row_with_the_id_of_a_message_keeps_it_from_nothing(here: HostBus, rows: PostgresEngine) -> None:
    message = letter("ours")
    rows.insert("nonsense", id=message.id)
    assert here.send_once(message) is True
    assert here.send_once(message) is False
    assert received(here) == ["ours"]


def test_a_message_that_forged_rows_keep_out_is_an_error_and_not_a_loss(here: HostBus, rows: PostgresEngine) -> None:
    message = letter("ours")
    rows.insert("nonsense", id=message.id)
    rows.insert("nonsense", id=rows.team.sign("message", "alice", message.id))
    with pytest.raises(StateError, match="delete the forged row"):
        here.send(message)


# An outage


def test_a_send_waits_for_a_database_that_is_away_and_readers_are_not_blocked(
    own_postgres: Server, tmp_path: Path
) -> None:
    bus = HostBus(own_postgres.url("migrated"), tmp_path, key=KEY)
    bus.send(letter("before"))
    position = bus.unread("alice", START).position
    own_postgres.stop()
    sender = threading.Thread(target=lambda: bus.send(letter("during")))
    sender.start()
    wait_until(lambda: bus.team.database.is_away)
    assert not bus.has_unread("alice", position)
    own_postgres.start()
    assert bus.wait("alice", position, CancelScope(), DEADLINE_SECONDS)
    sender.join(DEADLINE_SECONDS)
    assert received(bus, position) == ["during"]
    bus.close()
