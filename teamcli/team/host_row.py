"""A host of a team on several hosts."""

from __future__ import annotations

from typing import NamedTuple


class HostRow(NamedTuple):
    """A host as the others see it."""

    name: str
    is_alive: bool
    slots: int
    """How many members it runs at most."""
    members: int
    """How many it runs."""
    silent_seconds: float = 0.0
    """How long nothing was heard of it, if that is longer than usual. When its lease has run out, it is not alive."""
    has_lead: bool = False
    is_leaving: bool = False
    """It hands its members over, and takes no more."""
