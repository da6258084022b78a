"""A team in a database, for the commands that look at a team: the part that they need is brought into a temporary
directory, where they find the files that they know."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from teamcli.cancel import CancelScope
from teamcli.cli.team import TeamSnapshot, warn
from teamcli.commands.reports.inbox import Mail, look_into
from teamcli.commands.reports.log import lead_turn_in
from teamcli.commands.reports.team import HostState, LeadStatus, Overview
from teamcli.config.environment import secret_values
from teamcli.errors import StateError
from teamcli.session.watch_client import Snapshots
from teamcli.session.watch_source import Item, Pause, Source, recorded
from teamcli.storage.log import Log
from teamcli.storage.team_dir import TeamDir
from teamcli.store.location import root_or_nothing, shown_url
from teamcli.store.mirror import Mirror
from teamcli.store.postgres.bus import PostgresBus
from teamcli.store.postgres.database import Database
from teamcli.store.postgres.events import EventRows
from teamcli.store.postgres.leases import Host, read_hosts
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.tasks import TaskRows
from teamcli.store.postgres.team_rows import Fence
from teamcli.store.postgres.teams import ViewedTeam, view_team
from teamcli.tasks.storage import TaskStorage
from teamcli.tasks.task_files import TaskFiles
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import LEAD, Message
from teamcli.team.message_bus import FileBus
from teamcli.team.message_line import LineCodec
from teamcli.team.roster import Member
from teamcli.team.signing import ensure_token, key_of
from teamcli.text.redaction import register_secrets

COMMAND_LINE = "command line"
"""The host of events that commands record."""


class StoredTeam(TeamSnapshot):
    not_running = "the team is not running"

    def __init__(self, viewed: ViewedTeam, url: str, directory: TeamDir) -> None:
        """The team's files appear in `directory` when they are needed.

        Raises: StateError
        """
        self._viewed = viewed
        self._team = viewed.team
        self._url = url
        self._has_warned = False
        token = ensure_token(directory.inbox, self._team.uid.encode())
        codec = LineCodec(key_of(token, self._team.key))
        # Without the key, lines are shown as if they were verified; a warning says that they are not.
        sign_again = (lambda line: line) if viewed.has_key else (lambda line: codec.sign_again(line, None))
        self._mirror = Mirror(self._team, directory, viewed.has_key, sign_again, warn)
        self._mirror.bring_roster()
        super().__init__(directory)

    @property
    def is_running(self) -> bool:
        return LEAD in self._holders

    def runs(self, member: Member) -> bool:
        return member.name in self._holders or (not member.runs_on and self.is_running)

    def describe(self) -> str:
        team = f"The team '{self._viewed.record.name}' in {shown_url(self._url)}"
        return f"{team}: the lead runs on {self._holders[LEAD]}." if self.is_running else f"{team}: no lead is running."

    def overview(self) -> Overview:
        self._warn_without_key()
        names = (LEAD, *(member.name for member in self.team.members))
        hosts = {name: self._holders.get(name, "") for name in names}
        states = tuple(
            HostState(row.name, row.is_alive, row.members, row.silent_seconds, row.slots)
            for row in read_hosts(self._team)
        )
        return super().overview()._replace(hosts=hosts, host_states=states)

    def owner_of_inbox(self, name: str) -> str:
        self._mirror.bring_inboxes([name])
        return super().owner_of_inbox(name)

    def mail(self, name: str) -> list[Mail]:
        self._warn_without_key()
        self._mirror.bring_inboxes([name])
        return look_into(Mailbox(self._bus, name, self._mirror.marks_of(name)))

    def send(self, message: Message) -> None:
        self._warn_without_key("the message counts as one from outside")
        PostgresBus(self._team, Fence(self._team), Newest(), self.directory.inbox).send(message)

    def timeline(self) -> Path:
        self._warn_without_key()
        self._mirror.bring_timeline()
        return super().timeline()

    def lead_transcript(self) -> Path:
        self._warn_without_key()
        self._mirror.bring_transcripts([LEAD])
        return super().lead_transcript()

    def timeline_log(self) -> Log:
        return EventRows(self._team, Newest(), COMMAND_LINE, self.directory.root / "recorded.jsonl")

    def task_storage(self, only_reads: bool = False) -> TaskStorage:
        if only_reads:
            self._warn_without_key()
            self._mirror.bring_tasks()
            return TaskFiles(self.directory.tasks, warn, only_reads=True)
        if not self._viewed.has_key:
            raise StateError(self._viewed.problem)
        return TaskRows(self._team, Fence(self._team), Newest(), warn)

    def source(self, agent: str, pause: Pause) -> Source:
        self._warn_without_key()
        return StoredSource(self._mirror, self.directory, agent, pause)

    @cached_property
    def _holders(self) -> dict[str, str]:
        """The living host of each agent that has one."""
        return Host(self._team, "", 0, Fence(self._team)).holders()

    @cached_property
    def _bus(self) -> FileBus:
        return FileBus(self.directory.inbox, self._team.key)

    def _lead(self) -> LeadStatus:
        host = self._holders.get(LEAD)
        if host is None:
            return LeadStatus("not running")
        turn = lead_turn_in(self._mirror.last_events(host))
        return LeadStatus("working" if turn.is_under_way else "idle", turn.at) if turn else LeadStatus("idle")

    def _warn_without_key(self, effect: str = "nothing here is verified") -> None:
        if not self._viewed.has_key and not self._has_warned:
            self._has_warned = True
            warn(f"{effect}: {self._viewed.problem}")


class StoredSource:
    """What agents of a team in a database have recorded, a few times a second."""

    def __init__(self, mirror: Mirror, directory: TeamDir, agent: str, pause: Pause) -> None:
        self._mirror = mirror
        self._directory = directory
        self._agent = agent
        self._pause = pause

    def items(self) -> Iterator[Item]:
        """For ever, what is new.

        Raises: StateError
        """
        while True:
            self._mirror.bring_roster()
            self._mirror.bring_transcripts([self._agent] if self._agent else None)
            yield Snapshots(tuple(recorded(self._directory, self._agent)))
            self._pause(None)


@contextmanager
def opened_team(url: str, name: str, follows: bool) -> Iterator[StoredTeam]:
    """The team of this repository, or the one that a name (NAME or NAME@ROOT) chooses.

    Raises: UsageError, ConfigError
    """
    register_secrets(secret_values(os.environ))
    directory = TeamDir.temporary()
    database = Database(url, CancelScope(), on_outage=warn, waits=follows)
    try:
        yield StoredTeam(view_team(database, url, root_or_nothing(Path.cwd(), name), name), url, directory)
    finally:
        database.close()
        directory.discard()
