"""A host of a team in a database while it runs: it listens, renews its lease, takes members, and obeys orders."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from teamcli.agent.budgets import Budgets
from teamcli.app.lazy_board import LazyBoard
from teamcli.app.mail_news import MailNews
from teamcli.app.store_engine import StoreEngine
from teamcli.cancel import CancelScope
from teamcli.errors import TeamcliError
from teamcli.session.session import RecordedPort
from teamcli.store.postgres.bus import PostgresBus
from teamcli.store.postgres.database import Listener
from teamcli.store.postgres.leases import HostRow, Renewal, read_hosts
from teamcli.store.postgres.transcripts import read_position
from teamcli.team.hosting import Hosting
from teamcli.team.inbox_state import Position
from teamcli.team.mailbox import POSITION
from teamcli.team.manager import TeammateManager
from teamcli.team.message import Message

CLOSING_SECONDS = 2.0
LEAVING_SECONDS = 5.0
LOOK_SECONDS = 0.25
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
        self._leases = _Leases(engine, bus)
        self._ran_on: dict[str, str] = {}
        """The host of each member, as the user knows it."""
        self._news = MailNews(bus, team, engine.is_here)
        self.hosting = Hosting(team, self._leases, cancel, engine.options.has_lead)
        every = engine.options.lease_seconds / 6
        self._renewal = Renewal(engine.host, cancel, self.hosting.lost, self._renewed, self._replaced, every)
        self._listener = Listener(engine.options.url, self._on_topics, self._look_again, is_known=self._is_known)
        self._ordered: SimpleQueue[str | None] = SimpleQueue()
        """Names of members whose hosts got an order; None ends the thread."""
        self._obeying = threading.Thread(target=self._obey_all, name="orders", daemon=True)
        self._ticking = threading.Thread(target=self._tick, name="host", daemon=True)

    def start(self) -> None:
        self._bus.subscribe_orders(self._ordered.put)
        if self._engine.options.has_lead:
            self._try(self._news.begin)
        for thread in (self._obeying, self._ticking, self._listener, self._renewal, self.hosting):
            thread.start()

    def holders(self) -> Mapping[str, str]:
        return self._leases.holders()

    def rows(self) -> Sequence[HostRow]:
        return self._leases.hosts()

    def close(self) -> None:
        """After `cancel` was cancelled."""
        self._ordered.put(None)
        self._listener.close(CLOSING_SECONDS)
        self._renewal.join(CLOSING_SECONDS)

    def _tick(self) -> None:
        seconds = LOOK_SECONDS if self._engine.options.has_lead else None
        while not self._cancel.wait(seconds):
            self._on_look()
        # Leaving must not wait for a database that is away.
        self._engine.scope.wait(LEAVING_SECONDS)
        self._engine.scope.cancel("teamcli is exiting")

    def _on_topics(self, topics: Sequence[str]) -> None:
        beginning = self._engine.team.topic("")
        ours = [topic.removeprefix(beginning) for topic in topics if topic.startswith(beginning)]
        roster = [topic for topic in ours if topic.startswith(_ROSTER)]
        # The roster first: who reads how some work has ended finds its member as it is then.
        if roster:
            self._try(lambda: self._roster_changed(*roster))  # in one query, since many may change at once
        for topic in ours:
            if not topic.startswith(_ROSTER):
                self._changed(*topic.split("/", 1))

    def _changed(self, kind: str, name: str = "") -> None:
        self._try(
            {
                "inbox": lambda: self._mail_came(name),
                "task": self._board.look_again,
                "host": self._look_again,  # one that has died may not have announced its last changes
                "question": lambda: self._engine.question_changed(name),
            }.get(kind, lambda: None)
        )

    def _mail_came(self, name: str) -> None:
        self._bus.changed(name)
        if self._engine.options.has_lead:
            self._news.show(name)

    def _look_again(self) -> None:
        for look in (
            self._roster_changed,
            self._bus.look_again,
            self._news.show_all if self._engine.options.has_lead else lambda: None,
            self._board.look_again,
            lambda: self._engine.question_changed(""),
        ):
            self._try(look)

    def _roster_changed(self, *topics: str) -> None:
        self._team.roster.refresh(topics)
        with self._engine.changed:
            self._engine.changed.notify_all()
        self._follow_budgets()
        if self._engine.options.has_lead:
            self._report_moves()
        self._team.quiescence.teammate_idle()  # those of other hosts may be, too
        if not topics or any(map(self._may_leave_a_member_free, topics)):
            self.hosting.look()

    def _report_moves(self) -> None:
        """The user should know that a member has changed hosts: what was not pushed is missing there."""
        for member in self._team.roster.members():
            before = self._ran_on.get(member.name, "")
            if member.runs_on and member.runs_on != before:
                self._ran_on[member.name] = member.runs_on
                if before:
                    text = f"{member.name} continues on the host '{member.runs_on}'; '{before}' is gone or has left."
                    self._team.outbox.warn(member.name, text)

    def _may_leave_a_member_free(self, topic: str) -> bool:
        """Whether this change means that a host can take a member. Most only say that one works or is idle."""
        kind, _, name = topic.partition("/")
        member = self._team.roster.find(name)
        return kind == "member" and (
            member is None or not member.is_active or (bool(member.host) and not member.runs_on)
        )

    def _is_known(self, pid: int, topic: str) -> bool:
        """This process knows what it has written into the roster itself."""
        is_about_roster = topic.partition("/")[2].startswith(_ROSTER)
        return is_about_roster and pid == self._engine.team.database.pid

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

    def _obey_all(self) -> None:
        while (name := self._ordered.get()) is not None:
            try:
                self._obey(name)
            except TeamcliError as e:
                logger.warning("an order to %s could not be obeyed: %s", name, e)
            except Exception:  # boundary: without this thread no order would ever be obeyed
                logger.exception("an order to %s could not be obeyed", name)

    def _obey(self, name: str) -> None:
        for order in self._leases.new_orders(name):
            self.hosting.obey(name, str(order.fields.get("order")), order.content)

    def _renewed(self) -> None:
        self.hosting.look()
        self._try(lambda: self._engine.question_changed(""))  # the host of one may have died

    def _replaced(self, why: str) -> None:
        self._cancel.cancel(why)


class _Leases:
    """A `LeasePort`. Orders to an earlier host of a member are not for this one."""

    def __init__(self, engine: StoreEngine, bus: PostgresBus) -> None:
        self._host = engine.host
        self._team = engine.team
        self._bus = bus
        self._orders_read: dict[str, Position] = {}
        self.name = engine.host.name
        self.slots = engine.host.slots

    @property
    def is_away(self) -> bool:
        return self._team.database.is_away

    def take(self, agent: str) -> bool:
        after = self._bus.skip_orders(agent)
        if not self._host.take(agent):
            return False
        self._orders_read[agent] = after
        return True

    def give_up(self, agent: str) -> None:
        self._orders_read.pop(agent, None)
        self._host.give_up(agent)

    def holders(self) -> dict[str, str]:
        return self._host.holders()

    def hosts(self) -> Sequence[HostRow]:
        return read_hosts(self._team)

    def new_orders(self, agent: str) -> Sequence[Message]:
        """For a member that this host runs, since it does, or since the last call."""
        if (position := self._orders_read.get(agent)) is None:
            return ()
        batch = self._bus.orders_after(agent, position)
        self._orders_read[agent] = batch.position
        return batch.messages
