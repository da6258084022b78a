"""A wall clock that a test can set, as an administrator or a dead battery does; see `Program.use_test_clock`.

The file that `TEST_CLOCK_FILE` names holds by how many seconds the clock is off, or after `=` the time at which it
stands still. `time.monotonic` is not affected, as on a real machine.
"""

import os
import time
from pathlib import Path

_real_now = time.time
_file = os.environ.get("TEST_CLOCK_FILE", "")


def _now() -> float:
    try:
        text = Path(_file).read_text()
    except OSError:
        return _real_now()
    return float(text[1:]) if text.startswith("=") else _real_now() + float(text or 0)


if _file:
    time.time = _now
    time.time_ns = lambda: int(_now() * 1_000_000_000)
