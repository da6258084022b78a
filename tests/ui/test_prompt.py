"""The prompt by itself, on a pipe instead of a keyboard: what keys do while questions come and go."""

from __future__ import annotations

import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from pathlib import Path

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

from teamcli.agent.permission_question import Answer, Consent, Question
from teamcli.agent.tool import Display
from teamcli.cancel import CancelScope
from teamcli.commands.base import Choice, Option
from teamcli.ui.render.style import Line, Piece, TerminalStyle
from teamcli.ui.terminal import answer_guard
from teamcli.ui.terminal.history import LineHistory
from teamcli.ui.terminal.pastes import STORED_CHARACTERS, Pastes
from teamcli.ui.terminal.prompt import LivePrompt
from teamcli.ui.terminal.prompt_output import AbovePrompt
from teamcli.ui.terminal.questions import ChoiceQuestion, PermissionQuestion, PromptQuestion, QuestionQueue
from tests.support.waiting import wait_until

ESCAPE, CTRL_C, CTRL_D, CTRL_O, CTRL_R = "\x1b", "\x03", "\x04", "\x0f", "\x12"


class RecordingOutput(DummyOutput):
    def __init__(self) -> None:
        self.written: list[str] = []

    def write_raw(self, data: str) -> None:
        self.written.append(data)


@dataclass(eq=False)
class NotedQuestion(PermissionQuestion):
    """Notes when it appears at the prompt."""

    note: Callable[[PromptQuestion], None]

    def body(self) -> list[Line]:
        self.note(self)
        return super().body()


class Keyboard:
    """A prompt and its host in one. Records what the keys did."""

    def __init__(self, keys: PipeInput, history: Path, use_vi: bool = False) -> None:
        self.lines: list[str] = []
        self.written: list[str] = []
        self.queued: list[str] = []
        self.is_watching = False
        self.returned: list[bool] = []
        self.interrupted = threading.Event()
        self.has_left = threading.Event()
        self.is_reading, self.has_read = threading.Event(), threading.Event()
        self.asked: list[PromptQuestion] = []
        self.answered: list[str] = []
        self.text_before: list[str] = []
        """The text at the prompt when each question appeared."""
        self.questions = QuestionQueue()
        self.keys = keys
        self.prompt = LivePrompt(self, self.questions, TerminalStyle(False, True, lambda: 80), history, None, use_vi)
        self.questions.subscribe(self.prompt.redraw)
        self._ready = threading.Event()
        # Copies the context: AbovePrompt finds the prompt through prompt_toolkit's app session.
        self._thread = threading.Thread(target=copy_context().run, args=[self.prompt.run, self._ready.set])

    def start(self) -> None:
        self._thread.start()
        self._ready.wait()

    def stop(self) -> None:
        self.prompt.exit()
        self._thread.join()

    def type(self, keys: str) -> None:
        self.keys.send_text(keys)

    @property
    def text(self) -> str:
        return self.prompt.editor.buffer.text

    def shows(self, text: str) -> None:
        wait_until(lambda: self.text == text)

    def ask(self, agent: str) -> Question:
        question = Question(agent, "bash", Display("$ ls"), "bash(ls)")
        self.questions.add(NotedQuestion(question, self._note))
        return question

    def _note(self, asked: PromptQuestion) -> None:
        self.text_before.append(self.text)
        self.asked.append(asked)

    def is_asked(self, question: Question) -> None:
        wait_until(lambda: bool(self.asked) and getattr(self.asked[-1], "question", None) is question)
        self.shows("")

    def enter(self, text: str) -> None:
        self.lines.append(text)

    def interrupt(self) -> bool:
        self.interrupted.set()
        for asked in self.questions.open:
            asked.question._answered.set()  # type: ignore[attr-defined]  # as a cancelled turn does
        return True

    def take_back(self) -> str | None:
        return self.queued.pop() if self.queued else None

    def next_mode(self) -> None: ...

    def expand(self) -> None: ...

    def toggle_tasks(self) -> None: ...

    def leave(self) -> None:
        self.has_left.set()

    def read(self, question: PromptQuestion) -> None:
        self.is_reading.set()
        self.has_read.wait()

    def answer(self, asked: PromptQuestion, text: str) -> bool:
        taken = asked.take(text) is not None
        self.answered += [text] if taken else []
        self.prompt.redraw()
        return taken

    def label(self) -> Piece:
        return "team >> ", "cyan"

    def turn(self, step: int) -> None: ...

    def return_to_lead(self, after_jobs: bool) -> None:
        self.returned.append(after_jobs)

    def above(self) -> list[Line]:
        return []

    def bar(self, width: int, taken: int, hint: str) -> list[Line]:
        return []


@pytest.fixture(params=[False])
def keyboard(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Keyboard]:
    output = RecordingOutput()
    with create_pipe_input() as keys, create_app_session(input=keys, output=output):
        keyboard = Keyboard(keys, tmp_path / "history", use_vi=request.param)
        keyboard.written = output.written
        keyboard.start()
        yield keyboard
        keyboard.stop()


in_vi_mode = pytest.mark.parametrize("keyboard", [True], indirect=True)


def test_half_typed_text_survives_several_questions_and_a_late_answer(keyboard: Keyboard) -> None:
    keyboard.type("half typed")
    keyboard.shows("half typed")
    first, second = keyboard.ask("alice"), keyboard.ask("bob")
    keyboard.is_asked(first)
    keyboard.type("n because")
    keyboard.shows("n because")
    first.answer(Answer(Consent.NO))
    keyboard.prompt.redraw()
    keyboard.is_asked(second)
    second.answer(Answer(Consent.NO))
    keyboard.prompt.redraw()
    keyboard.shows("half typed")
    assert not keyboard.lines


def test_enter_for_a_question_that_just_disappeared_does_not_answer_the_next(
    keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_guard, "READING_SECONDS", 3600.0)
    first, second = keyboard.ask("alice"), keyboard.ask("bob")
    keyboard.is_asked(first)
    keyboard.type("y")
    keyboard.shows("y")
    first.answer(Answer(Consent.NO))
    keyboard.prompt.redraw()
    keyboard.is_asked(second)
    keyboard.type("y\r")
    keyboard.shows("y")
    keyboard.type("es\r")  # once this is shown, the first Enter has been handled
    keyboard.shows("yes")
    assert second.is_open


def test_after_a_moment_enter_answers_the_next_question(keyboard: Keyboard) -> None:
    first, second = keyboard.ask("alice"), keyboard.ask("bob")
    keyboard.is_asked(first)
    keyboard.type("y")
    keyboard.shows("y")
    first.answer(Answer(Consent.NO))
    keyboard.prompt.redraw()
    keyboard.is_asked(second)
    keyboard.type("y")
    wait_until(lambda: keyboard.type("\r") or not second.is_open)
    assert second.wait(CancelScope()).consent is Consent.ONCE


def test_a_command_typed_at_a_question_leaves_the_half_typed_line_alone(keyboard: Keyboard) -> None:
    keyboard.type("half typed")
    keyboard.shows("half typed")
    question = keyboard.ask("alice")
    keyboard.is_asked(question)
    keyboard.type("/cost\r")
    wait_until(lambda: keyboard.lines == ["/cost"])
    keyboard.type("y\r")
    keyboard.shows("half typed")
    assert question.wait(CancelScope()).consent is Consent.ONCE


def test_the_rest_of_a_half_typed_line_is_not_an_answer(keyboard: Keyboard) -> None:
    keyboard.type("fix the par")
    keyboard.shows("fix the par")
    question = keyboard.ask("lead")
    keyboard.is_asked(question)
    keyboard.type("ser\r")
    wait_until(lambda: keyboard.lines == ["fix the parser"])
    assert question.is_open


def test_a_choice_can_be_made_in_the_middle_of_a_line(keyboard: Keyboard) -> None:
    chosen: list[str] = []
    keyboard.type("half typed")
    keyboard.shows("half typed")
    keyboard.questions.add(
        ChoiceQuestion(
            Choice("Which?", (Option("one", ""), Option("two", "")), lambda value: chosen.append(value) or "")
        )
    )
    keyboard.shows("")
    keyboard.type("2\r")
    keyboard.shows("half typed")
    assert chosen == ["two"]
    assert not keyboard.lines


def test_the_word_that_leaves_does_not_refuse_a_question(keyboard: Keyboard) -> None:
    question = keyboard.ask("lead")
    keyboard.is_asked(question)
    keyboard.type("q\r")
    wait_until(lambda: keyboard.lines == ["q"])
    assert question.is_open


def test_typing_works_with_a_history_that_cannot_be_used(keyboard: Keyboard, tmp_path: Path) -> None:
    history = tmp_path / "history"
    keyboard.type("first\r")
    wait_until(lambda: history.exists() and "first" in history.read_text())
    history.unlink()
    keyboard.type("second\r")
    wait_until(lambda: history.exists() and "second" in history.read_text())
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    history.unlink()
    history.mkdir()
    keyboard.type("third\r")
    wait_until(lambda: keyboard.lines == ["first", "second", "third"])
    assert list(LineHistory(history, Pastes()).load_history_strings()) == []


def test_the_history_keeps_a_bounded_part_of_a_huge_paste(tmp_path: Path) -> None:
    pastes = Pastes()
    mark = pastes.folded("begin\n" + "x\n" * STORED_CHARACTERS + "end")
    LineHistory(tmp_path / "history", pastes).store_string(f"see {mark}")
    later = Pastes()
    (line,) = LineHistory(tmp_path / "history", later).load_history_strings()
    whole = later.unfolded(line)
    assert whole.startswith("see begin\n")
    assert whole.endswith("x\nend")
    assert "characters left out" in whole
    assert len(whole) < STORED_CHARACTERS + 100


def test_the_history_forgets_its_oldest_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    history = LineHistory(tmp_path / "history", Pastes())
    for number in range(100):
        history.store_string(f"line {number}\nand more")
    monkeypatch.setattr("teamcli.ui.terminal.history.MAX_BYTES", 2000)
    kept = list(history.load_history_strings())
    assert 5 < len(kept) < 40
    assert kept == [f"line {99 - number}\nand more" for number in range(len(kept))]
    assert stat.S_IMODE((tmp_path / "history").stat().st_mode) == 0o600


def test_a_question_waits_for_the_editor_and_a_paste_is_edited_whole(
    keyboard: Keyboard, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on = tmp_path / "go on"
    editor = tmp_path / "editor"
    editor.write_text(f"#!/bin/sh\ntouch '{tmp_path}/open'; until test -e '{go_on}'; do sleep 0.02; done\n")
    with editor.open("a") as script:
        script.write('printf " edited" >> "$1"\n')
    editor.chmod(0o755)
    monkeypatch.setenv("EDITOR", str(editor))
    pasted = "\n".join(map(str, range(50)))
    keyboard.type(f"half \x1b[200~{pasted}\x1b[201~\x18\x05")
    wait_until((tmp_path / "open").exists)
    question = keyboard.ask("alice")
    go_on.touch()
    keyboard.is_asked(question)
    keyboard.type("n\r")
    keyboard.shows(f"half {pasted} edited")


def test_a_pasted_reason_reaches_the_model_whole(keyboard: Keyboard) -> None:
    question = keyboard.ask("alice")
    keyboard.is_asked(question)
    pasted = "\n".join(map(str, range(50)))
    keyboard.type(f"n \x1b[200~{pasted}\x1b[201~\r")
    assert question.wait(CancelScope()).feedback == pasted


def test_an_interruption_puts_queued_lines_before_the_half_typed_line(keyboard: Keyboard) -> None:
    keyboard.queued = ["no, use tabs", "then test"]
    keyboard.type("half typed")
    keyboard.shows("half typed")
    keyboard.type(CTRL_C)
    keyboard.shows("no, use tabs\nthen test\nhalf typed")
    assert keyboard.interrupted.is_set()


def test_queued_lines_that_look_like_answers_survive_the_leads_question(keyboard: Keyboard) -> None:
    keyboard.queued = ["no, use tabs"]
    keyboard.is_asked(keyboard.ask("lead"))
    keyboard.type(ESCAPE)
    keyboard.shows("no, use tabs")
    assert keyboard.interrupted.is_set()


def test_no_question_disturbs_a_search_through_the_history(keyboard: Keyboard) -> None:
    keyboard.type("read needle.txt\r")
    wait_until(lambda: list(keyboard.prompt.editor.buffer._working_lines) == ["read needle.txt", ""])
    keyboard.type(f"{CTRL_R}need")
    wait_until(lambda: keyboard.prompt.editor.app.current_buffer.text == "need")
    question = keyboard.ask("alice")
    keyboard.type("\r")
    keyboard.is_asked(question)
    assert keyboard.text_before == ["read needle.txt"]
    keyboard.type("n\r")
    keyboard.shows("read needle.txt")
    keyboard.type(f"{CTRL_R}x")
    wait_until(lambda: keyboard.prompt.editor.app.current_buffer.text == "x")
    keyboard.type(CTRL_C)
    wait_until(lambda: not keyboard.prompt.editor.app.layout.is_searching)
    assert not keyboard.interrupted.is_set()
    assert keyboard.lines == ["read needle.txt"]


@in_vi_mode
def test_a_question_and_a_new_line_start_in_insert_mode(keyboard: Keyboard) -> None:
    keyboard.type(f"half typed{ESCAPE}")
    wait_until(lambda: keyboard.prompt.editor.app.vi_state.input_mode != "vi-insert")
    question = keyboard.ask("alice")
    keyboard.is_asked(question)
    keyboard.type("y\r")
    assert question.wait(CancelScope()).consent is Consent.ONCE
    keyboard.shows("half typed")
    keyboard.type("\rsecond\r")
    wait_until(lambda: keyboard.lines == ["half typed", "second"])


def test_printing_above_loses_nothing_and_leaves_the_terminal_raw(
    keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cooked(_: PipeInput) -> object:
        raise AssertionError("keys would be echoed, and Enter would be a line feed")

    monkeypatch.setattr(type(keyboard.keys), "cooked_mode", cooked)

    def print_all(name: str, printer: AbovePrompt) -> None:
        for number in range(1000):
            printer.write(f"{name}{number}\n")

    with AbovePrompt() as printer:
        threads = [threading.Thread(target=print_all, args=[name, printer]) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        wait_until(lambda: all(f"{name}999" in "".join(keyboard.written) for name in "abcd"))
        keyboard.stop()
    lines = re.sub(r"\x1b(?:\[[?0-9]*[A-Za-z]|[78])", "", "".join(keyboard.written)).split()
    for name in "abcd":
        assert [line for line in lines if line[0] == name] == [f"{name}{number}" for number in range(1000)]


def test_an_unfinished_line_is_replaced_by_the_finished_one_in_the_same_frame(keyboard: Keyboard) -> None:
    frames: list[tuple[bool, str]] = []
    app = keyboard.prompt.editor.app
    with AbovePrompt() as page:

        def finish_the_line() -> None:
            page.put("the end\n", [[("what follows", "")]])
            app._redraw()  # as a key or the clock would

        page.put("", [[("the end", "")]])
        app.after_render += lambda _: frames.append(("the end\n" in keyboard.written, page.growing[0][0][0]))
        keyboard.prompt.editor.call_soon(finish_the_line)
        wait_until(lambda: (True, "what follows") in frames)
        keyboard.stop()
    assert (False, "the end") in frames
    assert set(frames) == {(False, "the end"), (True, "what follows")}


@pytest.mark.parametrize("keys", ["y\ry\r", "yy\r", "Y\rY\r", "yes\ryes\r"])
def test_an_answer_that_is_typed_twice_counts_once(
    keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch, keys: str
) -> None:
    monkeypatch.setattr(answer_guard, "READING_SECONDS", 3600.0)
    first, second = keyboard.ask("lead"), keyboard.ask("bob")
    keyboard.is_asked(first)
    keyboard.type(keys)
    keyboard.is_asked(second)
    assert first.wait(CancelScope()).consent is Consent.ONCE
    assert second.is_open
    assert not keyboard.lines
    assert len(keyboard.answered) == 1


def test_an_answer_that_is_typed_twice_is_no_part_of_the_half_typed_line(
    keyboard: Keyboard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer_guard, "READING_SECONDS", 3600.0)
    keyboard.type("half typed")
    keyboard.shows("half typed")
    question = keyboard.ask("alice")
    keyboard.is_asked(question)
    keyboard.type("y\r")
    keyboard.shows("half typed")
    keyboard.type("y\r")
    keyboard.type(" and more")
    keyboard.shows("half typed and more")
    assert not keyboard.lines


def test_esc_returns_to_the_lead_and_does_not_interrupt_it(keyboard: Keyboard) -> None:
    keyboard.is_watching = True
    keyboard.type("half typed")
    keyboard.shows("half typed")
    keyboard.type(ESCAPE)
    wait_until(lambda: keyboard.returned == [False])
    assert not keyboard.interrupted.is_set()


def test_ctrl_c_while_watching_clears_the_line_then_returns(keyboard: Keyboard) -> None:
    keyboard.is_watching = True
    keyboard.type(f"half typed{CTRL_C}")
    keyboard.shows("")
    assert keyboard.returned == []
    keyboard.type(CTRL_C)
    wait_until(lambda: keyboard.returned == [True])
    assert not keyboard.interrupted.is_set()


def test_esc_at_a_question_while_watching_postpones_it_and_stays(keyboard: Keyboard) -> None:
    keyboard.is_watching = True
    question = keyboard.ask("bob")
    keyboard.is_asked(question)
    keyboard.type(ESCAPE)
    wait_until(lambda: keyboard.questions.current is None)
    assert question.is_open
    assert keyboard.returned == []


def test_queued_lines_of_an_interrupted_lead_wait_at_its_prompt(keyboard: Keyboard) -> None:
    keyboard.is_watching = True
    keyboard.queued = ["queued line"]
    keyboard.is_asked(keyboard.ask("lead"))
    keyboard.type(ESCAPE)
    wait_until(keyboard.interrupted.is_set)
    keyboard.shows("")
    keyboard.is_watching = False
    keyboard.prompt.turn("alice", "lead")
    keyboard.shows("queued line")


def test_a_question_that_is_answered_elsewhere_while_it_is_in_the_pager_gives_the_line_back(keyboard: Keyboard) -> None:
    keyboard.type("half typed")
    keyboard.shows("half typed")
    question = keyboard.ask("alice")
    keyboard.is_asked(question)
    keyboard.type(CTRL_O)
    wait_until(keyboard.is_reading.is_set)
    question.answer(Answer(Consent.CHANGED))
    keyboard.prompt.redraw()
    keyboard.has_read.set()
    keyboard.shows("half typed")
    keyboard.type("\r")
    wait_until(lambda: keyboard.lines == ["half typed"])
