"""The timeline: `events.jsonl`, one line for each thing that happened, for people and for other programs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.errors import StateError
from teamcli.storage.files import Json

if TYPE_CHECKING:
    from teamcli.storage.log import Log

_TITLE_LIMIT = 500
GATHERING_SECONDS = 0.02


class Timeline:
    """Consumes events and writes the important ones; streamed text is left out.

    A thread writes what has gathered for a moment, so that no agent waits for the disk.
    """

    def __init__(self, log: Log, warn: Callable[[str], None], gathering_seconds: float = GATHERING_SECONDS) -> None:
        """`warn` is called once if lines cannot be written: agents continue without the timeline."""
        self._gathering_seconds = gathering_seconds
        self._log = log
        self._warn = warn
        self._has_gap = False
        self._rows: SimpleQueue[Json | None] = SimpleQueue()
        """None ends the thread."""
        self._closing = threading.Event()
        self._writer: threading.Thread | None = None

    def close(self) -> None:
        """Write what is left."""
        self._closing.set()
        if self._writer is not None:
            self._rows.put(None)
            self._writer.join()
        self._log.close()

    def __call__(self, event: Event) -> None:
        """Events come one at a time, so only one thread starts."""
        if (entry := _entry(event)) is None:
            return
        self._rows.put({"ts": time.time(), "agent": event.agent, **entry})
        if self._writer is None:
            writer = threading.Thread(target=self._write_all, name="timeline", daemon=True)
            with suppress(RuntimeError):  # the system has no thread left; the next event tries again
                writer.start()
                self._writer = writer

    def _write_all(self) -> None:
        is_open = True
        while is_open:
            rows = [self._rows.get()]
            self._closing.wait(self._gathering_seconds)
            with suppress(Empty):
                while True:
                    rows.append(self._rows.get_nowait())
            is_open = None not in rows
            self._write([row for row in rows if row is not None])

    def _write(self, rows: Sequence[Json]) -> None:
        try:
            self._log.append(*rows)
        except StateError as e:
            if not self._has_gap:
                self._has_gap = True
                self._warn(f"The timeline has a gap: {e}")


def _entry(event: Event) -> Json | None:
    if isinstance(event, events.TaskChanged | events.StatusChanged | events.MailSent) and event.is_outside:
        return None
    describe = _DESCRIPTIONS.get(type(event))
    return describe(event) if describe else None


def task_entry(event: events.TaskChanged) -> Json:
    """Also written by `teamcli tasks`, for what it changes itself."""
    task = {"task": event.id, "subject": _short(event.subject), "status": event.status, "owner": event.owner}
    return {"event": "task", "change": event.change, **task}


_DESCRIPTIONS: Mapping[type, Callable[[Any], Json]] = {
    events.TurnStarted: lambda event: {"event": "turn_started"},
    events.TurnEnded: lambda event: {
        "event": "turn_ended",
        "outcome": event.outcome,
        "seconds": round(event.seconds, 3),
    },
    events.Answered: lambda event: {
        "event": "answer",
        "model": event.model,
        "stop_reason": event.stop_reason,
        "usage": event.usage.to_dict(),
        "cost_usd": event.cost_usd,
    },
    events.ToolStarted: lambda event: {
        "event": "tool_started",
        "id": event.call_id,
        "tool": event.tool,
        "title": _short(event.display.title),
    },
    events.ToolFinished: lambda event: {
        "event": "tool_finished",
        "id": event.call_id,
        "tool": event.tool,
        "is_error": event.is_error,
        "seconds": round(event.seconds, 3),
        **({"refused": _short(event.refusal.text)} if event.refusal else {}),
    },
    events.PermissionAsked: lambda event: {
        "event": "permission_asked",
        "tool": event.tool,
        "title": _short(event.title),
    },
    events.PermissionGiven: lambda event: {
        "event": "permission_given",
        "id": event.call_id,
        "tool": event.tool,
        "waited_seconds": round(event.waited_seconds, 3),
    },
    events.PermissionDenied: lambda event: {
        "event": "permission_denied",
        "tool": event.tool,
        "title": _short(event.title),
        "reason": event.reason,
    },
    events.RetryScheduled: lambda event: {
        "event": "retry",
        "attempt": event.attempt,
        "delay_seconds": round(event.delay_seconds, 3),
        "reason": event.reason,
    },
    events.MailSent: lambda event: {
        "event": "message",
        "to": event.to,
        "type": event.type,
        "content": _short(event.content),
        **event.fields,
    },
    events.StatusChanged: lambda event: {"event": "status", "status": event.status, **event.details},
    events.TaskChanged: task_entry,
    events.MergeEnded: lambda event: {
        "event": "merge",
        "target": event.target,
        "outcome": event.outcome,
        "text": _short(event.text),
        "commits": list(event.commits),
        "files": list(event.files),
    },
    events.Compacted: lambda event: {
        "event": "compacted",
        "tokens_before": event.tokens_before,
        "tokens_after": event.tokens_after,
        "summarised": event.is_summarised,
    },
    events.LimitHit: lambda event: {"event": "limit", "limit": event.limit, "text": event.text},
    events.Notice: lambda event: {"event": "notice", "severity": event.severity, "text": event.text},
}
"""What is written of each kind; those that are missing merely stream past."""


def _short(text: str) -> str:
    return text if len(text) <= _TITLE_LIMIT else text[:_TITLE_LIMIT] + "…"
