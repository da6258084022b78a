from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.errors import ServerFault
from teamcli.llm.accumulator import Accumulator
from teamcli.llm.sse import EventParser
from teamcli.llm.types import Block, Reply, TextDelta, Usage
from tests.support.answers import Answer, Part, answer, other_block, text, thinking, to_events, tool, tool_json


def events_of(given_answer: Answer) -> list[dict[str, Any]]:
    parser = EventParser()
    return [event for raw in to_events(given_answer.filled_in(), {}) for event in parser.feed(raw)]


def accumulate(events: Iterable[dict[str, Any]]) -> Accumulator:
    accumulator = Accumulator()
    for event in events:
        accumulator.feed(event)
    return accumulator


def reply_to(given_answer: Answer) -> Reply:
    return accumulate(events_of(given_answer)).reply()


def block_events(start: Block, *deltas: Block) -> list[dict[str, Any]]:
    return [
        {"type": "message_start", "message": {}},
        {"type": "content_block_start", "index": 0, "content_block": start},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
    ]


JSON_VALUES = st.recursive(st.none() | st.booleans() | st.integers() | st.text(), lambda v: st.lists(v, max_size=3))
PARTS = st.one_of(
    st.builds(text, st.text(), st.integers(1, 9)),
    st.builds(thinking, st.text(min_size=1)),
    st.builds(lambda tool_input: tool("bash", **tool_input), st.dictionaries(st.sampled_from("abc"), JSON_VALUES)),
)


@given(st.lists(PARTS, max_size=5))
def test_a_reply_holds_what_was_said(parts: list[Part]) -> None:
    said = answer(*parts, text("end")).filled_in()
    expected = [block for block in said.content if block["type"] != "text" or block["text"].strip()]
    assert list(reply_to(said).content) == json.loads(json.dumps(expected))


@given(st.lists(PARTS, min_size=1, max_size=4), st.data())
def test_a_partial_reply_is_always_fit_to_be_sent_back(parts: list[Part], data: st.DataObject) -> None:
    said = answer(*parts).filled_in()
    events = events_of(said)
    partial = accumulate(events[: data.draw(st.integers(0, len(events)))]).partial()
    assert not partial.content or partial.content[-1]["type"] != "thinking"
    for block in partial.content:
        if block["type"] == "text":
            assert block["text"].strip()
            assert any(whole.get("text", "").startswith(block["text"]) for whole in said.content)
        else:
            assert block in json.loads(json.dumps(said.content))


def test_a_partial_reply_drops_a_finished_call_without_a_usable_input() -> None:
    events = events_of(answer("words", tool_json("bash", '{"a": ')))[:-2]
    partial = accumulate(events).partial()
    assert [block["type"] for block in partial.content] == ["text"]


def test_a_partial_reply_drops_a_server_tool_without_its_result() -> None:
    call = {"type": "server_tool_use", "id": "srv_1", "name": "web_search", "input": {}}
    result = {"type": "web_search_tool_result", "tool_use_id": "srv_1", "content": []}
    alone = accumulate(events_of(answer("a", other_block(call)))).partial()
    paired = accumulate(events_of(answer("a", other_block(call), other_block(result)))).partial()
    assert len(alone.content) == 1
    assert len(paired.content) == 3


def test_calls_that_share_an_index_are_all_kept() -> None:
    events = events_of(answer(tool("bash", command="a"), tool("bash", command="b")).filled_in())
    for event in events:
        if "index" in event:
            event["index"] = 0
    assert [call["input"] for call in accumulate(events).reply().tool_calls] == [{"command": "a"}, {"command": "b"}]


def test_citations_are_collected() -> None:
    deltas = [
        {"type": "citations_delta", "citation": {"cited_text": "one"}},
        {"type": "text_delta", "text": "As it says"},
        {"type": "citations_delta", "citation": {"cited_text": "two"}},
    ]
    reply = accumulate(block_events({"type": "text", "text": "", "citations": None}, *deltas)).reply()
    assert reply.content == (
        {"type": "text", "text": "As it says", "citations": [{"cited_text": "one"}, {"cited_text": "two"}]},
    )


def test_unknown_deltas_fill_their_block() -> None:
    deltas = [{"type": "x_delta", "content": "a"}, {"type": "x_delta", "content": "b", "extra": [1]}]
    reply = accumulate(block_events({"type": "x", "content": None}, *deltas)).reply()
    assert reply.content == ({"type": "x", "content": "ab", "extra": [1]},)


def test_text_and_input_that_come_with_the_start_count() -> None:
    call = {"type": "tool_use", "id": "t1", "name": "bash", "input": {"command": "ls"}}
    assert accumulate(block_events(call)).reply().tool_calls == (call,)
    accumulator, seen = Accumulator(), []
    for event in block_events({"type": "text", "text": "a"}, {"type": "text_delta", "text": "b"}):
        seen.append(accumulator.feed(event))
    assert accumulator.reply().text == "ab"
    assert [event for event in seen if event] == [TextDelta("a"), TextDelta("b")]


def test_a_missing_stop_reason_is_derived_from_the_content() -> None:
    def events(block: Block) -> list[dict[str, Any]]:
        return [*block_events(block), {"type": "message_stop"}]

    said = accumulate(events({"type": "text", "text": "hi"}))
    called = accumulate(events({"type": "tool_use", "id": "t", "name": "bash", "input": {}}))
    assert said.is_complete
    assert said.reply().stop_reason == "end_turn"
    assert called.reply().stop_reason == "tool_use"


def test_usage_keeps_the_largest_count_of_each_kind() -> None:
    accumulator = accumulate(
        [
            {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}},
            {"type": "message_delta", "delta": {}, "usage": {"input_tokens": 0, "output_tokens": 40, "extra": {}}},
            {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": None},
        ]
    )
    assert accumulator.reply().usage == Usage(9, 40)


@pytest.mark.parametrize(
    "event",
    [
        {"type": "content_block_delta", "index": 3, "delta": {"type": "text_delta", "text": "x"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 5}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta"}},
        {"type": "content_block_delta", "index": 0, "delta": None},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use"}},
        {"type": "content_block_start", "index": 1},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": None}},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": [], "name": "bash"}},
        {"type": "content_block_stop", "index": [1]},
        {"type": "message_start", "message": 5},
        {"type": "message_delta"},
    ],
)
def test_a_malformed_event_is_a_server_fault(event: dict[str, Any]) -> None:
    accumulator = accumulate(block_events({"type": "text", "text": ""}))
    with pytest.raises(ServerFault, match=event["type"]):
        accumulator.feed(event)


@pytest.mark.parametrize("event", [{"type": "news"}, {"type": ""}, {"type": None}, {}])
def test_an_unknown_event_is_ignored(event: dict[str, Any]) -> None:
    assert Accumulator().feed(event) is None


@pytest.mark.parametrize("broken", ['{"a": NaN}', "[" * 100_000, '{"a": 1}}', "[]"])
def test_an_input_that_could_not_be_sent_back_is_marked(broken: str) -> None:
    reply = reply_to(answer(tool_json("bash", broken, tool_use_id="t1")))
    assert reply.cut_calls == {"t1"}
    assert reply.tool_calls[0]["input"] == {}


@pytest.mark.parametrize("whole", [None, "ls", ["ls"]])
def test_an_input_that_comes_with_the_start_must_be_an_object_too(whole: object) -> None:
    call = {"type": "tool_use", "id": "t1", "name": "bash", "input": whole}
    reply = accumulate(block_events(call)).reply()
    assert reply.cut_calls == {"t1"}
    assert reply.tool_calls[0]["input"] == {}
