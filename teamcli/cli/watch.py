"""`teamcli watch`: what an agent does, or all of them, from another terminal. It only reads."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable
from signal import SIGHUP, SIGINT, SIGTERM

from teamcli.cli.team import TeamSnapshot, warn
from teamcli.session.follower import Follower
from teamcli.session.watch_client import Lagged, Snapshots, WatchClient
from teamcli.session.watch_source import Remark, Source
from teamcli.ui.signals import SignalReceived, signals_raise
from teamcli.ui.watch_view import JsonWatchView, PlainWatchView, TerminalWatchView, WatchView

LOOK_SECONDS = 0.2
"""How often a watcher looks for a lead while there is none."""
TOO_SLOW = "This watcher was too slow, and continues from what is recorded."


def run_watch(team: TeamSnapshot, name: str, is_verbose: bool, as_json: bool) -> int:
    """Watch until a signal ends it; returns the exit code.

    Raises: UsageError, StateError
    """
    agent = team.watched(name) if name else ""
    view = _view(agent, team, is_verbose, as_json)
    with signals_raise(SIGINT, SIGTERM, SIGHUP):
        try:
            return _watch(team.source(agent, _pausing()), Follower(agent), view)
        except SignalReceived as e:
            view.finish()
            return e.exit_code


def _watch(source: Source, follower: Follower, view: WatchView) -> int:
    for item in source.items():
        match item:
            case Snapshots():
                view.show(follower.begin(item.snapshots))
            case Lagged():
                view.say(TOO_SLOW)
            case Remark():
                view.finish()
                view.say(item.text)
            case _:
                view.show(follower.follow(item))
    raise AssertionError("a source never ends")


def _view(agent: str, team: TeamSnapshot, is_verbose: bool, as_json: bool) -> WatchView:
    if as_json:
        return JsonWatchView(sys.stdout, warn)
    if sys.stdout.isatty():
        names = [member.name for member in team.team.members]
        return TerminalWatchView(sys.stdout, agent, names, is_verbose)
    return PlainWatchView(sys.stdout, agent, is_verbose)


def _pausing() -> Callable[[WatchClient | None], None]:
    """A function that waits for a client, or a moment.

    It raises: BrokenPipeError, as soon as the reader of the output has closed the pipe
    """
    output = sys.stdout.fileno() if stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode) else None

    def pause(client: WatchClient | None) -> None:
        poll = select.poll()
        if output is not None:
            poll.register(output, 0)  # no events: poll always reports a closed pipe
        if client is not None:
            poll.register(client, select.POLLIN)
        if any(fd == output for fd, _ in poll.poll(None if client else LOOK_SECONDS * 1000)):
            raise BrokenPipeError

    return pause
