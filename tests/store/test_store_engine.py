"""A process as a host of a team: what it gives up, whom it orders, and what it shows of the mail of others."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from teamcli.errors import StateError, TeamError
from teamcli.store.postgres.newest import Newest
from teamcli.team.remote_teammate import Order
from tests.store.conftest import HostMaker
from tests.support.postgres import expire

if TYPE_CHECKING:
    from teamcli.store.postgres.bus import PostgresBus
    from teamcli.store.postgres.team_rows import Team


@pytest.fixture
def bus(team: Team, tmp_path: Path) -> PostgresBus:
    from teamcli.store.postgres.bus import PostgresBus
    from teamcli.store.postgres.team_rows import Fence

    return PostgresBus(team, Fence(team), Newest(), tmp_path)


@pytest.mark.parametrize("order", [Order.RESUME, Order.INTERRUPT])
def test_an_order_that_no_host_would_ever_obey_is_refused(
    team: Team, bus: PostgresBus, make_host: HostMaker, order: Order
) -> None:
    from teamcli.app.store_engine import _Orders

    box = make_host("box")
    box.take("alice")
    engine: Any = SimpleNamespace(host=make_host("lead"), team=team)
    orders = _Orders(engine, bus, None)  # type: ignore[arg-type]
    orders.order("alice", order)
    expire(team, "box")
    with pytest.raises(TeamError, match="no host runs 'alice' now; try again when /team shows one that does"):
        orders.order("alice", order)
    orders.order("alice", Order.PAUSE)


def test_an_agent_whose_lease_could_not_be_given_up_can_be_taken_again(team: Team, make_host: HostMaker) -> None:
    from teamcli.app.store_engine import StoreEngine

    host = make_host("box")
    host.take("alice")
    engine: Any = SimpleNamespace(host=host, fence=host._fence)
    team.database.run(lambda cursor: cursor.execute("alter table lease add constraint kept check (host <> '')"))
    try:
        with pytest.raises(StateError, match="the database refuses"):
            StoreEngine.give_up(engine, "alice")
    finally:
        team.database.run(lambda cursor: cursor.execute("alter table lease drop constraint kept"))
    assert host.take("alice")


def test_inboxes_that_are_not_there_leave_nothing_behind(bus: PostgresBus) -> None:
    from teamcli.app.mail_news import MailNews

    nobody: Any = None
    news = MailNews(bus, nobody, lambda member: True)
    news.begin()
    for n in range(10):
        bus.changed(f"x{n}", lambda n=n: news.show(f"x{n}"))  # type: ignore[misc]
    assert news._shown == {}
