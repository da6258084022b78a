"""An agent's conversation: the messages that go to the model, each of them on disk before it counts.

The transcript is the only state. Restoring reads it back and closes the calls that a crash left open. Nothing in it is
ever rewritten, so what was sent to the model stays the unchanged beginning of every later request. Only a compaction,
which is a line in the transcript too, replaces that beginning.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import TYPE_CHECKING, Any, NamedTuple

from teamcli.agent.compaction import COMPACTION, Compaction
from teamcli.agent.outside_tools import OFFER, offer_row, read_offer
from teamcli.errors import StateError
from teamcli.llm.types import Block, Message, Reply, ToolSpec, Usage
from teamcli.storage.files import Json
from teamcli.text.redaction import redact_value

if TYPE_CHECKING:
    from teamcli.storage.log import Log

NOT_RUN_CALL = "Not run: the turn was interrupted before this call began."
INTERRUPTED_CALL = "Interrupted: this call was stopped before it finished; what it had done so far was not undone."
LOST_RESULT = "The result of this call was lost."
SENDING_CALLS = ("send_message", "broadcast")
"""Calls that a restart may finish: their messages have ids that make a repeat harmless."""

Marks = dict[str, Any]
"""What a transcript line records besides its content, by name. A later value replaces an earlier one; lists add up."""
OnRecord = Callable[[Message, Mapping[str, Any]], None]
"""Called with each message that is on disk, and the marks of its line."""


def joined_marks(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> Marks:
    marks: Marks = {}
    add_marks(marks, earlier)
    add_marks(marks, later)
    return marks


def add_marks(marks: Marks, later: Mapping[str, Any]) -> None:
    """Join in place: in a long transcript, copying the lists for each line would be slow."""
    for name, value in later.items():
        if isinstance(value, list) and isinstance(marks.get(name), list):
            marks[name] += value
        else:
            marks[name] = list(value) if isinstance(value, list) else value


@dataclass
class History:
    """What a transcript says: the messages, and the records kept with them."""

    messages: list[Message] = field(default_factory=list)
    seen_files: dict[str, str] = field(default_factory=dict)
    marks: Marks = field(default_factory=dict)
    """The marks of all lines, joined."""
    tokens: int = 0
    """How long the conversation was when the model last counted it; 0 if it never did."""
    uncounted: list[Message] = field(default_factory=list)
    """The messages since then."""
    answer_key: str = ""
    """The durable name of the last answer."""
    offered: tuple[ToolSpec, ...] | None = None
    """The tools of other programs in its requests; None if that is not decided. See `outside_tools`."""

    @classmethod
    def read(cls, rows: Iterable[Json]) -> History:
        """Skips invalid rows, and repairs the rest into a valid conversation."""
        history = cls()
        messages: list[Message] = []
        for row in rows:
            content = row.get("content")
            role = row.get("kind")
            if role == COMPACTION:
                compaction = Compaction.from_row(row, is_block)
                messages = compaction.applied_to(repair(messages))
                history.set_count(compaction.tokens_after)
            elif role == OFFER:
                history.offered = read_offer(row) or history.offered
            if role not in ("user", "assistant") or not isinstance(content, list):
                continue
            usage = row.get("usage")
            tokens = Usage().at_least(usage).context_tokens if isinstance(usage, dict) else 0
            messages.append(Message(role, tuple(block for block in content if is_block(block, role))))
            history.count(messages[-1], tokens)
            if role == "assistant":
                # Lines of an earlier version have no key: there the time named an answer.
                key = row.get("key")
                history.answer_key = key if isinstance(key, str) else repr(row.get("ts"))
            if isinstance(marks := row.get("marks"), dict):
                add_marks(history.marks, marks)
            files = row.get("files")
            history.seen_files.update(files if isinstance(files, dict) else {})
        history.messages = repair(messages)
        return history

    def count(self, message: Message, tokens: int) -> None:
        """Count a new message. `tokens` is the length of the conversation with it according to the model, or 0."""
        if tokens:
            self.set_count(tokens)
        else:
            self.uncounted.append(message)

    def set_count(self, tokens: int) -> None:
        self.tokens, self.uncounted = tokens, []


class _Unsynced(NamedTuple):
    """A message that is written, but may not be on disk yet."""

    message: Message
    marks: Mapping[str, Any]
    position: int
    """The position of the message that it was joined with, or that it follows."""
    replaced: Sequence[Message]
    """The messages that were there before."""


class Conversation:
    """The messages of one agent, in memory and in its transcript."""

    def __init__(
        self, log: Log, history: History | None = None, on_record: OnRecord = lambda message, marks: None
    ) -> None:
        self._log = log
        self._on_record = on_record
        self._unsynced: _Unsynced | None = None
        # Keys must be unique, not secret: one system call for all of them. Not the shared generator, which a program
        # may seed, and not one for all conversations, which forks of a program would share.
        self._keys = random.Random()
        self._missing = NOT_RUN_CALL
        """The result of open calls that get none."""
        self._unwritten: Sequence[Block] = ()
        """Results of `SENDING_CALLS` that are not on disk. Their messages are, and must not be sent again."""
        self.history = history or History()

    def close(self) -> None:
        """Close the transcript. Nothing can be added after this."""
        self._log.close()

    def put_back(self) -> None:
        """Write the transcript again if it was deleted.

        Raises: StateError
        """
        self._log.put_back()

    @property
    def messages(self) -> Sequence[Message]:
        return self.history.messages

    def add_user(
        self,
        content: Sequence[Block],
        files: Mapping[str, str] | None = None,
        marks: Mapping[str, Any] | None = None,
        is_next_sent: bool = False,
    ) -> None:
        """Record a user message: a prompt, tool results, mail. `marks` are kept in the same durable line.

        Open calls that get no result here never began, and are closed as such. If the disk refused their results,
        messages stay sent and the other results are lost. If the next step is a model call (`is_next_sent`), the disk
        may take its time while the request travels: `sync` waits for it.

        Raises: StateError
        """
        if not content:
            return
        calls = open_calls(self.messages[-1]) if self.messages else []
        content = answer_calls(calls, [*self._unwritten, *redact_value(content)], self._missing)
        row: Json = {"kind": "user", "ts": time.time(), "content": list(content)}
        if marks:
            row["marks"] = dict(marks)
        if files:
            row["files"] = dict(files)
            self.history.seen_files.update(files)
        # If the write below fails, the calls did run: later their results count as lost, not as never begun.
        self._missing = LOST_RESULT
        if calls:
            answered = zip(calls, content, strict=False)
            self._unwritten = [result for call, result in answered if call["name"] in SENDING_CALLS]
        message = Message("user", tuple(content))
        if not is_next_sent:
            self._record(row, message, marks or {})
            return
        self.sync()
        self._log.write(row)
        last = max(0, len(self.messages) - 1)
        self._unsynced = _Unsynced(message, marks or {}, last, self.messages[last:])
        append_message(self.history.messages, message)
        self.history.count(message, 0)

    def add_reply(self, reply: Reply, cost_usd: float | None) -> None:
        """Record a model's answer. One without content is counted but not kept: the API would refuse it later.

        Raises: StateError
        """
        # The key, not the id of a call, names the answer for good: endpoints reuse ids.
        row: Json = {
            "kind": "assistant",
            "ts": time.time(),
            "key": f"{self._keys.getrandbits(48):012x}",
            "content": list(reply.content),
            "stop_reason": reply.stop_reason,
            "model": reply.model,
            "usage": reply.usage.to_dict(),
            "cost_usd": cost_usd,
        }
        if reply.content:
            self._record(row, Message("assistant", reply.content), {}, reply.usage.context_tokens)
            self.history.answer_key = row["key"]
        else:
            self.sync()
            self._log.append(row)

    def compact(self, compaction: Compaction) -> None:
        """Continue with what a compaction keeps.

        Raises: StateError
        """
        self.note(compaction.to_row())
        self.history.messages = compaction.applied_to(self.messages)
        self.history.set_count(compaction.tokens_after)

    def key_of_call(self, position: int) -> str:
        """The durable name of a call of the last answer.

        Its id is not enough: endpoints reuse ids, in another session or in the same one.
        """
        return f"{self.history.answer_key}/{position}"

    def note(self, row: Json) -> None:
        """Record something that is not a message, such as the end of a piece of work.

        Raises: StateError
        """
        self.sync()
        self._log.append({"ts": time.time(), **redact_value(row)})

    def offer(self, specs: Sequence[ToolSpec]) -> None:
        """From now on its requests offer these tools of other programs.

        Raises: StateError
        """
        row = redact_value(offer_row(specs))
        self.note(row)
        self.history.offered = read_offer(row)  # exactly what a restart will read, so that requests stay the same

    def switch_to(self, history: History) -> None:
        """Continue with another conversation. The caller has begun its session in the transcript."""
        self.history = history
        self._missing, self._unwritten = NOT_RUN_CALL, ()

    def sync(self) -> None:
        """Wait until the last message is on disk. Nothing may act on an answer before that.

        Raises: StateError; then the conversation is what it was without that message
        """
        unsynced, self._unsynced = self._unsynced, None
        if unsynced is None:
            return
        try:
            self._log.sync()
        except StateError:
            self.history.messages[unsynced.position :] = unsynced.replaced
            self.history.uncounted.remove(unsynced.message)
            raise
        self._recorded(unsynced.message, unsynced.marks)

    def close_open_calls(self, results: Sequence[Block] = ()) -> None:
        """Answer the calls that a crash left open: with these results, or as interrupted.

        Raises: StateError
        """
        if self.messages and (calls := open_calls(self.messages[-1])):
            self.add_user(answer_calls(calls, results, INTERRUPTED_CALL))

    def _record(self, row: Json, message: Message, marks: Mapping[str, Any], tokens: int = 0) -> None:
        self.sync()
        self._log.append(row)
        append_message(self.history.messages, message)
        self.history.count(message, tokens)
        self._recorded(message, marks)

    def _recorded(self, message: Message, marks: Mapping[str, Any]) -> None:
        self._missing, self._unwritten = NOT_RUN_CALL, ()
        self._on_record(message, marks)


_NEEDED = {
    "text": ("text",),
    "tool_use": ("id", "name"),
    "tool_result": ("tool_use_id",),
    "thinking": ("signature",),
    "redacted_thinking": ("data",),
}
_OF_ONE_ROLE = {
    "tool_use": "assistant",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
    "tool_result": "user",
}


def is_block(block: object, role: str) -> bool:
    """Whether the API would accept this block. It refuses a whole request for one bad block."""
    if not isinstance(block, dict) or not isinstance(kind := block.get("type"), str):
        return False
    if _OF_ONE_ROLE.get(kind, role) != role or (kind == "tool_use" and not isinstance(block.get("input"), dict)):
        return False
    return all(isinstance(value := block.get(name), str) and value.strip() for name in _NEEDED.get(kind, ()))


def repair(messages: Sequence[Message]) -> list[Message]:
    """Make a valid conversation from one that may have lost lines.

    It starts with the user. Every call, except those of the last message, has exactly one result, and results come
    first in their message. No call id occurs twice, and no answer ends in thinking.
    """
    repaired: list[Message] = []
    for message in _with_unique_ids(messages):
        calls = open_calls(repaired[-1]) if repaired else []
        if message.role == "user":
            append_message(repaired, Message("user", answer_calls(calls, message.content, LOST_RESULT)))
        elif repaired:
            append_message(repaired, Message("user", answer_calls(calls, (), LOST_RESULT)))
            append_message(repaired, message)
    return repaired


def _with_unique_ids(messages: Sequence[Message]) -> Iterator[Message]:
    used: set[str] = set()
    new_ids: dict[str, str] = {}
    for message in messages:
        if message.role == "assistant":
            ids = {call["id"] for call in open_calls(message)}
            spellings = {id: chain([id], (f"{id}-{n}" for n in count(2))) for id in ids}
            new_ids = {id: next(new for new in spellings[id] if new not in used) for id in ids}
            used.update(new_ids.values())
        content: list[Block] = []
        seen: set[str] = set()
        for block in message.content:
            name = {"tool_use": "id", "tool_result": "tool_use_id"}.get(block["type"], "")
            id = block.get(name, "")
            if block["type"] == "tool_use" and id in seen:
                continue
            seen.add(id)
            content.append({**block, name: new_ids[id]} if new_ids.get(id, id) != id else block)
        # An answer that was cut off while thinking. The API refuses it.
        while content and content[-1]["type"] in ("thinking", "redacted_thinking"):
            content.pop()
        yield Message(message.role, tuple(content))


def append_message(messages: list[Message], message: Message) -> None:
    """Append, joining neighbors of one role: the API wants roles to alternate. Empty messages are dropped."""
    if not message.content:
        return
    if messages and messages[-1].role == message.role:
        messages[-1] = Message(message.role, messages[-1].content + message.content)
    else:
        messages.append(message)


def open_calls(message: Message) -> list[Block]:
    """The tool calls of an assistant message; all are open while it is the last message."""
    return (
        [block for block in message.content if block.get("type") == "tool_use"] if message.role == "assistant" else []
    )


def error_result(call_id: str, text: str) -> Block:
    return {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": True}


def answer_calls(calls: Sequence[Block], content: Sequence[Block], missing: str) -> tuple[Block, ...]:
    """A user message's content with exactly one result for each of `calls`, first and in call order."""
    results = {block.get("tool_use_id"): block for block in content if block.get("type") == "tool_result"}
    answers = [results.get(call["id"]) or error_result(call["id"], missing) for call in calls]
    return (*answers, *(block for block in content if block.get("type") != "tool_result"))


def text_block(text: str) -> Block:
    return {"type": "text", "text": text}
