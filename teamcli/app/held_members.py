"""The members that this process runs as a host of a team: their leases, and the orders about them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from queue import SimpleQueue

from teamcli.app.store_engine import StoreEngine
from teamcli.errors import TeamcliError
from teamcli.store.postgres.bus import PostgresBus
from teamcli.store.postgres.leases import read_hosts
from teamcli.team.host_row import HostRow
from teamcli.team.hosting import Hosting
from teamcli.team.inbox_state import Position
from teamcli.team.message import Message

HANDING_OVER_SECONDS = 3.0
"""How long leaving waits for an answer of the database while members are handed over."""
logger = logging.getLogger(__name__)


class HostLeases:
    """A `LeasePort`. An order is for the host that runs a member now, and is obeyed once. One to an earlier host is not
    for this one, nor is one that somebody has put there again."""

    def __init__(self, engine: StoreEngine, bus: PostgresBus) -> None:
        self._host = engine.host
        self._team = engine.team
        self._scope = engine.scope
        self._bus = bus
        self._orders_read: dict[str, Position] = {}
        self._obeyed: set[str] = set()
        self.name = engine.host.name
        self.slots = engine.host.slots

    @property
    def is_away(self) -> bool:
        # When waiting was given up, nobody waits anymore.
        return self._scope.cancelled or self._team.database.silent_seconds > HANDING_OVER_SECONDS

    def take(self, agent: str) -> bool:
        after = self._bus.skip_orders(agent)
        if not self._host.take(agent):
            return False
        self._orders_read[agent] = after
        return True

    def announce_leave(self) -> None:
        self._host.announce_leave()

    def give_up(self, agent: str) -> None:
        self._orders_read.pop(agent, None)
        self._host.give_up(agent)

    def forget(self, agent: str) -> None:
        self._host.forget(agent)

    def free(self) -> set[str]:
        return self._host.free()

    def hosts(self) -> Sequence[HostRow]:
        return read_hosts(self._team)

    def new_orders(self, agent: str) -> Sequence[Message]:
        """For a member that this host runs, since it does, or since the last call."""
        if (position := self._orders_read.get(agent)) is None:
            return ()
        batch = self._bus.orders_after(agent, position)
        self._orders_read[agent] = batch.position
        hold = self._host.hold(agent)
        new = [order for order in batch.messages if order.fields.get("hold") == hold and order.id not in self._obeyed]
        self._obeyed.update(order.id for order in new)
        return new


class ReceivedOrders:
    """Obeys orders in a thread of its own, one after the other."""

    def __init__(self, bus: PostgresBus, leases: HostLeases) -> None:
        self._bus = bus
        self._leases = leases
        self._names: SimpleQueue[str | None] = SimpleQueue()
        """Of members whose hosts may have an order; None ends the thread."""

    def start(self, hosting: Hosting) -> None:
        self._bus.subscribe_orders(self.look)
        threading.Thread(target=self._run, args=(hosting,), name="orders", daemon=True).start()

    def look(self, name: str) -> None:
        """There may be an order about this member."""
        self._names.put(name)

    def close(self) -> None:
        self._names.put(None)

    def _run(self, hosting: Hosting) -> None:
        while (name := self._names.get()) is not None:
            try:
                if hosting.runs(name):  # if it is brought here now, its orders wait
                    for order in self._leases.new_orders(name):
                        hosting.obey(name, str(order.fields.get("order")), order.content)
            except TeamcliError as e:
                logger.warning("an order to %s could not be obeyed: %s", name, e)
            except Exception:  # boundary: without this thread no order would ever be obeyed
                logger.exception("an order to %s could not be obeyed", name)
