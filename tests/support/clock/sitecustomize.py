"""A wall clock that a test can set, as an administrator or a dead battery does: put this directory on PYTHONPATH.

The file that `TEST_CLOCK_FILE` names holds by how many seconds the clock is off. `time.monotonic` is not affected, as
on a real machine.
"""

import os
import time
from pathlib import Path

_now, _now_ns = time.time, time.time_ns
_file = os.environ.get("TEST_CLOCK_FILE", "")


def _offset() -> int:
    try:
        return int(Path(_file).read_text() or 0)
    except OSError:
        return 0


if _file:
    time.time = lambda: _now() + _offset()
    time.time_ns = lambda: _now_ns() + _offset() * 1_000_000_000
