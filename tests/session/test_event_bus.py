"""Events are delivered one at a time, and what may take long does not keep them."""

from __future__ import annotations

import threading

from teamcli.agent.events import Event, Notice, TurnStarted
from teamcli.session.event_bus import EventBus
from tests.support.waiting import DEADLINE_SECONDS


def test_a_first_consumer_that_waits_does_not_keep_the_events_of_others() -> None:
    bus, seen, begun, over = EventBus(), list[Event](), threading.Event(), threading.Event()

    def wait(event: TurnStarted) -> None:
        begun.set()
        over.wait(DEADLINE_SECONDS)

    bus.subscribe_first(wait, TurnStarted)
    bus.subscribe(seen.append)
    emitting = threading.Thread(target=bus, args=(TurnStarted("alice"),))
    emitting.start()
    assert begun.wait(DEADLINE_SECONDS)
    bus(Notice("lead", "the database is away"))
    assert [type(event) for event in seen] == [Notice]
    over.set()
    emitting.join(DEADLINE_SECONDS)
    assert [type(event) for event in seen] == [Notice, TurnStarted]


def test_a_first_consumer_that_fails_does_not_keep_the_event() -> None:
    bus, seen = EventBus(), list[Event]()

    def fail(event: TurnStarted) -> None:
        raise ValueError("no")

    bus.subscribe_first(fail, TurnStarted)
    bus.subscribe(seen.append)
    bus(TurnStarted("alice"))
    assert seen == [TurnStarted("alice")]
