"""The tool pipeline: find → validate → hooks → decide → ask → run → hooks → cut. Every path ends in exactly one result.

Calls of one answer run at the same time unless they conflict; their results come back in call order.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from teamcli.agent.approval import Ask, Consent, Question, Reply, nobody_to_ask
from teamcli.agent.conversation import INTERRUPTED_CALL, NOT_RUN_CALL, Marks, joined_marks
from teamcli.agent.events import (
    Emit,
    Notice,
    PermissionAsked,
    PermissionDenied,
    Severity,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from teamcli.agent.hooks import (
    NO_HOOKS,
    NO_RESULT,
    POST_TOOL_USE,
    PRE_TOOL_USE,
    HookEvent,
    HookResult,
    Hooks,
    hook_note,
)
from teamcli.agent.tool import (
    Access,
    AnyTool,
    Calls,
    Display,
    Executes,
    Harmless,
    PreparedCall,
    Reads,
    ToolOutput,
    Writes,
)
from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, TeamcliError, ToolError
from teamcli.llm.types import Block
from teamcli.permissions.policy import Decision, Verdict
from teamcli.text.redaction import redact, redact_value

logger = logging.getLogger(__name__)

RESULT_LIMIT = 100_000
"""Characters of one result: the last guard, above what any tool keeps to by itself."""
MAX_CALLS, MAX_CALLS_AT_ONCE = 200, 32
"""Of one answer."""
TOO_MANY_CALLS = f"Not run: one answer may make {MAX_CALLS} calls at most. Make the others in your next answers."
NOT_RUN = ToolOutput(NOT_RUN_CALL, is_error=True)
_NOT_ASKED = Reply(Consent.NOBODY)
CUT_CALL = "Your answer was cut off before this call was complete, so it was not run. Make a shorter call, or several."


class Permissions:
    """Decides about calls, and asks where the decision is not clear."""

    def __init__(
        self,
        decide: Callable[[str, Access], Decision],
        ask: Ask,
        remember: Callable[[str], None],
        gate: Callable[[str, str, Access], str] = lambda agent, tool, access: "",
        show_waiting: Callable[[str, str], None] = lambda agent, what: None,
        on_change: Callable[[Callable[[], None]], AbstractContextManager[None]] = lambda look_again: nullcontext(),
    ) -> None:
        """`gate` says why the harness refuses a call of an agent whatever the rules say; empty where it does not.

        `show_waiting` is told what an agent waits for, and an empty text when it does no longer. Within `on_change` a
        function is called whenever what `decide` goes by has changed.
        """
        self._on_change = on_change
        self._show_waiting = show_waiting
        self._decide = decide
        self._ask = ask
        self._remember = remember
        self._gate = gate

    def clear(
        self,
        agent: str,
        tool: str,
        call: PreparedCall,
        cancel: CancelScope,
        emit: Emit,
        result: HookResult = NO_RESULT,
    ) -> None:
        """Return when the call may run. `result` is what hooks say of it.

        Raises: ToolError (refused), Cancelled
        """
        if refusal := self._gate(agent, tool, call.access):
            raise ToolError(refusal)

        def judge() -> Decision:
            return _as_wished(self._decide(tool, call.access), result)

        decision, reply = judge(), _NOT_ASKED
        while decision.verdict is Verdict.ASK:
            reply = self._ask_person(
                Question(agent, tool, redact_value(call.display), decision.rule, redact(decision.advice)),
                judge,
                cancel,
                emit,
            )
            if reply.consent is not Consent.CHANGED:
                break
            decision = judge()
        if decision.verdict is Verdict.ALLOW:
            return
        denied = PermissionDenied(agent, tool, call.display.text or call.display.title, decision.reason)
        if decision.verdict is Verdict.ASK:
            if reply.consent is Consent.ALWAYS and decision.rule:
                self._save(agent, decision.rule, emit)
            if reply.consent in (Consent.ONCE, Consent.ALWAYS):
                return
            denied = denied._replace(**_why_not(tool, decision, reply))
        emit(denied)
        raise ToolError(denied.reason)

    def refuse_denied(self, tool: str, call: PreparedCall) -> None:
        """For what the user's own words ask for: nobody needs to be asked, but what is denied stays denied.

        Raises: ToolError
        """
        decision = self._decide(tool, call.access)
        if decision.verdict is Verdict.DENY:
            raise ToolError(decision.reason)

    def _ask_person(self, question: Question, judge: Callable[[], Decision], cancel: CancelScope, emit: Emit) -> Reply:
        def look_again() -> None:
            if judge().verdict is not Verdict.ASK:
                question.answer(Reply(Consent.CHANGED))

        with self._on_change(look_again):
            look_again()  # it may have changed before anybody listened
            if question.is_open and self._ask is nobody_to_ask:
                self._ask(question)
            return self._wait(question, cancel, emit) if question.is_open else question.wait(cancel)

    def _wait(self, question: Question, cancel: CancelScope, emit: Emit) -> Reply:
        """It is told and written down that the agent waits before anybody can see, or answer, the question."""
        title = question.display.text or question.display.title
        emit(PermissionAsked(question.agent, question.tool, title))
        self._show_waiting(question.agent, f"permission: {question.tool}: {question.display.title}")
        try:
            if question.is_open:
                self._ask(question)
            return question.wait(cancel)
        finally:
            self._show_waiting(question.agent, "")

    def _save(self, agent: str, rule: str, emit: Emit) -> None:
        try:
            self._remember(rule)
        except TeamcliError as e:
            emit(Notice(agent, f"Allowed for this session, but the rule could not be saved: {e}", Severity.WARNING))


@dataclass(frozen=True)
class Toolset:
    """The tools of one agent and what guards them."""

    agent: str
    tools: Mapping[str, AnyTool]
    permissions: Permissions
    emit: Emit
    hooks: Hooks = NO_HOOKS

    def run(
        self, calls: Sequence[Block], cut: frozenset[str], cancel: CancelScope, key_of: Callable[[int], str] = str
    ) -> Results:
        """Run the calls of one answer; each gets one result, whatever happens. `key_of` names one by its position."""
        pending = [_Call(block, key=key_of(position)) for position, block in enumerate(calls[:MAX_CALLS])]
        refused = [_Call(block, output=_failed(ToolError(TOO_MANY_CALLS))) for block in calls[MAX_CALLS:]]
        for call in pending:
            self._prepare(call, cut)
        for position, call in enumerate(pending):
            reach = self._reach(call)
            call.after = [earlier for earlier in pending[:position] if must_wait(reach, self._reach(earlier))]
        if len(pending) == 1:
            self._execute(pending[0], cancel)
        else:
            self._execute_together(pending, cancel)
        return Results.of([*pending, *refused])

    def run_for_user(self, name: str, raw: object, cancel: CancelScope) -> ToolOutput:
        """Run one call that the user's own words ask for.

        Raises: ToolError, Cancelled
        """
        if name not in self.tools:
            raise ToolError(f"{self.agent} has no {name}")
        prepared = self.tools[name].prepare(raw)
        self.permissions.refuse_denied(name, prepared)
        output = prepared.run(cancel, lambda text: None)
        return output._replace(content=redact(output.content))

    def _prepare(self, call: _Call, cut: frozenset[str]) -> None:
        call.prepared = None
        try:
            if call.id in cut:
                raise ToolError(CUT_CALL)
            if (tool := self.tools.get(call.name)) is None:
                raise ToolError(f"Unknown tool: {call.name} (there are: {', '.join(self.tools)})")
            call.prepared = tool.prepare(call.input)
        except ToolError as e:
            call.output = _failed(e)
        except Exception as e:  # boundary: a bug in a tool is a result, not the end of the agent
            logger.exception("preparing %s failed", call.name)
            call.output = _failed(e)

    def _execute_together(self, calls: Sequence[_Call], cancel: CancelScope) -> None:
        """They begin in call order, so that none waits for one that has no thread yet."""
        waiting = iter(calls)
        taking = threading.Lock()

        def work() -> None:
            while True:
                with taking:
                    call = next(waiting, None)
                if call is None:
                    return
                self._execute(call, cancel)

        threads = [
            threading.Thread(target=work, name=f"{self.agent}:{call.name}", daemon=True)
            for call in calls[:MAX_CALLS_AT_ONCE]
        ]
        started = [thread for thread in threads if _could_start(thread)]
        if not started:
            work()
        for thread in started:
            thread.join()

    def _execute(self, call: _Call, cancel: CancelScope) -> None:
        for earlier in call.after:
            earlier.finished.wait()
        if call.after and call.prepared:
            # What came before may have changed what a path means: judge, show and run what stands there now.
            self._prepare(call, frozenset())
        display = call.prepared.display if call.prepared else Display(call.name)
        try:
            self.emit(ToolStarted(self.agent, call.id, call.name, display))
            if call.prepared:
                call.output = self._run(call, call.prepared, cancel)
        except ToolError as e:
            call.output = _failed(e)
        except Cancelled as e:
            text = INTERRUPTED_CALL if call.began else NOT_RUN_CALL
            call.output = ToolOutput("\n".join(filter(None, (text, e.output))), is_error=True)
        except Exception as e:  # boundary: a bug in a tool is a result, not the end of the agent
            logger.exception("%s failed", call.name)
            call.output = _failed(e)
        finally:
            call.output = _with_note(call.output, PRE_TOOL_USE, call.context)
            call.output = call.output._replace(content=redact(call.output.content))
            call.finished.set()
        display = call.prepared.display if call.prepared else display  # a hook may have changed it
        shown, content, is_error = call.output.display or display, call.output.content, call.output.is_error
        self.emit(ToolFinished(self.agent, call.id, call.name, shown, content, is_error, call.seconds))

    def _run(self, call: _Call, prepared: PreparedCall, cancel: CancelScope) -> ToolOutput:
        cancel.check()
        scope = cancel.child()
        result = self._ask_hooks(call, prepared.display, scope)
        if result.objection is not None:
            return ToolOutput(result.objection, is_error=True)
        prepared = call.prepared or prepared
        self.permissions.clear(self.agent, call.name, prepared, scope, self.emit, result)
        call.began = True
        started = time.monotonic()
        try:
            output = prepared.run(
                scope, lambda text: self.emit(ToolProgress(self.agent, call.id, text)), call.id, call.key
            )
        finally:
            call.seconds = time.monotonic() - started
        return self._tell_hooks(call, output, scope)

    def _ask_hooks(self, call: _Call, display: Display, cancel: CancelScope) -> HookResult:
        """What hooks say of a call that is about to be judged; a changed one takes its place.

        Raises: ToolError, where the change makes no valid call; Cancelled
        """
        if not self.hooks.wants(PRE_TOOL_USE, call.name):
            return NO_RESULT
        result = self.hooks.run(self._event(PRE_TOOL_USE, call), cancel)
        call.context = result.context
        if result.objection is not None:
            self.emit(PermissionDenied(self.agent, call.name, display.text or display.title, result.objection))
        elif result.changed_input is not None:
            call.changed_input = dict(result.changed_input)
            call.prepared = self.tools[call.name].prepare(call.changed_input)
            self.emit(Notice(self.agent, f"A hook has changed this call: {call.prepared.display.title}"))
        return result

    def _tell_hooks(self, call: _Call, output: ToolOutput, cancel: CancelScope) -> ToolOutput:
        """The result, with what hooks say of it beside it."""
        if not self.hooks.wants(POST_TOOL_USE, call.name):
            return output
        response = {"content": redact(output.content), "is_error": output.is_error}
        try:
            result = self.hooks.run(self._event(POST_TOOL_USE, call, tool_response=response), cancel)
        except Cancelled:  # the call itself is done, and its result stands
            return output
        return _with_note(output, POST_TOOL_USE, "\n".join(filter(None, (result.objection, result.context))))

    def _event(self, name: str, call: _Call, **more: object) -> HookEvent:
        fields = {"tool_name": call.name, "tool_input": call.input, "tool_use_id": call.id, **more}
        return HookEvent(name, self.agent, fields, call.name)

    def _reach(self, call: _Call) -> Access:
        """What a call may touch in the end: a hook can lead it to another path."""
        access = call.access
        if isinstance(access, Reads | Writes) and self.hooks.wants(PRE_TOOL_USE, call.name):
            return access._replace(path=Path("/"))
        return access


def _with_note(output: ToolOutput, event: str, words: str) -> ToolOutput:
    return output._replace(content=f"{output.content}\n{hook_note(event, words)}") if words else output


class Results(NamedTuple):
    """The results of one answer's calls, in call order, and what is to be noted beside them."""

    blocks: list[Block]
    seen_files: dict[str, str]
    marks: Marks

    @classmethod
    def of(cls, calls: Sequence[_Call]) -> Results:
        seen: dict[str, str] = {}
        marks: Marks = {}
        for call in calls:
            seen.update(call.output.seen_files)
            marks = joined_marks(marks, call.output.marks)
        return cls([call.result() for call in calls], seen, marks)


@dataclass
class _Call:
    """One tool call on its way through the pipeline."""

    block: Block
    key: str = ""
    prepared: PreparedCall | None = None
    changed_input: Mapping[str, Any] | None = None
    """What a hook wants it to be made with instead."""
    context: str = ""
    """What hooks want the model to know of it, whatever comes of the call."""
    output: ToolOutput = NOT_RUN
    after: list[_Call] = field(default_factory=list)
    finished: threading.Event = field(default_factory=threading.Event)
    began: bool = False
    seconds: float = 0.0

    @property
    def id(self) -> str:
        return str(self.block["id"])

    @property
    def name(self) -> str:
        return str(self.block["name"])

    @property
    def input(self) -> object:
        return self.block["input"] if self.changed_input is None else self.changed_input

    @property
    def access(self) -> Access:
        return self.prepared.access if self.prepared else Harmless()

    def result(self) -> Block:
        block: Block = {"type": "tool_result", "tool_use_id": self.id, "content": cut_middle(self.output.content)}
        if self.output.is_error:
            block["is_error"] = True
        return block


def _as_wished(decision: Decision, result: HookResult) -> Decision:
    """Hooks may ask where nobody would, and spare the question of a mode: not that of a rule, and no refusal."""
    if result.wish == "ask" and decision.verdict is Verdict.ALLOW:
        return Decision(Verdict.ASK, result.reason or "A hook asks before this call.")
    if result.wish == "allow" and decision.verdict is Verdict.ASK and not decision.is_asked_by_rule:
        return Decision(Verdict.ALLOW, "A hook allows it.")
    return decision


def _why_not(tool: str, decision: Decision, reply: Reply) -> dict[str, Any]:
    if reply.consent is not Consent.NOBODY:
        return {"reason": "The user refused this call" + (f" and says: {reply.feedback}" if reply.feedback else ".")}
    rule = decision.rule or (tool if decision.advice else "")
    remedy = f"; the rule that would allow it: {rule}" if rule else ""
    reason = f"{decision.reason.removesuffix('.')}, and nobody can be asked{remedy}"
    return {"reason": reason, "rule": rule, "unanswered": True}


def must_wait(later: Access, earlier: Access) -> bool:
    """Whether a call has to wait for an earlier one of the same answer."""
    match later, earlier:
        case Writes() | Reads(), Executes() | Calls():
            return True
        case Executes() | Calls(), Writes():
            return True
        case (Writes(path), Reads(other) | Writes(other)) | (Reads(path), Writes(other)):
            return path.is_relative_to(other) or other.is_relative_to(path)
        case Harmless(ordered=True), Harmless(ordered=True):
            return True
        case _:
            return False


def cut_middle(text: str, limit: int = RESULT_LIMIT) -> str:
    if len(text) <= limit:
        return text or "(no output)"
    half = limit // 2
    return f"{text[:half]}\n[... {len(text) - 2 * half:,} characters left out ...]\n{text[-half:]}"


def _could_start(thread: threading.Thread) -> bool:
    try:
        thread.start()
    except RuntimeError:  # the system has no more for us: those that run do the work
        return False
    return True


def _failed(error: Exception) -> ToolOutput:
    text = str(error) or type(error).__name__
    return ToolOutput(text if text.startswith("Error") else f"Error: {text}", is_error=True)
