"""The benchmark of the bus must not rot: both ways that it compares carry every message."""

from __future__ import annotations

import pytest

from bench.bus import BUS, BY_HAND, Way, growth, run


@pytest.mark.parametrize("way", [BUS, BY_HAND], ids=["bus", "by hand"])
@pytest.mark.parametrize("durable", [False, True])
def test_a_way_carries_all_messages(way: Way, durable: bool) -> None:
    assert run(way, messages=3, durable=durable, writers=2) > 0


def test_the_growth_is_measured_on_both_inboxes() -> None:
    fresh, grown = growth(10)
    assert fresh > 0
    assert grown > 0
