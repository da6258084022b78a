"""One run of the program for many tests, whichever of pytest's processes they run in."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable
from typing import Any

import pytest


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `make` returns, made by the first who asks; the others wait for it."""
    base = factory.getbasetemp()
    place = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        kept = place / f"{name}.json"
        if not kept.exists():
            kept.write_text(json.dumps(make()))
        value = json.loads(kept.read_text())
    assert isinstance(value, dict)
    return value
