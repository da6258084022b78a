"""The loop that every agent runs: ask the model, run the tools it calls, hand back the results, until it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from teamcli.agent import events
from teamcli.agent.context_window import ContextWindow, ask_for_less, compact_if_needed, force_room, next_call
from teamcli.agent.conversation import Conversation, error_result, joined_marks, text_block
from teamcli.agent.events import Emit, LimitHit, Notice, Outcome, Severity, TurnEnded, TurnStarted
from teamcli.agent.hooks import MAX_SENT_BACK, STOP, STOP_FAILURE, HookEvent, Hooks, hook_note
from teamcli.agent.limits import TIME_IS_UP, Meter
from teamcli.agent.tool_calls import Toolset
from teamcli.cancel import CancelScope
from teamcli.errors import (
    Cancelled,
    ConfigError,
    ContextTooLong,
    LimitReached,
    MaxTokensRefused,
    ModelError,
    StreamInterrupted,
)
from teamcli.llm.types import (
    LLM,
    NOT_UNDERSTOOD,
    AnswerEvent,
    Block,
    CallOpened,
    Heartbeat,
    OnEvent,
    Preamble,
    Reply,
    Request,
    RequestSent,
    Retrying,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
)

MAX_CONTINUATIONS = 10
"""How often in a row the model is asked to continue an answer that was cut off."""
CONTINUE_CUT = (
    "<note>Your answer was cut off at the output limit. Continue exactly where it stopped, repeating nothing.</note>"
)
CONTINUE_PAUSED = "<note>Continue.</note>"
INTERRUPTED = "<note>The user interrupted you here.</note>"
OUT_OF_TIME = "<note>You were stopped here: your time was used up.</note>"
SMALLEST_WINDOW = 2000
"""A server with a smaller context window is of no use to an agent."""
NOT_RUN = "Not run: the answer ended with stop reason {}."
CONTEXT_FULL = "model_context_window_exceeded"
NOT_RUN_AFTER = ("refusal", CONTEXT_FULL)


class Delivery(NamedTuple):
    """What has arrived for an agent between two model calls, and what its transcript line must record with it."""

    blocks: Sequence[Block] = ()
    marks: Mapping[str, Any] = MappingProxyType({})
    seen_files: Mapping[str, str] = MappingProxyType({})
    """Digests by path of files whose content the blocks show."""


Incoming = Callable[[Mapping[str, Any]], Delivery]
"""Returns the mail and lines since the last look. Called between model calls, with the marks of the results before."""


def nothing_came(noted: Mapping[str, Any]) -> Delivery:
    return Delivery()


@dataclass(eq=False)
class Agent:
    """Everything that the loop needs from an agent."""

    llm: LLM
    preamble: Preamble
    conversation: Conversation
    toolset: Toolset
    meter: Meter
    stop_event: str = STOP
    """The hook event for the end of its work."""
    context: ContextWindow = field(default_factory=ContextWindow)
    settle_tools: Callable[[Agent, CancelScope], None] = lambda agent, cancel: None
    """Decides before the first request of a conversation which tools of other programs its requests offer."""

    # From the toolset, so that the loop and the tools cannot disagree about them.

    @property
    def name(self) -> str:
        return self.toolset.agent

    @property
    def emit(self) -> Emit:
        return self.toolset.emit

    @property
    def hooks(self) -> Hooks:
        return self.toolset.hooks

    def use(self, preamble: Preamble, toolset: Toolset | None = None) -> None:
        """Continue with another model, other limits or other tools from the next call on."""
        self.preamble = preamble
        self.toolset = toolset or self.toolset

    def ask(self, request: Request, on_event: OnEvent, cancel: CancelScope, is_recorded: bool) -> Reply:
        """Make one model call within the budgets. What it used counts, even if it is interrupted.

        Raises: ModelError, ConfigError, LimitReached, Cancelled
        """
        cancel.check()
        with self.meter.call(next_call(self), cancel):
            try:
                reply = self.llm.stream(request, on_event, cancel)
            except StreamInterrupted as e:
                if e.partial is not None:
                    self._book(e.partial, is_recorded)
                raise
            self._book(reply, is_recorded)
        return reply

    def _book(self, reply: Reply, is_recorded: bool) -> None:
        """Record an answer and what it cost, before anything acts on it."""
        cost = self.meter.price(reply.usage, reply.asked or self.preamble.model)
        self.meter.book(reply.usage, len(reply.tool_calls) if is_recorded else 0, cost)
        if is_recorded:
            self.conversation.add_reply(reply, cost)
        model = reply.model or self.preamble.model
        self.emit(events.Answered(self.name, model, reply.stop_reason, reply.usage, cost))


def run_turn(agent: Agent, prompt: Delivery, cancel: CancelScope, incoming: Incoming = nothing_came) -> TurnEnded:
    """Work on `prompt` until the model is done or something ends the turn; the history is valid whatever happens.

    With an empty prompt, the model continues from the conversation as it is.
    """
    started = time.monotonic()
    agent.emit(TurnStarted(agent.name))
    turn = _Turn()
    try:
        agent.conversation.add_user(prompt.blocks, prompt.seen_files, prompt.marks, is_next_sent=True)
        agent.settle_tools(agent, cancel)
        outcome = _work_in_time(agent, turn, cancel, incoming)
    except Cancelled:
        outcome = Outcome.INTERRUPTED
    except LimitReached as e:
        agent.emit(LimitHit(agent.name, str(e), e.limit, e.is_given))
        turn.error = e
        outcome = Outcome(e.limit)
    except (ModelError, ConfigError) as e:
        agent.emit(Notice(agent.name, str(e), Severity.ERROR))
        turn.error = e
        outcome = Outcome.FAILED
        _report_failure(agent, turn, cancel)
    ended = TurnEnded(agent.name, outcome, turn.text, time.monotonic() - started, turn.error)
    agent.emit(ended)
    return ended


@dataclass(eq=False)
class _Turn:
    """What a turn remembers from one model call to the next."""

    text: str = ""
    """The last answer, joined if it came in pieces."""
    continuations: int = 0
    sent_back: int = 0
    """How often hooks wanted more."""
    error: Exception | None = None
    has_overflowed: bool = False
    """The last answer had to end because the context was full."""


def _work_in_time(agent: Agent, turn: _Turn, cancel: CancelScope, incoming: Incoming) -> Outcome:
    """Raises: Cancelled, ModelError, ConfigError; LimitReached, also when time is used up in the middle of a call."""
    scope = cancel.child()
    try:
        with agent.meter.work(scope):
            return _work(agent, turn, scope, incoming)
    except Cancelled:
        # The user cancels `cancel`; a budget whose time is used up cancels only `scope`.
        if not cancel.cancelled and (why := agent.meter.reached()):
            raise why from None
        raise
    finally:
        # The last message may still be on its way to the disk.
        agent.conversation.sync()


def _work(agent: Agent, turn: _Turn, cancel: CancelScope, incoming: Incoming) -> Outcome:
    while True:
        reply = _next_reply(agent, cancel)
        turn.text = turn.text + reply.text if turn.continuations else reply.text or turn.text
        if reply.stop_reason in NOT_RUN_AFTER:
            not_run = NOT_RUN.format(reply.stop_reason)
            agent.conversation.add_user([error_result(call["id"], not_run) for call in reply.tool_calls])
        if _continues_after_compaction(agent, reply, turn, cancel):
            continue
        if (outcome := _stopped(agent, reply)) is not None:
            return outcome
        request_to_continue = _request_to_continue(agent, reply, turn)
        if (why := _run_calls(agent, reply, cancel, incoming)) is not None:
            return _stopped_by_hook(agent, why)
        # Only now: the calls of a cut answer have got their results, so the history is valid.
        if turn.continuations > MAX_CONTINUATIONS:
            raise ModelError(
                f"The answer was still cut off after {MAX_CONTINUATIONS} continuations: ask for less at once."
            )
        if reply.tool_calls:
            continue
        if request_to_continue is not None:
            agent.conversation.add_user([text_block(request_to_continue)])
        elif not _is_sent_back(agent, turn, cancel):
            return Outcome.DONE  # mail that arrives now begins the next turn


def _run_calls(agent: Agent, reply: Reply, cancel: CancelScope, incoming: Incoming) -> str | None:
    """Run the calls of an answer and record their results; why a hook wants the turn to end, if one does."""
    if not reply.tool_calls:
        return None
    results = agent.toolset.run(reply.tool_calls, reply.cut_calls, cancel, agent.conversation.key_of_call)
    came = incoming(results.marks)
    marks = joined_marks(results.marks, came.marks)
    seen_files = {**results.seen_files, **came.seen_files}
    is_next_sent = results.stop is None
    agent.conversation.add_user([*results.blocks, *came.blocks], seen_files, marks, is_next_sent)
    cancel.check()
    return results.stop


def _next_reply(agent: Agent, cancel: CancelScope) -> Reply:
    agent.meter.check()
    compact_if_needed(agent, cancel)
    may_compact = may_ask_for_less = True  # each is worth one more try
    while True:
        try:
            return _call_model(agent, cancel)
        except ContextTooLong:
            if not may_compact or not force_room(agent, cancel):
                raise
            may_compact = False
        except MaxTokensRefused as e:
            if not may_ask_for_less or not ask_for_less(agent, e):
                raise
            may_ask_for_less = False


def _call_model(agent: Agent, cancel: CancelScope) -> Reply:
    def on_event(event: StreamEvent) -> None:
        # The last message goes to disk while the model reads it. It is there before anything of the answer counts.
        agent.conversation.sync()
        if not isinstance(event, RequestSent):
            agent.emit(_named(agent.name, event))

    request = Request(agent.preamble, tuple(agent.conversation.messages))
    try:
        return agent.ask(request, on_event, cancel, is_recorded=True)
    except StreamInterrupted:
        agent.conversation.add_user([text_block(OUT_OF_TIME if cancel.reason == TIME_IS_UP else INTERRUPTED)])
        raise


def _named(agent: str, event: AnswerEvent) -> events.Event:
    match event:
        case TextDelta(text):
            return events.TextArrived(agent, text)
        case ThinkingDelta(text):
            return events.ThinkingArrived(agent, text)
        case CallOpened(tool):
            return events.CallStarted(agent, tool)
        case Heartbeat():
            return events.StillArriving(agent)
        case Retrying():
            return events.RetryScheduled(agent, *event)


def _continues_after_compaction(agent: Agent, reply: Reply, turn: _Turn, cancel: CancelScope) -> bool:
    """Whether an answer that filled the context can continue. Tried once: the next answer may fill it again."""
    had_overflowed = turn.has_overflowed
    turn.has_overflowed = reply.stop_reason == CONTEXT_FULL or _seems_to_fill_context(reply, agent.preamble.max_tokens)
    if not turn.has_overflowed or had_overflowed or not force_room(agent, cancel):
        return False
    turn.continuations += 1
    agent.conversation.add_user([text_block(CONTINUE_CUT)])
    return True


def _seems_to_fill_context(reply: Reply, limit: int) -> bool:
    """Whether an answer that was cut far below the limit ended because the context was full.

    The server may also have a lower limit, but that would be a round number.
    """
    written = reply.usage.output_tokens
    if reply.stop_reason != "max_tokens" or reply.tool_calls or reply.usage.is_estimated:
        return False
    is_round = any(min(written % unit, -written % unit) <= 1 for unit in (256, 500))
    return written < limit and reply.usage.context_tokens >= SMALLEST_WINDOW and not is_round


def _stopped(agent: Agent, reply: Reply) -> Outcome | None:
    """How the turn ends because of the stop reason; None if it continues. Reports what the user should know."""

    def notify(text: str, severity: Severity) -> None:
        agent.emit(Notice(agent.name, text, severity))

    match reply.stop_reason:
        case "refusal":
            notify("The model refused to continue; rephrase the task, or start over with /clear.", Severity.ERROR)
            return Outcome.REFUSED
        case _ if reply.stop_reason == NOT_UNDERSTOOD:  # its answer says so
            return Outcome.REFUSED
        case _ if reply.stop_reason == CONTEXT_FULL:
            text = "The conversation no longer fits the model's context: try /compact, or start over with /clear."
            notify(text, Severity.ERROR)
            return Outcome.CONTEXT_FULL
        case "end_turn" | "stop_sequence":
            if not reply.content:
                notify("The model gave an empty answer; ask again or rephrase.", Severity.WARNING)
        case "tool_use" | "max_tokens" | "pause_turn":
            pass
        case other:
            notify(f"The model stopped for an unknown reason: {other}.", Severity.WARNING)
    return None


def _request_to_continue(agent: Agent, reply: Reply, turn: _Turn) -> str | None:
    """What to say to a model whose answer is not finished; counts how often that happens in a row."""
    if reply.stop_reason not in ("max_tokens", "pause_turn"):
        turn.continuations = 0
        return None
    turn.continuations += 1
    if turn.continuations > MAX_CONTINUATIONS:
        return None
    if reply.stop_reason == "pause_turn":
        return CONTINUE_PAUSED
    agent.emit(Notice(agent.name, "The answer was cut off at the output limit; asking the model to continue."))
    return CONTINUE_CUT


def _is_sent_back(agent: Agent, turn: _Turn, cancel: CancelScope) -> bool:
    """Whether a hook wants more from an agent that considers itself done. Bounded, so that it cannot loop forever."""
    if not agent.hooks.wants(agent.stop_event):
        return False
    fields = {"stop_hook_active": turn.sent_back > 0, "last_assistant_message": turn.text}
    result = agent.hooks.run(HookEvent(agent.stop_event, agent.name, fields), cancel)
    if result.stop is not None:
        _stopped_by_hook(agent, result.stop)
        return False
    said = "\n".join(filter(None, (result.objection, result.context)))
    if result.objection is None and not said:
        return False
    if turn.sent_back >= MAX_SENT_BACK:
        text = f"A {agent.stop_event} hook still objects after {MAX_SENT_BACK} more tries; the turn ends here."
        agent.emit(Notice(agent.name, text, Severity.WARNING))
        return False
    turn.sent_back += 1
    agent.conversation.add_user([text_block(hook_note(agent.stop_event, said))])
    return True


def _stopped_by_hook(agent: Agent, why: str) -> Outcome:
    agent.emit(Notice(agent.name, f"A hook has ended the turn: {why}", Severity.WARNING))
    return Outcome.DONE


def _report_failure(agent: Agent, turn: _Turn, cancel: CancelScope) -> None:
    """Notify hooks of a turn that the model's endpoint has ended."""
    if not agent.hooks.wants(STOP_FAILURE):
        return
    fields = {"error": turn.error, "error_details": str(turn.error), "last_assistant_message": turn.text}
    with suppress(Cancelled):  # the turn is over in any case
        agent.hooks.run(HookEvent(STOP_FAILURE, agent.name, fields), cancel)
