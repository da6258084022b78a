"""What the prompt acts on, and whom it asks for what it shows."""

from __future__ import annotations

from typing import Protocol

from teamcli.ui.render.style import Line, Piece
from teamcli.ui.terminal.questions import PromptQuestion


class PromptPort(Protocol):
    """All methods are called in the main thread and must not block."""

    def enter(self, text: str) -> None:
        """Take a complete line."""
        ...

    def interrupt(self) -> bool:
        """End what runs in the foreground. Returns False if nothing does."""
        ...

    def take_back(self) -> str | None:
        """Remove and return the newest queued line."""
        ...

    @property
    def is_watching(self) -> bool:
        """Whether the screen shows another agent than the lead."""
        ...

    def label(self) -> Piece:
        """Shown in front of the line: who gets it."""
        ...

    def turn(self, step: int) -> None:
        """Show the next agent, or the previous one."""
        ...

    def return_to_lead(self, after_jobs: bool) -> None:
        """Show the lead. With `after_jobs`, if a command of the user runs, end that instead."""
        ...

    def next_mode(self) -> None: ...

    def expand(self) -> None: ...

    def toggle_tasks(self) -> None: ...

    def leave(self) -> None: ...

    def read(self, question: PromptQuestion) -> None:
        """Show all of it in the user's pager, until the user leaves that. Called in a thread."""
        ...

    def answer(self, question: PromptQuestion, text: str) -> bool:
        """Returns False if the text is not an answer."""
        ...

    def above(self) -> list[Line]:
        """Unfinished output, shown right above the prompt."""
        ...

    def bar(self, width: int, taken: int, hint: str) -> list[Line]:
        """The status bar; the prompt has `taken` so many rows of the screen. `hint` replaces its own."""
        ...
