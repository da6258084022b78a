"""Closes a cycle between parts: one gets the other later, and both are constructor arguments all the same."""

from __future__ import annotations

from typing import Generic, TypeVar

PartT = TypeVar("PartT")


class LatePart(Generic[PartT]):
    """A part that is built after one that calls it, because it needs that one itself."""

    def __init__(self) -> None:
        self._part: PartT | None = None

    def bind(self, part: PartT) -> PartT:
        self._part = part
        return part

    def __call__(self) -> PartT:
        """Called only after everything is built."""
        assert self._part is not None
        return self._part
