"""The status bar: what it says about each agent, at every width."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from teamcli.agent import events
from teamcli.agent.events import Event, Outcome
from teamcli.agent.tool import Display
from teamcli.llm.types import Usage
from teamcli.text.console import wrap
from teamcli.text.duration import short_time
from teamcli.ui.render.style import AgentColors, Piece
from teamcli.ui.terminal.fragments import clipped, width_of
from teamcli.ui.terminal.status import AgentState, SessionMeter, StatusBoard, meter_line
from teamcli.ui.terminal.status_area import Moment, agent_lines, one_line_of


def text(line: list[Piece]) -> str:
    return "".join(piece for piece, _ in line)


def board(*happened: Event, now: float = 0.0) -> StatusBoard:
    made = StatusBoard("lead", [AgentState("alice"), AgentState("bob", note="interrupted")])
    for event in happened:
        made.apply(event, now)
    return made


def one_line(shown: StatusBoard, width: int, now: float, asking: Sequence[str] = ()) -> list[Piece]:
    return one_line_of(shown.states(), width, Moment(now, asking))


def area(
    shown: StatusBoard, width: int = 80, rows: int = 6, now: float = 0.0, asking: Sequence[str] = (), watched: str = ""
) -> list[str]:
    return [text(line) for line in agent_lines(shown.states(), width, rows, Moment(now, asking, watched))]


def tool_started(agent: str = "lead", title: str = "$ pytest -q") -> events.ToolStarted:
    return events.ToolStarted(agent, "c1", "bash", Display(title))


def test_the_bar_says_what_each_agent_does_and_for_how_long() -> None:
    shown = board(events.TurnStarted("lead"), tool_started(), events.TurnStarted("alice"))
    assert text(one_line(shown, 120, 75.0)) == "● lead $ pytest -q 1m15s │ ● alice thinking 1m15s │ ○ bob interrupted"


def test_the_bar_follows_a_turn_to_its_end() -> None:
    shown = board(events.TurnStarted("lead"))
    shown.apply(events.TextArrived("lead", "x"), 1.0)
    assert "lead writing 2s" in text(one_line(shown, 120, 3.0))
    shown.apply(tool_started(), 3.0)
    shown.apply(events.ToolFinished("lead", "c1", "bash", Display("$ pytest -q"), "", False, 1.0), 4.0)
    assert "lead thinking 0s" in text(one_line(shown, 120, 4.0))
    assert shown.lead_is_working
    shown.apply(events.TurnEnded("lead", Outcome.DONE, "", 1.0), 5.0)
    assert text(one_line(shown, 120, 5.0)).startswith("○ lead │")
    assert not shown.is_busy


def test_the_time_of_a_call_begins_when_it_is_allowed() -> None:
    shown = board(events.TurnStarted("lead"), tool_started())
    shown.apply(events.PermissionGiven("lead", "c1", "bash", 60.0), 60.0)
    assert "lead $ pytest -q 5s" in text(one_line(shown, 120, 65.0))


def test_the_bar_counts_down_to_a_retry() -> None:
    shown = board(events.TurnStarted("lead"), events.RetryScheduled("lead", 30.0, 1, 5, "overloaded"))
    assert "lead retries in 30 s" in text(one_line(shown, 120, 0.0))
    assert "lead retries in 10 s" in text(one_line(shown, 120, 20.0))
    shown.apply(events.TextArrived("lead", "x"), 31.0)
    assert "retries" not in text(one_line(shown, 120, 31.0))


def test_the_bar_shows_who_asks_and_why_a_teammate_is_idle() -> None:
    shown = board(events.StatusChanged("alice", "idle", {"waiting_for": "plan review"}))
    line = text(one_line(shown, 120, 0.0, ["bob"]))
    assert "▲ bob asks" in line
    assert "alice waits for plan review" in line


def test_a_teammate_without_progress_is_shown_as_stuck_until_it_continues() -> None:
    shown = board(events.StatusChanged("alice", "working", {}), tool_started("alice", "$ sleep 999"))
    shown.apply(events.StatusChanged("alice", "working", {"stuck_since": 1.0}), 120.0)
    assert "alice stuck: $ sleep 999 2m00s" in text(one_line(shown, 120, 120.0))
    shown.apply(events.StatusChanged("alice", "working", {}), 121.0)
    assert "stuck" not in text(one_line(shown, 120, 121.0))


def test_a_sender_of_mail_is_not_shown_as_an_agent() -> None:
    shown = board(events.MailSent("user", "alice", "message", "hi", {}), events.Notice("sa-1", "too late"))
    assert text(one_line(shown, 120, 0.0)) == "○ lead │ ○ alice │ ○ bob interrupted"
    assert "● sa-1" in text(one_line(board(events.TurnStarted("sa-1")), 120, 0.0))


def test_a_shut_down_teammate_is_not_shown() -> None:
    assert "alice" not in text(one_line(board(events.StatusChanged("alice", "shutdown", {})), 120, 0.0))


@pytest.mark.parametrize("width", [1, 7, 20, 40, 60, 80, 120, 400])
def test_the_bar_is_never_wider_than_the_terminal(width: int) -> None:
    crowd = [events.TurnStarted(f"worker-{number}") for number in range(12)]
    shown = board(*crowd, tool_started("worker-3", "$ 漢字 " * 40), events.TurnStarted("lead"))
    assert 0 < width_of(one_line(shown, width, 3.0, ["bob"])) <= width
    senders = ("worker-1", "worker-2")
    meter = SessionMeter("claude-something-long-5-5", "bypassPermissions", 0.93, "$12.34", 7, 0, senders, jobs=12)
    assert 0 < width_of(meter_line(meter, "Esc: interrupt", width)) <= width


def test_on_a_narrow_terminal_busy_agents_come_first_and_the_rest_are_counted() -> None:
    crowd = [events.TurnStarted("worker-9"), *(events.StatusChanged(f"idle-{n}", "idle", {}) for n in range(9))]
    line = text(one_line(board(*crowd), 40, 0.0, ["bob"]))
    assert line.startswith("▲ bob asks │ ● worker-9")
    assert line.split()[-1].startswith("+")


def test_the_meter_drops_the_least_important_part_first() -> None:
    meter = SessionMeter("model", "plan", 0.05, "$0.10", 2)
    wide = text(meter_line(meter, "/help", 80))
    assert wide.startswith("model · plan · ✉ 2 unread · $0.10 · context 5%  ")
    assert wide.endswith("  /help")
    assert text(meter_line(meter, "/help", 30)) == "model · plan · ✉ 2 unread"


@pytest.mark.parametrize(
    ("width", "mail"),
    [
        (120, "✉ 3 unread from alice, bob · $0.0012 · context 5%"),
        (80, "✉ 3 unread from alice, bob · $0.0012"),
        (60, "✉ 3 from alice, bob · $0.0012"),
        (56, "✉ 3 from alice +1 · $0.0012"),
        (40, "✉ 3 unread"),
    ],
)
def test_unread_mail_says_from_whom_as_far_as_there_is_room(width: int, mail: str) -> None:
    meter = SessionMeter("claude-opus-5-5", "default", 0.05, "$0.0012", 3, senders=("alice", "bob"))
    assert text(meter_line(meter, "", width)).startswith(f"claude-opus-5-5 · default · {mail}")


@pytest.mark.parametrize(("jobs", "words"), [(1, "1 job"), (2, "2 jobs")])
def test_the_meter_counts_background_commands(jobs: int, words: str) -> None:
    meter = SessionMeter("model", "plan", None, "$0.10", 0, jobs=jobs)
    assert text(meter_line(meter, "", 60)) == f"model · plan · {words} · $0.10"


@pytest.mark.parametrize(("width", "left"), [(120, "context 5%"), (60, "$0.0012"), (40, "claude-opus-5-5"), (30, "")])
def test_an_urgent_hint_takes_the_room_of_what_is_on_the_left(width: int, left: str) -> None:
    meter = SessionMeter("claude-opus-5-5", "default", 0.05, "$0.0012", 0)
    line = text(meter_line(meter, "Ctrl-C again to leave", width, is_urgent=True))
    assert line.endswith("Ctrl-C again to leave")
    assert line.removesuffix("Ctrl-C again to leave").rstrip().endswith(left)


def test_an_unknown_context_window_is_shown_in_tokens() -> None:
    assert text(meter_line(SessionMeter("model", "plan", None, "$0.10", 0, 12_400), "", 80)).endswith(
        "context 12,400 tokens"
    )


def test_times_are_shown_in_a_short_form() -> None:
    assert [short_time(seconds) for seconds in (0.4, 59.9, 61, 3_725)] == ["0s", "59s", "1m01s", "1h02m"]


def test_lines_are_cut_by_cells() -> None:
    assert clipped([("ab", ""), ("漢字漢字", "red")], 5) == [("ab", ""), ("漢", "red")]


def test_lines_are_wrapped_by_cells() -> None:
    assert wrap([("漢字ab\n\nc", "")], 3) == [[("漢", "")], [("字a", "")], [("b", "")], [("", "")], [("c", "")]]


def test_busy_agents_that_do_not_fit_are_counted() -> None:
    made = StatusBoard("lead", [AgentState(f"mate{number}", "working") for number in range(9)])
    assert text(one_line(made, 40, 0.0)) == "● mate0 │ ● mate1 │ ● mate2 +7 (6 busy)"


def test_agents_are_counted_even_if_no_name_fits() -> None:
    made = StatusBoard("lead", [AgentState(letter * 32, "working") for letter in "abcd"])
    assert text(one_line(made, 24, 0.0)) == "● aaaaaaaaaa +4 (3 busy)"


def five_busy() -> StatusBoard:
    names = ("alice", "bob", "carol", "dave", "erin")
    made = StatusBoard("lead", [AgentState(name, "working") for name in names])
    for name in names:
        made.apply(events.TurnStarted(name), 0.0)
        made.apply(tool_started(name, f"$ pytest tests/{name}"), 0.0)
    return made


def test_each_busy_teammate_has_a_line_with_its_activity_time_and_tokens() -> None:
    shown = board(events.TurnStarted("alice"), tool_started("alice"))
    shown.apply(events.Answered("alice", "model", "end_turn", Usage(3_000, 240), None), 1.0)
    assert area(shown, now=75.0) == ["○ lead │ ○ bob interrupted", "● alice $ pytest -q 1m15s · 3.2k tokens"]


def test_tokens_are_those_of_the_present_turn() -> None:
    shown = board(events.TurnStarted("alice"), events.Answered("alice", "model", "end_turn", Usage(3_000, 240), None))
    shown.apply(events.TurnStarted("alice"), 2.0)
    assert area(shown, now=2.0)[1] == "● alice thinking 0s · 0 tokens"


def test_five_busy_teammates_fit_into_a_fourth_of_a_small_terminal() -> None:
    lines = area(five_busy(), width=79, rows=24 // 4, now=3.0)
    assert lines == [
        "○ lead",
        "● alice $ pytest tests/alice 3s · 0 tokens",
        "● bob   $ pytest tests/bob 3s · 0 tokens",
        "● carol $ pytest tests/carol 3s · 0 tokens",
        "● dave  $ pytest tests/dave 3s · 0 tokens",
        "● erin  $ pytest tests/erin 3s · 0 tokens",
    ]


def test_teammates_without_a_line_are_named_and_those_that_ask_or_are_watched_come_first() -> None:
    lines = area(five_busy(), rows=4, now=3.0, asking=["dave"], watched="erin")
    assert lines[1:] == [
        "▲ dave  asks $ pytest tests/dave 3s · 0 tokens",
        "● erin◂ $ pytest tests/erin 3s · 0 tokens",
        "+3 more: alice, bob, carol",
    ]


def test_with_little_height_all_share_one_line() -> None:
    (line,) = area(five_busy(), width=79, rows=2, now=3.0)
    assert line.startswith("○ lead │ ● alice ")
    assert line.count("●") == 5


def test_sub_agents_share_a_line() -> None:
    shown = board(events.TurnStarted("alice"), events.TurnStarted("sa-1"), events.TurnStarted("sa-2"))
    assert area(shown)[1:] == ["● alice thinking 0s · 0 tokens", "● sa-1 thinking 0s │ ● sa-2 thinking 0s"]


@pytest.mark.parametrize("width", [1, 20, 40, 60, 80, 120])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 6, 10])
def test_the_lines_of_agents_keep_to_the_width_and_the_rows(width: int, rows: int) -> None:
    crowd = [events.TurnStarted(f"worker-{number}") for number in range(20)]
    shown = board(*crowd, tool_started("worker-3", "$ 漢字 " * 40), events.TurnStarted("sa-1"))
    lines = agent_lines(shown.states(), width, rows, Moment(3.0, ["worker-7"], "worker-3"))
    assert len(lines) <= rows
    assert max(map(width_of, lines)) <= width


def test_the_first_eight_teammates_have_different_colors() -> None:
    colors = AgentColors()
    names = [f"mate{number}" for number in range(8)]
    of_others = {colors.of(name) for name in ("lead", "user", "team", "outside", "sa-1")}  # these take no color away
    assert len({colors.of(name) for name in names} - of_others) == 8
    assert colors.known() == {name: colors.of(name) for name in names}
