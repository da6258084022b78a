"""Lines that were typed, on their way to the thread that serves them."""

from __future__ import annotations

import queue
from collections.abc import Callable
from typing import NoReturn

from teamcli.ui.lines import is_farewell


class LineQueue:
    """The main thread adds lines, another one serves them."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[tuple[str, str]] = queue.SimpleQueue()
        """Each with the name of the agent that was shown when it was entered."""
        self._unfinished: list[str] = []
        """Those that are not served yet, in order."""

    def add(self, line: str, addressee: str) -> None:
        self._unfinished.append(line)
        self._waiting.put((line, addressee))

    def serve(self, serve: Callable[[str, str], None]) -> NoReturn:
        """Call `serve` with each line and its addressee, one after the other."""
        while True:
            line, addressee = self._waiting.get()
            serve(line, addressee)
            self._unfinished.remove(line)  # only now: a line that leaving cuts off was not carried out

    @property
    def unfinished(self) -> list[str]:
        """The lines that were not carried out, except those that leave."""
        return [line for line in self._unfinished if not is_farewell(line)]
