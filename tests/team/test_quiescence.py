"""A run ends when everyone is idle: not a moment earlier, and not never."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from teamcli import Session
from teamcli.cancel import CancelScope
from teamcli.team.protocols import Protocols
from teamcli.team.quiescence import Quiescence
from teamcli.team.roster import Roster
from teamcli.team.running_agents import RunningAgents
from teamcli.team.teammate import Teammate
from tests.sdk.models import call, said, scripted
from tests.support.waiting import DEADLINE_SECONDS, wait_until


def test_a_look_at_the_lead_while_the_last_teammate_turns_idle_keeps_no_result_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn_done, teammate_idle = Protocols.turn_done, Quiescence.teammate_idle

    def lead_looks_at_the_result(protocols: Protocols, teammate: Teammate) -> None:
        lead = protocols._agents.lead
        wait_until(lambda: lead is not None and lead._seconds_until_due() is None)
        turn_done(protocols, teammate)

    def another_thread_looks(quiescence: Quiescence) -> None:
        quiescence.busy()
        teammate_idle(quiescence)

    spawn = call("spawn_teammate", name="alice", role="coder", prompt="do your part")
    model = scripted(lead=[said("", spawn), "hired", "all done"], alice=["my result"])
    with Session(tmp_path, llm=model) as session:
        monkeypatch.setattr(Protocols, "turn_done", lead_looks_at_the_result)
        monkeypatch.setattr(Quiescence, "teammate_idle", another_thread_looks)
        ended = list(session.submit("go"))
        assert ended
        assert session.wait(DEADLINE_SECONDS)
        assert "my result" in str(model.requests[-1].messages[-1])


class Mate:
    """A teammate as far as quiescence looks at it."""

    def __init__(self, name: str, look: Callable[[Mate], bool]) -> None:
        self.name = name
        self.turns_begun = 0
        self.is_in_turn = False
        self._look = look

    @property
    def is_idle(self) -> bool:
        return self._look(self)


class NoBackgroundWork:
    def running_detached(self) -> list[str]:
        return []


def is_over(*mates: Mate) -> bool:
    agents = RunningAgents()
    for mate in mates:
        agents.add(cast(Any, mate))
    quiescence = Quiescence(agents, cast(Roster, None), NoBackgroundWork(), is_headless=True)
    return quiescence.wait_until_idle(CancelScope(), timeout_seconds=0)


def test_work_that_one_who_was_idle_gets_during_the_look_is_seen() -> None:
    has_mail = False

    def writes_to_alice_and_turns_idle(bob: Mate) -> bool:
        nonlocal has_mail
        has_mail = True
        return True

    assert not is_over(Mate("alice", lambda _: not has_mail), Mate("bob", writes_to_alice_and_turns_idle))


def test_work_that_began_and_ended_during_the_look_is_looked_at_again() -> None:
    def worked_in_the_meantime(alice: Mate) -> bool:
        alice.turns_begun += 1
        return True

    assert not is_over(Mate("alice", worked_in_the_meantime))


def test_a_team_that_does_nothing_is_idle() -> None:
    assert is_over(Mate("alice", lambda _: True), Mate("bob", lambda _: True))
