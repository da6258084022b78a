"""Questions at the prompt: how they are answered, and how they wait."""

from __future__ import annotations

import pytest

from teamcli.agent.permission_question import Answer, Consent, Question
from teamcli.agent.tool import Display
from teamcli.cancel import CancelScope
from teamcli.commands.base import Choice, Option
from teamcli.text.escaping import one_line
from teamcli.ui.terminal.fragments import width_of
from teamcli.ui.terminal.pastes import Pastes
from teamcli.ui.terminal.questions import ChoiceQuestion, PermissionQuestion, QuestionQueue, is_answer


def question(agent: str = "alice", rule: str = "bash(ls)") -> Question:
    return Question(agent, "bash", Display("$ ls", text="$ ls\n-la"), rule, broader=("bash(ls:*)",))


def lines_of(shown: PermissionQuestion) -> list[str]:
    return ["".join(text for text, _ in line) for line in [*shown.head(), *shown.body()]]


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ("y", Answer(Consent.ONCE)),
        ("Yes", Answer(Consent.ONCE)),
        ("a1", Answer(Consent.ALWAYS, rules=("bash(ls)",))),
        ("aa", Answer(Consent.ALWAYS, rules=("bash(ls)",))),
        ("always 1", Answer(Consent.ALWAYS, rules=("bash(ls)",))),
        ("A 2", Answer(Consent.ALWAYS, rules=("bash(ls:*)",))),
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


@pytest.mark.parametrize(
    ("answer", "reply"),
    [
        ("1", Answer(Consent.ALWAYS, rules=("bash(ls)",))),
        ("2", Answer(Consent.ALWAYS, rules=("bash(ls:*)",))),
        ("a", Answer(Consent.ALWAYS, rules=("bash(ls)",))),
        ("y", Answer(Consent.ONCE)),
        ("n not yet", Answer(Consent.NO, "not yet")),
    ],
)
def test_always_shows_the_rules_and_saves_the_chosen_one(answer: str, reply: Answer) -> None:
    asked = question()
    shown = PermissionQuestion(asked)
    assert [shown.take("a"), asked.is_open, shown.label] == ["", True, "rule? >> "]
    assert ["bash(ls)" in lines_of(shown)[1], "bash(ls:*)" in lines_of(shown)[2]] == [True, True]
    assert shown.take(answer)
    assert asked.wait(CancelScope()) == reply


@pytest.mark.parametrize("answer", ["0", "3", "a3", "12"])
def test_a_number_that_is_not_offered_leaves_the_question_open(answer: str) -> None:
    asked = question("lead")
    shown = PermissionQuestion(asked)
    assert [shown.take("a"), shown.take(answer)] == ["", ""]
    assert asked.is_open


def test_the_choice_of_a_rule_can_be_left() -> None:
    shown = PermissionQuestion(question())
    shown.take("a")
    assert [shown.back(), shown.label, shown.back()] == [True, "allow? >> ", False]


@pytest.mark.parametrize("width", [20, 40, 60])
@pytest.mark.parametrize("path", ["src/a.py", "x" * 200 + ".py", "漢字" * 60, "a\nb\x1b[2J" * 30])
def test_the_head_names_the_file_within_any_width(width: int, path: str) -> None:
    diff = "--- /dev/null\n+++ b/x\n@@ -0,0 +1,1 @@\n+x"
    asked = Question("alice", "write_file", Display("write", diff=diff, path=path), "write_file(x)")
    *_, last = PermissionQuestion(asked).head(width)
    shown = "".join(text for text, _ in last)
    assert (width_of(last) <= width, shown.endswith(" (+1 -0)")) == (True, True)
    assert one_line(path, 1000)[-2:] in shown


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
    assert all(map(is_answer, ["y", "N", "always", "a2", "a 2", "aa", "no: because", "n, because"]))
    assert not any(map(is_answer, ["yesterday", "", "add", "note"]))


def test_a_long_paste_is_folded_and_unfolds_in_full() -> None:
    pastes = Pastes()
    long = "\r".join(f"line {number}" for number in range(200))
    mark = pastes.folded(long)
    assert mark == "[pasted 200 lines, 1]"
    assert pastes.folded("two\r\nlines") == "two\nlines"
    assert pastes.unfolded(f"look: {mark}!") == f"look: {long}!".replace("\r", "\n")
    assert pastes.folded("x" * 3000) == "[pasted 3000 characters, 2]"
    assert pastes.folded("line\n" * 300) == "[pasted 300 lines, 3]"
