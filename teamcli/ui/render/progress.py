"""What `-p` writes to stderr: notices and reports always, each step if stderr is a terminal."""

from __future__ import annotations

from typing import TextIO

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.text.escaping import escape_controls, one_line
from teamcli.ui.render.plain_view import named, subagent_words


class Progress:
    """Consumes events and writes a line for those that matter."""

    def __init__(self, stream: TextIO, steps: bool | None = None, shows_subagents: bool = False) -> None:
        self._stream = stream
        self._shows_subagents = shows_subagents
        self._steps = stream.isatty() if steps is None else steps

    def __call__(self, event: Event) -> None:
        match event:
            case events.Notice():
                line = f"teamcli: {escape_controls(named(event.agent, event.text))}"
            case events.Recorded() if self._shows_subagents and (words := subagent_words(event)):
                line = escape_controls(words)
            case events.MergeEnded(by_user=False):
                line = f"teamcli: {escape_controls(event.text)}"
            case events.LimitHit() | events.Compacted():
                line = f"teamcli: {event.agent}: {event.text}"
            case events.PermissionDenied():
                refused = f"refused {event.tool}: {one_line(event.title)} ({one_line(event.reason, 400)})"
                line = f"teamcli: {named(event.agent, refused)}"
            case events.RetryScheduled(is_news=True):
                line = f"teamcli: {event.text}"
            case events.MailSent(type="result" | "error"):
                line = f"teamcli: {event.agent} → {event.to} ({event.type}): {one_line(event.content, 160)}"
            case events.ToolFinished() if self._steps:
                mark = "✗" if event.is_error else "✓"
                line = f"  {mark} {event.agent}: {one_line(event.display.title, 100)} ({event.seconds:.1f} s)"
            case _:
                return
        print(line, file=self._stream, flush=True)
