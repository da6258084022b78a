"""`teamcli team`, `inbox`, `send` and `log`: the team from another shell, whether it is running or not.

All but `send` only read: they block no one, consume nothing and create nothing.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import stat
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from typing import TYPE_CHECKING

from teamcli.agent.transcript_sessions import read_marks
from teamcli.cli.tables import print_table
from teamcli.commands.reports.inbox import Mail, count_unread, look_into, mail_table
from teamcli.commands.reports.log import NAME_WIDTH, TimelineLine, TimelineReader, concerns, describe, last_lead_turn
from teamcli.commands.reports.team import LeadStatus, Overview
from teamcli.config.environment import secret_values
from teamcli.config.options import ExitStatus
from teamcli.config.trust import home_dir
from teamcli.errors import StateError, UsageError
from teamcli.storage.append_log import AppendLog
from teamcli.storage.files import Json
from teamcli.storage.team_dir import TeamDir, lock_holder
from teamcli.store.location import find_store, refuse_files, refuse_without_store
from teamcli.subagents.ledger import read_waiting
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import LEAD, USER, WAITED, Message, MessageType, find_name, is_address, new_id
from teamcli.team.message_bus import FileBus
from teamcli.team.roster import Member, Status, read_team
from teamcli.team.signing import KEY_BYTES, load_key
from teamcli.text.escaping import escape_controls, has_color
from teamcli.text.redaction import register_secrets
from teamcli.ui.signals import SignalReceived, signals_raise

if TYPE_CHECKING:
    from teamcli.session.watch_source import Pause, Source
    from teamcli.storage.log import Log
    from teamcli.tasks.storage import TaskStorage

FOLLOW_SECONDS = 0.2
DIM, MAGENTA, RED, PLAIN = "\x1b[2m", "\x1b[35m", "\x1b[31m", "\x1b[0m"


def show_team(snapshot: TeamSnapshot, as_json: bool) -> int:
    """Print the roster; returns the exit code."""
    overview = snapshot.overview()
    if as_json:
        team = {"team_name": snapshot.team.name, "running": snapshot.is_running, "pid": snapshot.pid}
        _print_json({**team, **overview.to_json()})
    else:
        print(escape_controls(snapshot.describe()))
        print_table(overview.to_table(time.time()))
    if snapshot.damage:
        warn(snapshot.damage)
    return ExitStatus.USAGE if snapshot.damage else ExitStatus.DONE


def show_inbox(snapshot: TeamSnapshot, name: str, only_unread: bool, as_json: bool) -> int:
    """Print an inbox; returns the exit code."""
    exact = snapshot.owner_of_inbox(name or LEAD)
    mails = [mail for mail in snapshot.mail(exact) if not (only_unread and mail.is_read)]
    if as_json:
        for mail in mails:
            _print_json(mail.to_json())
    elif only_unread and not mails:
        print(f"No unread messages for {exact}.")
    else:
        print_table(mail_table(exact, mails, time.time()))
    return ExitStatus.DONE


def send(snapshot: TeamSnapshot, name: str, text: str) -> int:
    """Append a message from the user to an inbox; returns the exit code."""
    if not snapshot.directory.root.is_dir():
        raise UsageError(f"there is no team in {Path.cwd()}: start teamcli here first, or name a directory with --cwd")
    if not text.strip():
        raise UsageError("the message is empty (try teamcli send --help)")
    exact = snapshot.recipient(name)
    # At the next start, older unread mail of interrupted members is held back. This message is not.
    fields = {} if snapshot.is_running else {WAITED: True}
    snapshot.send(Message(MessageType.MESSAGE, USER, exact, text, time.time(), new_id(), fields))
    waits = "" if snapshot.is_running else f"; {snapshot.not_running}, so the message waits until it starts"
    print(f"Sent message to {exact}{waits}")
    return ExitStatus.DONE


def show_log(snapshot: TeamSnapshot, follow: bool, agent: str, last: int | None, as_json: bool) -> int:
    """Print the timeline, and follow it if asked to; returns the exit code."""
    printer = _Printer(agent, as_json)
    events = TimelineReader(snapshot.timeline())
    with signals_raise(SIGINT, SIGTERM, SIGHUP), closing(events):
        try:
            rows = filter(printer.wants, events.read())
            printer.print(rows if last is None else deque(rows, maxlen=last))
            if agent and not printer.has_printed:
                snapshot.check_agent(agent, may_come=follow)
            while follow:
                _pause()
                snapshot.timeline()  # of a team in a database, this brings what is new into the file
                printer.print(filter(printer.wants, events.read()))
        except SignalReceived as e:
            return e.exit_code
    if not printer.has_printed and not as_json:
        print("Nothing has happened here yet.")
    return ExitStatus.DONE


def _pause() -> None:
    """Raises: BrokenPipeError, as soon as the reader has closed the pipe."""
    if not stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
        time.sleep(FOLLOW_SECONDS)
        return
    reader = select.poll()
    reader.register(sys.stdout, 0)  # no events: poll always reports a closed pipe
    if reader.poll(FOLLOW_SECONDS * 1000):
        raise BrokenPipeError


class _Printer:
    """Prints events as lines: plain, in color on a terminal, or as JSON."""

    def __init__(self, agent: str, as_json: bool) -> None:
        self._agent = agent
        self._as_json = as_json
        self._has_color = has_color(sys.stdout)
        self.has_printed = False

    def wants(self, row: Json) -> bool:
        return not self._agent or concerns(row, self._agent)

    def print(self, rows: Iterable[Json]) -> None:
        for row in rows:
            self.has_printed = True
            if self._as_json:
                _print_json(row)
            else:
                print(self._colored(describe(row)))
        sys.stdout.flush()  # with --follow, a program that reads this sees each event at once

    def _colored(self, line: TimelineLine) -> str:
        if not self._has_color:
            return str(line)
        text = f"{RED}{line.text}{PLAIN}" if line.is_bad else line.text
        return f"{DIM}{line.time}{PLAIN}  {MAGENTA}{line.agent:<{NAME_WIDTH}}{PLAIN}  {text}"


class TeamSnapshot:
    """The team of a directory, as its files describe it at this moment."""

    def __init__(self, directory: TeamDir) -> None:
        self.directory = directory
        self.team = read_team(directory.config)
        self.pid = lock_holder(directory.lock)

    @classmethod
    def here(cls) -> TeamSnapshot:
        """Raises: StateError."""
        # Any program may have written to these files, so a key could be in them.
        register_secrets(secret_values(os.environ))
        directory = TeamDir.here()
        for path in (directory.root, directory.inbox, directory.transcripts, directory.tasks):
            if path.is_symlink():  # it could point anywhere, and `send` would write there
                raise StateError(f"{path} is a symbolic link; remove it")
        return cls(directory)

    not_running = "teamcli is not running here"

    @property
    def is_running(self) -> bool:
        return self.pid is not None

    def runs(self, member: Member) -> bool:
        """Whether the process of a member is alive."""
        return self.is_running

    def timeline(self) -> Path:
        """The file of the timeline, with what has happened until now."""
        return self.directory.events

    def lead_transcript(self) -> Path:
        """The file with the lead's conversations until now."""
        return self.directory.lead_transcript

    def task_storage(self, only_reads: bool = False) -> TaskStorage:
        """The tasks of the board."""
        from teamcli.tasks.task_files import TaskFiles  # late, as below: only some commands need them

        return TaskFiles(self.directory.tasks, warn, only_reads)

    def timeline_log(self) -> Log:
        """What records events. The caller closes it."""
        return AppendLog(self.directory.events, durable=False)

    def source(self, agent: str, pause: Pause) -> Source:
        """What one agent does, or everyone."""
        from teamcli.session.watch_source import TeamSource

        return TeamSource(self.directory, agent, pause)

    def send(self, message: Message) -> None:
        """Raises: TeamcliError"""
        bus = FileBus(self.directory.inbox, load_key(home_dir()))
        try:
            bus.send(message)
        finally:
            bus.close()

    def overview(self) -> Overview:
        # Working members were killed with their process: the next start marks them as interrupted.
        members = tuple(
            each._replace(status=Status.IDLE, interrupted=True, waiting_for="", stuck_since=0.0)
            if each.status in (Status.WORKING, Status.SPAWNING) and not self.runs(each)
            else each
            for each in self.team.members
        )
        standing = tuple(request for request in self.team.requests if request.is_open)
        unread = {name: count_unread(self.mail(name)) for name in (LEAD, *(member.name for member in members))}
        waiting = read_waiting(self.directory.subagents) if self.pid is not None else ()
        return Overview(self._lead(), members, standing, unread, waiting, self.team.name)

    def describe(self) -> str:
        """In a sentence, whether it is running and where."""
        where = self.directory.root.parent
        if self.pid is not None:
            return f"teamcli is running in {where} (process {self.pid})."
        return f"teamcli is not running in {where}."

    @property
    def damage(self) -> str:
        """What is wrong with the roster's file, in words; empty if nothing is."""
        if not self.team.problems:
            return ""
        problems = "; ".join(self.team.problems)
        what_now = "the next start of teamcli here keeps a copy and rebuilds what is missing"
        return f"{self.directory.config} is damaged ({problems}); {what_now}"

    def recipient(self, name: str) -> str:
        """The exact name of a possible recipient.

        Raises: UsageError, listing the names there are
        """
        return self._named(name, [LEAD, *(member.name for member in self.team.members if member.is_active)])

    def owner_of_inbox(self, name: str) -> str:
        """The exact name of the lead, or of a present or past member.

        Raises: UsageError, listing the names there are
        """
        # Any inbox on disk can be shown, even if the roster no longer has its owner.
        if is_address(name) and (self.directory.inbox / f"{name}.jsonl").exists():
            return name  # perhaps forgotten, or lost with a damaged roster
        return self._named(name, [LEAD, *(member.name for member in self.team.members)])

    def watched(self, name: str) -> str:
        """The exact name of the lead, or of a member, active or not.

        Raises: UsageError, listing the names there are
        """
        return self._named(name, [LEAD, *(member.name for member in self.team.members)])

    def check_agent(self, name: str, may_come: bool) -> None:
        """Report an unknown name: with `may_come`, as a warning, since a member of that name may still be hired."""
        try:
            self._named(name, [LEAD, USER, *(member.name for member in self.team.members)])
        except UsageError as e:
            if not may_come:
                raise
            warn(f"{e}; waiting for it")

    def _named(self, name: str, names: Sequence[str]) -> str:
        if found := find_name(name, names):
            return found
        is_gone = find_name(name, (member.name for member in self.team.members))
        problem = f"'{name}' is shut down" if is_gone else f"there is no teammate '{name}'"
        raise UsageError("; ".join(filter(None, [problem, f"there are: {', '.join(names)}", self.damage])))

    def mail(self, name: str) -> list[Mail]:
        mailbox = Mailbox(self._bus, name, read_marks(self.directory.transcripts / f"{name}.jsonl"))
        return look_into(mailbox)

    @cached_property
    def _bus(self) -> FileBus:
        home = home_dir()
        # Without a key, no line here was signed by us: with any key, all lines are foreign, so none is created.
        key = load_key(home) if (home / "key").exists() else secrets.token_bytes(KEY_BYTES)
        return FileBus(self.directory.inbox, key)

    def _lead(self) -> LeadStatus:
        if self.pid is None:
            return LeadStatus("not running")
        # The lead is not in the roster: its state follows from the timeline of this run.
        started = self.directory.lock.stat().st_mtime
        turn = last_lead_turn(self.directory.events)
        if turn is None or turn.at < started:
            return LeadStatus("idle", started)
        return LeadStatus("working" if turn.is_under_way else "idle", turn.at)


@contextmanager
def open_snapshot(store: str | None, name: str, follows: bool = False, changes: bool = False) -> Iterator[TeamSnapshot]:
    """The team of this directory; if a store is configured, the one in that database. With `follows`, it waits until
    the database can be reached. A directory with a team in files is refused; a command that only reads may still name a
    team in a database there, with --store or --team.

    Raises: UsageError, ConfigError
    """
    url = find_store(store, os.environ, home_dir())
    if not url:
        refuse_without_store(name)
        yield TeamSnapshot.here()
        return
    if changes or not (store or name):
        refuse_files(TeamDir.here())
    from teamcli.cli.stored_team import opened_team  # late: it loads what a team in files never needs

    with opened_team(url, name, follows) as snapshot:
        yield snapshot


def warn(text: str) -> None:
    print(f"teamcli: {escape_controls(text)}", file=sys.stderr)


def _print_json(value: Json) -> None:
    print(json.dumps(value))
