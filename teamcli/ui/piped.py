"""The REPL on a pipe: each line is finished before the next is read. Plain output, and no one to ask."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from itertools import chain
from signal import SIGHUP, SIGINT, SIGTERM

from teamcli.cancel import CancelScope
from teamcli.commands.base import CommandResult, Job, Leave, Prompt
from teamcli.config.options import ExitStatus
from teamcli.errors import Cancelled, TeamcliError
from teamcli.session.session import Session
from teamcli.ui.headless import exit_status
from teamcli.ui.leaving import busy_agents, print_leaving
from teamcli.ui.lines import OutputStream, Repl
from teamcli.ui.render.plain_view import PlainView
from teamcli.ui.signals import SignalReceived, in_thread, result_of, signals_raise


class PipedRepl(Repl):
    """Runs tasks and jobs in other threads, so that a signal can end them."""

    def __init__(self, session: Session, view: PlainView) -> None:
        super().__init__(session)
        self._view = view
        self.status = ExitStatus.DONE
        """The worst result of all tasks, for the exit code."""
        self.has_left = False
        """A line asked to leave. Otherwise the input has ended."""

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
        """Nothing: the writer of the line knows it."""

    def show(self, shown: CommandResult) -> None:
        assert not isinstance(shown, Job)
        self._view.show(shown)

    def task(self, text: str) -> None:
        with self._session.team.quiescence.user_waits_for_lead():
            ended = result_of(self._session.submit(text))
        self.status = worse(self.status, exit_status(self._session, ended))

    def run_job(self, run: Callable[[CancelScope], CommandResult]) -> None:
        try:
            ending = result_of(in_thread(lambda: run(self._session.cancel.child()), "job"))
        except Cancelled:
            self._view.say("Interrupted")
            return
        if isinstance(ending, Prompt):
            self.task(ending.text)
        elif ending:
            self.show(ending)

    def output_stream(self) -> OutputStream:
        return _ToView(self._view)


class _ToView:
    """Passes output on at once: only one command runs at a time, so nothing gets mixed up."""

    def __init__(self, view: PlainView) -> None:
        self.add = view.stream_text

    def finish(self) -> None:
        """Nothing is held back."""


def worse(one: ExitStatus, other: ExitStatus) -> ExitStatus:
    """The first of 2, 1, 3, 4, 0."""
    order = (ExitStatus.USAGE, ExitStatus.FAILED, ExitStatus.LIMIT, ExitStatus.PERMISSION, ExitStatus.DONE)
    return min(one, other, key=order.index)


def piped_lines() -> Iterator[str]:
    with suppress(OSError):  # for example opened for writing only
        while line := sys.stdin.buffer.readline():
            yield line.decode("utf-8", "replace")


def run_piped(session: Session, first_task: str) -> int:
    """Serve lines from a stdin that is not a terminal. Returns the exit code."""
    view = PlainView(sys.stdout, session.preferences.shows_subagents)
    session.events.subscribe(view)
    session.start()  # after subscribing, so that no event is missed
    repl = PipedRepl(session, view)
    with signals_raise(SIGINT, SIGTERM, SIGHUP):
        try:
            repl.run(chain([first_task], piped_lines()))
            if not repl.has_left:
                session.team.quiescence.nobody_will_write()
                result_of(in_thread(lambda: session.team.quiescence.wait_until_idle(session.cancel), "quiet"))
        except SignalReceived as e:
            return e.exit_code
        finally:
            print_leaving(session, busy_agents(session))
    return repl.status
