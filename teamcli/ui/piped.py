"""The REPL on a pipe: each line is run to its end before the next is read. Plain output, nobody to ask."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from signal import SIGHUP, SIGINT, SIGTERM

from teamcli.cancel import CancelScope
from teamcli.commands.base import CommandResult, Job, Leave
from teamcli.config.options import ExitStatus
from teamcli.errors import Cancelled, TeamcliError
from teamcli.session.session import Session
from teamcli.ui.headless import exit_status
from teamcli.ui.lines import OutputStream, Repl
from teamcli.ui.render.plain_view import PlainView
from teamcli.ui.signals import SignalReceived, in_thread, signals_raise


class PipedRepl(Repl):
    """What lines start runs in another thread, so that a signal can end it."""

    def __init__(self, session: Session, view: PlainView) -> None:
        super().__init__(session)
        self._view = view
        self.status = ExitStatus.DONE
        """What a script should know of how the tasks went; the worst of them."""
        self.has_left = False
        """A line said so; else they have ended."""

    def run(self, lines: Iterable[str]) -> None:
        for line in lines:
            try:
                self.serve(line)
            except Leave:
                self.has_left = True
                return
            except TeamcliError as e:
                self._view.say(f"teamcli: {e}")

    def echo(self, line: str) -> None:
        """Whoever wrote the line has it."""

    def show(self, shown: CommandResult) -> None:
        assert not isinstance(shown, Job)
        self._view.show(shown)

    def task(self, text: str) -> None:
        with self._session.team.quiescence.user_waits_for_lead():
            ended = self._session.submit(text).result()
        self.status = worse(self.status, exit_status(self._session, ended))

    def run_job(self, run: Callable[[CancelScope], CommandResult]) -> None:
        try:
            if ending := in_thread(lambda: run(self._session.cancel.child()), "job").result():
                self.show(ending)
        except Cancelled:
            self._view.say("Interrupted")

    def output_stream(self) -> OutputStream:
        return _ToView(self._view)


class _ToView:
    """One command after the other: nothing of them can be mixed up."""

    def __init__(self, view: PlainView) -> None:
        self.add = view.stream_text

    def finish(self) -> None:
        """All of it is shown."""


def worse(one: ExitStatus, other: ExitStatus) -> ExitStatus:
    """Where several apply, the first of 2, 1, 3, 4."""
    order = (ExitStatus.USAGE, ExitStatus.FAILED, ExitStatus.LIMIT, ExitStatus.PERMISSION, ExitStatus.DONE)
    return min(one, other, key=order.index)


def piped_lines() -> Iterator[str]:
    while line := _next_line():
        yield line.decode("utf-8", "replace")


def _next_line() -> bytes:
    try:
        return sys.stdin.buffer.readline()
    except OSError:  # open for writing only, say: nothing can come
        return b""


def run_piped(session: Session, first_task: str) -> int:
    """The REPL with stdin not a terminal; the exit code says how the tasks went."""
    view = PlainView(sys.stdout, session.preferences.shows_subagents)
    session.events.subscribe(view)
    session.start()  # only now, so that nothing happens unseen
    repl = PipedRepl(session, view)
    with signals_raise(SIGINT, SIGTERM, SIGHUP):
        try:
            repl.run(chain([first_task], piped_lines()))
            if not repl.has_left:
                session.team.quiescence.nobody_will_write()
                in_thread(lambda: session.team.quiescence.wait_until_idle(session.cancel), "quiet").result()
        except SignalReceived as e:
            return e.exit_code
    return repl.status
