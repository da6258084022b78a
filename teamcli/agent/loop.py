"""The loop that every agent runs: ask the model, run the tools it calls, tell it the results, until it is done."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple

from teamcli.agent import events
from teamcli.agent.context_window import ContextWindow, ask_for_less, compact_if_needed, force_room, next_call
from teamcli.agent.conversation import Conversation, error_result, joined_marks, text_block
from teamcli.agent.events import Emit, LimitHit, Notice, Outcome, Severity, TurnEnded, TurnStarted
from teamcli.agent.hooks import MAX_SENT_BACK, NO_HOOKS, STOP, HookEvent, Hooks, hook_note
from teamcli.agent.limits import TIME_IS_UP, Meter
from teamcli.agent.tool_calls import Results, Toolset
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
    Usage,
)

MAX_CONTINUATIONS = 10
"""How often in a row an answer that was cut off is asked to go on."""
CONTINUE_CUT = (
    "<note>Your answer was cut off at the output limit. Go on exactly where it stopped, repeating nothing.</note>"
)
CONTINUE_PAUSED = "<note>Go on.</note>"
INTERRUPTED = "<note>The user interrupted you here.</note>"
OUT_OF_TIME = "<note>You were stopped here: your time was used up.</note>"
SMALLEST_WINDOW = 2000
"""No server that is of use to an agent can read less."""
NOT_RUN = "Not run: the answer ended with stop reason {}."
CONTEXT_FULL = "model_context_window_exceeded"
NOT_RUN_AFTER = ("refusal", CONTEXT_FULL)


class Delivery(NamedTuple):
    """What has come in for an agent between two model calls, and what its transcript line must note beside it."""

    blocks: Sequence[Block] = ()
    marks: Mapping[str, Any] = MappingProxyType({})
    seen_files: Mapping[str, str] = MappingProxyType({})
    """Digests by path of files whose content the blocks show."""


Incoming = Callable[[Mapping[str, Any]], Delivery]
"""Returns the mail and lines since the last look. Called between model calls, with the marks of the results before."""


def nothing_came(noted: Mapping[str, Any]) -> Delivery:
    return Delivery()


@dataclass
class Agent:
    """All that the loop needs of an agent."""

    name: str
    llm: LLM
    preamble: Preamble
    conversation: Conversation
    toolset: Toolset
    meter: Meter
    price: Callable[[Usage, str], float | None]
    """The cost of a call on a model, or None where nobody knows."""
    emit: Emit
    hooks: Hooks = NO_HOOKS
    stop_event: str = STOP
    """What hooks know the end of its work by."""
    context: ContextWindow = field(default_factory=ContextWindow)


def run_turn(agent: Agent, prompt: Delivery, cancel: CancelScope, incoming: Incoming = nothing_came) -> TurnEnded:
    """Work on `prompt` until the model is done or something ends the turn; the history is valid whatever happens.

    An empty prompt goes on with what stands in the conversation already.
    """
    started = time.monotonic()
    agent.emit(TurnStarted(agent.name))
    answer = Answer()
    try:
        agent.conversation.add_user(prompt.blocks, prompt.seen_files, prompt.marks, is_next_sent=True)
        outcome = _work_in_time(agent, answer, cancel, incoming)
    except Cancelled:
        outcome = Outcome.INTERRUPTED
    except LimitReached as e:
        agent.emit(LimitHit(agent.name, str(e), e.limit, e.is_given))
        answer.error = e
        outcome = Outcome(e.limit)
    except (ModelError, ConfigError) as e:
        agent.emit(Notice(agent.name, str(e), Severity.ERROR))
        answer.error = e
        outcome = Outcome.FAILED
    ended = TurnEnded(agent.name, outcome, answer.text, time.monotonic() - started, answer.error)
    agent.emit(ended)
    return ended


@dataclass
class Answer:
    """The text of the last answer, put together again where it came in pieces."""

    text: str = ""
    continuations: int = 0
    sent_back: int = 0
    """How often hooks wanted more."""
    error: Exception | None = None
    has_overflowed: bool = False
    """The last answer had to end because the context was full."""

    def take(self, reply: Reply) -> None:
        if self.continuations:
            self.text += reply.text
        elif reply.text:
            self.text = reply.text


def _work_in_time(agent: Agent, answer: Answer, cancel: CancelScope, incoming: Incoming) -> Outcome:
    """Raises: Cancelled, LimitReached, also when time is used up in the middle of a call; ModelError, ConfigError."""
    turn = cancel.child()
    try:
        with agent.meter.work(turn):
            return _work(agent, answer, turn, incoming)
    except Cancelled:
        if not cancel.cancelled and (why := agent.meter.reached()):
            raise why from None
        raise
    finally:
        agent.conversation.settle()


def _work(agent: Agent, answer: Answer, cancel: CancelScope, incoming: Incoming) -> Outcome:
    while True:
        reply = _next_reply(agent, cancel)
        answer.take(reply)
        if reply.stop_reason in NOT_RUN_AFTER:
            _close_calls(agent, reply)
        if _goes_on_with_more_room(agent, reply, answer, cancel):
            continue
        if (outcome := _stopped(agent, reply)) is not None:
            return outcome
        nudge = _continuation(agent, reply, answer)
        if reply.tool_calls:
            results = agent.toolset.run(reply.tool_calls, reply.cut_calls, cancel, agent.conversation.key_of_call)
            _tell_results(agent, results, incoming)
            cancel.check()
        if answer.continuations > MAX_CONTINUATIONS:
            raise ModelError(
                f"The answer was still cut off after {MAX_CONTINUATIONS} continuations: ask for less at once."
            )
        if reply.tool_calls:
            continue
        if nudge is not None:
            agent.conversation.add_user([text_block(nudge)])
        elif not _is_sent_back(agent, answer, cancel):
            return Outcome.DONE  # what has come meanwhile begins the next turn, if it is worth one


def _is_sent_back(agent: Agent, answer: Answer, cancel: CancelScope) -> bool:
    """Whether a hook wants more of an agent that thinks it is done; not for ever."""
    if not agent.hooks.wants(agent.stop_event):
        return False
    fields = {"stop_hook_active": answer.sent_back > 0, "last_assistant_message": answer.text}
    result = agent.hooks.run(HookEvent(agent.stop_event, agent.name, fields), cancel)
    if result.objection is None:
        return False
    if answer.sent_back >= MAX_SENT_BACK:
        text = f"A {agent.stop_event} hook still objects after {MAX_SENT_BACK} more tries; the turn ends here."
        agent.emit(Notice(agent.name, text, Severity.WARNING))
        return False
    answer.sent_back += 1
    agent.conversation.add_user([text_block(hook_note(agent.stop_event, result.objection))])
    return True


def _next_reply(agent: Agent, cancel: CancelScope) -> Reply:
    agent.meter.check()
    compact_if_needed(agent, cancel)
    remedies: list[tuple[type[ModelError], Callable[[Any], bool]]] = [
        (ContextTooLong, lambda _: force_room(agent, cancel)),
        (MaxTokensRefused, lambda refused: ask_for_less(agent, refused)),
    ]
    while True:
        try:
            return _call_model(agent, cancel)
        except (ContextTooLong, MaxTokensRefused) as e:  # each is worth one more try
            remedy = next((each for each in remedies if isinstance(e, each[0])), None)
            if remedy is None or not remedy[1](e):
                raise
            remedies.remove(remedy)


def _goes_on_with_more_room(agent: Agent, reply: Reply, answer: Answer, cancel: CancelScope) -> bool:
    """Whether an answer that filled the context can go on after a compaction; once, for the next may fill it too."""
    is_full = reply.stop_reason == CONTEXT_FULL or _seems_to_fill_context(reply, agent.preamble.max_tokens)
    had_overflowed, answer.has_overflowed = answer.has_overflowed, is_full
    if not answer.has_overflowed or had_overflowed or not force_room(agent, cancel):
        return False
    answer.continuations += 1
    agent.conversation.add_user([text_block(CONTINUE_CUT)])
    return True


def _seems_to_fill_context(reply: Reply, limit: int) -> bool:
    """Whether an answer that was cut far below the limit ended because there was no room for more.

    A server may also have a lower limit of its own, but then that is a round number.
    """
    written = reply.usage.output_tokens
    if reply.stop_reason != "max_tokens" or reply.tool_calls or reply.usage.is_estimated:
        return False
    has_own_limit = any(min(written % unit, -written % unit) <= 1 for unit in (256, 500))
    return written < limit and reply.usage.context_tokens >= SMALLEST_WINDOW and not has_own_limit


def _close_calls(agent: Agent, reply: Reply) -> None:
    if reply.tool_calls:
        not_run = NOT_RUN.format(reply.stop_reason)
        agent.conversation.add_user([error_result(call["id"], not_run) for call in reply.tool_calls])


def _call_model(agent: Agent, cancel: CancelScope) -> Reply:
    cancel.check()
    request = Request(agent.preamble, tuple(agent.conversation.messages))
    with agent.meter.call(next_call(agent), cancel):
        try:
            reply = agent.llm.stream(request, _settles_and_tells(agent), cancel)
        except StreamInterrupted as e:
            _keep_interrupted(agent, e.partial, cancel.reason)
            raise
        _book(agent, reply)
    return reply


def _settles_and_tells(agent: Agent) -> OnEvent:
    """What was said last goes to the disk while the model reads it, and is there before anything of its answer counts.

    Raises, when called: StateError
    """

    def on_event(event: StreamEvent) -> None:
        agent.conversation.settle()
        if not isinstance(event, RequestSent):
            agent.emit(_named(agent.name, event))

    return on_event


def _book(agent: Agent, reply: Reply) -> None:
    """Record an answer and what it cost, before anything acts on it."""
    model = reply.model or agent.preamble.model
    cost = agent.price(reply.usage, agent.preamble.model)
    agent.meter.book(reply.usage, len(reply.tool_calls), cost)
    agent.conversation.add_reply(reply, cost)
    agent.emit(events.Answered(agent.name, model, reply.stop_reason, reply.usage, cost))


def _tell_results(agent: Agent, results: Results, incoming: Incoming) -> None:
    came = incoming(results.marks)
    marks = joined_marks(results.marks, came.marks)
    seen_files = {**results.seen_files, **came.seen_files}
    agent.conversation.add_user([*results.blocks, *came.blocks], seen_files, marks, is_next_sent=True)


def _stopped(agent: Agent, reply: Reply) -> Outcome | None:
    """Whether the stop reason ends the turn; if so the user is told."""
    match reply.stop_reason:
        case "refusal":
            outcome, text = (
                Outcome.REFUSED,
                "The model refused to continue; rephrase the task, or start over with /clear.",
            )
        case _ if reply.stop_reason == NOT_UNDERSTOOD:  # its answer says so
            return Outcome.REFUSED
        case _ if reply.stop_reason == CONTEXT_FULL:
            outcome = Outcome.CONTEXT_FULL
            text = "The conversation no longer fits the model's context: try /compact, or start afresh with /clear."
        case "end_turn" | "stop_sequence" if not reply.content:
            agent.emit(Notice(agent.name, "The model gave an empty answer; ask again or rephrase.", Severity.WARNING))
            return None
        case "end_turn" | "stop_sequence" | "tool_use" | "max_tokens" | "pause_turn":
            return None
        case other:
            agent.emit(Notice(agent.name, f"The model stopped for an unknown reason: {other}.", Severity.WARNING))
            return None
    agent.emit(Notice(agent.name, text, Severity.ERROR))
    return outcome


def _continuation(agent: Agent, reply: Reply, answer: Answer) -> str | None:
    """What to say to a model whose answer is not finished; counts how often that happens in a row."""
    if reply.stop_reason not in ("max_tokens", "pause_turn"):
        answer.continuations = 0
        return None
    answer.continuations += 1
    if answer.continuations > MAX_CONTINUATIONS:
        return None
    if reply.stop_reason == "pause_turn":
        return CONTINUE_PAUSED
    agent.emit(Notice(agent.name, "The answer was cut off at the output limit; asking the model to go on."))
    return CONTINUE_CUT


def _keep_interrupted(agent: Agent, partial: Reply | None, reason: str) -> None:
    """Keep what had arrived of an interrupted answer, close its calls, and note the interruption for the model."""
    if partial is not None:
        _book(agent, partial)
    agent.conversation.add_user([text_block(OUT_OF_TIME if reason == TIME_IS_UP else INTERRUPTED)])


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
