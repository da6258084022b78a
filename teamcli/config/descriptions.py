"""Descriptions of roles and skills in system prompts: short, but with the words that say when to use one."""

from __future__ import annotations

import re

from teamcli.text.escaping import one_line

_TRIGGER = (
    r"(?i)\b(use (this|it|when|for|if|after|before|pro-?actively)|should be used|must be used|invoke|triggers?\b|when )"
)
_GAP = " … "


def shortened(text: str, limit: int) -> str:
    """The text in one line, safe to print. If it is too long, its beginning, and the part that says when to use it."""
    line = one_line(text, max(len(text) * 4, 1))
    if len(line) <= limit:
        return line
    half = limit // 2
    found = re.search(_TRIGGER, line[half:])
    # A trigger at the very end of what would be shown anyway says nothing.
    if found is None or half + found.start() < limit - half // 2:
        return one_line(text, limit)
    start = half + found.start()
    return line[: half - len(_GAP)].rstrip() + _GAP + one_line(line[start:], half)
