"""What `-p` writes to stderr: notices and reports always, each step if stderr is a terminal or with `--verbose`."""

from __future__ import annotations

from typing import TextIO

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.session.session import Preferences
from teamcli.team.message import LEAD, is_subagent
from teamcli.text.escaping import escape_controls, one_line

_WORDS_LENGTH = 200
_HAVE_EVENTS = frozenset({"spawn_teammate", "send_message", "broadcast", "task_create", "task_update"})


class Progress:
    """Consumes events and writes a line for those that matter."""

    def __init__(self, stream: TextIO, preferences: Preferences) -> None:
        self._stream = stream
        self._preferences = preferences
        self._steps = stream.isatty() or preferences.verbose

    def __call__(self, event: Event) -> None:
        verbose = self._preferences.verbose
        line = self._notice(event)
        if not line and self._steps and not (verbose and _is_shown_otherwise(event)):
            line = _step(event)
        if not line and verbose:
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


def named(agent: str, text: str) -> str:
    """The text with the agent's name, unless it is the lead or the text begins with the name."""
    return text if agent == LEAD or text.startswith(f"{agent} ") else f"{agent}: {text}"


def subagent_words(event: events.Recorded) -> str:
    """The text of a sub-agent's answer, each line with its id. Empty for other agents."""
    if event.message.role != "assistant" or not is_subagent(event.agent):
        return ""
    said = "\n".join(block["text"] for block in event.message.content if block["type"] == "text")
    return "\n".join(f"  [{event.agent}] {line}" for line in said.splitlines())


def _is_shown_otherwise(event: Event) -> bool:
    """Whether there is also an event about what the call did."""
    return isinstance(event, events.ToolFinished) and event.tool in _HAVE_EVENTS and not event.is_error


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
            what = f"joins the team as {event.details.get('role', '')}" if event.status == "spawning" else "has left"
            return f"  {event.agent} {one_line(what)}"
    return ""


def _words(event: events.Recorded) -> str:
    content = event.message.content
    said = " ".join(str(block["text"]) for block in content if block["type"] == "text")
    # An answer without a call ends a turn: it is the result, which goes to the lead or to stdout.
    is_result = not any(block["type"] == "tool_use" for block in content)
    return "" if is_result or not said.strip() else f"  {event.agent}: {one_line(said, _WORDS_LENGTH)}"
