"""The session as plain text in a pipe: the answer as it streams, a line for each tool call, notices."""

from __future__ import annotations

import threading
from typing import TextIO

from teamcli.agent import events
from teamcli.agent.events import Event, Outcome
from teamcli.commands.base import CommandOutput, plain
from teamcli.team.message import LEAD
from teamcli.text.escaping import escape_controls, escape_piece, one_line
from teamcli.ui.render.progress import named, subagent_words


class PlainView:
    """Consumes events and writes to a stream. Everything is escaped here, so no text can control a terminal."""

    def __init__(self, stream: TextIO, shows_subagents: bool = False) -> None:
        self._stream = stream
        self._shows_subagents = shows_subagents
        self._lock = threading.Lock()
        self._in_text = False
        """Whether the last line is a piece of an answer that has not ended."""
        self._marks = ""
        """The combining marks at the end of that piece, because too many in a row are dropped."""

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
            case events.TaskChanged():
                self.say(f"{event.agent}: {event.text}")
            case events.TurnEnded() if event.agent == LEAD:
                self._write(["Interrupted"] if event.outcome is Outcome.INTERRUPTED else [])
            case events.RetryScheduled(is_news=True):
                self.say(event.text)
            case events.LimitHit():
                self.say(f"{event.agent}: {event.text}.")
            case events.Notice() | events.Compacted() | events.MergeEnded(by_user=False):
                self.say(named(event.agent, event.text))

    def show(self, shown: CommandOutput) -> None:
        """What a command returns."""
        self.say(plain(shown))

    def say(self, text: str) -> None:
        """Write whole lines."""
        self._write([text])

    def begin(self, title: str, text: str) -> None:
        """The title and the introduction of a new part."""
        self.say(f"{title}\n{text}")

    def typed(self, line: str) -> None:
        """A line as if the user had typed it at the prompt."""
        self.say(f"team >> {line}")

    def stream_text(self, text: str) -> None:
        """Write a part of a line."""
        if not text:
            return
        with self._lock:
            # Escaped with the marks before it: too many could be spread over several pieces.
            shown, self._marks = escape_piece(self._marks, text)
            self._stream.write(shown)
            self._stream.flush()
            self._in_text = not shown.endswith("\n")

    def _show_mail(self, mail: events.MailSent) -> None:
        """One line for each message. Errors and the answer to a request of the user are shown whole."""
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


def tool_trace(event: events.ToolFinished) -> str:
    """A tool call in one line: `> bash: its output`. A teammate's has its name."""
    content = f"refused: {event.content.removeprefix('Error: ')}" if event.refusal else event.content
    if event.agent == LEAD:
        return f"> {event.tool}: {one_line(content, 200)}"
    return f"  [{event.agent}] {event.tool}: {one_line(content, 120)}"
