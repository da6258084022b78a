"""Questions that wait for the user's answer: permissions, plans and choices, in the order they came."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar, Protocol

from teamcli.agent.permission_question import Answer, Consent, Question
from teamcli.commands.base import Choice, CommandResult
from teamcli.team.message import LEAD
from teamcli.team.requests import Kind, Request
from teamcli.text.console import shorten_middle, wrap
from teamcli.text.escaping import one_line
from teamcli.ui.render.style import BOLD, CYAN, DIM, GREEN, PLAIN, YELLOW, Line, changed_lines, diff_lines
from teamcli.ui.terminal.fragments import width_of

if TYPE_CHECKING:
    from teamcli.team.manager import TeammateManager

ALWAYS_ASKED = "Allowed this once: one of your rules asks every time."
NO_RULE = "Allowed this once: only the rule bash, which allows every command, would cover this line."
SHORT_TITLE = 50
"""For the line that confirms an answer: the question has just been shown in full."""
YES, ALWAYS, NO = ("y", "yes"), ("a", "always"), ("n", "no")
_ALWAYS = re.compile(r"(?:a|always)\s*(\d*|a)", re.IGNORECASE)
"""`a` asks which rule to save; `a2` says so at once, and `aa` takes the first."""
RULE_LENGTH = 400
HOST_LENGTH = 40


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

    def head(self, width: int = 0) -> list[Line]:
        """Who asks for what, in lines of at most `width` cells; 0 for any."""
        ...

    def body(self) -> list[Line]:
        """The rest of the question, in full."""
        ...

    def fits(self, text: str) -> bool:
        """Whether the text looks like an answer, and not like the rest of a half-typed line."""
        ...

    def take(self, answer: str) -> CommandResult | None:
        """Answer with what the user typed. Returns what to show, or None if this is not an answer. If there is nothing
        to show, the question may still be open, and ask for something else.

        Raises: TeamcliError
        """
        ...

    def back(self) -> bool:
        """Ask again what was asked first. Returns False if that is what it asks."""
        ...


def is_answer(text: str) -> bool:
    """Whether a line looks like an answer to a yes-or-no question."""
    return _first_word(text) in (*YES, *ALWAYS, *NO) or _ALWAYS.fullmatch(text) is not None


def _first_word(text: str) -> str:
    return text.partition(" ")[0].lower().rstrip(":,")


def _head(agent: str, text: str, host: str = "") -> Line:
    """`host` is where the agent runs, if not here."""
    where = f" on {one_line(host, HOST_LENGTH)}" if host else ""
    return [("▲ ", YELLOW), (agent, f"{BOLD} {YELLOW}"), (f"{where}{text}", YELLOW)]


@dataclass(eq=False)
class PermissionQuestion:
    """A question of the tool pipeline as the prompt shows it, and what the typed answer means."""

    question: Question
    is_choosing: bool = field(default=False, init=False)
    """The user wants to allow such calls from now on, and chooses the rule."""

    @property
    def label(self) -> str:
        return "rule? >> " if self.is_choosing else "allow? >> "

    @property
    def agent(self) -> str:
        return self.question.agent

    @property
    def is_open(self) -> bool:
        return self.question.is_open

    def head(self, width: int = 0) -> list[Line]:
        head = _head(self.agent, f" wants to use {self.question.tool}:", self.question.host)
        display = self.question.display
        if not display.path:
            return [head]
        path, counts = one_line(display.path, 10_000), self._counts
        if not width or width_of([*head, (f" {path}{counts}", "")]) <= width:
            return [[*head, (f" {path}", BOLD), (counts, YELLOW)]]
        # The name of the file must not get lost, so it has a row of its own.
        return [head, [("  " + shorten_middle(path, width - len(counts) - 2), BOLD), (counts, YELLOW)]]

    @cached_property
    def _counts(self) -> str:
        return " (+{} -{})".format(*changed_lines(self.question.display.diff))

    def body(self) -> list[Line]:
        if self.is_choosing:
            return self._rule_lines()
        display = self.question.display
        if display.path:
            shown = [[(f"  {display.text}", YELLOW)]] if display.text else []
            shown += diff_lines(display.diff, with_names=False) or [[("    no line differs", DIM)]]
        else:
            # Split at \n only: other line breaks are shown as symbols, so that they cannot fake a line of the program.
            shown = [[("  " + line, "")] for line in (display.text or display.title).rstrip("\n").split("\n")]
        advice = self.question.advice.split(": ", 1) if not self.question.rule else []
        return [*shown, *([(f"  {part}", DIM)] for part in advice if part)]

    def _rules(self) -> list[tuple[str, ...]]:
        """What can be saved: the exact rule, and the broader ones if it is sensible to offer them."""
        return [rules for rules in ((self.question.rule,), self.question.broader) if all(rules) and rules]

    def _rule_lines(self) -> list[Line]:
        asked = self.question
        exact = "every call of this tool" if asked.rule == asked.tool else "only this"
        notes = (exact, "every file below" if asked.display.path else "everything that begins so")
        shown = [shorten_middle(", ".join(rules), RULE_LENGTH) for rules in self._rules()]
        width = min(40, max(map(len, shown)))
        lines: list[Line] = []
        for number, (rule, note) in enumerate(zip(shown, notes, strict=False), start=1):
            lines.append([(f"  {number} ", CYAN), (f"{rule:<{width}}", BOLD), (f"  {note}", DIM)])
        where = f"on {one_line(asked.host, HOST_LENGTH)}" if asked.host else "for the whole team"
        return [*lines, [(f"  saved in .team/settings.local.json, {where}", DIM)]]

    @property
    def keys(self) -> str:
        if self.is_choosing:
            return f"{'1 or 2' if len(self._rules()) > 1 else '1'} save · y only once · Esc: back"
        always = "a always · " if self.question.rule else ""
        return f"y once · {always}n no (add a reason)"

    def fits(self, text: str) -> bool:
        return is_answer(text) or (self.is_choosing and text.strip().isdecimal())

    def take(self, answer: str) -> str | None:
        title = one_line(self.question.display.title, SHORT_TITLE)
        if answer.lower() in YES:
            self.question.answer(Answer(Consent.ONCE))
            return f"Allowed {self.agent} once: {title}"
        if always := _ALWAYS.fullmatch(f"a{answer}" if self.is_choosing and answer.isdecimal() else answer):
            return self._allow_always(always[1])
        if _first_word(answer) in NO:
            reason = answer.partition(" ")[2].strip()
        elif self.agent == LEAD:  # it waits for this answer, so the line can only be about the call
            reason = answer
        else:
            return None
        self.question.answer(Answer(Consent.NO, reason))
        return f"Refused {self.agent}: {title}"

    def _allow_always(self, which: str) -> str:
        if not self.question.rule:
            self.question.answer(Answer(Consent.ALWAYS))
            return NO_RULE if self.question.advice else ALWAYS_ASKED
        if self.is_choosing and not which:
            which = "1"
        options = {str(number): rules for number, rules in enumerate(self._rules(), start=1)}
        chosen = options.get("1" if which.lower() == "a" else which)
        self.is_choosing = chosen is None
        if chosen is None:
            return ""
        self.question.answer(Answer(Consent.ALWAYS, rules=chosen))
        return f"Allowed from now on: {', '.join(chosen)}"

    def back(self) -> bool:
        was_choosing, self.is_choosing = self.is_choosing, False
        return was_choosing


@dataclass(frozen=True, eq=False)
class PlanQuestion:
    request: Request
    still_open: Callable[[str], bool]
    review: Callable[[str, bool, str], str]
    host: str = ""
    """Where the teammate runs, if not here."""
    label: ClassVar[str] = "approve? >> "
    keys: ClassVar[str] = "y approve · n reject (say what to change) · Esc: leave it to the lead"

    @property
    def agent(self) -> str:
        return self.request.teammate

    @property
    def is_open(self) -> bool:
        return self.still_open(self.request.id)

    def head(self, width: int = 0) -> list[Line]:
        return [_head(self.agent, f" has a plan ({self.request.id}):", self.host)]

    def body(self) -> list[Line]:
        return [[("  " + line, "")] for line in self.request.text.rstrip("\n").split("\n")]

    def fits(self, text: str) -> bool:
        return is_answer(text)

    def take(self, answer: str) -> str | None:
        word, feedback = _first_word(answer), answer.partition(" ")[2].strip()
        return self.review(self.request.id, word in YES, feedback) if word in (*YES, *NO) else None

    def back(self) -> bool:
        return False


def plan_question(team: TeammateManager, request_id: str) -> PlanQuestion | None:
    """The review of a plan; None if someone has answered."""
    requests = team.roster.requests

    def still_open(id: str) -> bool:
        return any(request.id == id for request in requests.all_open(kind=Kind.PLAN))

    if not still_open(request_id):
        return None
    request = requests.get(request_id)
    member = team.roster.find(request.teammate)
    host = member.runs_on if member and member.host else ""
    return PlanQuestion(request, still_open, partial(team.protocols.review_plan, "user"), host)


class ChoiceQuestion:
    """A command's list to choose from, by number or value. Any other text is handled as a normal line."""

    agent = "teamcli"
    label = "choose >> "
    keys = "a number · Esc: cancel"

    def __init__(self, choice: Choice) -> None:
        self.choice = choice
        self.is_open = True

    def head(self, width: int = 0) -> list[Line]:
        title: Line = [(self.choice.title, BOLD)]
        return wrap(title, width) if width else [title]

    def body(self) -> list[Line]:
        options = self.choice.options
        width = max((len(option.value) for option in options), default=0)
        lines: list[Line] = []
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

    def back(self) -> bool:
        return False

    def _chosen(self, answer: str) -> str | None:
        values = [option.value for option in self.choice.options]
        if answer.isdecimal() and 1 <= int(answer) <= len(values):
            return values[int(answer) - 1]
        return answer if answer in values else None


class QuestionQueue:
    """The open questions. Any thread may add one. The prompt fetches the current one before each drawing
    (`LivePrompt._switch_question`); listeners only make it draw."""

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
