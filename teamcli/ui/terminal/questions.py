"""What waits for the user's yes or no: any number of questions, in the order in which they came."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from teamcli.agent.approval import Answer, Consent, Question
from teamcli.commands.base import Choice, CommandResult
from teamcli.session.session import LEAD
from teamcli.team.requests import Request
from teamcli.text.escaping import one_line
from teamcli.ui.render.style import YELLOW, Line, diff_lines
from teamcli.ui.render.tables import choice_lines

ALWAYS_ASKED = "Allowed this once: a rule of yours asks every time."
NO_RULE = "Allowed this once: no rule but bash, which allows every command, covers this line."


SHORT_TITLE = 50
"""What was asked has just been seen whole."""
YES, ALWAYS, NO = ("y", "yes"), ("a", "always"), ("n", "no")


class Asked(Protocol):
    """Something that a person can answer at the prompt."""

    @property
    def agent(self) -> str:
        """Who asks; the user is asked by `teamcli` itself where it offers a choice."""
        ...

    @property
    def label(self) -> str:
        """What stands in front of the answer."""
        ...

    @property
    def is_open(self) -> bool: ...

    def lines(self) -> list[Line]:
        """Who asks, and everything that would happen."""
        ...

    @property
    def keys(self) -> str:
        """What can be answered."""
        ...

    def fits(self, text: str) -> bool:
        """Whether it can be meant as an answer, where it might as well go on with a line that was being typed."""
        ...

    def take(self, answer: str) -> CommandResult | None:
        """Answer with what the user typed; returns what to show. None: that was no answer.

        Raises: TeamcliError
        """
        ...


def is_answer(text: str) -> bool:
    """Whether a line can be meant as an answer to a yes or no."""
    return _first_word(text) in (*YES, *ALWAYS, *NO)


def _first_word(text: str) -> str:
    return text.partition(" ")[0].lower().rstrip(":,")


@dataclass(frozen=True, eq=False)
class PermissionQuestion:
    question: Question
    label: ClassVar[str] = "allow? >> "

    @property
    def agent(self) -> str:
        return self.question.agent

    @property
    def is_open(self) -> bool:
        return self.question.is_open

    def lines(self) -> list[Line]:
        asked, display = self.question, self.question.display
        what = (display.text or display.title).rstrip("\n").split("\n")  # what else breaks lines is shown as a sign
        head: Line = [("▲ ", YELLOW), (self.agent, f"1;{YELLOW}"), (f" wants to use {asked.tool}:", YELLOW)]
        advice = asked.advice.split(": ", 1) if not asked.rule else []
        why: list[Line] = [[(f"  {part}", "2")] for part in advice if part]
        return [head, *([("  " + line, "")] for line in what), *diff_lines(display.diff, with_names=False), *why]

    @property
    def keys(self) -> str:
        return (
            "y once · a always · n no, or n and a reason" if self.question.rule else "y once · n no, or n and a reason"
        )

    def fits(self, text: str) -> bool:
        return is_answer(text)

    def take(self, answer: str) -> str | None:
        if answer.lower() in YES:
            self.question.answer(Answer(Consent.ONCE))
            return f"Allowed {self.agent} once: {self._title}"
        if answer.lower() in ALWAYS:
            self.question.answer(Answer(Consent.ALWAYS))
            if self.question.rule:
                return f"From now on allowed: {self.question.rule}"
            return NO_RULE if self.question.advice else ALWAYS_ASKED
        if _first_word(answer) in NO:
            return self._refuse(answer.partition(" ")[2].strip())
        # The lead waits for this answer, so what is said to it now can only be about the call.
        return self._refuse(answer) if self.agent == LEAD else None

    def _refuse(self, reason: str) -> str:
        self.question.answer(Answer(Consent.NO, reason))
        return f"Refused {self.agent}: {self._title}"

    @property
    def _title(self) -> str:
        return one_line(self.question.display.title, SHORT_TITLE)


@dataclass(frozen=True, eq=False)
class PlanQuestion:
    request: Request
    still_open: Callable[[str], bool]
    review: Callable[[str, bool, str], str]
    label: ClassVar[str] = "approve? >> "

    @property
    def agent(self) -> str:
        return self.request.teammate

    @property
    def is_open(self) -> bool:
        return self.still_open(self.request.id)

    def lines(self) -> list[Line]:
        head: Line = [("▲ ", YELLOW), (self.agent, f"1;{YELLOW}"), (f" has a plan ({self.request.id}):", YELLOW)]
        return [head, *([("  " + line, "")] for line in self.request.text.rstrip("\n").split("\n"))]

    @property
    def keys(self) -> str:
        return "y approve · n and what to change · Esc leaves it to the lead"

    def fits(self, text: str) -> bool:
        return is_answer(text)

    def take(self, answer: str) -> str | None:
        words = answer.partition(" ")[2].strip()
        if _first_word(answer) in YES:
            return self.review(self.request.id, True, words)
        if _first_word(answer) in NO:
            return self.review(self.request.id, False, words)
        return None


class ChoiceQuestion:
    """A command lets the user choose; a number or a value does it, anything else is a line like any other."""

    agent = "teamcli"
    label = "choose >> "
    keys = "a number, or Esc for none of them"

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.is_open = True

    def lines(self) -> list[Line]:
        return choice_lines(self.choice)

    def fits(self, text: str) -> bool:
        return self._chosen(text.strip()) is not None

    def take(self, answer: str) -> CommandResult | None:
        self.is_open = False
        chosen = self._chosen(answer)
        return None if chosen is None else self.choice.choose(chosen)

    def _chosen(self, answer: str) -> str | None:
        values = [option.value for option in self.choice.options]
        if answer.isdecimal() and 1 <= int(answer) <= len(values):
            return values[int(answer) - 1]
        return answer if answer in values else None


class QuestionQueue:
    """Where questions are laid down, from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Asked] = []
        self._aside: list[Asked] = []
        """Put off by the user."""
        self.on_question: Callable[[], None] = lambda: None

    def ask(self, question: Question) -> None:
        """Bring an agent's call before the user; does not wait."""
        self.add(PermissionQuestion(question))

    def add(self, asked: Asked) -> None:
        with self._lock:
            self._waiting.append(asked)
        self.on_question()

    @property
    def current(self) -> Asked | None:
        """The one to be answered now."""
        with self._lock:
            self._waiting = _open(self._waiting)
            return self._waiting[0] if self._waiting else None

    @property
    def open(self) -> tuple[Asked, ...]:
        """All that wait, also those that were put aside."""
        with self._lock:
            return tuple(_open([*self._waiting, *self._aside]))

    def put_aside(self, asked: Asked) -> None:
        """Not now; `bring_back` shows it again."""
        with self._lock:
            if asked in self._waiting:
                self._waiting.remove(asked)
                self._aside += [] if isinstance(asked, ChoiceQuestion) else [asked]

    def bring_back(self) -> bool:
        """Show again what was put aside; false where there is nothing."""
        with self._lock:
            back, self._aside = _open(self._aside), []
            self._waiting += back
            return bool(back)


def _open(asked: Iterable[Asked]) -> list[Asked]:
    return [each for each in asked if each.is_open]
