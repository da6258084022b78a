"""Builds what runs hooks: those of the settings, and those of a host program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from threading import Semaphore
from typing import TYPE_CHECKING, NamedTuple

from teamcli.agent.hooks import NO_HOOKS, NOTIFICATION, HookEvent, Hooks
from teamcli.app.choices import Choices
from teamcli.app.session_for_hooks import SessionForHooks
from teamcli.cancel import CancelScope
from teamcli.config.settings import HOOK_EVENTS, HookGroup
from teamcli.exec.command_host import CommandHost
from teamcli.session.event_bus import EventBus
from teamcli.storage.team_dir import TeamDir
from teamcli.team.message import LEAD, is_subagent

if TYPE_CHECKING:
    from teamcli.hooks.commands import Ports
    from teamcli.hooks.runner import RegisteredHook


MOST_LINGERING = 32
"""Hooks that have ended and left programs running."""


class OpenHooks(NamedTuple):
    hooks: Hooks = NO_HOOKS
    prelude: Callable[[], str] = str
    """Returns what hooks want to run before each command of an agent."""


class HookOpener:
    def __init__(
        self, dir: TeamDir, host: CommandHost, events: EventBus, cancel: CancelScope, resources: ExitStack
    ) -> None:
        self._dir = dir
        self._host = host
        self._events = events
        self._cancel = cancel
        self._resources = resources

    def open(self, choices: Choices, session: SessionForHooks, notes: list[str]) -> OpenHooks:
        groups = choices.settings.hooks
        notes += unknown_events(groups)
        registered: list[RegisteredHook] = []
        prelude: Callable[[], str] = str
        if groups:
            from teamcli.hooks.commands import command_hooks  # late: most starts do without it

            ports = self._ports(groups, choices.workspace.root, session)
            registered += command_hooks(groups, ports)
            if (lines := ports.lines) is not None:
                prelude = lambda: lines.text  # noqa: E731 - shorter than its name
        if choices.embedding.hooks:
            from teamcli.hooks.functions import function_hooks  # late, for the same reason

            registered += function_hooks(choices.embedding.hooks)
        registered += choices.embedding.registered_hooks
        if not registered:
            return OpenHooks()
        from teamcli.hooks.background import Background
        from teamcli.hooks.runner import HookRunner

        hooks = HookRunner(registered, self._events, session.facts, Background(self._cancel, session.wake))
        self._notify(hooks)
        return OpenHooks(hooks, prelude)

    def _ports(self, groups: Mapping[str, tuple[HookGroup, ...]], root: Path, session: SessionForHooks) -> Ports:
        from teamcli.exec.shell_prelude import SessionLines
        from teamcli.hooks.commands import Ports
        from teamcli.hooks.long_output import LongOutput

        long_output = LongOutput(self._dir.hooks)
        if not any(group.source for each in groups.values() for group in each):
            return Ports(self._host, root, self._events, long_output=long_output)
        from teamcli.hooks.claude_transcript import ClaudeTranscripts, SessionInfo

        info = SessionInfo(session.session_id, session.root_of, is_subagent, session.messages_of)
        transcripts = ClaudeTranscripts(self._dir.hooks, info)
        self._events.subscribe(transcripts, *ClaudeTranscripts.KINDS)
        self._resources.callback(transcripts.close)
        lines, data = SessionLines(self._dir.hooks), self._dir.hooks / "plugins"
        return Ports(
            self._host,
            root,
            self._events,
            transcripts,
            long_output,
            lines,
            partial(_is_about, root),
            data,
            Semaphore(MOST_LINGERING),
        )

    def _notify(self, hooks: Hooks) -> None:
        if not hooks.wants(NOTIFICATION):
            return
        from teamcli.hooks.notifications import Notifications

        notifications = Notifications(hooks, LEAD, self._cancel)
        self._events.subscribe(notifications, *Notifications.KINDS)
        self._resources.callback(notifications.close)


def _is_about(root: Path, rule: str, event: HookEvent) -> bool:
    from teamcli.hooks.conditions import is_about  # late: few hooks have a rule

    return is_about(rule, event, root)


def unknown_events(groups: Mapping[str, tuple[HookGroup, ...]]) -> list[str]:
    """A note about events that do not exist, except in files of Claude Code, which are reported with the rest."""
    ours = (name for name, each in groups.items() if not all(group.source for group in each))
    unknown = ", ".join(name for name in ours if name not in HOOK_EVENTS)
    if not unknown:
        return []
    known = ", ".join(HOOK_EVENTS)
    return [f"Hooks for {unknown} are never run: there is no such event (there are: {known})."]
