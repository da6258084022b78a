"""What `teamcli watch` prints: on a screen, in a pipe, as JSON."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable

import pyte
import pytest

from teamcli.agent import events
from teamcli.agent.conversation import text_block
from teamcli.agent.events import Event, Outcome
from teamcli.agent.tool import Display
from teamcli.llm.types import Message
from teamcli.ui.watch_view import JsonWatchView, PlainWatchView, TerminalWatchView

ALICE = "alice"
RECORDED = events.Recorded(ALICE, Message("assistant", (text_block("x"),)))
EVIL = "\x1b[2J\x1b]0;title\x07red"


class Terminal(io.StringIO):
    """A stream with a screen of 80 columns behind it."""

    encoding = "utf-8"

    def __init__(self) -> None:
        super().__init__()
        self._screen = pyte.Screen(80, 60)
        self._screen.set_mode(pyte.modes.LNM)  # a terminal begins a new line with each line feed
        self._stream = pyte.Stream(self._screen)

    def isatty(self) -> bool:
        return True

    def fileno(self) -> int:
        raise ValueError("it has no descriptor")

    def write(self, text: str) -> int:
        self._stream.feed(text)
        return super().write(text)

    @property
    def words(self) -> str:
        return " ".join("\n".join(self._screen.display).split())


@pytest.fixture(autouse=True)
def terminal_with_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def plain(*shown: Event, focus: str = ALICE, is_verbose: bool = False) -> list[str]:
    stream = io.StringIO()
    view = PlainWatchView(stream, focus, is_verbose)
    view.show(shown)
    view.finish()
    return stream.getvalue().splitlines()


def finished(tool: str = "bash", title: str = "$ ls", content: str = "a", is_error: bool = False) -> Event:
    return events.ToolFinished(ALICE, "1", tool, Display(title), content, is_error, 0.1)


class TestTerminal:
    @pytest.mark.parametrize("focus", [ALICE, ""])
    def test_at_every_moment_it_shows_all_that_has_arrived_once(self, focus: str) -> None:
        terminal = Terminal()
        view = TerminalWatchView(terminal, focus, [ALICE], is_verbose=False)
        words = [f"word{number:03d}" for number in range(120)]
        for number, word in enumerate(words):
            view.show([events.TextArrived(ALICE, word + ("\n\n" if number % 100 == 99 else " "))])
            seen = [each for each in terminal.words.split() if each.startswith("word")]
            assert seen == words[: number + 1]
        view.show([RECORDED])
        assert [each for each in terminal.words.split() if each.startswith("word")] == words

    def test_a_running_call_is_shown_until_it_has_ended(self) -> None:
        terminal = Terminal()
        view = TerminalWatchView(terminal, ALICE, [], is_verbose=False)
        view.show([events.ToolStarted(ALICE, "1", "bash", Display("$ make")), events.ToolProgress(ALICE, "1", "cc\n")])
        running = terminal.words
        view.show([finished(title="$ make", content="cc")])
        assert (running, terminal.words) == ("cc … $ make", "✓ $ make 0.1s · cc")

    def test_what_is_unfinished_stays_when_it_ends(self) -> None:
        terminal = Terminal()
        view = TerminalWatchView(terminal, ALICE, [], is_verbose=False)
        view.show([events.TextArrived(ALICE, "half a sen")])
        view.finish()
        assert terminal.words == "half a sen"

    def test_the_end_of_a_member_is_shown(self) -> None:
        terminal = Terminal()
        view = TerminalWatchView(terminal, ALICE, [], is_verbose=False)
        view.show([events.StatusChanged(ALICE, "idle", {}), events.StatusChanged(ALICE, "shutdown", {})])
        assert terminal.words == "alice was shut down."

    def test_no_text_can_control_the_terminal(self) -> None:
        terminal = Terminal()
        view = TerminalWatchView(terminal, "", [], is_verbose=True)
        view.show([events.TextArrived(ALICE, EVIL), finished(title=EVIL), events.PermissionAsked(ALICE, "bash", EVIL)])
        view.finish()
        assert "\x1b[2J" not in terminal.getvalue()
        assert "\x07" not in terminal.getvalue()

    def test_a_dumb_terminal_gets_whole_lines(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TERM", "dumb")
        terminal = Terminal()
        view = TerminalWatchView(terminal, ALICE, [], is_verbose=False)
        view.show([events.TextArrived(ALICE, "one"), events.TextArrived(ALICE, " two"), RECORDED])
        assert terminal.getvalue() == "one two\n"


class TestPlain:
    def test_text_is_printed_in_whole_lines(self) -> None:
        stream = io.StringIO()
        view = PlainWatchView(stream, ALICE, is_verbose=False)
        view.show([events.TextArrived(ALICE, "one\n\ntwo\nthr")])
        before = stream.getvalue()
        view.show([events.TextArrived(ALICE, "ee"), RECORDED])
        assert (before, stream.getvalue()) == ("one\n\ntwo\n", "one\n\ntwo\nthree\n")

    def test_everyone_is_named(self) -> None:
        shown = plain(
            events.TextArrived(ALICE, "hi\n"),
            finished(),
            events.MailSent(ALICE, "lead", "result", "done", {}),
            events.TurnEnded(ALICE, Outcome.INTERRUPTED, "", 1.0),
            focus="",
        )
        assert shown == ["alice: hi", "alice: > $ ls: a", "alice → lead (result): done", "alice: Interrupted"]

    def test_a_call_that_is_a_line_of_mail_anyway_is_left_out(self) -> None:
        assert plain(finished("send_message", "message to bob", "Sent message to bob")) == []

    @pytest.mark.parametrize("focus", [ALICE, ""])
    def test_the_end_of_a_member_is_a_line(self, focus: str) -> None:
        ended = (events.StatusChanged(ALICE, "idle", {}), events.StatusChanged(ALICE, "shutdown", {}))
        assert plain(*ended, focus=focus) == ["alice was shut down."]

    def test_failed_and_refused_calls_are_marked(self) -> None:
        refused = events.ToolFinished(ALICE, "1", "bash", Display("$ rm"), "no", True, 0.0, events.Refusal("you", "no"))
        assert plain(finished(is_error=True, content="Error: x"), refused) == [
            "✗ $ ls: Error: x",
            "⊘ $ rm: refused by you: no",
        ]

    @pytest.mark.parametrize(("is_verbose", "expected"), [(False, ["yes"]), (True, ["(thought) hm", "yes"])])
    def test_thoughts_are_shown_only_with_verbose(self, is_verbose: bool, expected: list[str]) -> None:
        shown: Iterable[Event] = (events.ThinkingArrived(ALICE, "hm"), events.TextArrived(ALICE, "yes"), RECORDED)
        assert plain(*shown, is_verbose=is_verbose) == expected

    def test_an_answer_that_starts_again_is_printed_from_its_beginning(self) -> None:
        retry = events.RetryScheduled(ALICE, 1.0, 1, 60.0, "server error (500)")
        assert plain(events.TextArrived(ALICE, "ha"), retry, events.TextArrived(ALICE, "whole"), RECORDED)[1:] == [
            "whole"
        ]

    def test_no_text_can_control_the_terminal(self) -> None:
        assert "\x1b" not in "".join(plain(events.TextArrived(ALICE, EVIL), finished(title=EVIL, content=EVIL)))


def test_json_has_an_object_for_each_event_and_no_remarks() -> None:
    stream, said = io.StringIO(), list[str]()
    view = JsonWatchView(stream, said.append)
    view.show([events.TextArrived(ALICE, "hi")])
    view.say("teamcli has left.")
    assert [json.loads(line) for line in stream.getvalue().splitlines()] == [
        {"event": "TextArrived", "agent": "alice", "text": "hi"}
    ]
    assert said == ["teamcli has left."]
