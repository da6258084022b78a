"""The session as plain text in a pipe: the answer as it streams, a line for each tool call, notices."""

from __future__ import annotations

import threading
from typing import TextIO

from teamcli.agent import events
from teamcli.agent.events import Event, Outcome
from teamcli.commands.base import CommandOutput, plain
from teamcli.team.message import LEAD, is_subagent
from teamcli.text.escaping import escape_controls, escape_piece, one_line


class PlainView:
    """Consumes events and writes to a stream. All text passes through here, so nothing can drive a terminal."""

    def __init__(self, stream: TextIO, shows_subagents: bool = False) -> None:
        self._stream = stream
        self._shows_subagents = shows_subagents
        self._lock = threading.Lock()
        self._in_text = False
        """Whether the last thing written was a piece of an answer, its line still open."""
        self._marks = ""
        """With which marks that piece ended."""

    def __call__(self, event: Event) -> None:
        match event:
            case events.TextArrived() if event.agent == LEAD:
                self.stream_text(event.text)
            case events.Recorded() if self._shows_subagents and (words := subagent_words(event)):
                self.say(words)
            case events.ToolFinished():
                self.say(tool_trace(event))
            case events.MailSent():
                self._show_mail(event)
            case events.TurnEnded() if event.agent == LEAD:
                self._write(["Interrupted"] if event.outcome is Outcome.INTERRUPTED else [])
            case events.RetryScheduled(is_news=True):
                self.say(event.text)
            case events.LimitHit():
                self.say(f"{event.agent}: {event.text}.")
            case events.Notice() | events.Compacted():
                self.say(named(event.agent, event.text))

    def show(self, shown: CommandOutput) -> None:
        """What a command returns."""
        self.say(plain(shown))

    def say(self, text: str) -> None:
        """Write whole lines."""
        self._write([text])

    def begin(self, title: str, text: str) -> None:
        """A new part, and what it is about."""
        self.say(f"{title}\n{text}")

    def typed(self, line: str) -> None:
        """A line that stands for one at the prompt."""
        self.say(f"team >> {line}")

    def stream_text(self, text: str) -> None:
        """Write a part of a line."""
        if not text:
            return
        with self._lock:
            shown, self._marks = escape_piece(self._marks, text)
            self._stream.write(shown)
            self._stream.flush()
            self._in_text = not shown.endswith("\n")

    def _show_mail(self, mail: events.MailSent) -> None:
        """A line for each message; the whole of what answers the user's own request."""
        is_answer = mail.fields.get("by_user") or (mail.type == "error" and mail.to == LEAD)
        text = mail.content if is_answer else one_line(mail.content, 160)
        kind = "" if mail.type == "message" else f" ({mail.type})"
        self.say(f"{mail.agent} → {mail.to}{kind}: {text}")

    def _write(self, lines: list[str]) -> None:
        """Finish an open line, then write these, in one step."""
        with self._lock:
            self._stream.write("\n" * self._in_text + "".join(escape_controls(line) + "\n" for line in lines))
            self._stream.flush()
            self._in_text = False


def named(agent: str, text: str) -> str:
    """What happened to an agent, with its name; the user knows who the lead is, and some texts say it themselves."""
    return text if agent == LEAD or text.startswith(f"{agent} ") else f"{agent}: {text}"


def subagent_words(event: events.Recorded) -> str:
    """What a sub-agent has said in an answer, each line with its id; nothing for other agents."""
    if event.message.role != "assistant" or not is_subagent(event.agent):
        return ""
    said = "\n".join(block["text"] for block in event.message.content if block["type"] == "text")
    return "\n".join(f"  [{event.agent}] {line}" for line in said.splitlines())


def tool_trace(event: events.ToolFinished) -> str:
    """A call in a pipe or log: `> bash: its output`, a teammate's with its name."""
    if event.agent == LEAD:
        return f"> {event.tool}: {one_line(event.content, 200)}"
    return f"  [{event.agent}] {event.tool}: {one_line(event.content, 120)}"
