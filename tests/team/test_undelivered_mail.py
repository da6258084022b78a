"""Mail for a teammate that was shut down: what goes back to its sender, and what is for the next one of that name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from teamcli.agent.events import Event
from teamcli.team.inbox_state import Position
from teamcli.team.mailbox import Mailbox
from teamcli.team.outbox import Outbox
from teamcli.team.running_agents import RunningAgents
from teamcli.team.undelivered_mail import UndeliveredMail
from tests.team.engines import ENGINES, Engine, FileEngine, opened_engine
from tests.team.letters import contents, letter


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Engine]:
    with opened_engine(request, tmp_path) as engine:
        yield engine


def test_mail_for_the_next_incarnation_does_not_go_back_to_its_sender(engine: Engine) -> None:
    events: list[Event] = []
    here = engine.start()
    there = here if isinstance(engine, FileEngine) else engine.start()  # with files, one process runs all agents
    there.send(letter("before"))
    mail = UndeliveredMail(RunningAgents(), Outbox(here, events.append))
    assert mail.watch("alice", Mailbox(here, "alice", {})) == 1
    there.send(letter("in between"))
    assert mail.mail_arrived("alice") == 1
    # The host that spawns it again sends the work before the roster has it.
    there.begin_anew("alice")
    there.send(letter("work"))
    assert mail.mail_arrived("alice") == 0
    there.send(letter("more work"))
    assert mail.mail_arrived("alice") == 0
    returned = contents(here.unread("lead", Position()).messages)
    assert [text.rpartition(": ")[2] for text in returned] == ["before", "in between"]
