"""The policy of a running session: the mode can change while agents work, and *always* adds rules."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from teamcli.errors import ConfigError
from teamcli.permissions.policy import Mode, Policy

if TYPE_CHECKING:
    from teamcli.permissions.rules import Rule


class LivePolicy:
    def __init__(
        self,
        policy: Policy,
        save_rule: Callable[[str], None],
        read_rules: Callable[[Sequence[str]], tuple[Rule, ...]],
    ) -> None:
        self.policy = policy
        self._read_rules = read_rules
        self._save_rule = save_rule
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._granted: tuple[Rule, ...] = ()

    def set_mode(self, mode: Mode) -> None:
        with self._lock:
            self.policy = self.policy._replace(mode=mode)
        self._notify()

    def always_allow(self, rule: str) -> None:
        """Raises: StateError, ConfigError."""
        with self._lock:
            self.policy = self.policy._replace(allow=(*self.policy.allow, *self._read_rules([rule])))
        self._notify()  # before the file is written: a disk that fails must not keep agents waiting
        with self._lock:
            self._save_rule(rule)

    def loosen(self, rules: Sequence[str], mode: str) -> None:
        """Let these rules allow calls until the program ends, and use the mode, unless it is empty. Rules that mean
        nothing here are left out."""
        for rule in rules:
            with contextlib.suppress(ConfigError):
                self.add_for_session("allow", rule)
        if mode:
            self.set_mode(Mode(mode))

    def add_for_session(self, kind: str, rule: str) -> None:
        """Let a rule `allow`, `ask` about or `deny` calls until the session ends. Raises: ConfigError."""
        with self._lock:
            changed: dict[str, Any] = {kind: (*getattr(self.policy, kind), *self._read_rules([rule]))}
            self.policy = self.policy._replace(**changed)
        self._notify()

    @property
    def with_grants(self) -> Policy:
        """The policy for the lead, which also has what the command that it works on grants."""
        with self._lock:
            return self.policy._replace(allow=(*self.policy.allow, *self._granted))

    def grant(self, rules: Sequence[str]) -> list[str]:
        """Let these rules allow calls of the lead and its sub-agents, instead of those granted before. Returns the
        rules that mean nothing here."""
        read: list[Rule] = []
        unknown: list[str] = []
        for rule in rules:
            try:
                read += self._read_rules([rule])
            except ConfigError:
                unknown.append(rule)
        with self._lock:
            self._granted = tuple(read)
        self._notify()
        return unknown

    @contextmanager
    def on_change(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` after each change, inside the block."""
        with self._lock:
            self._listeners.append(listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)

    def _notify(self) -> None:
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:  # without the lock: a listener reads the policy
            listener()
