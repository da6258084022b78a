"""A teammate's pieces of work, as its transcript records them: what began each one and how it ended."""

from __future__ import annotations

import secrets
import time
from typing import Any, NamedTuple

from teamcli.agent.conversation import History
from teamcli.agent.events import Outcome, TurnEnded
from teamcli.agent.limits import Used
from teamcli.llm.types import Usage
from teamcli.storage.files import Json
from teamcli.team.message import LEAD, Message, MessageType, message_id

WORK = "work"
"""The mark of the line that begins a piece of work."""
_REPORTS = (MessageType.RESULT, MessageType.ERROR)


class Work(NamedTuple):
    """A piece of work: its number in this incarnation, who began it, and a key that names it for good."""

    number: int
    by_user: bool
    key: str

    @classmethod
    def begin(cls, number: int, by_user: bool) -> Work:
        return cls(number, by_user, secrets.token_hex(6))

    def to_mark(self) -> Json:
        return self._asdict()

    @classmethod
    def from_mark(cls, raw: Any) -> Work:
        fields = raw if isinstance(raw, dict) else {}
        number, key = fields.get("number"), fields.get("key", fields.get("began"))  # an earlier version noted the time
        return cls(number if isinstance(number, int) else 0, fields.get("by_user") is True, str(key))


class Report(NamedTuple):
    """How a piece of work ended, as a line of the transcript and as a message to the lead."""

    type: MessageType
    text: str
    work: Work

    @classmethod
    def of(cls, ended: TurnEnded, work: Work) -> Report:
        match ended.outcome:
            case Outcome.DONE:
                return cls(MessageType.RESULT, ended.text or "(done, with nothing to say)", work)
            case Outcome.FAILED:
                text = str(ended.error)
            case Outcome.MAX_TURNS | Outcome.MAX_BUDGET:
                text = f"stopped: {in_a_sentence(ended.error)}; a message lets it resume"
            case Outcome.REFUSED:
                text = ended.text or "the model refused to continue"
            case _:
                text = "the conversation no longer fits the model's context"
        return cls(MessageType.ERROR, text, work)

    def ending_with(self, line: str) -> Report:
        """With a line that the program adds. An error has only its reason."""
        return self._replace(text=f"{self.text}\n\n{line}") if line and self.type is MessageType.RESULT else self

    def to_row(self) -> Json:
        return {"kind": "end", "type": self.type, "text": self.text, WORK: self.work.to_mark()}

    def message(self, sender: str) -> Message:
        # The id depends only on the transcript: the same again after a restart, and another for each piece of work.
        unique = message_id(sender, self.work.key, str(self.work.number), self.type)
        fields = {"by_user": True} if self.work.by_user else {}
        return Message(self.type, sender, LEAD, self.text, time.time(), unique, fields)


class LatestWork(NamedTuple):
    """The latest piece of work: it is open, or `report` says how it ended."""

    work: Work
    is_open: bool
    report: Report | None = None
    is_recorded: bool = True
    """False if a crash came before the line that says how it ended."""

    @classmethod
    def read(cls, rows: list[Json], history: History) -> LatestWork:
        """From a transcript, which may have been cut off anywhere."""
        work = Work.from_mark(history.marks.get(WORK))
        end = next((row for row in reversed(rows) if row.get("kind") == "end" and row.get("type") in _REPORTS), None)
        if end is not None and Work.from_mark(end.get(WORK)).number == work.number:
            return cls(work, False, Report(MessageType(end["type"]), str(end.get("text", "")), work))
        last = rows[-1] if rows else {}
        if last.get("kind") == "assistant" and last.get("stop_reason") == "end_turn":
            # A crash came between the last answer and the line that says how the work ended.
            last_words = history.messages[-1].content if history.messages else ()
            text = "\n".join(block["text"] for block in last_words if block["type"] == "text")
            return cls(work, False, Report(MessageType.RESULT, text, work), is_recorded=False)
        return cls(work, bool(history.messages))


def calls_in_latest_work(rows: list[Json]) -> int:
    """Model calls since the latest piece of work began."""
    count = 0
    for row in rows:
        marks = row.get("marks")
        if isinstance(marks, dict) and WORK in marks:
            count = 0
        count += row.get("kind") == "assistant" or bool(row.get("opening"))  # a summary is a model call too
    return count


def used_in(rows: list[Json]) -> Used:
    """What the model calls in a transcript have used."""
    used = Used()
    for row in rows:
        if row.get("kind") == "assistant" and isinstance(row.get("usage"), dict):
            usage = Usage().at_least(row["usage"])
            cost = row.get("cost_usd")
            used = used.plus(Used(cost if isinstance(cost, float) else 0.0, usage.context_tokens, 1))
    return used


def in_a_sentence(error: Exception | None) -> str:
    text = str(error)
    return text[:1].lower() + text[1:]
