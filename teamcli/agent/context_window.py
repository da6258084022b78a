"""Keeps an agent's conversation within its model's context window: decides when, gets a summary, records it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from teamcli.agent import events
from teamcli.agent.compaction import (
    NEWEST_RESULTS,
    SUMMARY_SYSTEM,
    Compaction,
    as_text,
    cut,
    framed_summary,
    instruction,
    long_results,
    size,
)
from teamcli.agent.conversation import append_message, text_block
from teamcli.agent.events import Notice, Severity
from teamcli.agent.hooks import POST_COMPACT, PRE_COMPACT, SESSION_START, STOP, HookEvent, hook_note
from teamcli.agent.limits import PlannedCall
from teamcli.cancel import CancelScope
from teamcli.errors import ContextTooLong, MaxTokensRefused, ModelError
from teamcli.llm.estimate import guess_tokens
from teamcli.llm.pricing import context_tokens, is_window_known
from teamcli.llm.types import Message, Preamble, Request, RequestSent, Retrying, StreamEvent, Usage

if TYPE_CHECKING:
    from teamcli.agent.loop import Agent

ENOUGH = 0.75
"""Shortening is enough if it brings the conversation down to this share of where compaction begins."""
TAIL_SHARE, MOST_TAIL_TOKENS = 8, 20_000
"""What stays word for word after a summary: an eighth of the window, and at most this many tokens. The last step always
stays, because the model may not have read it yet."""
ANSWER_SHARE = 4
"""The part of a small window that an answer may take. The rest is for the conversation."""
MOST_BYTES_PER_TOKEN = 8.0
WORTH_BYTES = 2_000
"""A summary of less than this would gain nothing."""
MOST_SKIPPED = 32
HEARTBEAT_SECONDS = 1.0
GIVES_A_SUMMARY = ("end_turn", "stop_sequence", "max_tokens")


@dataclass(eq=False)
class ContextWindow:
    """How much an agent's model can read, and what compaction must know about the agent."""

    window: Callable[[str], int] = context_tokens
    """The size of a model's window in tokens."""
    is_window_known: Callable[[str], bool] = is_window_known
    """Whether that size is more than a guess."""
    share: float = 0.8
    """How full the window may get."""
    may_ask: bool = True
    """Whether the model can write a summary. If not, results are only shortened."""
    exempt: frozenset[str] = frozenset()
    """Tools whose results cannot be obtained again."""
    mail_is_work: bool = False
    """Whether mail is for this agent what a user's line is for the lead."""
    pinned_facts: Callable[[], Sequence[str]] = tuple
    """What the agent must know whatever a summary says: who it is, its team, open requests."""
    learned: dict[str, int] = field(default_factory=dict, init=False)
    """Windows that turned out to be smaller than expected, by model."""
    tries_from: int = field(default=0, init=False)
    """Tokens below which nothing is tried, so that a useless compaction is not repeated at every step."""
    failures: int = field(default=0, init=False)
    """How often in a row the model gave no summary."""
    to_skip: int = field(default=0, init=False)
    """How many compactions skip the summary because of that, if shortening gains something."""

    def filled(self, tokens: int, model: str) -> float | None:
        """The share of the window that this many tokens fill; None if its size is a guess."""
        is_known = model in self.learned or self.is_window_known(model)
        return tokens / self.limit(model) if is_known else None

    def limit(self, model: str) -> int:
        return min(self.window(model), self.learned.get(model, self.window(model)))

    def learn(self, model: str, window: int) -> int:
        """The window of a model has turned out to be no larger than this. Returns it."""
        self.learned[model] = window
        return window

    def try_from(self, tokens: int) -> None:
        """Try no compaction until the conversation has grown to this."""
        self.tries_from = tokens

    def asks_for_summary(self, goal: _Goal, shorter: Compaction | None) -> bool:
        """Whether to ask for a summary now. A model that gave none is asked less often: each try costs calls."""
        if not self.may_ask or goal.by_hand or shorter is None or not self.to_skip:
            return self.may_ask
        self.to_skip -= 1
        return False

    def summary_came(self) -> None:
        self.failures = 0

    def summary_failed(self) -> None:
        self.failures += 1
        self.to_skip = min(2**self.failures, MOST_SKIPPED)


def compact_if_needed(agent: Agent, cancel: CancelScope) -> None:
    """Before a model call: compact a conversation that is nearly full. A failure is reported and changes nothing.

    Raises: Cancelled, LimitReached, StateError
    """
    window, used = agent.context.limit(agent.preamble.model), used_tokens(agent)
    if used < max(agent.context.share * window, agent.context.tries_from):
        return
    # Set before trying: if nothing can be gained, the next steps must not try again at once.
    agent.context.try_from(used + window // 20)
    _try(agent, _Goal(int(ENOUGH * agent.context.share * window), fits=used < window), cancel)


def force_room(agent: Agent, cancel: CancelScope) -> bool:
    """After the endpoint rejected the conversation as too long: whether it is shorter now.

    Raises: Cancelled, LimitReached, StateError
    """
    # An endpoint that counts too little would make the window look larger than it is.
    used = max(used_tokens(agent), int(_bytes(agent) / MOST_BYTES_PER_TOKEN))
    window = agent.context.learn(agent.preamble.model, min(agent.context.limit(agent.preamble.model), used))
    return _try(agent, _Goal(min(used // 2, int(ENOUGH * agent.context.share * window)), fits=False), cancel)


def ask_for_less(agent: Agent, refused: MaxTokensRefused) -> bool:
    """After the endpoint rejected `max_tokens`: whether the agent asks for shorter answers from now on."""
    allowed = refused.allowed
    if refused.window:
        agent.context.learn(agent.preamble.model, refused.window)
        allowed = min(allowed, refused.window // ANSWER_SHARE)  # what is allowed shrinks as the conversation grows
    if not 0 < allowed < agent.preamble.max_tokens:
        return False
    agent.use(replace(agent.preamble, max_tokens=allowed))
    text = (
        f"The endpoint grants no more: asking for answers of {allowed:,} tokens at most (`max_tokens` in the settings)."
    )
    agent.emit(Notice(agent.name, text))
    return True


def compact(agent: Agent, focus: str, cancel: CancelScope) -> bool:
    """Compact because the user asked for it. `focus` says what matters most. False if there is nothing to compact.

    Raises: ModelError, ConfigError, Cancelled, LimitReached
    """
    return _compact(agent, _Goal(0 if focus else used_tokens(agent) // 2, focus, by_hand=True), cancel)


def next_call(agent: Agent) -> PlannedCall:
    """The agent's next model call, and the most that it can use: nothing is cached yet, and the answer is long."""
    preamble, tokens = agent.preamble, used_tokens(agent)
    most = Usage(cache_creation_input_tokens=tokens, output_tokens=preamble.max_tokens)
    return PlannedCall(preamble.model, agent.meter.price(most, preamble.model), most.context_tokens)


COMPACTED = "compact"
"""How a session begins, as hooks know it, when the lead's conversation was summarized."""


class _Goal(NamedTuple):
    tokens: int
    """Shortening results is enough if it gets down to this."""
    focus: str = ""
    fits: bool = True
    """Whether the model can still read the whole conversation."""
    by_hand: bool = False


def _try(agent: Agent, goal: _Goal, cancel: CancelScope) -> bool:
    try:
        return _compact(agent, goal, cancel)
    except ModelError as e:
        text = f"The conversation could not be compacted and stays as it is: {e}"
        agent.emit(Notice(agent.name, text, Severity.WARNING))
        _wait_for_growth(agent, used_tokens(agent))
        return False


def _compact(agent: Agent, goal: _Goal, cancel: CancelScope) -> bool:
    done = _shortened(agent, NEWEST_RESULTS)
    if done is None or done.tokens_after > goal.tokens:
        # If the model cannot read the conversation at all, even the newest results must become shorter.
        done = done if goal.fits else _shortened(agent, 0)
        if agent.context.asks_for_summary(goal, done):
            done = _summarized_or(done, agent, goal, cancel)
    if done is None:
        return False
    agent.conversation.compact(done)
    _wait_for_growth(agent, done.tokens_after)
    agent.emit(events.Compacted(agent.name, done.tokens_before, done.tokens_after, bool(done.opening)))
    return True


def _wait_for_growth(agent: Agent, tokens: int) -> None:
    agent.context.try_from(tokens + agent.context.limit(agent.preamble.model) // 10)


def _shortened(agent: Agent, newest: int) -> Compaction | None:
    results = long_results(agent.conversation.messages, agent.context.exempt, newest)
    return _measured(agent, Compaction(results)) if results else None


def _summarized_or(shorter: Compaction | None, agent: Agent, goal: _Goal, cancel: CancelScope) -> Compaction | None:
    """A summary; if the model gives none, at least the old results are shortened."""
    try:
        summarized = _summarized(agent, goal, cancel)
        agent.context.summary_came()
        return summarized or shorter
    except ModelError as e:
        agent.context.summary_failed()
        if shorter is None:
            raise
        text = f"The conversation could not be summarized ({e}); only old results were shortened."
        agent.emit(Notice(agent.name, text, Severity.WARNING))
        return shorter


def _summarized(agent: Agent, goal: _Goal, cancel: CancelScope) -> Compaction | None:
    messages = agent.conversation.messages
    window, ratio = agent.context.limit(agent.preamble.model), _bytes_per_token(agent)
    found = cut(messages, int(min(window // TAIL_SHARE, MOST_TAIL_TOKENS) * ratio), agent.context.mail_is_work)
    if found.dropped_bytes < (1 if goal.by_hand else WORTH_BYTES):
        return None
    focus = _focus_after_hooks(agent, goal, cancel)
    if focus is None:
        return None
    tail = messages[len(messages) - found.kept :]
    is_too_much = size(tail) > window * ratio / 2
    shortened = long_results(tail, agent.context.exempt, newest=0) if is_too_much else {}
    summary = _ask_for_summary(agent, focus, goal.fits, cancel)
    said = _said_by_hooks(agent, summary, _trigger(goal), cancel)
    opening = map(text_block, (framed_summary(summary), *agent.context.pinned_facts(), *said))
    return _measured(agent, Compaction(shortened, (*opening, *found.words), found.kept))


def _trigger(goal: _Goal) -> str:
    return "manual" if goal.by_hand else "auto"


def _said_by_hooks(agent: Agent, summary: str, trigger: str, cancel: CancelScope) -> list[str]:
    """What hooks add to a conversation that was summarized, which for the lead begins anew."""
    if agent.hooks.wants(POST_COMPACT, trigger):
        fields = {"trigger": trigger, "compact_summary": summary}
        result = agent.hooks.run(HookEvent(POST_COMPACT, agent.name, fields, trigger), cancel)
        if result.objection:  # there is nothing to block: the user reads it
            agent.emit(Notice(agent.name, result.objection, Severity.WARNING))
    if agent.stop_event != STOP or not agent.hooks.wants(SESSION_START, COMPACTED):
        return []
    fields = {"source": COMPACTED, "model": agent.preamble.model}
    context = agent.hooks.run(HookEvent(SESSION_START, agent.name, fields, COMPACTED), cancel).context
    return [hook_note(SESSION_START, context)] if context else []


def _focus_after_hooks(agent: Agent, goal: _Goal, cancel: CancelScope) -> str | None:
    """The user's focus and what hooks want to keep; None if a hook objects to a summary."""
    trigger = _trigger(goal)
    if not agent.hooks.wants(PRE_COMPACT, trigger):
        return goal.focus
    fields = {"trigger": trigger, "custom_instructions": goal.focus}
    result = agent.hooks.run(HookEvent(PRE_COMPACT, agent.name, fields, trigger), cancel)
    if result.objection is not None:
        text = f"A hook prevented a summary of the conversation: {result.objection}"
        agent.emit(Notice(agent.name, text, Severity.WARNING))
        return None
    return "\n".join(filter(None, (goal.focus, result.context)))


def _ask_for_summary(agent: Agent, focus: str, fits: bool, cancel: CancelScope) -> str:
    """Raises: ModelError, Cancelled, LimitReached."""
    # A model that sees its tools may call one instead, and then the plain request is tried.
    for request in _summary_requests(agent, focus, fits):
        try:
            reply = agent.ask(request, _heartbeats(agent), cancel, is_recorded=False)
        except ContextTooLong:
            continue
        if reply.stop_reason in GIVES_A_SUMMARY and reply.text.strip():
            return reply.text
    raise ModelError("the model gave no summary")


def _summary_requests(agent: Agent, focus: str, fits: bool) -> Iterator[Request]:
    """First the conversation as the model has it in its cache. If that fails, as plain text and without tools."""
    preamble, messages = agent.preamble, list(agent.conversation.messages)
    asked = text_block(instruction(focus))
    window = agent.context.limit(preamble.model)
    if fits:
        whole = list(messages)
        append_message(whole, Message("user", (asked,)))
        yield Request(preamble, tuple(whole))
    text = text_block(as_text(messages, int(window * _bytes_per_token(agent) / 2)))
    plain = Preamble(preamble.model, SUMMARY_SYSTEM, (), max(1, min(preamble.max_tokens, window // 4)), caching=False)
    yield Request(plain, (Message("user", (text, asked)),))


def _heartbeats(agent: Agent) -> Callable[[StreamEvent], None]:
    """A summary is not shown: report only that it is arriving, and retries."""
    reported = 0.0

    def on_event(event: StreamEvent) -> None:
        nonlocal reported
        if isinstance(event, Retrying):
            agent.emit(events.RetryScheduled(agent.name, *event))
        elif not isinstance(event, RequestSent) and time.monotonic() >= reported + HEARTBEAT_SECONDS:
            reported = time.monotonic()
            agent.emit(events.StillArriving(agent.name))

    return on_event


def _measured(agent: Agent, compaction: Compaction) -> Compaction:
    before, after = agent.conversation.messages, compaction.applied_to(agent.conversation.messages)
    saved = int((size(before) - size(after)) / _bytes_per_token(agent))
    used = used_tokens(agent)
    return compaction._replace(tokens_before=used, tokens_after=max(0, used - saved))


def used_tokens(agent: Agent) -> int:
    """How many tokens the next request would have."""
    history = agent.conversation.history
    if not history.tokens:
        return guess_tokens(_bytes(agent))
    return history.tokens + guess_tokens(size(history.uncounted))


def _bytes_per_token(agent: Agent) -> float:
    """As the model has counted this conversation so far. Bounded, because some endpoints count only a part."""
    return min(MOST_BYTES_PER_TOKEN, _bytes(agent) / max(1, used_tokens(agent)))


def _bytes(agent: Agent) -> int:
    return len(agent.preamble.encoded) + size(agent.conversation.messages)
