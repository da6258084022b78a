"""Whether a call may run: the decision of the rules, and the question to a person if they do not decide.

A question is a value with a slot for its answer. Any number can be open, and none blocks another.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, NoReturn

from teamcli.agent.events import Emit, Notice, PermissionAsked, PermissionDenied, Refusal, Severity
from teamcli.agent.hooks import NO_RESULT, HookResult
from teamcli.agent.tool import Access, Display, PreparedCall
from teamcli.cancel import CancelScope
from teamcli.errors import CallRefused, Cancelled, TeamcliError, ToolError
from teamcli.permissions.policy import Decision, Verdict
from teamcli.text.redaction import redact, redact_value

USER_REFUSED, AND_SAYS = "The user refused this call", " and says: "
NOBODY_TO_ASK = "nobody can be asked"


class Consent(StrEnum):
    ONCE = "once"
    ALWAYS = "always"
    NO = "no"
    NOBODY = "nobody"
    """There is no one to ask."""
    CHANGED = "changed"
    """The mode or the rules have changed, and now they decide."""


class Answer(NamedTuple):
    consent: Consent
    feedback: str = ""
    """What the person wants the model to know, with a no."""
    rules: tuple[str, ...] = ()
    """What to save with *always*; empty for the narrowest rule."""


@dataclass(eq=False)
class Question:
    """Whether one call may run. Waits for an answer from another thread."""

    agent: str
    tool: str
    display: Display
    rule: str
    """The narrowest rule that would allow the call, for *always*; empty if there is none."""
    advice: str = ""
    """Why no rule covers the call, and how to rewrite it so that one does."""
    broader: tuple[str, ...] = ()
    """Rules that together allow the call and those like it, if it is sensible to offer them."""
    asked_at: float = field(default_factory=time.time)
    host: str = ""
    """Where the agent runs, if not where the person is."""
    _answer: Answer | None = None
    _answered: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_open(self) -> bool:
        return not self._answered.is_set()

    def answer(self, answer: Answer) -> None:
        """The first answer counts."""
        with self._lock:
            if self._answer is None:
                self._answer = answer
        self._answered.set()

    def wait_until_closed(self) -> Answer | None:
        """Wait until it is answered; None if it was closed without an answer."""
        self._answered.wait()
        return self._answer

    def wait(self, cancel: CancelScope) -> Answer:
        """Raises: Cancelled."""
        with cancel.on_cancel(self._answered.set):
            self._answered.wait()
        if self._answer is None:
            raise Cancelled(cancel.reason)
        return self._answer


Ask = Callable[[Question], None]
"""Shows a question to a person, at once or later. Must not block."""


def nobody_to_ask(question: Question) -> None:
    question.answer(Answer(Consent.NOBODY))


class Permissions:
    """Decides about calls, and asks a person if the rules do not decide."""

    def __init__(
        self,
        decide: Callable[[str, Access, Mapping[str, Any]], Decision],
        ask: Ask,
        remember: Callable[[str], None],
        gate: Callable[[str, str, Access], str] = lambda agent, tool, access: "",
        show_waiting: Callable[[str, str], None] = lambda agent, what: None,
        on_change: Callable[[Callable[[], None]], AbstractContextManager[None]] = lambda check_again: nullcontext(),
        loosen: Callable[[Sequence[str], str], None] = lambda rules, mode: None,
    ) -> None:
        """
        Args:
            remember: Saves a rule that allows calls from now on.
            gate: Says why an agent's call is refused whatever the rules say; empty if it is not.
            show_waiting: Called with what an agent waits for, and with "" when the wait is over.
            on_change: Within its block, a function is called whenever the basis of `decide` has changed.
            loosen: Adds rules that allow calls in this session, and sets the mode unless it is empty.
        """
        self._decide = decide
        self._ask = ask
        self._remember = remember
        self._gate = gate
        self._show_waiting = show_waiting
        self._on_change = on_change
        self._loosen = loosen

    def check(
        self,
        agent: str,
        tool: str,
        call: PreparedCall,
        cancel: CancelScope,
        emit: Emit,
        hooks_say: HookResult = NO_RESULT,
        ask_hooks: Callable[[Sequence[str]], HookResult] | None = None,
    ) -> bool:
        """Return when the call may run; True if a person has allowed it.

        `ask_hooks` may answer a question instead of the person; not if nobody could be asked. It gets the rules that
        would allow the call.

        Raises: CallRefused, Cancelled
        """
        if refusal := self._gate(agent, tool, call.access):
            raise CallRefused(refusal, reason="no plan is approved yet")

        def judge() -> Decision:
            return _after_hooks(self._decide(tool, call.access, call.given), hooks_say)

        denied = PermissionDenied(agent, tool, call.display.text or call.display.title, reason="")
        while (decision := judge()).verdict is Verdict.ASK:
            if ask_hooks is not None and self._is_allowed_by(ask_hooks, decision, denied, emit):
                return False
            # Once for each call, however often the rules change while the question is open.
            ask_hooks = None
            display, advice = redact_value(call.display), redact(decision.advice)
            question = Question(agent, tool, display, decision.rule, advice, decision.broader)
            answer = self._ask_person(question, judge, cancel, emit)
            if answer.consent is Consent.CHANGED:
                continue
            if answer.consent is Consent.ALWAYS and decision.rule:
                self._save(answer.rules or (decision.rule,), agent, emit)
            if answer.consent in (Consent.ONCE, Consent.ALWAYS):
                return True
            explained = _explained(denied, decision, answer)
            by = Refusal(reason=NOBODY_TO_ASK) if explained.unanswered else Refusal("you", answer.feedback)
            _deny(explained, by, emit)
        if decision.verdict is Verdict.DENY:
            _deny(denied._replace(reason=decision.reason), Refusal(decision.by), emit)
        return False

    def _is_allowed_by(
        self, ask_hooks: Callable[[Sequence[str]], HookResult], decision: Decision, denied: PermissionDenied, emit: Emit
    ) -> bool:
        """Whether a hook answers yes instead of the person. It cannot, if a rule wants the person's own answer.

        Raises: CallRefused, Cancelled
        """
        if self._ask is nobody_to_ask:
            return False
        said = ask_hooks(decision.broader or tuple(filter(None, (decision.rule,))))
        if said.objection is not None:
            _deny(denied._replace(reason=said.objection), Refusal("a hook", redact(said.objection)), emit)
        is_allowed = said.wish == "allow" and not decision.is_asked_by_rule
        if is_allowed and (said.rules or said.mode):
            self._loosen(said.rules, said.mode)
        return is_allowed

    def refuse_denied(self, tool: str, call: PreparedCall) -> None:
        """For calls that the user asked for directly: no question is needed, but what is denied stays denied.

        Raises: ToolError
        """
        decision = self._decide(tool, call.access, call.given)
        if decision.verdict is Verdict.DENY:
            raise ToolError(decision.reason)

    def _save(self, rules: Sequence[str], agent: str, emit: Emit) -> None:
        for rule in rules:
            try:
                self._remember(rule)
            except TeamcliError as e:
                text = f"Allowed for this session, but the rule could not be saved: {e}"
                emit(Notice(agent, text, Severity.WARNING))

    def _ask_person(self, question: Question, judge: Callable[[], Decision], cancel: CancelScope, emit: Emit) -> Answer:
        def check_again() -> None:
            if judge().verdict is not Verdict.ASK:
                question.answer(Answer(Consent.CHANGED))

        with self._on_change(check_again):
            check_again()  # the rules may have changed before `on_change` took effect
            # Answered at once, so no event may say that the agent waits.
            if question.is_open and self._ask is nobody_to_ask:
                self._ask(question)
            if not question.is_open:
                return question.wait(cancel)
            # Report that the agent waits before anybody can see, or answer, the question.
            emit(PermissionAsked(question.agent, question.tool, question.display.text or question.display.title))
            self._show_waiting(question.agent, f"permission: {question.tool}: {question.display.title}")
            try:
                if question.is_open:
                    self._ask(question)
                return question.wait(cancel)
            finally:
                self._show_waiting(question.agent, "")


def _after_hooks(decision: Decision, hooks_say: HookResult) -> Decision:
    """Hooks may ask about an allowed call, and may answer the question of a mode, but not override a rule or a deny."""
    if hooks_say.wish == "ask" and decision.verdict is Verdict.ALLOW:
        return Decision(Verdict.ASK, hooks_say.reason or "A hook asks before this call.")
    if hooks_say.wish == "allow" and decision.verdict is Verdict.ASK and not decision.is_asked_by_rule:
        return Decision(Verdict.ALLOW, "A hook allows it.")
    return decision


def _explained(denied: PermissionDenied, decision: Decision, answer: Answer) -> PermissionDenied:
    if answer.consent is not Consent.NOBODY:
        said = f"{AND_SAYS}{answer.feedback}" if answer.feedback else "."
        return denied._replace(reason=f"{USER_REFUSED}{said}")
    rule = decision.rule or (denied.tool if decision.advice else "")
    remedy = f"; the rule that would allow it: {rule}" if rule else ""
    reason = f"{decision.reason.removesuffix('.')}, and {NOBODY_TO_ASK}{remedy}"
    return denied._replace(reason=reason, rule=rule, unanswered=True)


def recorded_refusal(result: str) -> Refusal | None:
    """Why a call did not run, from the text of its result. None if the text does not say that it was refused."""
    reason = result.removeprefix("Error: ")
    if reason.startswith(USER_REFUSED):
        return Refusal("you", reason.removeprefix(USER_REFUSED).removeprefix(AND_SAYS).removesuffix("."))
    return Refusal(reason=NOBODY_TO_ASK) if f", and {NOBODY_TO_ASK}" in reason else None


def _deny(denied: PermissionDenied, refusal: Refusal, emit: Emit) -> NoReturn:
    emit(denied)
    raise CallRefused(denied.reason, *refusal)
