"""Questions that wait for the user's answer: permissions, plans and choices, in the order they came."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import ClassVar, Protocol

from teamcli.agent.permission_question import Answer, Consent, Question
from teamcli.commands.base import Choice, CommandResult
from teamcli.team.message import LEAD
from teamcli.team.requests import Request
from teamcli.text.escaping import one_line
from teamcli.ui.render.style import BOLD, CYAN, DIM, GREEN, PLAIN, YELLOW, Line, diff_lines

ALWAYS_ASKED = "Allowed this once: one of your rules asks every time."
NO_RULE = "Allowed this once: only the rule bash, which allows every command, would cover this line."
SHORT_TITLE = 50
"""For the line that confirms an answer: the question has just been shown in full."""
YES, ALWAYS, NO = ("y", "yes"), ("a", "always"), ("n", "no")


class PromptQuestion(Protocol):
    """A question that the user can answer at the prompt."""

    @property
    def agent(self) -> str:
        """Who asks; `teamcli` for the choices that a command offers."""
        ...

    @property
    def label(self) -> str:
        """Shown in front of the answer."""
        ...

    @property
    def keys(self) -> str:
        """The answers there are."""
        ...

    @property
    def is_open(self) -> bool: ...

    def lines(self) -> list[Line]:
        """The question in full."""
        ...

    def fits(self, text: str) -> bool:
        """Whether the text looks like an answer, and not like the rest of a half-typed line."""
        ...

    def take(self, answer: str) -> CommandResult | None:
        """Answer with what the user typed. Returns what to show, or None if this is not an answer.

        Raises: TeamcliError
        """
        ...


def is_answer(text: str) -> bool:
    """Whether a line looks like an answer to a yes-or-no question."""
    return _first_word(text) in (*YES, *ALWAYS, *NO)


def _first_word(text: str) -> str:
    return text.partition(" ")[0].lower().rstrip(":,")


def _head(agent: str, text: str) -> Line:
    return [("▲ ", YELLOW), (agent, f"{BOLD} {YELLOW}"), (text, YELLOW)]


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
        # Split at \n only: other line breaks are shown as symbols, so that they cannot fake a line of the program.
        what = (display.text or display.title).rstrip("\n").split("\n")
        advice = asked.advice.split(": ", 1) if not asked.rule else []
        return [
            _head(self.agent, f" wants to use {asked.tool}:"),
            *([("  " + line, "")] for line in what),
            *diff_lines(display.diff, with_names=False),
            *([(f"  {part}", DIM)] for part in advice if part),
        ]

    @property
    def keys(self) -> str:
        always = "a always · " if self.question.rule else ""
        return f"y once · {always}n no (add a reason)"

    def fits(self, text: str) -> bool:
        return is_answer(text)

    def take(self, answer: str) -> str | None:
        title = one_line(self.question.display.title, SHORT_TITLE)
        if answer.lower() in YES:
            self.question.answer(Answer(Consent.ONCE))
            return f"Allowed {self.agent} once: {title}"
        if answer.lower() in ALWAYS:
            self.question.answer(Answer(Consent.ALWAYS))
            if self.question.rule:
                return f"Allowed from now on: {self.question.rule}"
            return NO_RULE if self.question.advice else ALWAYS_ASKED
        if _first_word(answer) in NO:
            reason = answer.partition(" ")[2].strip()
        elif self.agent == LEAD:  # it waits for this answer, so the line can only be about the call
            reason = answer
        else:
            return None
        self.question.answer(Answer(Consent.NO, reason))
        return f"Refused {self.agent}: {title}"


@dataclass(frozen=True, eq=False)
class PlanQuestion:
    request: Request
    still_open: Callable[[str], bool]
    review: Callable[[str, bool, str], str]
    label: ClassVar[str] = "approve? >> "
    keys: ClassVar[str] = "y approve · n reject (say what to change) · Esc: leave it to the lead"

    @property
    def agent(self) -> str:
        return self.request.teammate

    @property
    def is_open(self) -> bool:
        return self.still_open(self.request.id)

    def lines(self) -> list[Line]:
        plan = self.request.text.rstrip("\n").split("\n")
        return [_head(self.agent, f" has a plan ({self.request.id}):"), *([("  " + line, "")] for line in plan)]

    def fits(self, text: str) -> bool:
        return is_answer(text)

    def take(self, answer: str) -> str | None:
        word, feedback = _first_word(answer), answer.partition(" ")[2].strip()
        return self.review(self.request.id, word in YES, feedback) if word in (*YES, *NO) else None


class ChoiceQuestion:
    """A command's list to choose from, by number or value. Any other text is handled as a normal line."""

    agent = "teamcli"
    label = "choose >> "
    keys = "a number · Esc: cancel"

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.is_open = True

    def lines(self) -> list[Line]:
        options = self.choice.options
        width = max((len(option.value) for option in options), default=0)
        lines: list[Line] = [[(self.choice.title, BOLD)]]
        for number, option in enumerate(options, start=1):
            mark = ("● ", GREEN) if option.is_current else ("  ", PLAIN)
            lines.append([(f"{number:>4} ", CYAN), mark, (f"{option.value:<{width}}  ", PLAIN), (option.label, DIM)])
        return lines

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
    """The open questions. Any thread may add one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[PromptQuestion] = []
        self._postponed: list[PromptQuestion] = []
        self._listeners: list[Callable[[], None]] = []

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` after each `add`, in the thread that adds; it must not block."""
        self._listeners.append(listener)

    def ask(self, question: Question) -> None:
        """Ask the user for permission. Does not wait for the answer."""
        self.add(PermissionQuestion(question))

    def add(self, question: PromptQuestion) -> None:
        with self._lock:
            self._waiting.append(question)
        for listener in self._listeners:
            listener()

    @property
    def current(self) -> PromptQuestion | None:
        """The one to answer now."""
        with self._lock:
            self._waiting = _open(self._waiting)
            return self._waiting[0] if self._waiting else None

    @property
    def open(self) -> tuple[PromptQuestion, ...]:
        """All that are unanswered, including postponed ones."""
        with self._lock:
            return tuple(_open([*self._waiting, *self._postponed]))

    def postpone(self, question: PromptQuestion) -> None:
        """Answer it later: `bring_back` shows it again. A choice is dropped."""
        with self._lock:
            if question in self._waiting:
                self._waiting.remove(question)
                # A choice is quick to ask for again; an agent's question must not get lost.
                self._postponed += [] if isinstance(question, ChoiceQuestion) else [question]

    def bring_back(self) -> bool:
        """Show the postponed questions again. Returns False if there are none."""
        with self._lock:
            back, self._postponed = _open(self._postponed), []
            self._waiting += back
            return bool(back)


def _open(questions: Iterable[PromptQuestion]) -> list[PromptQuestion]:
    return [each for each in questions if each.is_open]
