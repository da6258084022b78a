"""A host of a team in a database while it runs: it listens, renews its lease, takes members, and obeys orders."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from teamcli.agent.budgets import Budgets
from teamcli.app.gathering import Gathering
from teamcli.app.held_members import HANDING_OVER_SECONDS, HostLeases, ReceivedOrders
from teamcli.app.lazy_board import LazyBoard
from teamcli.app.mail_news import MailNews
from teamcli.app.shared_budgets import BUDGETS_TOPIC, SharedBudgets
from teamcli.app.store_engine import StoreEngine
from teamcli.cancel import CancelScope
from teamcli.errors import StateError, TeamcliError
from teamcli.session.ports import RecordedPort
from teamcli.store.location import shown_url
from teamcli.store.postgres.bus import PostgresBus
from teamcli.store.postgres.leases import HostReplaced
from teamcli.store.postgres.listener import Listener
from teamcli.store.postgres.roster import ALL_MEMBERS
from teamcli.store.postgres.transcripts import read_position
from teamcli.team.host_row import HostRow
from teamcli.team.hosting import Hosting
from teamcli.team.inbox_state import Position
from teamcli.team.mailbox import POSITION
from teamcli.team.manager import TeammateManager
from teamcli.team.message import LEAD

CLOSING_SECONDS = 2.0
LEAVING_SECONDS = 5.0
PATIENCE_SECONDS = 1.0
"""How long leaving waits for an answer of the database."""
LOOK_SECONDS = 0.25
WATCH_SECONDS = 0.1
GATHERING_SECONDS = 0.1
"""Changes of the roster are read together that come within this time."""
_ROSTER = ("member/", "request/")
"""How topics about it begin."""
logger = logging.getLogger(__name__)


class HostLife:
    def __init__(
        self,
        engine: StoreEngine,
        bus: PostgresBus,
        team: TeammateManager,
        board: LazyBoard,
        budgets: Budgets,
        cancel: CancelScope,
        on_look: Callable[[], None],
    ) -> None:
        """`on_look` is called a few times a second on the host of the lead."""
        self._engine = engine
        self._bus = bus
        self._team = team
        self._board = board
        self._budgets = budgets
        self._cancel = cancel
        self._on_look = on_look
        self._leases = HostLeases(engine, bus)
        self._ran_on: dict[str, str] = {}
        """The host of each member, as the user knows it."""
        self._shared = SharedBudgets(engine.team, engine.fence, team, budgets, engine.options.has_lead)
        self._news = MailNews(bus, team, engine.is_here)
        self._orders = ReceivedOrders(bus, self._leases)
        self.hosting = Hosting(team, self._leases, cancel, engine.options.has_lead, self._orders.look)
        channels = [engine.team.channel, *([engine.team.lead_channel] if engine.options.has_lead else [])]
        self._listener = Listener(
            engine.options.url, channels, self._on_topics, self._look_again, is_known=self._is_known
        )
        self._changes = Gathering(self._read_changes, GATHERING_SECONDS)
        self._renewing = threading.Thread(target=self._renew, name="lease", daemon=True)
        self._is_leaving = threading.Event()
        """This host hands its members over, or ends."""
        self._leaving = threading.Thread(target=self._stop_waiting, name="leaving", daemon=True)

    def start(self) -> None:
        self._orders.start(self.hosting)
        if self._engine.options.has_lead:
            self._try(self._news.begin)
            threading.Thread(target=self._tick, name="host", daemon=True).start()
        threading.Thread(target=self._watch_budgets, name="budgets", daemon=True).start()
        for thread in (self._leaving, self._listener, self._renewing, self.hosting):
            thread.start()

    def describe(self) -> str:
        options = self._engine.options
        named = f"team '{options.team}' in " if options.team else ""
        return f"{named}{shown_url(options.url)}; this host is '{self.hosting.name}'"

    def holders(self) -> Mapping[str, str]:
        return self._engine.host.holders()

    def rows(self) -> Sequence[HostRow]:
        return self._leases.hosts()

    def close(self) -> None:
        """After `cancel` was cancelled."""
        self._orders.close()
        self._listener.close(CLOSING_SECONDS)
        if self._renewing.is_alive() and self._renewing is not threading.current_thread():
            self._renewing.join(CLOSING_SECONDS)

    def _tick(self) -> None:
        while not self._cancel.wait(LOOK_SECONDS):
            self._on_look()

    def _renew(self) -> None:
        """Keep this host alive, and look whether others have died."""
        while not self._cancel.wait(self._engine.options.lease_seconds / 6):
            try:
                lost = self._engine.host.renew()
            except HostReplaced as e:
                self._cancel.cancel(str(e))
                return
            except StateError as e:  # a full disk, say: others take over if it lasts
                logger.warning("the lease was not renewed: %s", e)
                continue
            self.hosting.lost(lost)
            self.hosting.look()
            self._try(lambda: self._engine.question_changed(""))  # the host of one may have died

    def leave(self) -> list[str]:
        """Hand over all members, each at its next step. Returns those that could not be handed over, because the
        database does not answer."""
        self._is_leaving.set()
        return self.hosting.drain()

    def _stop_waiting(self) -> None:
        """Leaving must not wait for a database that does not answer; any of the other threads may wait for it. End all
        such waits as soon as it is silent for too long, or some time after the members were handed over."""
        scope, database, deadline = self._engine.scope, self._engine.team.database, math.inf
        with self._cancel.on_cancel(self._is_leaving.set):
            self._is_leaving.wait()
        while not scope.wait(WATCH_SECONDS):
            if self._cancel.cancelled:
                deadline = min(deadline, time.monotonic() + LEAVING_SECONDS)
            patience_seconds = PATIENCE_SECONDS if self._cancel.cancelled else HANDING_OVER_SECONDS
            if database.silent_seconds >= patience_seconds or time.monotonic() >= deadline:
                scope.cancel("teamcli is exiting")

    def _on_topics(self, topics: Sequence[str]) -> None:
        others = [topic for topic in topics if not topic.startswith(_ROSTER) and self._is_for_us(topic)]
        # The roster first: who reads mail finds its sender. Otherwise in one query, since many may change at once.
        self._changes.add([topic for topic in topics if topic.startswith(_ROSTER)], is_urgent=bool(others))
        for topic in others:
            self._changed(*topic.split("/", 1))

    def _is_for_us(self, topic: str) -> bool:
        """Most mail is for members of other hosts."""
        kind, _, name = topic.partition("/")
        return self._engine.options.has_lead or kind != "inbox" or self._bus.knows(name)

    def _read_changes(self, topics: Sequence[str]) -> None:
        if about_roster := [topic for topic in topics if topic != BUDGETS_TOPIC]:
            self._try(lambda: self._roster_changed(about_roster))
        if BUDGETS_TOPIC in topics:
            self._try(self._shared.follow)

    def _changed(self, kind: str, name: str = "") -> None:
        self._try(
            {
                "inbox": lambda: self._mail_came(name),
                "task": self._board.look_again,
                "host": self.hosting.look,
                "question": lambda: self._engine.question_changed(name),
                BUDGETS_TOPIC: self._budgets_changed,
            }.get(kind, lambda: None)
        )

    def _mail_came(self, name: str) -> None:
        self._bus.changed(name, partial(self._news.show, name) if self._engine.options.has_lead else lambda: None)

    def _look_again(self) -> None:
        for look in (
            self._everything_changed,
            self._bus.look_again,
            self._news.show_all if self._engine.options.has_lead else lambda: None,
            self._board.look_again,
            lambda: self._engine.question_changed(""),
        ):
            self._try(look)

    def _roster_changed(self, topics: Sequence[str]) -> None:
        self._team.roster.refresh(topics)
        with self._engine.changed:
            self._engine.changed.notify_all()
        is_about_some = bool(topics) and ALL_MEMBERS not in topics
        self._shared.count([topic.partition("/")[2] for topic in topics] if is_about_some else None)
        self._follow_budgets()
        if self._engine.options.has_lead:
            self._report_moves()
        self._team.quiescence.teammate_idle()  # those of other hosts may be, too
        if any(map(self._may_leave_a_member_free, topics)):
            self.hosting.look()

    def _report_moves(self) -> None:
        """The user should know that a member has changed hosts: what was not pushed is missing there."""
        for member in self._team.roster.members():
            before = self._ran_on.get(member.name, "")
            if member.runs_on and member.runs_on != before:
                self._ran_on[member.name] = member.runs_on
                if before:
                    text = f"{member.name} continues on the host '{member.runs_on}'; '{before}' is gone or has left."
                    self._team.outbox.warn(LEAD, text)  # which names the member

    def _may_leave_a_member_free(self, topic: str) -> bool:
        """Whether this change means that a host can take a member: there is one, or a free slot."""
        kind, _, name = topic.partition("/")
        member = self._team.roster.find(name)
        is_changed = member is not None and (not member.is_active or (bool(member.host) and not member.runs_on))
        return topic == ALL_MEMBERS or (kind == "member" and is_changed)

    def _is_known(self, pid: int, topic: str) -> bool:
        """This process knows what it has sent, and what it has written into the roster."""
        is_own = pid == self._engine.team.database.pid and topic.startswith((*_ROSTER, "inbox/"))
        if is_own and self._may_leave_a_member_free(topic):
            self.hosting.look()
        return is_own

    def _budgets_changed(self) -> None:
        """The limits of the team and of the run are those of the lead's host."""
        if not self._engine.options.has_lead:
            self._changes.add([BUDGETS_TOPIC])  # not in this thread: they are counted after each change of the roster

    def _everything_changed(self) -> None:
        self._changes.add([ALL_MEMBERS, *([] if self._engine.options.has_lead else [BUDGETS_TOPIC])], is_urgent=True)

    def _watch_budgets(self) -> None:
        while not self._cancel.wait(LOOK_SECONDS):
            if self._engine.options.has_lead and self._shared.is_due:
                self._try(self._shared.publish)
            # What members elsewhere use concerns this host only if it counts toward a limit here.
            if self._shared.is_limited and any(mate.is_in_turn for mate in self._team.agents.teammates):
                self._changes.add([ALL_MEMBERS], is_urgent=True)

    def _follow_budgets(self) -> None:
        """The user may have changed the limit of a member that runs here."""
        is_changed = False
        for mate in self._team.agents.teammates:
            budget, wanted = self._budgets.of(mate.name), self._budgets.for_member(mate.name, mate.member.budget)
            if budget is not None and budget.allowance != wanted:
                budget.allow(wanted)
                is_changed = True
        if is_changed:
            self._team.resume_within_limits()

    def open_recorded(self, agent: str) -> RecordedPort:
        from teamcli.app.recorded import RecordedElsewhere  # late: few users watch

        return RecordedElsewhere(self._engine.team, agent)

    def marks_of(self, name: str) -> Mapping[str, Any]:
        return {POSITION: Position(read_position(self._engine.team, name)).to_mark()}

    def _try(self, act: Callable[[], None]) -> None:
        try:
            act()
        except TeamcliError as e:  # the next notification, or the next look, tries again
            if not self._cancel.cancelled:
                logger.warning("what other hosts have changed could not be read: %s", e)
        except Exception:  # boundary: everything else that was heard still counts
            logger.exception("what other hosts have changed could not be read")
