"""Runs the hooks of an event and combines their results: ours one after the other, then Claude Code's all at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, NamedTuple

from teamcli.agent.events import Emit, Notice, Severity
from teamcli.agent.hooks import (
    NO_RESULT,
    POST_TOOL_USE,
    POST_TOOL_USE_FAILURE,
    PRE_TOOL_USE,
    SESSION_END,
    USER_PROMPT_SUBMIT,
    HookEvent,
    HookResult,
)
from teamcli.cancel import CancelScope
from teamcli.claude_code.hook_words import failure_word
from teamcli.claude_code.tool_responses import failure_of
from teamcli.errors import StateError, ToolError
from teamcli.hooks.together import Release, run_together

if TYPE_CHECKING:
    from teamcli.hooks.background import Background
    from teamcli.hooks.matching import Matches

_TIMEOUT_SECONDS = 60.0
_LEAVING_TIMEOUT_SECONDS = 1.5
_NOTICE_LIMIT = 300
_TAKES_LATE_CONTEXT = (PRE_TOOL_USE, POST_TOOL_USE, POST_TOOL_USE_FAILURE, USER_PROMPT_SUBMIT)
"""With these events the model reads what hooks in the background have said since."""


class RegisteredHook(NamedTuple):
    """A hook of either kind, ready to be called."""

    event: str
    matches: Matches
    name: str
    """For the user, if it fails."""
    call: Callable[[HookEvent, CancelScope], HookResult]
    """Raises: ToolError, StateError, OSError, ValueError, which count as failures; Cancelled."""
    accepts: Callable[[HookEvent], bool] = lambda event: True
    """Whether it concerns an event that its matcher matches."""
    identity: str = ""
    """Of those with the same identity, only one runs; empty for one that always runs."""
    is_async: bool = False
    """Nothing waits for it."""
    wakes: bool = False
    """If it objects when nothing waits for it, its agent continues with that."""
    call_with_others: Callable[[HookEvent, CancelScope, Release], HookResult] | None = None
    """For a hook that runs at the same time as others. It calls the last argument, with what it has to say so far, if
    nothing needs to wait for it."""


class HookRunner:
    """Safe to use from any number of threads, as far as the hooks are."""

    def __init__(
        self,
        hooks: Iterable[RegisteredHook],
        emit: Emit,
        facts: Callable[[str], Mapping[str, Any]],
        background: Background | None = None,
    ) -> None:
        """`facts` returns the fields that every event of an agent has."""
        self._hooks = tuple(hooks)
        self._emit = emit
        self._facts = facts
        self._background = background

    def wants(self, name: str, subject: str = "") -> bool:
        # Even without a hook for it: this is how what was said in the background reaches the model.
        if name == USER_PROMPT_SUBMIT and self._background is not None and self._background.has_context:
            return True
        return any(hook.event == name and hook.matches(subject) for hook in self._hooks)

    def run(self, event: HookEvent, cancel: CancelScope) -> HookResult:
        event = _completed(event, self._facts(event.agent))
        if event.name == POST_TOOL_USE_FAILURE and "error" not in event.fields:
            return NO_RESULT
        result = NO_RESULT
        if self._background is not None and event.name in _TAKES_LATE_CONTEXT:
            result = HookResult(context=self._background.take_context(event.agent))
        together: list[RegisteredHook] = []
        for hook in self._matching(event):
            now = _with_input(event, result.changed_input)
            if hook.is_async and self._background is not None:
                self._background.start(self._call, hook, now)
            elif hook.call_with_others is not None:
                together.append(hook)
            else:
                result = combine(result, self._call(hook, now, cancel))
        return self._run_together(together, event, result, cancel) if together else result

    def _run_together(
        self, hooks: Sequence[RegisteredHook], event: HookEvent, result: HookResult, cancel: CancelScope
    ) -> HookResult:
        """Raises: Cancelled."""

        def keep(position: int, late: HookResult) -> None:
            if self._background is not None:
                self._background.keep(hooks[position], event, late)

        now = _with_input(event, result.changed_input)
        works = [partial(self._call, hook, now, cancel) for hook in hooks]
        return reduce(combine, run_together(works, keep), result)

    def _call(
        self, hook: RegisteredHook, event: HookEvent, cancel: CancelScope, release: Release | None = None
    ) -> HookResult:
        """Raises: Cancelled."""
        try:
            if release is not None and hook.call_with_others is not None:
                return hook.call_with_others(event, cancel, release)
            return hook.call(event, cancel)
        except (ToolError, StateError, OSError, ValueError) as e:
            text = f"The {event.name} hook `{hook.name}` failed and is ignored: {e}"
            self._emit(Notice(event.agent, text[:_NOTICE_LIMIT], Severity.WARNING))
            return NO_RESULT

    def _matching(self, event: HookEvent) -> Iterator[RegisteredHook]:
        seen = set()
        for hook in self._hooks:
            if hook.event != event.name or hook.identity in seen or not hook.matches(event.subject):
                continue
            if hook.accepts(event):
                # As in Claude Code: a hook that several files name runs once.
                if hook.identity:
                    seen.add(hook.identity)
                yield hook


def _with_input(event: HookEvent, changed: Mapping[str, Any] | None) -> HookEvent:
    """A hook sees the input of a call as the hooks before it left it."""
    fields = dict(event.fields)
    return event._replace(fields=fields if changed is None else {**fields, "tool_input": changed})


def _completed(event: HookEvent, facts: Mapping[str, Any]) -> HookEvent:
    """The event with what is known of its agent, and with what matchers compare."""
    fields = {**facts, **event.fields}
    match event.name:
        case "SubagentStart" | "SubagentStop":
            return event._replace(fields=fields, subject=str(fields.get("agent_type", "")))
        case "StopFailure":
            fields["error"] = failure_word(fields["error"])
            return event._replace(fields=fields, subject=fields["error"])
        case "PostToolUseFailure":
            fields |= {} if (error := failure_of(event.subject, fields)) is None else {"error": error}
    return event._replace(fields=fields)


def timeout_of(event: str, configured: float | None) -> float:
    """How long a hook may run. By default, `SessionEnd` gets little time: leaving must not take long."""
    return configured or (_LEAVING_TIMEOUT_SECONDS if event == SESSION_END else _TIMEOUT_SECONDS)


def combine(first: HookResult, second: HookResult) -> HookResult:
    """Every objection counts, `ask` wins over `allow`, and the later input replaces the earlier one."""
    wishes = (first.wish, second.wish)
    return HookResult(
        _joined(first.objection, second.objection),
        "ask" if "ask" in wishes else "allow" if "allow" in wishes else "",
        "\n".join(filter(None, (first.reason, second.reason))),
        first.changed_input if second.changed_input is None else second.changed_input,
        "\n".join(filter(None, (first.context, second.context))),
        _joined(first.stop, second.stop),
        first.changed_output if second.changed_output is None else second.changed_output,
        (*first.rules, *second.rules),
        second.mode or first.mode,
    )


def _joined(*reasons: str | None) -> str | None:
    given = [reason for reason in reasons if reason is not None]
    return "\n".join(given) if given else None
