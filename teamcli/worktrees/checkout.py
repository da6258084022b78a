"""Where the checkout of an isolated member is."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Checkout(NamedTuple):
    """The checkout of one member: a shared clone of the main repository."""

    member: str
    path: Path
    """`.team/worktrees/NAME` of the main directory."""

    @property
    def branch(self) -> str:
        return f"team/{self.member}"
