"""Who works and shows no progress is shown as stuck, until there is some."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamcli.agent.events import Event, Notice, StatusChanged, StillArriving, TurnStarted
from teamcli.cancel import CancelScope
from teamcli.team.roster import Member, Roster, Status
from teamcli.team.roster_store import RosterFile
from teamcli.team.stall_detector import StallDetector
from tests.support.fake_api import text, tool
from tests.support.program import Program
from tests.support.running import Running
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until
from tests.team.test_team import BYPASS, members, spawn


class Case:
    """A roster with alice at work, and a clock that does not move."""

    def __init__(self, directory: Path) -> None:
        self.now = 1000.0
        self.clock_is_off = 0.0
        self.told: list[Event] = []
        leaving = CancelScope()
        leaving.cancel()  # no thread looks: the test does
        self.roster = Roster(RosterFile(directory / "config.json"), self._changed, clock=lambda: self.now)
        self.pulse = StallDetector(self.roster, self._emit, leaving, 120.0, self.wall, ticks=lambda: self.now)
        self.roster.add(Member("alice", "coder", Status.SPAWNING))
        self.roster.transition("alice", Status.WORKING)
        self._emit(TurnStarted("alice"))

    def wall(self) -> float:
        return self.now + self.clock_is_off

    def _changed(self, member: Member) -> None:
        self._emit(StatusChanged(member.name, member.status, {"stuck_since": member.stuck_since}))

    def _emit(self, event: Event) -> None:
        self.told.append(event)
        self.pulse(event)

    def after(self, seconds: float) -> float:
        """Look again so much later; how long to the next look."""
        self.now += seconds
        return self.pulse.look()

    @property
    def notices(self) -> list[Notice]:
        return [event for event in self.told if isinstance(event, Notice)]

    @property
    def stuck_since(self) -> float:
        return self.roster.get("alice").stuck_since


@pytest.fixture
def case(tmp_path: Path) -> Case:
    return Case(tmp_path)


def test_it_is_reported_once_with_the_time_of_the_last_sign(case: Case) -> None:
    assert (case.after(100), case.stuck_since) == (20, 0)
    case.after(30)
    case.after(500)
    assert case.stuck_since == 1000.0
    assert [notice.agent for notice in case.notices] == ["alice"]
    assert "no progress for 130 s" in case.notices[0].text


def test_any_sign_ends_it_at_the_next_look_and_it_can_come_back(case: Case) -> None:
    case.after(130)
    case.pulse(StillArriving("alice"))
    assert case.stuck_since == 1000.0, "reporting an event changes the roster, and waits for its disk or database"
    assert (case.after(0), case.stuck_since) == (120, 0)
    assert case.after(110) == 10
    case.after(20)
    assert case.stuck_since == 1130.0
    assert len(case.notices) == 2


def test_setting_the_clock_neither_begins_nor_hides_it(case: Case) -> None:
    case.clock_is_off = 7200
    assert (case.after(100), case.stuck_since) == (20, 0)
    case.clock_is_off = -900
    case.after(30)
    assert case.stuck_since == 1000.0 - 900
    assert "no progress for 130 s" in case.notices[0].text


def test_a_waiting_or_idle_teammate_is_not_stuck(case: Case) -> None:
    case.roster.update("alice", waiting_for="permission: bash: ls")
    assert (case.after(10_000), case.notices) == (120, [])
    case.roster.update("alice", waiting_for="")
    assert (case.after(100), case.stuck_since) == (20, 0)
    case.roster.transition("alice", Status.IDLE)
    assert (case.after(10_000), case.notices) == (120, [])


def test_a_stuck_teammate_is_shown_everywhere_until_it_continues(program: Program) -> None:
    program.settings(stuck_after_seconds=0.3)
    wait = tool("bash", command="touch on; until [ -e go ]; do sleep 0.02; done")
    more = tool("bash", command="touch on2; until [ -e go2 ]; do echo .; sleep 0.02; done")
    script = TeamScript(lead=[spawn("alice"), text("hired"), text("end")], alice=[wait, more, text("done")])
    with program.against(script), Running(program, *BYPASS) as repl:
        repl.type("go")
        wait_until(lambda: (program.directory / "on").exists())  # before that, a slow model may be what she waits for
        wait_until(lambda: members(program)["alice"]["stuck_since"] > 0)
        repl.wait_for("/stop alice would end it")
        repl.type("/team")
        repl.wait_for("stuck: no progress for")
        shown, listed = program.run("team").out, program.run("team", "--json").json["members"][0]
        assert "stuck: no progress for" in shown
        assert (listed["status"], listed["stuck_since"] > 0) == ("working", True)
        (program.directory / "go").touch()
        wait_until(lambda: (program.directory / "on2").exists())
        wait_until(lambda: members(program)["alice"]["stuck_since"] == 0)
        (program.directory / "go2").touch()
        repl.wait_for("alice → lead (result): done")
    assert any(row.get("stuck_since") for row in program.lines(".team/events.jsonl"))
