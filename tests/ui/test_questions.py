"""Questions at the prompt: how they are answered, and how they wait."""

from __future__ import annotations

import pytest

from teamcli.agent.permission_question import Answer, Consent, Question
from teamcli.agent.tool import Display
from teamcli.cancel import CancelScope
from teamcli.commands.base import Choice, Option
from teamcli.ui.terminal.pastes import Pastes
from teamcli.ui.terminal.questions import ChoiceQuestion, PermissionQuestion, QuestionQueue, is_answer


def question(agent: str = "alice", rule: str = "bash(ls)") -> Question:
    return Question(agent, "bash", Display("$ ls", text="$ ls\n-la"), rule)


def lines_of(shown: PermissionQuestion) -> list[str]:
    return ["".join(text for text, _ in line) for line in [*shown.head(), *shown.body()]]


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ("y", Answer(Consent.ONCE)),
        ("Yes", Answer(Consent.ONCE)),
        ("a", Answer(Consent.ALWAYS)),
        ("always", Answer(Consent.ALWAYS)),
        ("n", Answer(Consent.NO)),
        ("no", Answer(Consent.NO)),
        ("n use tee", Answer(Consent.NO, "use tee")),
        ("No, use tee", Answer(Consent.NO, "use tee")),
    ],
)
def test_an_answer_becomes_a_reply(answer: str, reply: Answer) -> None:
    asked = question()
    assert PermissionQuestion(asked).take(answer)
    assert asked.wait(CancelScope()) == reply


@pytest.mark.parametrize("text", ["fix the tests", "yes please do", "add a test", "yet another", "nothing"])
def test_other_text_leaves_a_teammates_question_open(text: str) -> None:
    asked = question()
    assert PermissionQuestion(asked).take(text) is None
    assert asked.is_open


def test_other_text_refuses_the_leads_question_and_is_the_reason() -> None:
    asked = question(agent="lead")
    assert PermissionQuestion(asked).take("use tee instead")
    assert asked.wait(CancelScope()).feedback == "use tee instead"


def test_the_whole_command_is_shown() -> None:
    lines = lines_of(PermissionQuestion(question()))
    assert lines == ["▲ alice wants to use bash:", "  $ ls", "  -la"]


def test_a_call_that_no_rule_covers_says_how_to_write_it_and_offers_no_rule() -> None:
    asked = Question("alice", "bash", Display("$ ls *"), "", "no rule covers this line: name the files")
    shown = PermissionQuestion(asked)
    lines = lines_of(shown)
    assert lines[2:] == ["  no rule covers this line", "  name the files"]
    assert "always" not in shown.keys
    assert "only the rule bash" in (shown.take("a") or "")


def test_questions_wait_in_order_and_disappear_when_closed_elsewhere() -> None:
    questions = QuestionQueue()
    first, second = question("alice"), question("bob")
    questions.ask(first)
    questions.ask(second)
    assert questions.current
    assert questions.current.agent == "alice"
    assert len(questions.open) == 2
    first.answer(Answer(Consent.NO))
    assert questions.current.agent == "bob"
    assert len(questions.open) == 1


def test_postponed_questions_still_wait_and_come_back() -> None:
    questions = QuestionQueue()
    questions.ask(question())
    assert questions.current
    questions.postpone(questions.current)
    assert questions.current is None
    assert len(questions.open) == 1
    assert questions.bring_back()
    assert questions.current
    assert not questions.bring_back()


def test_a_choice_takes_a_number_or_a_value_and_ignores_other_lines() -> None:
    def ask(answer: str) -> object:
        choice = Choice("Which?", (Option("one", ""), Option("two", "")), lambda value: f"took {value}")
        return ChoiceQuestion(choice).take(answer)

    assert [ask("2"), ask("one"), ask("3"), ask("do something else")] == ["took two", "took one", None, None]


def test_some_first_words_look_like_an_answer() -> None:
    assert all(map(is_answer, ["y", "N", "always", "no: because", "n, because"]))
    assert not any(map(is_answer, ["yesterday", "", "add", "note"]))


def test_a_long_paste_is_folded_and_unfolds_in_full() -> None:
    pastes = Pastes()
    long = "\r".join(f"line {number}" for number in range(200))
    mark = pastes.folded(long)
    assert mark == "[pasted 200 lines, 1]"
    assert pastes.folded("two\r\nlines") == "two\nlines"
    assert pastes.unfolded(f"look: {mark}!") == f"look: {long}!".replace("\r", "\n")
    assert pastes.folded("x" * 3000) == "[pasted 3000 characters, 2]"
