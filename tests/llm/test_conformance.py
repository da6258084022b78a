"""What every client of the Messages API must do, over real sockets against the strict fake."""

from __future__ import annotations

import gzip
import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import (
    AuthError,
    ConfigError,
    ConnectionLost,
    ContextTooLong,
    MaxTokensRefused,
    ModelError,
    ModelNotFound,
    Overloaded,
    RateLimited,
    RequestRejected,
    ServerFault,
    StateError,
    StreamInterrupted,
    TransientError,
    WrongEndpoint,
)
from teamcli.llm.backoff import Backoff
from teamcli.llm.connection import Timeouts
from teamcli.llm.types import (
    CallOpened,
    Heartbeat,
    Message,
    Preamble,
    RequestSent,
    Retrying,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from tests.llm.calls import BASH, PREAMBLE, RunningCall, ask, asking, results_for, user, wait_until
from tests.llm.conftest import KEY, MakeClient
from tests.llm.wires import (
    Proxy,
    TlsFront,
    address_that_never_answers,
    free_port,
    is_connecting_to,
    make_certificate,
    raw_answers,
)
from tests.support.answers import Fault, encode_event, to_events
from tests.support.fake_api import (
    AT_THE_END,
    FakeAPI,
    Status,
    answer,
    comment,
    cut_after,
    cut_before_headers,
    drip,
    error_event,
    malformed_event,
    not_json,
    other_block,
    ping,
    redacted_thinking,
    stall_after,
    stall_before_headers,
    status,
    text,
    thinking,
    tool,
    tool_json,
    unknown_event,
)

SOON_SECONDS = 15.0
"""Far more than the 100 ms that a cancel may take, far less than any time-out: a busy machine must not fail a test."""
HI = b"".join(to_events(answer(text("hi")).filled_in(), {"model": "claude-opus-5-5"}))
"""A whole answer, as events."""


# Answers


def test_text_arrives_in_pieces_and_as_a_whole(make_client: MakeClient) -> None:
    events: list[StreamEvent] = []
    with FakeAPI([text("Grüße, 世界 🌍", pieces=4)]) as api:
        reply = ask(make_client(api.url), events=events)
    assert reply.content == ({"type": "text", "text": "Grüße, 世界 🌍"},)
    assert (reply.stop_reason, reply.model) == ("end_turn", "claude-opus-5-5")
    pieces = [event.text for event in events if isinstance(event, TextDelta)]
    assert len(pieces) == 4
    assert "".join(pieces) == reply.text
    assert len(pieces) == len([event for event in events if not isinstance(event, Heartbeat)])


def test_text_and_paths_that_are_not_valid_unicode_are_sent(make_client: MakeClient) -> None:
    preamble = Preamble(PREAMBLE.model, "You work in /tmp/caf\udce9.", (BASH,), 1000)
    with FakeAPI(["ok"]) as api:
        assert ask(make_client(api.url), asking(user("say \udce9"), preamble=preamble)).text == "ok"
    assert "/tmp/caf" in str(api.requests[0]["system"])
    assert "say " in str(api.requests[0]["messages"])


def test_several_tool_calls_come_with_their_inputs_in_order(make_client: MakeClient) -> None:
    events: list[StreamEvent] = []
    calls = [tool("bash", command='echo "ä\n"'), tool("read_file", path="a.py", offset=3), tool("list_teammates")]
    with FakeAPI([answer("Let me look.", *calls)]) as api:
        reply = ask(make_client(api.url), events=events)
    assert [call["input"] for call in reply.tool_calls] == [
        {"command": 'echo "ä\n"'},
        {"path": "a.py", "offset": 3},
        {},
    ]
    assert len({call["id"] for call in reply.tool_calls}) == 3
    assert (reply.stop_reason, reply.cut_calls) == ("tool_use", frozenset())
    started = [event.tool for event in events if isinstance(event, CallOpened)]
    assert started == ["bash", "read_file", "list_teammates"]


def test_thinking_goes_back_unchanged(make_client: MakeClient) -> None:
    events: list[StreamEvent] = []
    thoughts = (thinking("First, I look."), redacted_thinking("b3BhcXVl"), thinking("Then I act."))
    with FakeAPI([answer(*thoughts, tool("bash", command="ls")), text("done")]) as api:
        client = make_client(api.url)
        first = ask(client, events=events)
        history = (user("Hello"), Message("assistant", first.content), results_for(first))
        assert ask(client, asking(*history)).text == "done"
    seen = "".join(event.text for event in events if isinstance(event, ThinkingDelta))
    assert seen == "First, I look.Then I act."
    assert [block["type"] for block in first.content] == ["thinking", "redacted_thinking", "thinking", "tool_use"]


def test_a_block_of_an_unknown_kind_is_kept_unchanged(make_client: MakeClient) -> None:
    strange = {"type": "hologram", "beams": [1, {"deep": None}], "note": "ü"}
    with FakeAPI([answer(other_block(strange), "hi"), "again"]) as api:
        client = make_client(api.url)
        reply = ask(client)
        ask(client, asking(user("Hello"), Message("assistant", reply.content), user("Go on")))
    assert reply.content[0] == strange


def test_usage_is_combined_from_start_and_end(make_client: MakeClient) -> None:
    counts = {
        "input_tokens": 7,
        "output_tokens": 1234,
        "cache_creation_input_tokens": 50,
        "cache_read_input_tokens": 900,
    }
    with FakeAPI([answer("hi", usage=counts)]) as api:
        assert ask(make_client(api.url)).usage == Usage(7, 1234, 50, 900)


def test_pings_comments_and_unknown_events_make_no_difference(make_client: MakeClient) -> None:
    noise = [make(after=at) for at in range(7) for make in (ping, comment, unknown_event)]
    with FakeAPI([answer("hello there", *noise, ping(AT_THE_END))]) as api:
        assert ask(make_client(api.url)).text == "hello there"


def test_an_answer_that_drips_in_byte_by_byte_is_the_same(make_client: MakeClient) -> None:
    with FakeAPI([answer("Grüße 🌍", tool("bash", command="ls"), drip(size=1))]) as api:
        reply = ask(make_client(api.url))
    assert reply.text == "Grüße 🌍"
    assert reply.tool_calls[0]["input"] == {"command": "ls"}


@pytest.mark.parametrize(
    "reason",
    [
        *("end_turn", "max_tokens", "stop_sequence", "tool_use", "pause_turn", "refusal"),
        *("model_context_window_exceeded", "something_new"),
    ],
)
def test_every_stop_reason_is_passed_on(make_client: MakeClient, reason: str) -> None:
    with FakeAPI([answer("hm", stop_reason=reason)]) as api:
        assert ask(make_client(api.url)).stop_reason == reason


@pytest.mark.parametrize("broken", ['{"command": "l', '["ls"]', "nonsense", '"ls"', "null"])
def test_a_call_whose_input_is_cut_or_not_an_object_is_marked(make_client: MakeClient, broken: str) -> None:
    calls = (tool("bash", command="ls"), tool_json("bash", broken, tool_use_id="toolu_cut"))
    with FakeAPI([answer("Now:", *calls, stop_reason="max_tokens")]) as api:
        reply = ask(make_client(api.url))
    assert reply.cut_calls == {"toolu_cut"}
    assert [call["input"] for call in reply.tool_calls] == [{"command": "ls"}, {}]


def test_an_answer_without_content_is_an_empty_reply(make_client: MakeClient) -> None:
    with FakeAPI([answer()]) as api:
        reply = ask(make_client(api.url))
    assert (reply.content, reply.stop_reason) == ((), "end_turn")


def test_blank_text_and_thinking_that_was_cut_are_not_kept(make_client: MakeClient) -> None:
    with FakeAPI([answer(text(" \n"), "word", thinking("and th", signature=None), stop_reason="max_tokens")]) as api:
        assert ask(make_client(api.url)).content == ({"type": "text", "text": "word"},)


# Requests


def test_the_body_on_the_wire_is_the_request(make_client: MakeClient) -> None:
    preamble = Preamble("m", "System ü", (BASH,), 77, extra={"thinking": {"type": "adaptive"}, "metadata": {"a": 1}})
    request = asking(user("Hallo, 世界 🌍 \u2028"), preamble=preamble)
    with FakeAPI(["hi"]) as api:
        ask(make_client(api.url), request)
        sent = api.requests[0]
    shaped = request.text_in_results
    assert sent == {**shaped.to_dict(), "stream": True}
    assert sent["messages"] == request.to_dict()["messages"]
    assert sent == json.loads(shaped.encoded)
    assert sent["system"][0]["text"] == "System ü"
    assert sent["cache_control"] == sent["system"][-1]["cache_control"] == {"type": "ephemeral"}


def test_the_prefix_never_changes(make_client: MakeClient) -> None:
    with FakeAPI([tool("bash", command="ls"), tool("bash", command="pwd"), text("done")]) as api:
        client = make_client(api.url)
        messages = [user("Go")]
        while (reply := ask(client, asking(*messages))).tool_calls:
            messages += [Message("assistant", reply.content), results_for(reply)]
        api.assert_prefix_stable()
    assert len(api.requests) == 3


def test_what_follows_results_goes_into_the_last_of_them(make_client: MakeClient) -> None:
    calls = tuple({"type": "tool_use", "id": id, "name": "bash", "input": {}} for id in ("t1", "t2"))
    results = tuple({"type": "tool_result", "tool_use_id": id, "content": f"of {id}"} for id in ("t1", "t2"))
    with FakeAPI(["hi", "again"]) as api:
        client = make_client(api.url)
        messages = [user("Go"), Message("assistant", calls), Message("user", (*results, *user("mail").content))]
        ask(client, asking(*messages))
        messages[-1] = Message("user", messages[-1].content + user("and a line").content)
        ask(client, asking(*messages))
        api.assert_prefix_stable()
    first, last = api.requests[1]["messages"][-1]["content"]
    assert first == results[0]
    assert [block["text"] for block in last["content"]] == [
        "of t2",
        "\n\n<user_turn>\nmail\n</user_turn>",
        "\n\n<user_turn>\nand a line\n</user_turn>",
    ]
    assert "<user_turn>" in api.requests[1]["system"][-1]["text"]


def test_the_head_names_version_and_program(make_client: MakeClient) -> None:
    with FakeAPI(["hi"]) as api:
        ask(make_client(api.url))
    assert api.headers[0]["anthropic-version"] == "2026-10-21"
    assert api.headers[0]["user-agent"].startswith("teamcli/")


@pytest.mark.parametrize("path", ["/", "/gateway/anthropic", "/gateway/anthropic/", "/gateway/v1", "/v1/"])
def test_the_base_url_may_carry_a_path(make_client: MakeClient, path: str) -> None:
    with FakeAPI(["hi"]) as api:
        ask(make_client(api.url + path))
    assert api.exchanges[0].path == path.rstrip("/").removesuffix("/v1") + "/v1/messages"


@pytest.mark.parametrize(
    ("auth_header", "bearer", "x_api_key"),
    [("auto", True, True), ("bearer", True, False), ("x-api-key", False, True), ("both", True, True)],
)
def test_the_key_goes_where_the_gateway_reads_it(
    make_client: MakeClient, auth_header: str, bearer: bool, x_api_key: bool
) -> None:
    with FakeAPI(["hi"], key=KEY) as api:
        ask(make_client(api.url, auth_header=auth_header))
    assert api.headers[0].get("authorization") == (f"Bearer {KEY}" if bearer else None)
    assert api.headers[0].get("x-api-key") == (KEY if x_api_key else None)


def test_a_token_goes_as_bearer_only(make_client: MakeClient) -> None:
    with FakeAPI(["hi"], key="tok-1") as api:
        ask(make_client(api.url, ANTHROPIC_AUTH_TOKEN="tok-1"))
    assert "x-api-key" not in api.headers[0]


def test_custom_headers_are_sent(make_client: MakeClient) -> None:
    with FakeAPI(["hi"]) as api:
        ask(make_client(api.url, ANTHROPIC_CUSTOM_HEADERS="X-Team: blue\nAnthropic-Version: 2023-06-01"))
    assert (api.headers[0]["x-team"], api.headers[0]["anthropic-version"]) == ("blue", "2023-06-01")


# Connections


def test_a_connection_is_kept_for_the_next_turns(make_client: MakeClient) -> None:
    with FakeAPI([text("a"), status(529), text("b"), text("c")]) as api:
        client = make_client(api.url)
        assert [ask(client).text for _ in range(3)] == ["a", "b", "c"]
    assert api.connections == 1


def test_a_kept_connection_that_the_endpoint_has_closed_is_replaced_unseen(make_client: MakeClient) -> None:
    events: list[StreamEvent] = []
    with FakeAPI(["before"]) as api:
        client = make_client(api.url)
        ask(client)
    with FakeAPI(["after"], port=api.port):
        assert ask(client, events=events).text == "after"
    assert not any(isinstance(event, Retrying) for event in events)


def test_answers_of_a_fixed_length_keep_their_connection(make_client: MakeClient) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    answers = [head % len(HI) + HI] * 3
    with raw_answers(*answers) as url:
        client = make_client(url)
        assert [ask(client).text for _ in answers] == ["hi"] * 3


def test_an_answer_shorter_than_announced_is_a_lost_connection(make_client: MakeClient) -> None:
    beginning = HI[: HI.index(b"event: message_delta")]
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: %d\r\n\r\n"
    with raw_answers(head % len(HI) + beginning) as url, pytest.raises(ConnectionLost, match="broke off"):
        ask(make_client(url, retries=0))


def test_informational_answers_are_skipped(make_client: MakeClient) -> None:
    early = b"HTTP/1.1 103 Early Hints\r\nlink: </style.css>\r\n\r\n" * 2
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
    with raw_answers(early + head + HI) as url:
        assert ask(make_client(url)).text == "hi"


def test_a_compressed_answer_is_read_although_it_was_not_requested(make_client: MakeClient) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n"
    with raw_answers(head + gzip.compress(HI)) as url:
        assert ask(make_client(url)).text == "hi"


def test_what_is_not_the_compression_that_it_claims_is_a_fault(make_client: MakeClient) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-encoding: gzip\r\n\r\n"
    with raw_answers(head + HI) as url, pytest.raises(ServerFault, match="makes no sense"):
        ask(make_client(url, retries=0))


@pytest.mark.parametrize("answer", [b"SSH-2.0-OpenSSH_9.6\r\n", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 200 + b"\r\n"])
def test_what_is_not_http_is_a_lost_connection(make_client: MakeClient, answer: bytes) -> None:
    with raw_answers(answer) as url, pytest.raises(ConnectionLost, match="broke off"):
        ask(make_client(url, retries=0))


@pytest.mark.parametrize("earlier_turns", [0, 1])
def test_the_caller_is_notified_in_its_own_thread_that_the_request_is_sent(
    make_client: MakeClient, earlier_turns: int
) -> None:
    """Before anything of the answer is read, and again with every try."""
    heard: list[tuple[StreamEvent, int]] = []
    with FakeAPI([*["before"] * earlier_turns, status(529), "hi"]) as api:
        client = make_client(api.url)
        for _ in range(earlier_turns):
            ask(client)
        client.stream(asking(), lambda event: heard.append((event, threading.get_ident())), CancelScope())
    kinds = [type(event) for event, _ in heard]
    assert kinds[:4] == [RequestSent, Retrying, RequestSent, TextDelta]
    assert {thread for _, thread in heard} == {threading.get_ident()}


@pytest.mark.parametrize("earlier_turns", [0, 1])
def test_a_caller_that_fails_while_it_waits_ends_the_call(make_client: MakeClient, earlier_turns: int) -> None:
    def fail(event: StreamEvent) -> None:
        raise StateError("the disk is full")

    with FakeAPI([*["before"] * earlier_turns], default=text("after")) as api:
        client = make_client(api.url)
        for _ in range(earlier_turns):
            ask(client)
        with pytest.raises(StateError, match="the disk is full"):
            client.stream(asking(), fail, CancelScope())
        assert ask(client).text == "after"


def test_a_caller_that_fails_when_the_answer_has_begun_leaves_no_connection_open(make_client: MakeClient) -> None:
    def is_opening() -> bool:
        return any("_open_into" in thread.name for thread in threading.enumerate())

    def fail(event: StreamEvent) -> None:
        api.wait_for_stall()
        wait_until(lambda: not is_opening(), "the answer was opened")
        raise StateError("the disk is full")

    with FakeAPI([answer("hi", stall_after(2))]) as api:
        client = make_client(api.url)
        with pytest.raises(StateError, match="the disk is full"):
            client.stream(asking(), fail, CancelScope())
        api.wait_for_disconnect()


def test_each_agent_has_its_own_connection(make_client: MakeClient) -> None:
    with FakeAPI(default=text("hi")) as api:
        clients = [make_client(api.url) for _ in range(3)]
        for client in clients + clients:
            ask(client)
    assert [exchange.connection for exchange in api.exchanges] == [1, 2, 3, 1, 2, 3]


def test_a_proxy_of_the_environment_is_used(make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY")
    with Proxy() as proxy, FakeAPI(["through the proxy", "direct"]) as api:
        monkeypatch.setenv("HTTP_PROXY", proxy.url)
        monkeypatch.setenv("http_proxy", proxy.url)
        assert ask(make_client(api.url)).text == "through the proxy"
        assert proxy.seen == [f"{api.url}/v1/messages"]
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        assert ask(make_client(api.url)).text == "direct"
        assert len(proxy.seen) == 1


def test_a_proxy_that_cannot_be_used_is_a_configuration_error(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_PROXY")
    monkeypatch.setenv("http_proxy", "ftp://127.0.0.1:1")
    with pytest.raises(ConfigError, match="HTTP_PROXY"):
        ask(make_client("http://127.0.0.1:9"))


def test_a_private_certificate_works_once_it_is_named(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    with FakeAPI([text("over TLS"), stall_after(3)]) as api, TlsFront(certificate, key, api.port) as front:
        with pytest.raises(ModelError, match=r"not trusted.*SSL_CERT_FILE") as refused:
            ask(make_client(front.url))
        assert not isinstance(refused.value, TransientError)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        client = make_client(front.url)
        assert ask(client).text == "over TLS"
        call = RunningCall(client)
        api.wait_for_stall()
        assert call.cancel() < SOON_SECONDS
        assert isinstance(call.error, StreamInterrupted)
        client.close()


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
def test_certificates_that_are_missing_are_a_configuration_error(
    make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variable: str
) -> None:
    monkeypatch.setenv(variable, str(tmp_path / "missing.pem"))
    with pytest.raises(ConfigError, match=variable):
        ask(make_client("https://127.0.0.1:9"))


# Faults

LASTING_FAULTS = [
    (status(401, message=f"invalid x-api-key {KEY}"), AuthError, "check ANTHROPIC_API_KEY"),
    (status(403, message="no access"), AuthError, "ANTHROPIC_API_KEY may do"),
    (status(404, message="model: claude-opus-5-5"), ModelNotFound, "claude-opus-5-5.*--model or MODEL_ID"),
    (status(400, message="Invalid model name passed"), ModelNotFound, "claude-opus-5-5"),
    (status(404, body="<html><title>404 Not Found</title>"), WrongEndpoint, "ANTHROPIC_BASE_URL looks wrong"),
    (status(404, message="no such path"), WrongEndpoint, "ANTHROPIC_BASE_URL looks wrong"),
    (status(400, message="prompt is too long: 210000 tokens > 200000 maximum"), ContextTooLong, "too long"),
    (status(413), ContextTooLong, "too long for claude-opus-5-5"),
    (status(400, message="messages.0: what is this?"), RequestRejected, "400.*what is this"),
    (status(422, body={"detail": "field required"}), RequestRejected, "field required"),
    (status(307, body="moved", headers={"location": "https://elsewhere.example/"}), WrongEndpoint, "elsewhere"),
    (not_json(), WrongEndpoint, "text/html.*ANTHROPIC_BASE_URL looks wrong"),
    (status(200, body={"object": "list"}), WrongEndpoint, "application/json"),
]


@pytest.mark.parametrize(("fault", "error", "words"), LASTING_FAULTS)
def test_a_permanent_fault_is_reported_at_once(
    make_client: MakeClient, fault: Status, error: type[ModelError], words: str
) -> None:
    events: list[StreamEvent] = []
    with FakeAPI([fault]) as api, pytest.raises(error, match=words) as caught:
        ask(make_client(api.url), events=events)
    assert type(caught.value) is error
    assert events == []
    assert len(api.requests) == 1
    _assert_presentable(caught.value)


def odd_error_event(data: dict[str, Any]) -> Fault:
    return Fault("last", 2, payload=encode_event("error", data))


PASSING_FAULTS = [
    (status(429), RateLimited, "Rate limit of"),
    (status(500), ServerFault, "500"),
    (status(502, body="<html><title>Bad gateway</title>"), ServerFault, "502.*Bad gateway"),
    (status(408), ServerFault, "408"),
    (status(409), ServerFault, "409"),
    (status(529), Overloaded, "overloaded"),
    (error_event("overloaded_error"), Overloaded, "overloaded.*Overloaded"),
    (error_event("api_error", "Internal"), ServerFault, "Internal"),
    (error_event("rate_limit_error"), RateLimited, "Rate limit"),
    (odd_error_event({"type": "error", "error": None}), ServerFault, "Server error"),
    (odd_error_event({"type": "error", "error": "out of order"}), ServerFault, "out of order"),
    (odd_error_event({"type": "error"}), ServerFault, "Server error"),
    (cut_after(4), ConnectionLost, "broke off"),
    (cut_before_headers(), ConnectionLost, "broke off"),
    (malformed_event(), ServerFault, "malformed"),
]


@pytest.mark.parametrize(("fault", "error", "words"), PASSING_FAULTS)
def test_a_temporary_fault_is_retried_visibly(
    make_client: MakeClient, fault: Status, error: type[TransientError], words: str
) -> None:
    events: list[StreamEvent] = []
    with FakeAPI([fault, fault, text("at last")]) as api:
        assert ask(make_client(api.url, retries=2), events=events).text == "at last"
    retries = [event for event in events if isinstance(event, Retrying)]
    assert [(event.attempt, event.is_news) for event in retries] == [(1, True), (2, True)]
    assert all(0 < event.delay_seconds < 1 and 500 < event.seconds_left < 601 for event in retries)
    after_last = events[events.index(retries[-1]) + 1 :]
    assert "".join(event.text for event in after_last if isinstance(event, TextDelta)) == "at last"


@pytest.mark.parametrize(("fault", "error", "words"), PASSING_FAULTS)
def test_a_fault_that_persists_is_reported_with_the_number_of_tries(
    make_client: MakeClient, fault: Status, error: type[TransientError], words: str
) -> None:
    with FakeAPI([fault, fault]) as api, pytest.raises(error, match=f"(?s){words}.*after 2 tries") as caught:
        ask(make_client(api.url, retries=1))
    assert type(caught.value) is error
    _assert_presentable(caught.value)


def test_a_stream_that_falls_silent_is_tried_again(make_client: MakeClient) -> None:
    events: list[StreamEvent] = []
    with FakeAPI([stall_after(3), text("awake")]) as api:
        client = make_client(api.url, timeouts=Timeouts(read_seconds=0.2))
        assert ask(client, events=events).text == "awake"
    assert any(isinstance(event, Retrying) and "nothing" in event.reason for event in events)


def test_an_answer_that_is_whole_counts_even_if_the_connection_breaks_then(make_client: MakeClient) -> None:
    with FakeAPI([answer("whole", cut_after(8))]) as api:
        assert ask(make_client(api.url)).text == "whole"


def test_an_endpoint_that_never_ends_a_whole_answer_is_not_waited_for(make_client: MakeClient) -> None:
    with FakeAPI([answer("whole", stall_after(8)), text("next")]) as api:
        client = make_client(api.url)
        assert ask(client).text == "whole"
        assert ask(client).text == "next"


def test_a_refused_connection_names_the_address(make_client: MakeClient) -> None:
    port = free_port()
    with pytest.raises(ConnectionLost, match=f"127.0.0.1:{port}.*refused.*after 2 tries") as caught:
        ask(make_client(f"http://127.0.0.1:{port}", retries=1))
    _assert_presentable(caught.value)


def test_an_unknown_host_is_named(make_client: MakeClient) -> None:
    with pytest.raises(ConnectionLost, match=r"no-such-host.invalid.*resolved.*ANTHROPIC_BASE_URL"):
        ask(make_client("http://no-such-host.invalid", retries=0))


TOO_MUCH = [
    (
        "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is 8192"
        " tokens and your request has 1500 input tokens (32000 > 8192 - 1500).",
        (6692, 8192),
    ),
    (
        "This model's maximum context length is 8192 tokens. However, you requested 33500 tokens (1500 in the messages,"
        " 32000 in the completion). Please reduce the length of the messages or completion.",
        (6692, 8192),
    ),
    ("max_tokens: 32000 > 8192, which is the maximum allowed number of output tokens for m", (8192, 0)),
    ("input length and `max_tokens` exceed context limit: 195,000 + 32,000 > 200,000, decrease them", (5000, 200_000)),
    ("`max_tokens` must be less than or equal to `8192`", (8192, 0)),
    ("max_tokens is too large: 32000. This model supports at most 16384 completion tokens", (16384, 0)),
    ("max_tokens is too large", (0, 0)),
]


@pytest.mark.parametrize(("words", "limit"), TOO_MUCH)
def test_a_refusal_of_max_tokens_does_not_mean_that_the_conversation_is_too_long(
    make_client: MakeClient, words: str, limit: tuple[int, int]
) -> None:
    with FakeAPI([status(400, message=words)]) as api, pytest.raises(MaxTokensRefused, match="max_tokens") as caught:
        ask(make_client(api.url))
    assert (caught.value.allowed, caught.value.window) == limit


def test_an_input_that_leaves_no_room_for_an_answer_is_too_long(make_client: MakeClient) -> None:
    words = TOO_MUCH[0][0].replace("1500", "8100")
    with FakeAPI([status(400, message=words)]) as api, pytest.raises(ContextTooLong):
        ask(make_client(api.url))


@pytest.mark.parametrize(
    ("code", "words", "error", "told"),
    [
        (400, "No connected db.", AuthError, "ANTHROPIC_API_KEY"),
        (404, "Provider 'x' not found", ModelNotFound, r"claude-opus-5-5.*Provider 'x' not found"),
        (400, "LLM Provider NOT provided. You passed model=x", ModelNotFound, "LLM Provider NOT provided"),
        (
            500,
            "Error rendering prompt " + "x " * 500 + "roles must alternate",
            ServerFault,
            "rendering.*must alternate",
        ),
    ],
)
def test_what_gateways_say_is_understood(
    make_client: MakeClient, code: int, words: str, error: type[ModelError], told: str
) -> None:
    with FakeAPI([status(code, message=words)]) as api, pytest.raises(error, match=told) as caught:
        ask(make_client(api.url, retries=0))
    _assert_presentable(caught.value)


def test_what_the_endpoint_says_is_made_presentable(make_client: MakeClient) -> None:
    words = f"\x1b[31mred\x07\n\nkey {KEY} " + "very long " * 500
    with FakeAPI([status(400, message=words)]) as api, pytest.raises(RequestRejected, match="red key") as caught:
        ask(make_client(api.url))
    _assert_presentable(caught.value)


def _assert_presentable(error: Exception) -> None:
    sentence = str(error)
    assert sentence.isprintable()
    assert len(sentence) < 500
    assert KEY not in sentence
    cause: BaseException | None = error
    while cause is not None:
        assert KEY not in repr(cause)
        cause = cause.__cause__


# Waiting


@pytest.mark.parametrize("headers", [{"retry-after": "0.05"}, {"retry-after-ms": "50"}])
def test_the_wait_that_the_endpoint_asks_for_is_kept(make_client: MakeClient, headers: dict[str, str]) -> None:
    events: list[StreamEvent] = []
    with FakeAPI([status(429, headers=headers), text("hi")]) as api:
        ask(make_client(api.url), events=events)
    assert isinstance(events[0], Retrying)
    assert events[0].delay_seconds == 0.05
    assert api.exchanges[1].arrived - api.exchanges[0].arrived >= 0.05


def test_too_long_a_wait_fails_at_once_and_says_how_long(make_client: MakeClient) -> None:
    with FakeAPI([status(429, retry_after=3600)]) as api, pytest.raises(RateLimited, match="wait 60 min") as caught:
        ask(make_client(api.url))
    assert caught.value.retry_after_seconds == 3600


def test_a_rate_limit_for_one_agent_holds_the_others_back_too(make_client: MakeClient) -> None:
    shared = Backoff(base_seconds=0.001)
    with FakeAPI(lambda _request, n: status(429, retry_after=1) if n == 0 else text("hi")) as api:
        first, second = make_client(api.url, backoff=shared), make_client(api.url, backoff=shared)
        slow = RunningCall(first)
        wait_until(lambda: slow.events, "the first agent is told to slow down")
        events: list[StreamEvent] = []
        ask(second, events=events)
        slow.join()
    refused, *later = [exchange.arrived for exchange in api.exchanges]
    assert len(later) == 2
    assert all(arrived - refused >= 1 for arrived in later)
    assert isinstance(events[0], Retrying)
    assert "(429)" in events[0].reason
    assert (events[0].attempt, events[0].is_news) == (0, False)


def test_after_a_pause_one_tries_and_the_others_follow_once_it_got_through(make_client: MakeClient) -> None:
    shared, together = Backoff(base_seconds=0.001), threading.Barrier(3)

    def script(_request: dict[str, Any], n: int) -> Any:
        if n < 3:
            together.wait(30)
            return status(529)
        return answer("hi", stall_before_headers()) if n == 3 else text("hi")

    with FakeAPI(script) as api:
        calls = [RunningCall(make_client(api.url, backoff=shared)) for _ in range(3)]
        api.wait_for_stall()
        assert len(api.requests) == 4
        api.release()
        for call in calls:
            call.join()
    assert [call.reply and call.reply.text for call in calls] == ["hi"] * 3
    retries = [event for call in calls for event in call.events if isinstance(event, Retrying)]
    assert sum(event.is_news for event in retries) == 1


def test_an_outage_is_waited_out_for_ten_minutes(make_client: MakeClient) -> None:
    now = [0.0]
    heard: list[Retrying] = []

    def pass_time(event: StreamEvent) -> None:
        if isinstance(event, RequestSent):
            return
        assert isinstance(event, Retrying)
        heard.append(event)
        now[0] += event.delay_seconds

    with FakeAPI(default=status(503)) as api:
        client = make_client(api.url, retries=None, backoff=Backoff(clock=lambda: now[0]))
        with pytest.raises(ServerFault, match=r"\(503\).*gave up after \d\d tries"):
            client.stream(asking(), pass_time, CancelScope())
    assert now[0] == pytest.approx(600)
    assert len(api.requests) == len(heard) + 1 > 12


def test_a_server_that_loads_its_model_says_so(make_client: MakeClient) -> None:
    events: list[StreamEvent] = []
    loading = {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
    with FakeAPI([status(503, body=loading), text("loaded")]) as api:
        assert ask(make_client(api.url), events=events).text == "loaded"
    assert isinstance(events[0], Retrying)
    assert "is loading its model (503)" in events[0].reason
    assert events[0].seconds_left > 1000


def test_an_answer_that_breaks_off_is_asked_for_six_times_at_most(make_client: MakeClient) -> None:
    with FakeAPI([cut_after(4)] * 6) as api, pytest.raises(ConnectionLost, match="after 6 tries"):
        ask(make_client(api.url, retries=None))
    assert len(api.requests) == 6


def test_only_so_many_calls_run_at_once(make_client: MakeClient) -> None:
    shared = Backoff(max_calls=2)
    with FakeAPI(default=answer("hi", stall_before_headers())) as api:
        calls = [RunningCall(make_client(api.url, backoff=shared)) for _ in range(3)]
        api.wait_for_stall(2)
        waiting = RunningCall(make_client(api.url, backoff=shared))
        assert waiting.cancel() < SOON_SECONDS
        assert isinstance(waiting.error, StreamInterrupted)
        assert len(api.requests) == 2
        api.release()
        api.wait_for_stall(3)
        api.release()
        for call in calls:
            call.join()
    assert [call.reply.text for call in calls if call.reply] == ["hi"] * 3


# Cancelling


@pytest.mark.parametrize("earlier_turns", [0, 1])
def test_a_cancel_before_the_headers_ends_the_call(make_client: MakeClient, earlier_turns: int) -> None:
    with FakeAPI([*["earlier"] * earlier_turns, stall_before_headers(), text("next")]) as api:
        client = make_client(api.url)
        for _ in range(earlier_turns):
            ask(client)
        call = RunningCall(client)
        api.wait_for_stall()
        assert call.cancel() < SOON_SECONDS
        assert isinstance(call.error, StreamInterrupted)
        assert (str(call.error), call.error.partial) == ("the user pressed Esc", None)
        api.wait_for_disconnect()
        assert ask(client).text == "next"


def test_a_cancel_in_the_middle_keeps_whole_blocks(make_client: MakeClient) -> None:
    blocks = [thinking("I see."), text("Half of this"), tool("bash", command="ls"), tool("bash", command="rm x")]
    start_and_thinking, words, first_call = 1 + 7, 6, 7
    with FakeAPI([answer(*blocks, stall_after(start_and_thinking + words + first_call + 3)), text("next")]) as api:
        client = make_client(api.url)
        call = RunningCall(client)
        wait_until(lambda: sum(isinstance(event, CallOpened) for event in call.events) == 2, "both calls have begun")
        assert call.cancel() < SOON_SECONDS
        assert isinstance(call.error, StreamInterrupted)
        assert call.error.partial is not None
        kept = call.error.partial
        assert [block["type"] for block in kept.content] == ["thinking", "text", "tool_use"]
        assert kept.tool_calls[0]["input"] == {"command": "ls"}
        assert kept.text == "Half of this"
        api.wait_for_disconnect()
        history = (user("Hello"), Message("assistant", kept.content), results_for(kept, "interrupted"))
        assert ask(client, asking(*history)).text == "next"


def test_a_cancel_in_the_first_thought_keeps_nothing(make_client: MakeClient) -> None:
    with FakeAPI([answer(thinking("I wonder"), stall_after(3))]) as api:
        call = RunningCall(make_client(api.url))
        wait_until(lambda: call.events, "a thought has come")
        call.cancel()
    assert isinstance(call.error, StreamInterrupted)
    assert call.error.partial is not None
    assert call.error.partial.content == ()
    assert call.error.partial.usage.input_tokens == 10  # it has its price all the same


def test_an_interrupted_call_counts_what_has_arrived(make_client: MakeClient) -> None:
    with FakeAPI([answer(text("word " * 700, pieces=2), stall_after(3))]) as api:
        call = RunningCall(make_client(api.url))
        wait_until(lambda: call.events, "half of it has come")
        call.cancel()
    assert isinstance(call.error, StreamInterrupted)
    assert call.error.partial is not None
    usage = call.error.partial.usage
    assert (usage.input_tokens, usage.output_tokens, usage.is_estimated) == (10, 500, True)


def test_an_endpoint_that_counts_nothing_is_estimated(make_client: MakeClient) -> None:
    nothing = {"input_tokens": 0, "output_tokens": 0}
    request = asking(user("x" * 7000))
    with FakeAPI(lambda _request, _n: answer(text("y" * 3500), usage=nothing)) as api:
        usage = ask(make_client(api.url), request).usage
    assert 2000 < usage.input_tokens < 2500
    assert (usage.output_tokens, usage.is_estimated) == (1000, True)


def test_an_answer_as_long_as_was_allowed_was_cut_whatever_it_says(make_client: MakeClient) -> None:
    whole = tool("bash", command="rm -r build")
    longest = {"output_tokens": PREAMBLE.max_tokens}
    cut, called, other = (
        answer("half of", stop_reason="end_turn", usage=longest),
        answer(whole, usage=longest),
        answer("whole", usage={"output_tokens": 100 * PREAMBLE.max_tokens}),
    )
    with FakeAPI([cut, called, other]) as api:
        client = make_client(api.url)
        assert ask(client).stop_reason == "max_tokens"
        reply = ask(client)
        assert reply.stop_reason == "max_tokens"
        assert reply.cut_calls == {reply.tool_calls[0]["id"]}
        assert ask(client).stop_reason == "end_turn"


def test_a_cancel_ends_the_wait_before_a_retry(make_client: MakeClient) -> None:
    with FakeAPI([status(429, retry_after=60), text("next")]) as api:
        client = make_client(api.url, backoff=Backoff())
        call = RunningCall(client)
        wait_until(lambda: call.events, "a retry is scheduled")
        assert call.cancel() < SOON_SECONDS
        assert isinstance(call.error, StreamInterrupted)
        assert call.error.partial is None
        assert ask(make_client(api.url)).text == "next"


@pytest.mark.skipif(sys.platform != "linux", reason="needs a full listen queue and /proc/net/tcp")
def test_a_cancel_while_connecting_ends_the_call(make_client: MakeClient) -> None:
    with address_that_never_answers() as url:
        client = make_client(url, timeouts=Timeouts(connect_seconds=120))
        call = RunningCall(client)
        wait_until(lambda: is_connecting_to(url), "the connect is under way")
        assert call.cancel() < SOON_SECONDS
        assert isinstance(call.error, StreamInterrupted)
        assert call.error.partial is None


def test_a_scope_that_is_cancelled_already_sends_nothing(make_client: MakeClient) -> None:
    scope = CancelScope()
    scope.cancel("no more")
    with FakeAPI() as api, pytest.raises(StreamInterrupted, match="no more"):
        make_client(api.url).stream(asking(), [].append, scope)
    assert api.exchanges == []


def test_cancels_at_any_moment_never_harm_the_next_call(make_client: MakeClient) -> None:
    with FakeAPI(default=answer("hi", drip(0.001))) as api:
        client = make_client(api.url, retries=0)
        for n in range(30):
            scope = CancelScope()
            timer = threading.Timer(n * 0.001, scope.cancel)
            timer.start()
            try:
                client.stream(asking(), [].append, scope)
            except StreamInterrupted as e:
                assert e.partial is None or e.partial.text in "hi"
            timer.join()
            assert ask(client).text == "hi"


def test_closing_ends_a_running_call(make_client: MakeClient) -> None:
    with FakeAPI([stall_after(3)]) as api:
        client = make_client(api.url, retries=0)
        call = RunningCall(client)
        api.wait_for_stall()
        client.close()
        call.join()
    assert isinstance(call.error, ConnectionLost)


def test_warming_up_sends_nothing(make_client: MakeClient) -> None:
    with FakeAPI(["hi"]) as api:
        client = make_client(api.url)
        client.warm_up()
        assert api.connections == 0
        assert ask(client).text == "hi"


def test_an_empty_part_of_the_preamble_is_not_sent(make_client: MakeClient) -> None:
    bare = Preamble(PREAMBLE.model, "", (), 10, caching=False)
    with FakeAPI(["hi"]) as api:
        ask(make_client(api.url), asking(preamble=bare))
    assert set(api.requests[0]) == {"model", "max_tokens", "messages", "stream"}
