"""Hooks that nothing waits for. What they want the model to know goes along with the next event."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from teamcli.agent.hooks import HookEvent, HookResult, hook_note
from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled

if TYPE_CHECKING:
    from teamcli.hooks.runner import RegisteredHook

Call = Callable[["RegisteredHook", HookEvent, CancelScope], HookResult]
Wake = Callable[[str, str], bool]
"""Sends a text to an agent that may be idle; false if it cannot get one."""
_MOST_AT_ONCE = 32
_MOST_CONTEXT = 30_000
"""Characters for one agent that has not had its next turn."""


class Background:
    """Safe for threads. Its own threads end with `cancel`, the program's scope."""

    def __init__(self, cancel: CancelScope, wake: Wake = lambda agent, text: False) -> None:
        self._cancel = cancel
        self._wake = wake
        self._lock = threading.Lock()
        self._running = 0
        self._contexts: dict[str, str] = {}

    @property
    def has_context(self) -> bool:
        return bool(self._contexts)

    def take_context(self, agent: str) -> str:
        with self._lock:
            return self._contexts.pop(agent, "")

    def start(self, call: Call, hook: RegisteredHook, event: HookEvent) -> None:
        """Returns at once. Beyond a number that only an endless flood of calls can reach, hooks are skipped."""
        with self._lock:
            if self._running >= _MOST_AT_ONCE:
                return
            self._running += 1
        threading.Thread(target=self._run, args=(call, hook, event), name=f"hook {hook.name}", daemon=True).start()

    def _run(self, call: Call, hook: RegisteredHook, event: HookEvent) -> None:
        try:
            result = call(hook, event, self._cancel)
        except Cancelled:  # the program ends
            return
        finally:
            with self._lock:
                self._running -= 1
        self.keep(hook, event, result)

    def keep(self, hook: RegisteredHook, event: HookEvent, result: HookResult) -> None:
        """What a hook said after nothing waited for it any longer: wakes the agent, or waits for its next event."""
        said = "\n".join(filter(None, (result.objection, result.context)))
        if hook.wakes and result.objection is not None and self._wake(event.agent, hook_note(event.name, said)):
            return
        with self._lock:
            known = self._contexts.get(event.agent, "")
            if said and len(known) + len(said) <= _MOST_CONTEXT:
                self._contexts[event.agent] = f"{known}\n{said}".strip()
