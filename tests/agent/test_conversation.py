from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.agent.conversation import Conversation, History, open_calls, repair, text_block
from teamcli.llm.types import Block, Message, Reply, Usage
from teamcli.storage.files import read_lines
from tests.support.logs import ENGINES, OpenLog, transcripts_in


def use(call_id: str) -> Block:
    return {"type": "tool_use", "id": call_id, "name": "bash", "input": {}}


def result(call_id: str) -> Block:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "ok"}


def reply(*content: Block) -> Reply:
    return Reply(content, "end_turn", Usage(3, 2), "m")


@pytest.fixture(params=ENGINES)
def opened(request: pytest.FixtureRequest) -> Iterator[OpenLog]:
    with transcripts_in(request.param, request) as open_log:
        yield open_log


def reopen(path: Path, opened: OpenLog) -> Conversation:
    log = opened(path)
    rows = (row for _, row in read_lines(path) if row)
    conversation = Conversation(log, History.read(rows))
    conversation.close_open_calls()
    return conversation


def assert_valid(messages: list[Message]) -> None:
    """What the API demands of a conversation whose next message comes from the user."""
    for position, message in enumerate(messages):
        assert message.role == ("user" if position % 2 == 0 else "assistant")
        assert message.content
        calls = [call["id"] for call in open_calls(messages[position - 1])] if position else []
        answered = [block["tool_use_id"] for block in message.content if block["type"] == "tool_result"]
        if message.role == "user":
            assert answered == calls
            assert all(block["type"] == "tool_result" for block in message.content[: len(calls)])


def test_what_was_recorded_is_restored(tmp_path: Path, opened: OpenLog) -> None:
    path = tmp_path / "lead.jsonl"
    conversation = Conversation(opened(path))
    conversation.add_user([text_block("hi")])
    conversation.add_reply(reply(text_block("hello"), use("a")), 0.5)
    conversation.add_user([result("a")], {"x.py": "digest"})
    restored = reopen(path, opened)
    assert list(restored.messages) == list(conversation.messages)
    assert restored.history.seen_files == {"x.py": "digest"}


def test_calls_that_a_crash_left_open_are_closed_once(tmp_path: Path, opened: OpenLog) -> None:
    path = tmp_path / "lead.jsonl"
    conversation = Conversation(opened(path))
    conversation.add_user([text_block("hi")])
    conversation.add_reply(reply(use("a"), use("b")), None)
    for _ in range(2):
        restored = reopen(path, opened)
        assert_valid(list(restored.messages))
        assert [block["is_error"] for block in restored.messages[-1].content] == [True, True]


def test_neighbors_of_one_role_are_joined_and_empty_answers_are_not_kept(tmp_path: Path, opened: OpenLog) -> None:
    conversation = Conversation(opened(tmp_path / "lead.jsonl"))
    conversation.add_user([text_block("one")])
    conversation.add_reply(reply(), None)
    conversation.add_user([text_block("two")])
    assert [message.to_dict() for message in conversation.messages] == [
        {"role": "user", "content": [text_block("one"), text_block("two")]}
    ]
    assert list(reopen(tmp_path / "lead.jsonl", opened).messages) == list(conversation.messages)


def test_a_prompt_after_unanswered_calls_closes_them(tmp_path: Path, opened: OpenLog) -> None:
    conversation = Conversation(opened(tmp_path / "lead.jsonl"))
    conversation.add_user([text_block("hi")])
    conversation.add_reply(reply(use("a")), None)
    conversation.add_user([text_block("go on")])
    assert_valid(list(conversation.messages))


BLOCKS = st.sampled_from([text_block("x"), use("a"), use("b"), result("a"), result("b"), result("ghost")])
MESSAGES = st.lists(st.builds(Message, st.sampled_from(["user", "assistant"]), st.lists(BLOCKS, max_size=4).map(tuple)))


@given(MESSAGES)
def test_any_pile_of_rows_is_repaired_into_a_valid_conversation(messages: list[Message]) -> None:
    tidy = [
        Message(message.role, tuple(block for block in message.content if block["type"] in allowed(message.role)))
        for message in messages
    ]
    joined: list[Message] = []
    for message in tidy:
        calls: set[str] = set()
        content: list[dict[str, Any]] = []
        for block in message.content:  # ids are unique within an answer: the API made them
            if block["type"] != "tool_use" or block["id"] not in calls:
                content.append(block)
                calls.add(block.get("id", ""))
        if joined and joined[-1].role == message.role:
            continue
        joined.append(Message(message.role, tuple(content)))
    repaired = repair([message for message in joined if message.content])
    assert_valid(repaired)


def allowed(role: str) -> tuple[str, ...]:
    return ("text", "tool_result") if role == "user" else ("text", "tool_use")
