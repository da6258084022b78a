"""A span of time in a few characters."""

from __future__ import annotations


def short_time(seconds: float) -> str:
    minutes, rest = divmod(int(max(0.0, seconds)), 60)
    if minutes >= 60:
        return f"{minutes // 60}h{minutes % 60:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
