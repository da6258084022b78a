"""A team in PostgreSQL, and this process as one of its hosts. Loaded only if a store is configured."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, NamedTuple

from teamcli.agent.permission_question import Ask
from teamcli.app.engine import Engine, archive_transcript
from teamcli.app.state import LeadRuns
from teamcli.app.team_file import start_over
from teamcli.cancel import CancelScope
from teamcli.errors import LeaseLost, StateError, TeamError, ToolError
from teamcli.mcp.server import Ask as AskForServer
from teamcli.mcp.server import decline
from teamcli.storage.files import make_private_dir
from teamcli.storage.log import Log
from teamcli.storage.team_dir import TeamDir
from teamcli.store.postgres.bus import PostgresBus
from teamcli.store.postgres.database import Database
from teamcli.store.postgres.events import EventRows
from teamcli.store.postgres.leases import LEASE_SECONDS, Host, HostNameTaken, read_hosts
from teamcli.store.postgres.newest import Newest
from teamcli.store.postgres.questions import ReceivedQuestions, SentQuestions
from teamcli.store.postgres.roster import RosterRows
from teamcli.store.postgres.subagents import SubAgentRows
from teamcli.store.postgres.tasks import TaskRows
from teamcli.store.postgres.team_rows import Fence
from teamcli.store.postgres.teams import open_team
from teamcli.store.postgres.transcripts import TranscriptRows, last_incarnation, read_position
from teamcli.team.host_room import why_no_room
from teamcli.team.inbox_state import Position
from teamcli.team.manager import TeammateManager
from teamcli.team.message import LEAD, Message, MessageType, new_id
from teamcli.team.message_bus import MessageBus
from teamcli.team.ports import PlacementPort
from teamcli.team.remote_teammate import Order, OtherHosts, RemoteTasksPort
from teamcli.team.roster import Roster
from teamcli.team.roster_file import ANY_HOST, Member
from teamcli.team.running_agents import CLEANING_SECONDS

if TYPE_CHECKING:
    from teamcli.agent.budgets import Budgets
    from teamcli.app.host_life import HostLife
    from teamcli.app.lazy_board import LazyBoard

LEAVING_SECONDS = 5.0
CLEANING_LOOK_SECONDS = 0.25
logger = logging.getLogger(__name__)


class HostOptions(NamedTuple):
    """Which team this process is a host of, and how."""

    url: str
    root: str
    """The first commit of the repository."""
    team: str
    """Its name; empty for the default one."""
    name: str
    """Of this host."""
    slots: int
    has_lead: bool
    lease_seconds: float = LEASE_SECONDS


class StoreEngine(Engine):
    """It holds the lease of this host, and of the lead if that is here."""

    def __init__(self, options: HostOptions, dir: TeamDir, resources: ExitStack) -> None:
        """Connect, and join the hosts of the team. `dir` is the mirror of this host.

        Raises: ConfigError, LeadRuns, StateError, UsageError
        """
        self.options = options
        self._dir = dir
        self._warn: Callable[[str], None] = logger.warning
        self._on_look: Callable[[], None] = lambda: None
        self.scope = CancelScope()
        """Ends waiting for the database."""
        # At the start, a database that cannot be reached is an error. Later, everyone waits for it.
        with closing(Database(options.url, self.scope, waits=False)) as first:
            team = open_team(options.url, options.root, options.team, options.has_lead, first)
        database = Database(options.url, self.scope, self._report)
        resources.callback(database.close)
        self.team = team._replace(database=database)
        self.newest = Newest(team.uid, dir.root / "newest.json")
        resources.callback(self.newest.close)
        self.fence = Fence(self.team)
        self.host = Host(self.team, options.name, options.slots, self.fence, options.lease_seconds)
        self._join()
        resources.callback(self._leave)
        if options.has_lead and not self.host.take(LEAD):
            raise self._lead_runs("another host")
        self._sent = SentQuestions(self.team, self.host)
        self._received: ReceivedQuestions | None = None
        self.changed = threading.Condition()
        """Notified when another host has changed the roster."""

    def _join(self) -> None:
        """Raises: ConfigError, LeadRuns, StateError"""
        has_lead = self.options.has_lead
        try:
            self.host.join("--host" if has_lead else "--name")
        except HostNameTaken as e:
            if has_lead and self.host.holders().get(LEAD) == self.host.name:  # another clone on this machine, say
                raise self._lead_runs(self.host.name) from e
            raise

    def _lead_runs(self, holder: str) -> LeadRuns:
        holder = self.host.holders().get(LEAD, holder)
        wait = f"wait {self.options.lease_seconds:g} seconds if it has just died"
        return LeadRuns(f"the lead of this team runs on '{holder}'", f"leave it there, choose --team NAME, or {wait}")

    def _leave(self) -> None:
        # Without a session, nobody else ends the wait for a database that cannot be reached.
        timer = threading.Timer(LEAVING_SECONDS, self.scope.cancel, ("teamcli is exiting",))
        timer.daemon = True
        timer.start()
        try:
            self.host.leave()
        except StateError as e:  # others notice when the lease has run out
            logger.warning("this host could not sign off: %s", e)

    @property
    def host_name(self) -> str:
        return self.host.name

    @property
    def team_name(self) -> str:
        return self.team.name

    @property
    def has_lead(self) -> bool:
        return self.options.has_lead

    @property
    def timeline_seconds(self) -> float:
        return 0.5

    def open_log(self, agent: str, incarnation: int = 0) -> Log:
        path = self._dir.transcripts / f"{agent}.jsonl"
        if not self.fence.holds(agent) and not self.host.take(agent):
            raise LeaseLost(f"'{agent}' runs on '{self.host.holders().get(agent, 'another host')}'")
        return TranscriptRows(self.team, self.fence, self.newest, agent, incarnation, path, self._report)

    def archive_log(self, agent: str) -> None:
        archive_transcript(self._dir.transcripts / f"{agent}.jsonl")

    def open_timeline(self) -> Log:
        return EventRows(self.team, self.newest, self.host.name, self._dir.events, self.host.epoch)

    def roster_store(self) -> RosterRows:
        return RosterRows(self.team, self.fence, self.newest, self._dir.config, self._report)

    def open_bus(self, warn: Callable[[str], None], on_look: Callable[[], None]) -> PostgresBus:
        self._warn, self._on_look = warn, on_look
        make_private_dir(self._dir.inbox)
        return PostgresBus(self.team, self.fence, self.newest, self._dir.inbox, warn)

    def _report(self, text: str) -> None:
        self._warn(text)

    def task_storage(self, warn: Callable[[str], None]) -> TaskRows:
        return TaskRows(self.team, self.fence, self.newest, warn)

    def has_tasks(self) -> bool:
        return True

    def is_here(self, member: Member) -> bool:
        return self.fence.holds(member.name) or self._is_only_here(member)

    def _is_only_here(self, member: Member) -> bool:
        return self.options.has_lead and not member.host

    def check_lease(self, agent: str) -> None:
        self.team.database.run(lambda cursor: self.fence.check(cursor, agent))

    def give_up(self, agent: str, is_announced: bool = False) -> None:
        if self.fence.holds(agent):
            try:
                self.host.give_up(agent, is_announced)
            finally:
                self.host.forget(agent)  # else this host could never run it again

    def placement(self, bus: MessageBus) -> PlacementPort:
        return _Placement(self, bus)

    def host_life(
        self, team: TeammateManager, bus: MessageBus, board: LazyBoard, budgets: Budgets, cancel: CancelScope
    ) -> HostLife:
        from teamcli.app.host_life import HostLife  # it needs this module

        assert isinstance(bus, PostgresBus)
        return HostLife(self, bus, team, board, budgets, cancel, self._on_look)

    def shared_ask(self, ask: Ask, ask_for_server: AskForServer | None) -> tuple[Ask, AskForServer | None]:
        if self.options.has_lead:
            self._received = ReceivedQuestions(self.team, ask, ask_for_server or decline, self._report)
            return ask, ask_for_server
        return self._sent.ask, self._sent.ask_server_question

    def question_changed(self, id: str) -> None:
        """A question was asked, answered or withdrawn; or any, without an id."""
        if self._received is not None:
            self._received.changed(id)
        else:
            self._sent.changed(id)

    def others(self, roster: Roster, bus: MessageBus, tasks: Callable[[], RemoteTasksPort]) -> OtherHosts:
        assert isinstance(bus, PostgresBus)
        return OtherHosts(roster, _Orders(self, bus, roster), tasks, self._is_only_here)

    def shared_ledger(self) -> SubAgentRows:
        return SubAgentRows(self.team, self.host)


class _Placement:
    """A `PlacementPort`."""

    def __init__(self, engine: StoreEngine, bus: MessageBus) -> None:
        self._engine = engine
        self._bus = bus

    def is_here(self, member: Member) -> bool:
        return self._engine.is_here(member)

    def stops_with_us(self, member: Member) -> bool:
        # Of a worker, all members that could not be handed over are taken over.
        return self._engine.options.has_lead and self._engine.is_here(member)

    def holders(self) -> dict[str, str]:
        return self._engine.host.holders()

    def choose(self, host: str, planned: str) -> str:
        host = host or planned
        if host == planned or host in ("", ANY_HOST, self._engine.host.name):
            return host
        alive = [each.name for each in read_hosts(self._engine.team) if each.is_alive]
        if host not in alive:
            raise ToolError(f"host: there is no host '{host}'; there are: {', '.join([*alive, ANY_HOST])}")
        return host

    def why_no_room(self, member: Member, members: Sequence[Member]) -> str:
        members = [each for each in members if each.is_active and each.name != member.name]
        # Those that wait for a host of their own come first.
        holders = {**{each.name: each.host for each in members if each.host}, **self.holders()}
        holders.pop(member.name, None)  # the host of its last incarnation is still cleaning up
        return why_no_room(member, members, read_hosts(self._engine.team), holders)

    def next_incarnation(self, name: str, earlier: int) -> int:
        # The rows of a member that was forgotten stay. A conversation that begins anew must not get theirs.
        return max(earlier, last_incarnation(self._engine.team, name, self._engine.newest)) + 1

    def claim(self, name: str, cancel: CancelScope) -> None:
        engine = self._engine
        deadline = time.monotonic() + CLEANING_SECONDS
        while not engine.host.take(name):  # the host of its last incarnation is still cleaning up
            cancel.check()
            if time.monotonic() > deadline:
                holder = engine.host.holders().get(name, "another host")
                raise ToolError(f"'{name}' is shut down, and its host '{holder}' is still cleaning up; try again later")
            with cancel.notifying(engine.changed), engine.changed:
                engine.changed.wait(CLEANING_LOOK_SECONDS)

    def begin(self, name: str, incarnation: int, cancel: CancelScope) -> None:
        self.claim(name, cancel)
        start_over(self._engine, self._bus, name, incarnation)

    def release(self, name: str) -> None:
        self._engine.give_up(name, is_announced=True)


_NEED_A_HOST = (Order.INTERRUPT, Order.RESUME, Order.LEAVE)
"""Orders of which nothing else remains. A pause is also in the roster, which the next host reads."""


class _Orders:
    """A `HostPort`."""

    def __init__(self, engine: StoreEngine, bus: PostgresBus, roster: Roster) -> None:
        self._engine = engine
        self._bus = bus
        self._roster = roster
        self._read: dict[str, Position] = {}
        """How far members have read at least. They never go back, so an inbox that ends there has nothing new."""

    def order(self, name: str, order: Order, text: str = "") -> None:
        hold = self._engine.host.hold_elsewhere(name)
        if not hold and order in _NEED_A_HOST:
            raise TeamError(f"no host runs '{name}' now; try again when /team shows one that does")
        fields = {"order": str(order), "hold": hold}
        self._bus.send_order(Message(MessageType.MESSAGE, LEAD, name, text, time.time(), new_id(), fields))

    def has_unread(self, name: str) -> bool:
        if name in self._read and not self._bus.has_unread(name, self._read[name]):
            return False
        self._read[name] = Position(read_position(self._engine.team, name))
        return self._bus.has_unread(name, self._read[name])

    @property
    def is_current(self) -> bool:
        return self._roster.is_current() and self._bus.is_current()

    def why_no_room(self, name: str) -> str:
        engine = self._engine
        if (member := self._roster.find(name)) is None or name in (holders := engine.host.holders()):
            return ""
        return why_no_room(member, self._roster.members(), read_hosts(engine.team), holders)

    def is_running(self, name: str) -> bool:
        return name in self._engine.host.holders()

    def wait(self, is_done: Callable[[], bool], timeout_seconds: float) -> bool:
        with self._engine.changed:
            return self._engine.changed.wait_for(is_done, timeout_seconds)
