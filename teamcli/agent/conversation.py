"""An agent's conversation: the messages that go to the model, each of them on disk before it counts.

The transcript is the only state. Restoring reads it back and closes what a crash left open; nothing in it is ever
rewritten, so what was sent to the model stays the unchanged beginning of every later request. Only a compaction, which
is a line of its own, gives the conversation another beginning.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, count
from typing import Any, NamedTuple

from teamcli.agent.compaction import COMPACTION, Compaction
from teamcli.errors import StateError
from teamcli.llm.types import Block, Message, Reply, Usage
from teamcli.storage.files import AppendLog, Json
from teamcli.text.redaction import redact_value

NOT_RUN_CALL = "Not run: the turn was interrupted before this call began."
INTERRUPTED_CALL = "Interrupted: this call was stopped before it finished; what it had done so far was not undone."
LOST_RESULT = "The result of this call was lost."
SENDING_CALLS = ("send_message", "broadcast")
"""Calls that a restart may finish: their messages have ids that make a repeat harmless."""

Marks = dict[str, Any]
"""What a transcript line notes beside its content, by name. A later value replaces an earlier one; lists add up."""
OnRecord = Callable[[Message, Mapping[str, Any]], None]
"""Told of each message that is on disk, with the marks of its line."""


def joined_marks(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> Marks:
    joined = {**earlier, **later}
    for name in earlier.keys() & later.keys():
        if isinstance(earlier[name], list) and isinstance(later[name], list):
            joined[name] = [*earlier[name], *later[name]]
    return joined


def add_marks(marks: Marks, later: Mapping[str, Any]) -> None:
    """The same in place, for a long transcript: its lists would be copied for each line."""
    for name, value in later.items():
        if isinstance(value, list) and isinstance(marks.get(name), list):
            marks[name] += value
        else:
            marks[name] = list(value) if isinstance(value, list) else value


@dataclass
class History:
    """What a transcript says: the messages, and the books kept beside them."""

    messages: list[Message] = field(default_factory=list)
    seen_files: dict[str, str] = field(default_factory=dict)
    marks: Marks = field(default_factory=dict)
    """What the lines noted beside their content, joined."""
    tokens: int = 0
    """How long it was when the model last counted it; 0 where it never did."""
    uncounted: list[Message] = field(default_factory=list)
    """What has come since."""
    answer_key: str = ""
    """What names the last answer for good."""

    @classmethod
    def read(cls, rows: Iterable[Json]) -> History:
        """Tolerant: a row that makes no sense is passed over, and the rest is mended into a valid conversation."""
        history = cls()
        messages: list[Message] = []
        for row in rows:
            content = row.get("content")
            role = row.get("kind")
            if role == COMPACTION:
                compaction = Compaction.from_row(row, is_block)
                messages = compaction.applied_to(mend(sound(messages)))
                history.count(compaction.tokens_after)
            if role not in ("user", "assistant") or not isinstance(content, list):
                continue
            messages.append(Message(role, tuple(block for block in content if is_block(block, role))))
            history.take_into_account(messages[-1], _tokens(row))
            if role == "assistant":
                history.answer_key = _answer_key(row)
            if isinstance(marks := row.get("marks"), dict):
                add_marks(history.marks, marks)
            files = row.get("files")
            history.seen_files.update(files if isinstance(files, dict) else {})
        history.messages = mend(sound(messages))
        return history

    def take_into_account(self, message: Message, tokens: int) -> None:
        """A message was added; `tokens` is how long the model says that the conversation is with it, or 0."""
        if tokens:
            self.count(tokens)
        else:
            self.uncounted.append(message)

    def count(self, tokens: int) -> None:
        self.tokens, self.uncounted = tokens, []


class _Unsettled(NamedTuple):
    """A message that is written, and maybe not on the disk yet."""

    message: Message
    marks: Mapping[str, Any]
    position: int
    """Of the message that it was joined with or follows."""
    replaced: Sequence[Message]
    """What was there before."""


class Conversation:
    """The messages of one agent, in memory and in its transcript."""

    def __init__(
        self, log: AppendLog, history: History | None = None, on_record: OnRecord = lambda message, marks: None
    ) -> None:
        self._log = log
        self._on_record = on_record
        self._unsettled: _Unsettled | None = None
        self._missing = NOT_RUN_CALL
        """What became of open calls that get no result."""
        self._unwritten: Sequence[Block] = ()
        """Results of `SENDING_CALLS` that are not on the disk. Their messages are, and must not be sent again."""
        self.history = history or History()

    def close(self) -> None:
        """Give up the transcript; nothing can be added any more."""
        self._log.close()

    def put_back(self) -> None:
        """Write the transcript again if it is not there.

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
        """Record what the agent is told: a prompt, tool results, mail. `marks` are kept in the same durable line.

        Calls that are still open and get no result here never began, and are closed as such. If the disk refused their
        results, messages stay sent and the other results are lost. If all that happens next is a model call
        (`is_next_sent`), the disk may take its time while the request travels: `settle` waits for it.

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
        self._missing = LOST_RESULT  # until this is on the disk
        if calls:
            answered = zip(calls, content, strict=False)
            self._unwritten = [result for call, result in answered if call["name"] in SENDING_CALLS]
        self._record(row, Message("user", tuple(content)), marks or {}, may_settle_later=is_next_sent)

    def compact(self, compaction: Compaction) -> None:
        """Go on with what a compaction leaves.

        Raises: StateError
        """
        self.note(compaction.to_row())
        self.history.messages = compaction.applied_to(self.messages)
        self.history.count(compaction.tokens_after)

    def add_reply(self, reply: Reply, cost_usd: float | None) -> None:
        """Record a model's answer. One without content is counted but not kept: the API would refuse it later.

        Raises: StateError
        """
        row: Json = {
            "kind": "assistant",
            "ts": time.time(),
            "key": secrets.token_hex(6),
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
            self.settle()
            self._log.append(row)

    def key_of_call(self, position: int) -> str:
        """What names a call of the last answer for good, also after a restart.

        Its id does not: endpoints use ids again, in another session or the same.
        """
        return f"{self.history.answer_key}/{position}"

    def note(self, row: Json) -> None:
        """Record something that is no message: that a piece of work has ended, say.

        Raises: StateError
        """
        self.settle()
        self._log.append({"ts": time.time(), **redact_value(row)})

    def take_up(self, history: History) -> None:
        """Go on with another conversation. The caller has begun its session in the transcript."""
        self.history = history
        self._missing, self._unwritten = NOT_RUN_CALL, ()

    def settle(self) -> None:
        """Wait until the last message is on the disk. Nothing may act on an answer before that.

        Raises: StateError, and the conversation is what it was without that message
        """
        unsettled, self._unsettled = self._unsettled, None
        if unsettled is None:
            return
        try:
            self._log.sync()
        except StateError:
            self.history.messages[unsettled.position :] = unsettled.replaced
            self.history.uncounted.remove(unsettled.message)
            raise
        self._recorded(unsettled.message, unsettled.marks)

    def _record(
        self,
        row: Json,
        message: Message,
        marks: Mapping[str, Any],
        tokens: int = 0,
        may_settle_later: bool = False,
    ) -> None:
        self.settle()
        if may_settle_later:
            self._log.write(row)
            last = max(0, len(self.messages) - 1)
            self._unsettled = _Unsettled(message, marks, last, self.messages[last:])
        else:
            self._log.append(row)
        append_message(self.history.messages, message)
        self.history.take_into_account(message, tokens)
        if not may_settle_later:
            self._recorded(message, marks)

    def _recorded(self, message: Message, marks: Mapping[str, Any]) -> None:
        self._missing, self._unwritten = NOT_RUN_CALL, ()
        self._on_record(message, marks)

    def close_open_calls(self, results: Sequence[Block] = ()) -> None:
        """Answer what a crash left open: with these results, or as interrupted.

        Raises: StateError
        """
        if self.messages and (calls := open_calls(self.messages[-1])):
            self.add_user(answer_calls(calls, results, INTERRUPTED_CALL))


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
    """Whether it is something that the API would take back: it refuses a whole request for one that is not."""
    if not isinstance(block, dict) or not isinstance(kind := block.get("type"), str):
        return False
    if _OF_ONE_ROLE.get(kind, role) != role or (kind == "tool_use" and not isinstance(block.get("input"), dict)):
        return False
    return all(isinstance(value := block.get(name), str) and value.strip() for name in _NEEDED.get(kind, ()))


def sound(messages: Sequence[Message]) -> list[Message]:
    """The same messages, with no call id used twice and no answer that ends in thinking: the API takes neither."""
    used: set[str] = set()
    new_ids: dict[str, str] = {}
    sound: list[Message] = []
    for message in messages:
        if message.role == "assistant":
            new_ids = _new_ids(message, used)
            used.update(new_ids.values())
        content = [_with_new_id(block, new_ids) for block in _each_call_once(message.content)]
        while content and content[-1]["type"] in ("thinking", "redacted_thinking"):
            content.pop()
        sound.append(Message(message.role, tuple(content)))
    return sound


def _new_ids(message: Message, used: set[str]) -> dict[str, str]:
    ids = {call["id"] for call in open_calls(message)}
    return {id: next(new for new in chain([id], (f"{id}-{n}" for n in count(2))) if new not in used) for id in ids}


def _each_call_once(content: Sequence[Block]) -> Iterator[Block]:
    seen = set()
    for block in content:
        if block["type"] != "tool_use" or block["id"] not in seen:
            yield block
        seen.add(block.get("id"))


def _with_new_id(block: Block, new_ids: Mapping[str, str]) -> Block:
    name = {"tool_use": "id", "tool_result": "tool_use_id"}.get(block["type"], "")
    old = block.get(name)
    new = new_ids.get(old, old) if isinstance(old, str) else old
    return block if new == old else {**block, name: new}


def append_message(messages: list[Message], message: Message) -> None:
    """Append, joining neighbours of one role: the API wants them to alternate. Empty ones are dropped."""
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


def mend(messages: Sequence[Message]) -> list[Message]:
    """A valid conversation from one that may have lost lines: it starts with the user, every call but those of the last
    message has exactly one result, and results come first in their message."""
    mended: list[Message] = []
    for message in messages:
        calls = open_calls(mended[-1]) if mended else []
        if message.role == "user":
            append_message(mended, Message("user", answer_calls(calls, message.content, LOST_RESULT)))
        elif mended:
            append_message(mended, Message("user", answer_calls(calls, (), LOST_RESULT)))
            append_message(mended, message)
    return mended


def answer_calls(calls: Sequence[Block], content: Sequence[Block], missing: str) -> tuple[Block, ...]:
    """A user message's content with exactly one result for each of `calls`, first and in call order."""
    results = {block.get("tool_use_id"): block for block in content if block.get("type") == "tool_result"}
    answers = [results.get(call["id"]) or error_result(call["id"], missing) for call in calls]
    return (*answers, *(block for block in content if block.get("type") != "tool_result"))


def _tokens(row: Json) -> int:
    usage = row.get("usage")
    return Usage().at_least(usage).context_tokens if isinstance(usage, dict) else 0


def _answer_key(row: Json) -> str:
    """Lines of an earlier version have none: there an answer was known by its time."""
    key = row.get("key")
    return key if isinstance(key, str) else repr(row.get("ts"))


def text_block(text: str) -> Block:
    return {"type": "text", "text": text}
