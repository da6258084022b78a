"""What a person is asked to agree to before a directory's content is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

DETAILS_IN_A_LINE, DETAILS_IN_A_QUESTION = 5, 40


class Offer(NamedTuple):
    """Something in the directory that the user can agree to."""

    id: str
    """Changes with its content."""
    title: str
    details: tuple[str, ...] = ()
    show_content: Callable[[], list[str]] = list
    """The beginning of the content, or what changed in it."""

    @property
    def line(self) -> str:
        """A summary in one line, safe to print."""
        more = f" and {len(self.details) - DETAILS_IN_A_LINE} more" if len(self.details) > DETAILS_IN_A_LINE else ""
        listed = "; ".join(self.details[:DETAILS_IN_A_LINE]) + more
        return f"{self.title}: {listed}" if listed else self.title

    @property
    def lines(self) -> list[str]:
        """All of it, as the question shows it, safe to print."""
        shown = self.details[:DETAILS_IN_A_QUESTION]
        more = [f"and {len(self.details) - len(shown)} more"] if len(self.details) > len(shown) else []
        return [f"  - {self.title}", *(f"      {line}" for line in (*shown, *more, *self.show_content()))]
