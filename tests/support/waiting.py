"""Waiting for a condition, with a deadline far beyond what it should take."""

from __future__ import annotations

import time
from collections.abc import Callable

DEADLINE_SECONDS = 30.0


def wait_until(
    condition: Callable[[], object], deadline_seconds: float = DEADLINE_SECONDS, every_seconds: float = 0.01
) -> None:
    end = time.monotonic() + deadline_seconds
    while not condition():
        assert time.monotonic() < end, "the condition did not become true"
        time.sleep(every_seconds)
