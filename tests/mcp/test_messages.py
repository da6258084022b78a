"""Bytes from servers: any of them, cut anywhere."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.errors import McpError
from teamcli.mcp.messages import LARGEST_MESSAGE, decode, encode, kind_of
from teamcli.mcp.sse import EventReader

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
messages = st.dictionaries(st.sampled_from(["id", "method", "params", "result", "error", "x"]), values)


@given(st.binary(max_size=60) | messages.map(lambda value: json.dumps(value).encode()))
def test_whatever_arrives_is_a_message_that_can_be_written_again_or_none(data: bytes) -> None:
    message = decode(data)
    assert message is None or decode(encode(message)) == message


@given(messages)
def test_every_message_has_one_kind(message: dict[str, object]) -> None:
    assert kind_of(message) in ("request", "notification", "response", "")


@given(
    st.lists(st.text("ab: \u00e9", max_size=6), min_size=1, max_size=4),
    st.sampled_from(["\n", "\r\n", "\r"]),
    st.lists(st.integers(0, 60), max_size=5),
)
def test_events_are_the_same_however_the_stream_is_cut(texts: list[str], end: str, cuts: list[int]) -> None:
    stream = "".join(
        f": note{end}id: {number}{end}data: {text}{end}data: 2{end}{end}" for number, text in enumerate(texts)
    ).encode()
    places = [0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]
    reader = EventReader()
    pieces = [stream[begin:stop] for begin, stop in pairwise(places)]
    found = [event.decode() for piece in pieces for event in reader.feed(piece)]
    assert found == [f"{text}\n2" for text in texts]
    assert reader.last_id == str(len(texts) - 1)


def test_an_event_that_never_ends_is_an_error() -> None:
    reader = EventReader()
    with pytest.raises(McpError, match="more than"):
        for _ in range(LARGEST_MESSAGE // 1_000_000 + 2):
            list(reader.feed(b"data: " + b"x" * 1_000_000 + b"\n"))
