"""The output of shell commands that the user runs (`!command`)."""

from __future__ import annotations

from collections.abc import Callable

MAX_LINE = 8000
"""A longer line is shown in parts, before it ends."""


class ShellOutput:
    """Shows one command's output in whole lines, because several commands may run at once."""

    def __init__(self, show: Callable[[str], None], redraw: Callable[[], None]) -> None:
        self._show = show
        self._redraw = redraw
        self.line = ""
        """The unfinished last line, shown at the prompt."""
        self.is_over = False

    def add(self, text: str) -> None:
        whole, _, self.line = (self.line + text).rpartition("\n")
        if whole:
            self._show(whole)
        if len(self.line) > MAX_LINE:
            self._show_rest()
        elif self.line:
            self._redraw()

    def finish(self) -> None:
        self.is_over = True
        self._show_rest()

    def _show_rest(self) -> None:
        rest, self.line = self.line, ""
        if rest:
            self._show(rest)


class ShellOutputs:
    """The outputs of all commands that run now."""

    def __init__(self, show: Callable[[str], None], redraw: Callable[[], None]) -> None:
        self._show = show
        self._redraw = redraw
        self._outputs: list[ShellOutput] = []
        """Replaced as a whole: the main thread reads it while others add to it."""

    def open(self) -> ShellOutput:
        output = ShellOutput(self._show, self._redraw)
        self._outputs = [*(each for each in self._outputs if not each.is_over), output]
        return output

    @property
    def line(self) -> str:
        """The unfinished last line of the newest output that has one."""
        return next((each.line for each in reversed(self._outputs) if each.line), "")

    def finish(self) -> None:
        for output in self._outputs:
            output.finish()
