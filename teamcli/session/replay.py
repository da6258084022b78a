"""The last steps of an agent, read from the end of its transcript, as the events that reported them."""

from __future__ import annotations

import json
import logging
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from pydantic_core import ValidationError

from teamcli.agent import events
from teamcli.agent.compaction import COMPACTION
from teamcli.agent.conversation import is_block
from teamcli.agent.events import Event, Outcome
from teamcli.agent.loop import INTERRUPTED
from teamcli.agent.outside_tools import meant_call
from teamcli.agent.permission_question import recorded_refusal
from teamcli.agent.tool import Display
from teamcli.errors import ToolError
from teamcli.exec.commands import Commands
from teamcli.llm.types import Block, Message
from teamcli.session.steps import READING_CALLS, frames_in, mail_in
from teamcli.storage.files import LARGEST_LINE, Json, as_number, decode_line
from teamcli.storage.tail import beginning, lines_before, open_log
from teamcli.team.message import LEAD, MessageType, is_subagent
from teamcli.text.escaping import one_line
from teamcli.text.redaction import redact_value
from teamcli.tools.base.context import AgentContext
from teamcli.tools.catalog import ALL_TOOLS
from teamcli.workspace.bounds import CHECKOUTS, Workspace
from teamcli.workspace.known_files import KnownFiles, PathLocks

logger = logging.getLogger(__name__)

UNKNOWN_SECONDS = -1.0
"""A transcript does not say how long a call took."""
_TITLE_LENGTH = 100
_TASK = re.compile(r"(?:Created task|Task) (\d+) \([^)]*\): (.*)")
_DELIVERED = re.compile(r"delivered to \[([^\]]*)\]")
_CHANGES = {
    "in_progress": "started",
    "completed": "completed",
    "cancelled": "cancelled",
    "pending": "reopened",
}
_NOT_STEPS = (events.Recorded, events.ThinkingArrived)
"""They belong to the step before or after them."""


class RecordedStep(NamedTuple):
    at: float
    """Seconds since the epoch; 0 if that is unknown."""
    event: Event


def read_steps(
    agent: str, transcript: Path, end: int, file: str, count: int, after: int | None = None
) -> list[RecordedStep]:
    """The last steps that are recorded before the offset `end`, at most `count`; with `after`, only those behind it.

    Nothing if `transcript` is another file by now. Lines that make no sense are skipped. Of the lead, the steps of its
    last session; behind an offset, all.
    """
    fd = open_log(transcript)
    if fd is None:
        return []
    replay = _Replay(agent, transcript)
    try:
        if beginning(fd) != file:
            return []
        if after is None:
            rows = _last_rows(lines_before(fd, end), count)
        else:
            rows = [row for line in lines_before(fd, end, after, LARGEST_LINE) if (row := decode_line(line))][::-1]
            # The answer whose calls have their results behind the offset.
            replay.take_calls(decode_line(next(lines_before(fd, after), b"")) or {})
    finally:
        os.close(fd)
    steps = list(replay.steps(redact_value(rows)))
    return steps[_first_of_last(steps, count) :]


def _last_rows(lines: Iterable[bytes], count: int) -> list[Json]:
    """The rows with the last steps, in order. Of several sessions, only those of the last one."""
    rows: list[Json] = []
    session: object = None
    earlier: list[Json] | None = None
    """Rows of a part of the transcript whose `session` line is still to come."""
    steps = 0
    for line in lines:
        row = decode_line(line)
        if row is None:
            continue
        if row.get("kind") == "session":
            if earlier is not None and row.get("id") == session:
                rows += earlier
                steps += sum(map(_steps_in, earlier))
            session = row.get("id") if session is None else session
            earlier = []
        elif earlier is not None:
            earlier.append(row)
        else:
            rows.append(row)
            steps += _steps_in(row)
        # The results of calls need the answer that made them.
        if steps >= count and not (rows and any(block["type"] == "tool_result" for block in _content(rows[-1]))):
            break
    return rows[::-1]


def _content(row: Json) -> list[Block]:
    content, role = row.get("content"), row.get("kind")
    if not isinstance(content, list) or role not in ("user", "assistant"):
        return []
    return [block for block in content if is_block(block, role)]


def _steps_in(row: Json) -> int:
    return sum(block["type"] in ("text", "tool_result") for block in _content(row))


def _first_of_last(steps: list[RecordedStep], count: int) -> int:
    """The index at which the last `count` steps begin."""
    for index in reversed(range(len(steps))):
        count -= not isinstance(steps[index].event, _NOT_STEPS)
        if count < 0:
            return index + 1
    return 0


class _Replay:
    def __init__(self, agent: str, transcript: Path) -> None:
        self._agent = agent
        is_subagents = is_subagent(agent)  # their transcripts are one directory further down
        self._recall = Recall(agent, transcript.parents[2 if is_subagents else 1])
        self._calls: dict[str, Block] = {}
        """Of the last answer, by id."""

    def steps(self, rows: Iterable[Json]) -> Iterator[RecordedStep]:
        for row in rows:
            at = as_number(row.get("ts"))
            try:
                yield from [RecordedStep(at, event) for event in self._events(row)]
            except Exception:  # boundary: a line that someone has edited must not hide the others
                logger.warning("a line of the transcript of %s cannot be shown", self._agent, exc_info=True)

    def _events(self, row: Json) -> Iterator[Event]:
        agent = self._agent
        match row.get("kind"):
            case "user":
                yield from self._user(_content(row), row.get("marks"))
            case "assistant":
                self.take_calls(row)
                yield from self._assistant(_content(row))
            case "end" if row.get("type") in (MessageType.RESULT, MessageType.ERROR) and agent != LEAD:
                work = row.get("work")
                fields = {"by_user": True} if isinstance(work, dict) and work.get("by_user") is True else {}
                yield events.MailSent(agent, LEAD, row["type"], str(row.get("text", "")), fields)
            case kind if kind == COMPACTION:
                before, after = as_number(row.get("tokens_before")), as_number(row.get("tokens_after"))
                yield events.Compacted(agent, int(before), int(after), bool(row.get("opening")))

    def take_calls(self, row: Json) -> None:
        """The results of these calls follow."""
        self._calls = {block["id"]: meant_call(block) for block in _content(row) if block["type"] == "tool_use"}

    def _assistant(self, content: list[Block]) -> Iterator[Event]:
        for block in content:
            if block["type"] == "thinking" and isinstance(thought := block.get("thinking"), str):
                yield events.ThinkingArrived(self._agent, thought)
            elif block["type"] == "text":
                yield events.TextArrived(self._agent, block["text"])
        yield events.Recorded(self._agent, Message("assistant", tuple(content)))

    def _user(self, content: list[Block], marks: object) -> Iterator[Event]:
        for block in content:
            if block["type"] == "tool_result" and (call := self._calls.pop(block["tool_use_id"], None)):
                yield from self._call(call, _text_of(block.get("content")), block.get("is_error") is True)
        yield from mail_in(self._agent, content, marks if isinstance(marks, dict) else {})
        texts = [block["text"] for block in content if block["type"] == "text"]
        # What the program adds is tagged, so it begins with `<`. The rest is what the user typed.
        if self._agent == LEAD:
            yield from (events.LineTaken(self._agent, text) for text in texts if not text.startswith("<"))
        if INTERRUPTED in texts:
            yield events.TurnEnded(self._agent, Outcome.INTERRUPTED, "", 0.0)

    def _call(self, call: Block, content: str, is_error: bool) -> Iterator[Event]:
        name, given = call["name"], call["input"]
        if not is_error:
            yield from self._reported(name, given, content)
        display, refusal = self._recall.display(name, given), recorded_refusal(content) if is_error else None
        yield events.ToolFinished(self._agent, call["id"], name, display, content, is_error, UNKNOWN_SECONDS, refusal)

    def _reported(self, name: str, given: Mapping[str, Any], content: str) -> Iterator[Event]:
        """What the bus has reported about a call besides its end."""
        agent, text = self._agent, str(given.get("content", ""))
        if name in READING_CALLS:
            yield from frames_in(agent, content)
        elif name == "send_message":
            names = found[1].split(", ") if (found := _DELIVERED.match(content)) else [str(given.get("to", ""))]
            yield from (events.MailSent(agent, to, MessageType.MESSAGE, text, {}) for to in names if to)
        elif name == "broadcast":
            to = content.removeprefix("Broadcast to ") if content.startswith("Broadcast to ") else "all"
            yield events.MailSent(agent, one_line(to, 40), MessageType.BROADCAST, text, {})
        elif name in ("task_create", "task_update") and (found := _TASK.match(content)):
            status, owner = given.get("status"), given.get("owner")
            change = "created" if name == "task_create" else _CHANGES.get(str(status), "changed")
            owner = owner if isinstance(owner, str) else None
            yield events.TaskChanged(agent, int(found[1][:18]), change, found[2], str(status or "pending"), owner)


class Recall:
    """How the calls of an agent are shown that have run long ago."""

    def __init__(self, agent: str, team_dir: Path) -> None:
        checkout = team_dir / CHECKOUTS / agent
        root = checkout if checkout.is_dir() else team_dir.parent
        self._tools = {tool.name: tool for tool in ALL_TOOLS}
        # What shows a call looks at nothing but paths.
        self._context = AgentContext(Workspace(root.resolve()), cast(Commands, None), KnownFiles(PathLocks()), agent)

    def display(self, name: str, given: Mapping[str, Any]) -> Display:
        if (tool := self._tools.get(name)) is not None:
            try:
                return tool.load().recall(given, self._context)
            except (ToolError, ValidationError):  # the call failed for the same reason
                pass
        words = json.dumps(given, ensure_ascii=False) if given else ""
        return Display(one_line(f"{name} {words}".strip(), _TITLE_LENGTH))


def _text_of(content: object) -> str:
    """The text of a result, which may be a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = content if isinstance(content, list) else []
    return "\n".join(str(block["text"]) for block in blocks if isinstance(block, dict) and "text" in block)
