"""Hooks that are functions of the program that has teamcli built in. Loaded only where there are some.

They run behind the commands of the settings, in the order given; each sees the input as the one before it left it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from teamcli.agent.events import Emit, Notice, Severity
from teamcli.agent.hooks import NOTHING_SAID, SESSION_END, HookEvent, HookResult, Hooks
from teamcli.cancel import CancelScope, run_abandonable
from teamcli.config.settings import HOOK_EVENTS
from teamcli.errors import Cancelled, ConfigError
from teamcli.hooks.commands import LEAVING_TIMEOUT_SECONDS, TIMEOUT_SECONDS, joined, matches

_SHOWN_CHARACTERS = 300
_WISHES = ("", "allow", "ask")


class Hook(NamedTuple):
    """A function that is called when something happens to an agent. It returns None, or what it has to say."""

    event: str
    """`PreToolUse`, `Stop`, …"""
    function: Callable[[HookEvent], HookResult | None]
    matcher: str = ""
    """A regular expression for what the event is about, a tool's name say; empty for all."""
    timeout_seconds: float | None = None
    """How long it is waited for; None for the usual time."""


def checked(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Raises: ConfigError."""
    for hook in (hooks := tuple(hooks)):
        if not isinstance(hook, Hook) or not callable(hook.function):
            raise ConfigError(f"hooks: {hook!r:.80} is no teamcli.Hook with a function")
        if hook.event not in HOOK_EVENTS:
            raise ConfigError(f"hooks: there is no event {hook.event!r}; there are {', '.join(HOOK_EVENTS)}")
        try:
            re.compile("" if hook.matcher == "*" else hook.matcher)
        except re.error as e:
            raise ConfigError(f"hooks: the matcher {hook.matcher!r} is no regular expression ({e})") from e
    return hooks


class HookFunctions:
    """Safe for any number of threads, as far as the functions are."""

    def __init__(
        self, hooks: Iterable[Hook], before: Hooks, emit: Emit, facts: Callable[[str], Mapping[str, Any]]
    ) -> None:
        """`before` are those that run first; `facts` tells what is true of an agent whatever happens to it."""
        self._hooks = tuple(hooks)
        self._before = before
        self._emit = emit
        self._facts = facts

    def wants(self, name: str, subject: str = "") -> bool:
        return bool(self._matching(name, subject)) or self._before.wants(name, subject)

    def run(self, event: HookEvent, cancel: CancelScope) -> HookResult:
        is_theirs = self._before.wants(event.name, event.subject)
        result = self._before.run(event, cancel) if is_theirs else NOTHING_SAID
        told = {**self._facts(event.agent), **event.fields}
        for hook in self._matching(event.name, event.subject):
            if result.changed_input is not None:
                told["tool_input"] = result.changed_input
            result = joined(result, self._ask(hook, event._replace(fields=dict(told)), cancel))
        return result

    def _matching(self, name: str, subject: str) -> list[Hook]:
        return [hook for hook in self._hooks if hook.event == name and matches(hook.matcher, subject)]

    def _ask(self, hook: Hook, event: HookEvent, cancel: CancelScope) -> HookResult:
        usual = LEAVING_TIMEOUT_SECONDS if event.name == SESSION_END else TIMEOUT_SECONDS
        name = getattr(hook.function, "__name__", type(hook.function).__name__)
        try:
            said = run_abandonable(lambda: hook.function(event), cancel, f"hook {name}", hook.timeout_seconds or usual)
            return _checked_ruling(said)
        except BaseException as e:  # boundary: a hook that fails is told and counts for nothing
            if isinstance(e, Cancelled) and cancel.cancelled:
                raise
            why = "it took too long" if isinstance(e, TimeoutError) else f"{type(e).__name__}: {e}"
            words = f"The {event.name} hook `{name}` failed and is ignored: {why}"
            self._emit(Notice(event.agent, words[:_SHOWN_CHARACTERS], Severity.WARNING))
            return NOTHING_SAID


def _checked_ruling(said: object) -> HookResult:
    """Raises: TypeError."""
    if said is None:
        return NOTHING_SAID
    if not isinstance(said, HookResult):
        raise TypeError(f"it must return a teamcli.HookResult or None, not {type(said).__name__}")
    if said.wish not in _WISHES:
        raise TypeError(f"its wish {said.wish!r} is none of allow, ask")
    if said.changed_input is not None and not isinstance(said.changed_input, Mapping):
        raise TypeError("its changed_input is no mapping")
    return said
