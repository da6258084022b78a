"""The lead's view and the watched one, in the process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.agent import events
from teamcli.agent.events import Event, Outcome
from teamcli.agent.tool import Display
from teamcli.llm.types import Message
from teamcli.session.watching import AgentSnapshot
from teamcli.ui.render.event_renderer import EventRenderer, Screen
from teamcli.ui.render.style import AgentColors, TerminalStyle
from teamcli.ui.terminal import views as views_module
from teamcli.ui.terminal.views import Turn, Views

NOWHERE = Path("/nonexistent/alice.jsonl")


def renderer(focus: str = "lead", continues_lines: bool = False) -> EventRenderer:
    style = TerminalStyle(False, True, lambda: 80)
    return EventRenderer(style, AgentColors(), Screen("banner", continues_lines=continues_lines), focus)


def views() -> Views:
    return Views(renderer(), renderer)


def turn_to(name: str, *current: Event, most_rows: int = 0) -> Turn:
    return Turn(AgentSnapshot(name, NOWHERE, 0, "", current), "coder · working", most_rows)


def call(agent: str, title: str) -> events.ToolFinished:
    return events.ToolFinished(agent, "c1", "bash", Display(title), "done", False, 0.1)


LEAD_STREAM: tuple[Event, ...] = (
    events.LineTaken("lead", "go"),
    *(events.TextArrived("lead", f"Para {number} be") for number in range(2)),
    events.TextArrived("lead", "gins.\n\n```python\nx = 1\n"),
    call("alice", "$ true"),
    events.TextArrived("lead", "y = 2\n"),
    events.MailSent("bob", "lead", "message", "hello", {}),
    events.TextArrived("lead", "```\n\nThe end"),
    events.TextArrived("alice", "words of alice\n\n"),
    events.Recorded("lead", Message("assistant", ())),
    call("lead", "$ ls"),
    events.TurnEnded("lead", Outcome.DONE, "", 1.0),
)


LONG_PARAGRAPH = tuple(events.TextArrived("lead", f"word{number} " * 20) for number in range(12))
SWITCHES = st.lists(st.tuples(st.integers(0, 12), st.sampled_from(["alice", "bob", "lead"])), max_size=6)


def shown_of_lead(shown: Views, stream: Sequence[Event], switches: list[tuple[int, str]]) -> str:
    """What is on the screen of the lead, if the user looks away at these moments."""
    of_lead = ""
    for number, event in enumerate([*stream, None]):
        for name in [name for at, name in switches if at == number]:
            of_lead += below_heading(shown.back("working")) if name == "lead" else ""
            if name != "lead":
                shown.turn_to(turn_to(name))
        text = shown.show(event) if event else below_heading(shown.unfinished())
        of_lead += text if shown.shown == "lead" else ""
    return of_lead


@given(SWITCHES)
def test_the_lead_is_shown_whole_and_once_whenever_the_user_looks_away(switches: list[tuple[int, str]]) -> None:
    whole = renderer()
    expected = "".join(map(whole.show, LEAD_STREAM)) + whole.unfinished()
    assert shown_of_lead(views(), LEAD_STREAM, switches) == expected


@given(SWITCHES)
def test_a_line_that_is_printed_in_parts_is_whole_on_the_return(switches: list[tuple[int, str]]) -> None:
    made = Views(renderer(continues_lines=True), partial(renderer, continues_lines=True))
    expected = "".join(event.text for event in LONG_PARAGRAPH)
    shown = shown_of_lead(made, LONG_PARAGRAPH, switches)
    assert "".join(shown.split()) == "".join(expected.split())  # a heading between two words replaces their space


def below_heading(text: str) -> str:
    return text.partition("─\n")[2] if text.lstrip("\n").startswith("── lead") else text


def test_a_watched_member_streams_and_others_do_not() -> None:
    shown = views()
    assert "── alice · coder · working ─" in shown.turn_to(turn_to("alice", events.TextArrived("alice", "One.\n\nTw")))
    assert shown.show(events.TextArrived("lead", "Words of the lead.\n\n")) == ""
    assert shown.show(call("bob", "$ ls")) == ""
    assert "Two." in shown.show(events.TextArrived("alice", "o.\n\n"))
    assert "✓ $ pytest" in shown.show(call("alice", "$ pytest"))
    assert "alice → bob: hi" in shown.show(events.MailSent("alice", "bob", "message", "hi", {}))
    assert "task 3 completed: Build it" in shown.show(
        events.TaskChanged("alice", 3, "completed", "Build it", "completed", "alice")
    )


def test_an_answer_that_was_watched_is_not_shown_whole_again() -> None:
    shown = views()
    shown.turn_to(turn_to("alice"))
    result = events.MailSent("alice", "lead", "result", "First line.\nLast line.", {"by_user": True})
    assert "  alice → lead result: First line. Last line.\n" in shown.show(result)
    assert "First line.\nLast line." in shown.back("idle").replace("\n  ", "\n")


def test_what_is_too_much_to_show_on_the_return_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(views_module, "MOST_MISSED_LINES", 10)
    shown = views()
    shown.turn_to(turn_to("alice"))
    for number in range(15):
        shown.show(call("lead", f"$ echo {number}"))
    text = shown.back("working")
    assert "6 lines are not shown; /log has every step." in text
    assert [f"$ echo {number} " in text for number in (4, 5, 14)] == [False, True, True]


def test_thoughts_are_shown_if_verbose_in_every_view() -> None:
    shown = views()
    shown.set_verbose(True)
    thought = events.ThinkingArrived("alice", "I wonder"), events.TextArrived("alice", "Done.\n\n")
    assert "I wonder" in shown.turn_to(turn_to("alice", *thought))
    shown.set_verbose(False)
    assert "I wonder" not in "".join(map(shown.show, thought))
    assert not shown.current.is_verbose


def test_a_brief_look_shows_only_the_last_lines_and_says_how_to_see_more() -> None:
    long = events.TextArrived("alice", "".join(f"Line {number}.\n\n" for number in range(50)))
    text = views().turn_to(turn_to("alice", long, most_rows=10))
    assert "… /watch alice shows more" in text
    assert text.count("Line ") == 5


def test_a_brief_look_counts_the_rows_that_long_lines_take() -> None:
    long = events.TextArrived("alice", "".join(f"Line {number}: {'word ' * 30}\n\n" for number in range(50)))
    text = views().turn_to(turn_to("alice", long, most_rows=12))
    assert text.count("Line ") == 4
