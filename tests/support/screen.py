"""A terminal with a readable screen: the program runs in a pseudo-terminal, and an emulator interprets its output."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from signal import SIGKILL
from types import TracebackType

import pexpect
import pyte

from tests.support.forked_terminal import ForkedTerminal
from tests.support.forks import ForkedProgram
from tests.support.program import Program

DEADLINE_SECONDS = 30.0
WHERE_IS_THE_CURSOR = "\x1b[6n"
BEGIN_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"


class Screen:
    """`with Screen(program) as screen: screen.wait_for("team >>"); screen.type("hi\\r")`."""

    def __init__(
        self,
        program: Program,
        *arguments: str,
        columns: int = 80,
        lines: int = 40,
        command: Sequence[str] | None = None,
    ) -> None:
        """Start `teamcli` with `arguments`, or `command`."""
        env = {"TERM": "xterm-256color", "LANG": "C.UTF-8", **program.env()}
        env["LANG"] = "C.UTF-8"
        self._screen = pyte.HistoryScreen(columns, lines, history=10_000)
        self._stream = pyte.Stream(self._screen)
        if isinstance(program, ForkedProgram) and command is None and program.forks.can_run(env):
            self.process = ForkedTerminal(program, arguments, env, (lines, columns))
        else:
            self.process = _spawn(command or program.command(arguments), program, env, (lines, columns))
        self._held_back = ""
        self._text: str | None = ""
        self.raw = ""
        """Everything the program has written."""

    def __enter__(self) -> Screen:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.isalive():
            self.process.kill(SIGKILL)
            self.process.wait()
        self.process.close()

    def type(self, keys: str) -> None:
        self.process.send(keys)

    def hang_up(self) -> None:
        """Close the terminal while the program runs, as closing a window does."""
        self.process.ptyproc.fileobj.close()

    @property
    def text(self) -> str:
        """What a person sees, without the scrollback."""
        if self._text is None:  # assembling it takes longer than most programs need to draw it
            self._text = "\n".join(line.rstrip() for line in self._screen.display).rstrip()
        return self._text

    @property
    def text_with_scrollback(self) -> str:
        rows = [*self._screen.history.top, *(self._screen.buffer[row] for row in range(self._screen.lines))]
        return "\n".join("".join(row[x].data for x in range(self._screen.columns)).rstrip() for row in rows)

    def moments_until(self, text: str) -> Iterator[str]:
        """What can be seen, with the scrollback, after each change until `text` is on the screen."""
        while text not in self.text:
            assert self._read(), f"the program ended without {text!r}:\n{self.text}"
            yield self.text_with_scrollback

    def wait_for(self, text: str, times: int = 1) -> None:
        """Read until `text` is on the screen, `times` times."""
        self._wait_until(lambda: self.text.count(text) >= times, f"{text!r} ({times} times)")

    def wait_for_match(self, pattern: re.Pattern[str]) -> None:
        """Read until a line on the screen matches."""
        self._wait_until(lambda: any(map(pattern.search, self.text.splitlines())), pattern.pattern)

    def wait_for_all(self, *texts: str) -> None:
        """Read until all of `texts` are on the screen at the same time."""
        self._wait_until(lambda: all(text in self.text for text in texts), " and ".join(map(repr, texts)))

    def _wait_until(self, is_so: Callable[[], bool], what: str) -> None:
        end = time.monotonic() + DEADLINE_SECONDS
        while not is_so():
            assert time.monotonic() < end, f"{what} did not appear:\n{self.text}"
            assert self._read() or is_so(), f"the program ended without {what}:\n{self.text}"

    def wait_for_end(self) -> int:
        """Read to the end and return the exit code, negative for a signal."""
        end = time.monotonic() + DEADLINE_SECONDS
        while self._read():
            assert time.monotonic() < end, f"the program did not end:\n{self.text}"
        self.process.wait()
        self.process.close()
        if self.process.exitstatus is not None:
            return int(self.process.exitstatus)
        return -int(self.process.signalstatus or 0)

    def _read(self) -> bool:
        """Read what is available; false at the end."""
        try:
            data = self.process.read_nonblocking(65_536, timeout=0.1)
        except pexpect.TIMEOUT:
            return True
        except pexpect.EOF:
            self._feed(self._held_back)
            return False
        self.raw += data
        # Like a terminal that supports synchronized output, show a frame only when it is complete.
        shown, begin, rest = (self._held_back + data).rpartition(BEGIN_FRAME)
        is_whole = not begin or END_FRAME in rest
        self._held_back = "" if is_whole else begin + rest
        self._feed(shown + begin + rest if is_whole else shown)
        return True

    def _feed(self, data: str) -> None:
        self._stream.feed(data)
        self._text = None
        for _ in range(data.count(WHERE_IS_THE_CURSOR)):  # a real terminal answers
            self.process.send(f"\x1b[{self._screen.cursor.y + 1};{self._screen.cursor.x + 1}R")


def _spawn(
    command: Sequence[str], program: Program, env: Mapping[str, str], dimensions: tuple[int, int]
) -> pexpect.spawn[str]:
    first, *rest = command
    place = {"cwd": str(program.directory), "env": env, "dimensions": dimensions}
    process = pexpect.spawn(first, rest, encoding="utf-8", echo=False, **place)
    process.delaybeforesend = None
    process.ptyproc.delayafterclose = 0  # close() is called only after the process has ended
    return process
