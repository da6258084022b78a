"""What to drop from a conversation that gets too long, and what replaces it: pure functions on messages.

Old tool results go first. If that is not enough, a summary replaces everything except the words of the newest turn and
the last steps of the work. A call and its result stay together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from teamcli.agent.prompt import FACTS_FRAME
from teamcli.llm.types import Block, Message, encode

COMPACTION = "compaction"
"""The kind of the transcript line."""
NEWEST_RESULTS = 8
"""How many results stay whole when old ones are shortened."""
LONG_RESULT = 1_000
"""Results with fewer characters are not worth shortening."""
RESULT_BEGINNING = 200
LONGEST_PART = 2_000
"""Characters of one part of a conversation that is rendered as plain text."""
LEFT_OUT = (
    "[... {:,} more characters of this old result are left out to save room; call the tool again if you need them]"
)

COMPACTED_FRAME = "<compacted>"
NOTE_FRAME, TEAM_FRAME, MAIL_FRAME = "<note>", "<team>", "<message "
FORK_FRAME = "<fork>"
"""Begins the instructions for a fork of an agent, after results for the calls that the agent was making."""
SUMMARY_SYSTEM = "You summarize conversations of a coding agent so that it can continue without them."
INSTRUCTION = """\
<note>This conversation is getting too long and will be replaced by a summary, which you write now. Call no tools; \
answer with the summary alone. The agent continues with nothing else, so say all that is needed, briefly and exactly:
- what the user (or the lead) wants and has decided, and what is still to be done
- what was done: files read and changed, with paths; commands and what came of them
- what was found out: names, values, errors and their causes, in their exact words where these matter
- who was told or asked what, and which questions and promises are open
- where the work stands now, and the next step{focus}</note>"""
FOCUS = "\nThe user asks to keep above all: "
OPENING = """\
<compacted>
The conversation up to here was too long and is replaced by this summary of it.
<summary>
{}
</summary>
What follows is word for word as it was.
</compacted>"""
_OUR_ENDS = r"(?i)</(?=\s*(?:summary|compacted)\b)"


class Compaction(NamedTuple):
    """What replaced what. Applying it gives the same messages, live and when a transcript is read."""

    shortened: Mapping[str, str]
    """The new text of results, by the id of their call."""
    opening: tuple[Block, ...] = ()
    """The first message from now on; empty if results were only shortened."""
    kept: int = 0
    """How many of the last messages stay after the opening."""
    tokens_before: int = 0
    tokens_after: int = 0

    def applied_to(self, messages: Sequence[Message]) -> list[Message]:
        if not self.opening:
            return [_with_results(message, self.shortened) for message in messages]
        tail = messages[max(0, len(messages) - self.kept) :]
        return [Message("user", self.opening), *(_with_results(message, self.shortened) for message in tail)]

    def to_row(self) -> dict[str, Any]:
        return {"kind": COMPACTION, **self._asdict(), "opening": list(self.opening)}

    @classmethod
    def from_row(cls, row: Mapping[str, Any], is_block: Callable[[object, str], bool]) -> Compaction:
        """Ignores invalid parts of the row."""
        shortened, opening = row.get("shortened"), row.get("opening")
        texts = shortened.items() if isinstance(shortened, dict) else ()
        blocks = opening if isinstance(opening, list) else ()
        return cls(
            {id: text for id, text in texts if isinstance(text, str)},
            tuple(block for block in blocks if is_block(block, "user")),
            _count(row, "kept"),
            _count(row, "tokens_before"),
            _count(row, "tokens_after"),
        )


class Cut(NamedTuple):
    """Where a conversation is cut for a summary."""

    words: tuple[Block, ...]
    """What was said to the agent in its newest turn and would be lost."""
    kept: int
    """How many messages stay after the cut; the first of them is an answer."""
    dropped_bytes: int


def size(messages: Sequence[Message]) -> int:
    """Bytes on the wire."""
    return sum(len(message.encoded) for message in messages)


def long_results(messages: Sequence[Message], exempt: Collection[str], newest: int = NEWEST_RESULTS) -> dict[str, str]:
    """The results to shorten, by the id of their call, with their new text.

    Leaves out the `newest` ones and those of the tools in `exempt`.
    """
    tools = {block["id"]: block["name"] for block in _blocks(messages, "tool_use")}
    results = list(_blocks(messages, "tool_result"))
    old = results[: max(0, len(results) - newest)]
    texts = {block["tool_use_id"]: _result_text(block) for block in old}
    return {
        id: text[:RESULT_BEGINNING] + LEFT_OUT.format(len(text) - RESULT_BEGINNING)
        for id, text in texts.items()
        if len(text) > LONG_RESULT and tools.get(id) not in exempt
    }


def cut(messages: Sequence[Message], tail_bytes: int, mail_is_work: bool = False) -> Cut:
    """Cut before the newest turn, or later if more than `tail_bytes` would stay. The last step stays whole.

    `mail_is_work`: mail begins a turn, just like a user's line.
    """
    turn = _newest_turn(messages, mail_is_work)
    answers = [n for n in range(turn + 1, len(messages)) if messages[n].role == "assistant"]
    start = next((n for n in answers if size(messages[n:]) <= tail_bytes), answers[-1] if answers else len(messages))
    words = _words(messages[turn:start], tail_bytes)
    dropped = size(messages[:start]) - len(encode(words))
    return Cut(words, len(messages) - start, dropped if start > 1 else 0)


def instruction(focus: str) -> str:
    """The request for a summary. `focus` is what the user wants to keep, and may be empty."""
    return INSTRUCTION.format(focus=f"{FOCUS}{focus}" if focus else "")


def framed_summary(text: str) -> str:
    """In a frame that the text cannot close."""
    return OPENING.format(re.sub(_OUR_ENDS, r"<\/", text.strip()))


def as_text(messages: Sequence[Message], limit_bytes: int) -> str:
    """The conversation as plain text, without its middle if it is too long; for a request that always fits."""
    text = "\n\n".join(f"{message.role}: {_part(block)}" for message in messages for block in message.content)
    # The limit is in bytes, but cutting bytes could split a character.
    half = int(len(text) * limit_bytes / max(1, len(encode(text)))) // 2
    return text if len(text) <= 2 * half else f"{text[:half]}\n[... the middle is left out ...]\n{text[-half:]}"


def _newest_turn(messages: Sequence[Message], mail_is_work: bool) -> int:
    """Where it begins: with what the user said last, or with the last mail if the user said nothing."""
    starts = [n for n, message in enumerate(messages) if message.role == "user" and _begins_turn(message)]
    spoken = [
        n for n in starts if mail_is_work or any(not _starts_with(block, MAIL_FRAME) for block in _said(messages[n]))
    ]
    return (spoken or starts or [0])[-1]


def _begins_turn(message: Message) -> bool:
    is_fork = any(_starts_with(block, FORK_FRAME) for block in message.content)
    has_results = any(block["type"] == "tool_result" for block in message.content)
    return bool(_said(message)) and (is_fork or not has_results)


def _words(messages: Sequence[Message], limit_bytes: int) -> tuple[Block, ...]:
    """What began the turn, and as much as fits of what was said later, newest first."""
    first = _said(messages[0]) if messages else []
    later = [block for message in messages[1:] if message.role == "user" for block in _said(message)]
    room = limit_bytes
    fitting = 0
    for block in reversed(later):
        room -= len(encode(block))
        if room < 0:
            break
        fitting += 1
    return (*first, *later[len(later) - fitting :])


def _said(message: Message) -> list[Block]:
    """What was said to the agent, without what teamcli adds by itself and adds again after a compaction."""
    ours = (COMPACTED_FRAME, NOTE_FRAME, TEAM_FRAME, FACTS_FRAME, FORK_FRAME)
    return [block for block in message.content if block["type"] != "tool_result" and not _starts_with(block, *ours)]


def _starts_with(block: Block, *frames: str) -> bool:
    return str(block.get("text", "")).startswith(frames)


def _with_results(message: Message, texts: Mapping[str, str]) -> Message:
    content = tuple(
        {**block, "content": texts[call_id]} if (call_id := block.get("tool_use_id", "")) in texts else block
        for block in message.content
    )
    return Message(message.role, content) if content != message.content else message


def _blocks(messages: Sequence[Message], kind: str) -> Iterator[Block]:
    return (block for message in messages for block in message.content if block["type"] == kind)


def _part(block: Block) -> str:
    match block["type"]:
        case "text":
            text = str(block["text"])
        case "tool_use":
            text = f"calls {block['name']} {encode(block['input']).decode()}"
        case "tool_result":
            text = f"result: {_result_text(block)}"
        case other:
            text = f"({other})"
    half = LONGEST_PART // 2
    return text if len(text) <= LONGEST_PART else f"{text[:half]} [...] {text[-half:]}"


def _result_text(block: Block) -> str:
    content = block.get("content", "")
    return content if isinstance(content, str) else encode(content).decode()


def _count(row: Mapping[str, Any], name: str) -> int:
    value = row.get(name)
    return value if isinstance(value, int) and value >= 0 else 0
