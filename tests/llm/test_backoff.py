from __future__ import annotations

import email.utils
import time

import pytest

from teamcli.llm.backoff import Backoff
from teamcli.llm.faults import retry_after_seconds


def test_the_wait_doubles_up_to_a_cap() -> None:
    backoff = Backoff(chance=lambda: 0.0)
    assert [backoff.delay_seconds(attempt, None) for attempt in range(1, 7)] == [0.5, 1, 2, 4, 8, 8]


def test_the_wait_is_spread_by_a_quarter() -> None:
    assert Backoff(chance=lambda: 1.0).delay_seconds(1, None) == 0.375


def test_what_the_endpoint_asks_for_counts_up_to_a_cap() -> None:
    backoff = Backoff()
    assert backoff.delay_seconds(1, 60) == 60
    assert backoff.delay_seconds(1, 60.1) is None


def test_a_pause_is_never_shortened() -> None:
    backoff = Backoff()
    backoff.slow_down(100)
    backoff.slow_down(1)
    assert backoff.pause_seconds > 50


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
    assert seconds is not None and 50 < seconds <= 100
