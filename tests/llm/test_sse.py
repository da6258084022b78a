from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.errors import ServerFault
from teamcli.llm.sse import END_OF_EVENT, EventParser


def parse(*chunks: bytes) -> list[dict[str, Any]]:
    parser = EventParser()
    return [event for chunk in (*chunks, END_OF_EVENT) for event in parser.feed(chunk)]


def test_an_event_is_the_object_in_its_data() -> None:
    assert parse(b'event: a\ndata: {"type":"a","x":1}\n\n') == [{"type": "a", "x": 1}]


def test_data_over_several_lines_is_one_object() -> None:
    assert parse(b'data: {"type":\ndata: "a"}\n\n') == [{"type": "a"}]


def test_the_name_replaces_a_missing_type() -> None:
    assert parse(b'event: a\ndata: {"x":1}\n\n') == [{"type": "a", "x": 1}]


def test_an_unclosed_last_event_counts() -> None:
    assert parse(b'data: {"type":"a"}') == [{"type": "a"}]


@pytest.mark.parametrize(
    "noise",
    [
        b": comment\n\n",
        b"event: ping\ndata: {}\n\n",
        b"\n\n\n",
        b"id: 7\nretry: 10\n\n",
        b"data: [DONE]\n\n",
        b"what\n\n",
    ],
)
def test_noise_is_skipped(noise: bytes) -> None:
    assert parse(noise, b'data: {"type":"a"}\n\n', noise) == [{"type": "a"}]


@pytest.mark.parametrize("data", [b"{", b"[1]", b'"text"', b"7"])
def test_a_named_event_without_an_object_is_malformed(data: bytes) -> None:
    with pytest.raises(ServerFault, match="content_block_delta"):
        parse(b"event: content_block_delta\ndata: " + data + b"\n\n")


EVENTS = st.lists(st.fixed_dictionaries({"type": st.text(min_size=1), "text": st.text()}), max_size=5)


@given(
    events=EVENTS, newline=st.sampled_from(["\n", "\r\n", "\r"]), cuts=st.lists(st.integers(0, 400)), raw=st.booleans()
)
def test_where_the_bytes_are_cut_makes_no_difference(
    events: list[dict[str, str]], newline: str, cuts: list[int], raw: bool
) -> None:
    stream = "".join(
        newline.join(["event: e", ": comment", f"data: {json.dumps(event, ensure_ascii=not raw)}", "", ""])
        for event in events
    ).encode("utf-8", "replace")
    places = sorted({0, *(min(cut, len(stream)) for cut in cuts), len(stream)})
    chunks = [stream[a:b] for a, b in pairwise(places)]
    assert parse(*chunks) == parse(stream)
    assert len(parse(stream)) == len(events)
