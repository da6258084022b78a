"""Hooks that are functions of a host program. Loaded only if there are some.

They run after the command hooks of the settings, in the order given.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NamedTuple

from teamcli.agent.hooks import NO_RESULT, HookEvent, HookResult
from teamcli.cancel import CancelScope, run_abandonable
from teamcli.config.options import Mode
from teamcli.config.settings import HOOK_EVENTS
from teamcli.errors import Cancelled, ConfigError, ToolError
from teamcli.hooks.matching import matcher_of
from teamcli.hooks.runner import RegisteredHook, timeout_of


class Hook(NamedTuple):
    """A function that is called when something happens to an agent. It returns None or a `HookResult`."""

    event: str
    """`PreToolUse`, `Stop`, …"""
    function: Callable[[HookEvent], HookResult | None]
    matcher: str = ""
    """A regular expression for the event's subject, such as a tool's name; empty for all."""
    timeout_seconds: float | None = None
    """How long to wait for it; None for the default."""


def check_hooks(hooks: Iterable[Hook]) -> tuple[Hook, ...]:
    """Raises: ConfigError."""
    for hook in (hooks := tuple(hooks)):
        if not isinstance(hook, Hook) or not callable(hook.function):
            raise ConfigError(f"hooks: {hook!r:.80} is not a teamcli.Hook with a function")
        if hook.event not in HOOK_EVENTS:
            raise ConfigError(f"hooks: there is no event {hook.event!r}; there are {', '.join(HOOK_EVENTS)}")
        try:
            re.compile("" if hook.matcher == "*" else hook.matcher)
        except re.error as e:
            raise ConfigError(f"hooks: the matcher {hook.matcher!r} is not a valid regular expression ({e})") from e
    return hooks


def function_hooks(hooks: Iterable[Hook]) -> list[RegisteredHook]:
    return [
        RegisteredHook(hook.event, matcher_of(hook.event, hook.matcher), _name_of(hook), partial(_call, hook))
        for hook in hooks
    ]


def _name_of(hook: Hook) -> str:
    return str(getattr(hook.function, "__name__", type(hook.function).__name__))


def _call(hook: Hook, event: HookEvent, cancel: CancelScope) -> HookResult:
    """Raises: ToolError, Cancelled."""
    timeout = timeout_of(event.name, hook.timeout_seconds)
    try:
        result = run_abandonable(lambda: hook.function(event), cancel, f"hook {_name_of(hook)}", timeout)
        return _check_result(result)
    except TimeoutError as e:
        raise ToolError("it took too long") from e
    except BaseException as e:  # boundary: whatever the function raises, `sys.exit` included, is only reported
        if isinstance(e, Cancelled) and cancel.cancelled:
            raise
        raise ToolError(f"{type(e).__name__}: {e}") from e


def _check_result(result: object) -> HookResult:
    """Raises: TypeError."""
    if result is None:
        return NO_RESULT
    if not isinstance(result, HookResult):
        raise TypeError(f"it must return a teamcli.HookResult or None, not {type(result).__name__}")
    if result.wish not in ("", "allow", "ask"):
        raise TypeError(f"its wish is {result.wish!r}, not allow or ask")
    if result.mode and result.mode not in list(Mode):
        raise TypeError(f"its mode is {result.mode!r}, not one of {', '.join(Mode)}")
    if result.changed_input is not None and not isinstance(result.changed_input, Mapping):
        raise TypeError("its changed_input is not a mapping")
    return result
