from __future__ import annotations

import email.utils
import time

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import ModelLoading, Overloaded, RateLimited, ServerFault, TransientError, Unreachable
from teamcli.llm.backoff import Backoff, Pause
from teamcli.llm.faults import retry_after_seconds


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def pauses(backoff: Backoff, clock: Clock, error: TransientError, is_shared: bool = True) -> list[float]:
    """Those of a call that fails each time, until it gives up."""
    found = []
    with backoff.call() as call:
        while True:
            with call.turn(CancelScope()):
                pause = call.failed(error, is_shared)
            if pause is None:
                return found
            found.append(pause.seconds)
            clock.now += pause.seconds


def test_pauses_double_up_to_a_minute_and_end_after_ten() -> None:
    clock = Clock()
    found = pauses(Backoff(chance=lambda: 0.0, clock=clock), clock, Overloaded("busy"))
    assert found[:8] == [0.5, 1, 2, 4, 8, 16, 32, 60]
    assert set(found[8:-1]) == {60}
    assert sum(found) == 600


def test_an_endpoint_that_was_never_reached_is_tried_for_half_a_minute() -> None:
    clock = Clock()
    backoff = Backoff(clock=clock)
    assert sum(pauses(backoff, clock, Unreachable("refused"))) == pytest.approx(30)
    with backoff.call() as call, call.turn(CancelScope()):
        call.got_through()
    assert sum(pauses(backoff, clock, Unreachable("refused"))) == pytest.approx(600)


def test_pauses_are_spread_by_a_quarter() -> None:
    assert Backoff(chance=lambda: 1.0).grown_seconds(1) == 0.375


def test_what_the_endpoint_asks_for_is_kept_while_there_is_time() -> None:
    clock = Clock()
    assert pauses(Backoff(clock=clock), clock, RateLimited("limit", 250)) == [250, 250]


def test_a_server_that_loads_its_model_is_tried_for_half_an_hour() -> None:
    clock = Clock()
    found = pauses(Backoff(chance=lambda: 0.0, clock=clock), clock, ModelLoading("loading"))
    assert sum(found) == 1800
    assert max(found) == 10


def test_without_patience_nothing_is_tried_again() -> None:
    clock = Clock()
    assert pauses(Backoff(patience_seconds=0, clock=clock), clock, Overloaded("busy")) == []


def test_failures_at_the_same_time_are_one_pause() -> None:
    clock = Clock()
    backoff = Backoff(chance=lambda: 0.0, clock=clock)
    with backoff.call() as first, backoff.call() as second:
        with first.turn(CancelScope()), second.turn(CancelScope()):
            found = [call.failed(Overloaded("busy"), True) for call in (first, second)]
        assert [pause and (pause.seconds, pause.is_news) for pause in found] == [(0.5, True), (0.5, False)]


def test_all_calls_give_up_together() -> None:
    clock = Clock()
    backoff = Backoff(clock=clock)
    with backoff.call() as late:
        pauses(backoff, clock, Overloaded("busy"))
        with late.turn(CancelScope()):
            assert late.failed(Overloaded("busy"), True) is None


def test_a_request_that_fails_by_itself_does_not_delay_the_others_for_long() -> None:
    clock = Clock()
    backoff = Backoff(chance=lambda: 0.0, clock=clock)
    waits = []
    with backoff.call() as poison:
        for _ in range(8):
            with poison.turn(CancelScope()):
                own = poison.failed(ServerFault("crashed"), True)
            assert own is not None
            heard: list[Pause] = []
            before, clock.now = clock.now, clock.now + 0.5
            with backoff.call(heard.append) as other, other.turn(CancelScope()):
                waits.append(clock.now - before)
                other.got_through()
            clock.now = before + own.seconds
    assert own.seconds == 60
    assert max(waits) == 0.5


def test_an_outage_is_forgotten_when_no_call_is_open() -> None:
    clock = Clock()
    backoff = Backoff(clock=clock)
    with backoff.call() as interrupted, interrupted.turn(CancelScope()):
        interrupted.failed(RateLimited("limit", 100), True)
    heard: list[Pause] = []
    with backoff.call(heard.append) as call, call.turn(CancelScope()):
        assert heard == []


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "7"}, 1.5),
        ({"retry-after": "0"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "1.2.3"}, None),
        ({"retry-after-ms": "inf"}, None),
        ({"retry-after-ms": "nan"}, None),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:00 GMT"}, None),
    ],
)
def test_retry_after_is_read_with_care(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after_seconds(headers) == seconds


def test_retry_after_may_be_a_date() -> None:
    seconds = retry_after_seconds({"retry-after": email.utils.formatdate(time.time() + 100, usegmt=True)})
    assert seconds is not None
    assert 50 < seconds <= 100
