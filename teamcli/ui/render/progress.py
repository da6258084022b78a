"""What `-p` writes to stderr: notices and reports always, each step if stderr is a terminal or with `--verbose`."""

from __future__ import annotations

from typing import TextIO

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.session.session import Preferences
from teamcli.team.message import LEAD
from teamcli.text.escaping import escape_controls, one_line
from teamcli.ui.render.plain_view import named, subagent_words

_WORDS_LENGTH = 200


class Progress:
    """Consumes events and writes a line for those that matter."""

    def __init__(self, stream: TextIO, preferences: Preferences) -> None:
        self._stream = stream
        self._preferences = preferences
        self._steps = stream.isatty() or preferences.verbose

    def __call__(self, event: Event) -> None:
        line = self._notice(event)
        if not line and self._steps:
            line = _step(event)
        if not line and self._preferences.verbose:
            line = _detail(event)
        if line:
            print(line, file=self._stream, flush=True)

    def _notice(self, event: Event) -> str:
        """What is always written."""
        match event:
            case events.Notice():
                return f"teamcli: {escape_controls(named(event.agent, event.text))}"
            case events.Recorded() if self._preferences.shows_subagents and (words := subagent_words(event)):
                return escape_controls(words)
            case events.MergeEnded(by_user=False):
                return f"teamcli: {escape_controls(event.text)}"
            case events.LimitHit() | events.Compacted():
                return f"teamcli: {event.agent}: {event.text}"
            case events.PermissionDenied():
                refused = f"refused {event.tool}: {one_line(event.title)} ({one_line(event.reason, 400)})"
                return f"teamcli: {named(event.agent, refused)}"
            case events.RetryScheduled(is_news=True):
                return f"teamcli: {event.text}"
            case events.MailSent(type="result" | "error"):
                return f"teamcli: {event.agent} → {event.to} ({event.type}): {one_line(event.content, 160)}"
        return ""


def _step(event: Event) -> str:
    """A call, with the agent's name."""
    if not isinstance(event, events.ToolFinished):
        return ""
    title = one_line(event.display.title, 100)
    if event.refusal:
        return f"  ⊘ {event.agent}: {title} ({one_line(event.refusal.text)})"
    from teamcli.text.failures import failed_exit, first_error_line  # late: the first request does not need it

    ending = failed_exit(event.content) if event.tool == "bash" else ""
    mark = "✗" if event.is_error or ending else "✓"
    outcome = f", {ending}" if ending else ""
    line = f"  {mark} {event.agent}: {title} ({event.seconds:.1f} s{outcome})"
    why = one_line(first_error_line(event.content), 160) if mark == "✗" else ""
    return f"{line}\n      {why}" if why else line


def _detail(event: Event) -> str:
    """What agents say, to the user and to each other, and what happens on the board."""
    match event:
        case events.Recorded() if event.message.role == "assistant":
            return _words(event)
        case events.MailSent():
            return f"  {event.agent} → {event.to} ({event.type}): {one_line(event.content, 160)}"
        case events.TaskChanged():
            return f"  {event.agent}: {one_line(event.text)}"
        case events.StatusChanged(status="spawning" | "shutdown"):
            joined = "joins the team" if event.status == "spawning" else "has left"
            return f"  {event.agent} {joined}"
    return ""


def _words(event: events.Recorded) -> str:
    content = event.message.content
    said = " ".join(str(block["text"]) for block in content if block["type"] == "text")
    # An answer of the lead without a call may be the last one, which goes to stdout.
    is_answer = event.agent == LEAD and not any(block["type"] == "tool_use" for block in content)
    return "" if is_answer or not said.strip() else f"  {event.agent}: {one_line(said, _WORDS_LENGTH)}"
