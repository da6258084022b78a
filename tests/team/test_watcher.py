"""Waking readers: what other programs append is noticed, at almost no cost."""

from __future__ import annotations

import shutil
import threading
import time
from pathlib import Path

from teamcli.cancel import CancelScope
from teamcli.team.message_bus import FileBus, Position
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.team.file_bus import unread
from tests.team.letters import KEY, append, contents, letter, outside


def test_a_foreign_append_wakes_waiting_threads_and_notifies_subscribers(bus: FileBus, inbox: Path) -> None:
    heard: list[str] = []
    bus.subscribe(heard.append)
    position = Position()
    for n in range(3):
        threading.Timer(0.05, append, (inbox, outside(str(n)))).start()
        assert bus.wait("alice", position, CancelScope(), DEADLINE_SECONDS) is True
        batch = bus.unread("alice", position)
        assert contents(batch.messages) == [str(n)]
        position = batch.position
        wait_until(lambda n=n: len(heard) > n)  # the wait may end before the listener is called
    assert set(heard) == {"alice"}


def test_our_own_messages_are_not_reported_again_by_the_watcher(bus: FileBus, inbox: Path) -> None:
    heard: list[str] = []
    bus.subscribe(heard.append)
    for _ in range(200):
        bus.send(letter())
    for name in ("bob", "carol"):  # each takes the watcher another look
        append(inbox.with_name(f"{name}.jsonl"), outside())
        wait_until(lambda name=name: name in heard)
    assert heard.count("alice") < 250  # a look in the very moment of a write may tell of it too


def test_files_that_are_not_inboxes_are_ignored(bus: FileBus, inbox: Path) -> None:
    heard: list[str] = []
    bus.subscribe(heard.append)
    for name in ("user", "ALL", "a b", "alice.bad", "1", "alice.1"):
        append(inbox.with_name(f"{name}.jsonl"), outside())
    append(inbox, outside())
    wait_until(lambda: heard)
    append(inbox, outside())
    wait_until(lambda: len(heard) >= 2)
    assert set(heard) == {"alice"}


def test_a_subscriber_that_cannot_use_one_inbox_does_not_stop_the_watcher(bus: FileBus, inbox: Path) -> None:
    heard: list[str] = []

    def look(name: str) -> None:
        heard.append(name)
        bus.has_unread(name, Position())
        bus.unread(name, Position())

    bus.subscribe(look)
    inbox.parent.mkdir()
    inbox.with_name("bob.jsonl").symlink_to("/dev/null")
    wait_until(lambda: "bob" in heard)
    append(inbox, outside())
    wait_until(lambda: "alice" in heard)


def test_a_directory_that_comes_and_goes_does_not_stop_the_watcher(bus: FileBus, inbox: Path) -> None:
    heard: list[str] = []
    bus.subscribe(heard.append)
    for n in range(1, 4):
        append(inbox, outside())
        wait_until(lambda n=n: len(heard) >= n)
        assert unread(bus) == ["hi"]
        shutil.rmtree(inbox.parent)


def test_waiting_costs_next_to_nothing_with_two_hundred_inboxes(tmp_path: Path) -> None:
    bus = FileBus(tmp_path, KEY, durable=False)
    scope = CancelScope()
    names = [f"mate{n}" for n in range(200)]
    positions = {}
    for name in names:
        bus.send(letter(to=name))
        positions[name] = bus.unread(name, Position()).position
    threads = [threading.Thread(target=bus.wait, args=(name, positions[name], scope)) for name in names]
    for thread in threads:
        thread.start()
    began, used = time.monotonic(), time.process_time()
    bus.wait("lead", Position(), scope, 2.0)
    share = (time.process_time() - used) / (time.monotonic() - began)
    scope.cancel()
    for thread in threads:
        thread.join()
    bus.close()
    assert share < 0.05
