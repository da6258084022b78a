"""The test bed itself: a fake that let a breach pass would make every other test worthless."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_api import (
    FakeAPI,
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
    rules,
    stall_after,
    stall_before_headers,
    status,
    text,
    thinking,
    tool,
    tool_json,
    tool_results,
    turns,
    unknown_event,
)
from tests.support.fake_api_process import REPOSITORY, FakeAPIProcess, parse_script
from tests.support.waiting import wait_until

Json = dict[str, Any]
HEADERS = {"authorization": "Bearer k", "anthropic-version": "2026-10-21", "content-type": "application/json"}


def user(*blocks: Json | str) -> Json:
    return {"role": "user", "content": [_block(block) for block in blocks]}


def assistant(*blocks: Json | str) -> Json:
    return {"role": "assistant", "content": [_block(block) for block in blocks]}


def _block(block: Json | str) -> Json:
    return {"type": "text", "text": block} if isinstance(block, str) else block


def call(tool_id: str, **tool_input: Any) -> Json:
    return {"type": "tool_use", "id": tool_id, "name": "bash", "input": tool_input}


def result(tool_id: str, content: Any = "ok") -> Json:
    return {"type": "tool_result", "tool_use_id": tool_id, "content": content}


def request(*messages: Json, **fields: Any) -> Json:
    return {"model": "m", "max_tokens": 100, "messages": list(messages or [user("hi")]), **fields}


def post(api: FakeAPI | FakeAPIProcess, body: object, headers: Json = HEADERS, raw: bytes = b"") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=30)
    try:
        connection.request("POST", "/v1/messages", raw or json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def stream(api: FakeAPI, body: Json | None = None) -> list[Json]:
    code, sent = post(api, {**(body or request()), "stream": True})
    assert code == 200, sent
    return list(events_in(sent))


def events_in(sent: str) -> Iterator[Json]:
    for event in sent.split("\n\n"):
        data = [line.removeprefix("data: ") for line in event.split("\n") if line.startswith("data: ")]
        if data:
            yield json.loads(data[0])


def joined(events: list[Json], key: str) -> str:
    return "".join(event["delta"].get(key, "") for event in events if event["type"] == "content_block_delta")


@pytest.fixture
def api() -> Iterator[FakeAPI]:
    with FakeAPI(default=text("fine"), is_official=True) as running:
        yield running


def test_a_streamed_answer_has_the_events_of_the_api_in_order() -> None:
    with FakeAPI([answer(text("Hello world"), tool("bash", command="ls -l"))]) as api:
        events = stream(api)
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start"
    assert kinds[-2:] == ["message_delta", "message_stop"]
    assert kinds.count("content_block_start") == kinds.count("content_block_stop") == 2
    assert kinds.count("content_block_delta") > 4
    assert joined(events, "text") == "Hello world"
    assert json.loads(joined(events, "partial_json")) == {"command": "ls -l"}
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_an_answer_that_is_not_streamed_is_one_message() -> None:
    with FakeAPI([answer("Hello", stop_reason="max_tokens", usage={"output_tokens": 7})]) as api:
        code, sent = post(api, request())
    message = json.loads(sent)
    assert code == 200
    assert message["content"] == [{"type": "text", "text": "Hello"}]
    assert message["stop_reason"] == "max_tokens"
    assert message["usage"]["output_tokens"] == 7


def test_the_same_scripted_call_gets_a_new_id_each_time() -> None:
    with FakeAPI(lambda _request, _n: tool("bash", command="ls")) as api:
        ids = {json.loads(post(api, request())[1])["content"][0]["id"] for _ in range(3)}
    assert len(ids) == 3


def test_one_request_too_many_fails_the_test() -> None:
    with pytest.raises(AssertionError, match="only 1 answers"), FakeAPI([text("only")]) as api:
        assert post(api, request())[0] == 200
        assert post(api, request())[0] == 400


def test_breaches_are_noted_on_the_error_that_they_caused() -> None:
    with pytest.raises(ValueError) as caught, FakeAPI() as api:
        post(api, request())
        raise ValueError("something else")
    assert "only 0 answers" in caught.value.__notes__[0]


TOOL = {"name": "bash", "description": "Run it.", "input_schema": {"type": "object", "properties": {}}}
MARK = {"cache_control": {"type": "ephemeral"}}

ACCEPTED = {
    "a plain string": request({"role": "user", "content": "hi"}),
    "a pair of call and result": request(user("a"), assistant("b", call("t1")), user(result("t1"), "and more")),
    "results in another order": request(user("a"), assistant(call("t1"), call("t2")), user(result("t2"), result("t1"))),
    "an empty result": request(user("a"), assistant(call("t1")), user(result("t1", ""))),
    "system and tools": request(system=[{"type": "text", "text": "Be good.", **MARK}], tools=[TOOL], **MARK),
    "four marks": request(user({**_block("a"), **MARK}), system=[{"type": "text", "text": "s", **MARK}] * 2, **MARK),
    "an input that only looks like a mark": request(
        user("a"), assistant(call("t", cache_control=1)), user(result("t"))
    ),
}


@pytest.mark.parametrize("body", ACCEPTED.values(), ids=ACCEPTED.keys())
def test_it_accepts_what_the_api_accepts(api: FakeAPI, body: Json) -> None:
    assert post(api, body)[0] == 200


REFUSED_BY_TEMPLATES = {
    "text behind a result": (ACCEPTED["a pair of call and result"], "no place for text behind a tool_result"),
    "a choice of types": (
        request(tools=[{**TOOL, "input_schema": {"type": "object", "properties": {"to": {"anyOf": [{}]}}}}]),
        "knows no anyOf",
    ),
    "a list of types": (
        request(tools=[{**TOOL, "input_schema": {"type": "object", "properties": {"to": {"type": ["a"]}}}}]),
        "knows no list of types",
    ),
}


@pytest.mark.parametrize(("body", "why"), REFUSED_BY_TEMPLATES.values(), ids=REFUSED_BY_TEMPLATES.keys())
def test_unless_it_is_official_it_refuses_what_a_strict_chat_template_refuses(body: Json, why: str) -> None:
    with pytest.raises(AssertionError, match=why), FakeAPI(default=text("fine")) as strict:
        assert post(strict, body)[0] == 400


REFUSED: dict[str, tuple[Json, str]] = {
    "no model": ({"max_tokens": 1, "messages": [user("a")]}, "model: field required"),
    "no max_tokens": ({"model": "m", "messages": [user("a")]}, "max_tokens: field required"),
    "no messages": ({"model": "m", "max_tokens": 1}, "messages: field required"),
    "empty messages": ({"model": "m", "max_tokens": 1, "messages": []}, "at least one message"),
    "max_tokens of zero": (request(max_tokens=0), "max_tokens: must be a positive integer"),
    "temperature": (request(temperature=1), "temperature: is not supported"),
    "top_k": (request(top_k=1), "top_k: is not supported"),
    "an unknown field": (request(sessions=1), "sessions: extra inputs"),
    "assistant first": (request(assistant("a"), user("b")), "first message must be the user's"),
    "assistant last": (request(user("a"), assistant("b")), "last message must be the user's"),
    "two users in a row": (request(user("a"), user("b")), "roles must alternate"),
    "a system role": (request({"role": "system", "content": "a"}), "neither user nor assistant"),
    "an extra field in a message": (request({"role": "user", "content": "a", "id": 1}), "exactly role and content"),
    "empty content": (request(user()), "must be a non-empty list"),
    "an empty string": (request({"role": "user", "content": ""}), "text must be non-empty"),
    "an empty text block": (request(user("")), "more than whitespace"),
    "a blank text block": (request(user("a"), assistant(" \n"), user("b")), "more than whitespace"),
    "a block without type": (request(user({"text": "a"})), "must be a block with a type"),
    "an unknown block": (request(user({"type": "smell"})), "'smell' are unknown"),
    "an extra field in a block": (request(user({**_block("a"), "id": "x"})), "id: extra inputs"),
    "a call without result": (request(user("a"), assistant(call("t1")), user("b")), "tool_use without tool_result"),
    "a result too late": (
        request(user("a"), assistant(call("t1")), user("b"), assistant("c"), user(result("t1"))),
        "tool_use without tool_result",
    ),
    "two results": (request(user("a"), assistant(call("t1")), user(result("t1"), result("t1"))), "more than one"),
    "a result without call": (request(user(result("t1"))), "which no tool_use"),
    "text before results": (request(user("a"), assistant(call("t1")), user("b", result("t1"))), "must come first"),
    "text between results": (
        request(user("a"), assistant(call("t1"), call("t2")), user(result("t1"), "b", result("t2"))),
        "must come first",
    ),
    "an id used twice": (
        request(user("a"), assistant(call("t")), user(result("t")), assistant(call("t")), user(result("t"))),
        "must be unique",
    ),
    "an input that is a string": (
        request(user("a"), assistant({**call("t"), "input": "{}"}), user(result("t"))),
        "input: must be an object",
    ),
    "a call by the user": (request(user(call("t"))), "may not appear in a message of the user"),
    "a blank text in a result": (
        request(user("a"), assistant(call("t")), user(result("t", [_block(" ")]))),
        "more than whitespace",
    ),
    "thinking without signature": (
        request(user("a"), assistant({"type": "thinking", "thinking": "hm"}, "b"), user("c")),
        "needs its signature",
    ),
    "forged thinking": (
        request(user("a"), assistant({"type": "thinking", "thinking": "hm", "signature": "x"}, "b"), user("c")),
        "not as the server sent it",
    ),
    "five marks": (request(system=[{"type": "text", "text": "s", **MARK}] * 4, **MARK), "at most 4"),
    "a strange mark": (request(cache_control={"type": "eternal"}), "not a valid mark"),
    "a tool without description": (request(tools=[{**TOOL, "description": ""}]), "description: is missing"),
    "a tool with a strange name": (request(tools=[{**TOOL, "name": "ba sh"}]), "not a valid tool name"),
    "a tool without schema": (request(tools=[{**TOOL, "input_schema": {}}]), "schema of type object"),
    "two tools of one name": (request(tools=[TOOL, TOOL]), "names must be unique"),
    "a system of images": (request(system=[{"type": "image"}]), "must be a text block"),
    "an empty system block": (request(system=[{"type": "text", "text": ""}]), "text must be non-empty"),
}


@pytest.mark.parametrize(("body", "expected"), REFUSED.values(), ids=REFUSED.keys())
def test_it_refuses_what_the_api_refuses(api: FakeAPI, body: Json, expected: str) -> None:
    code, sent = post(api, body)
    assert (code, json.loads(sent)["error"]["type"]) == (400, "invalid_request_error")
    assert expected in sent.replace('\\"', '"')
    with pytest.raises(AssertionError, match="breaches of the Messages API"):
        api.assert_clean()
    api.breaches.clear()


@pytest.mark.parametrize(
    ("dropped", "code"), [("authorization", 401), ("anthropic-version", 400), ("content-type", 400)]
)
def test_it_refuses_a_request_without_its_headers(api: FakeAPI, dropped: str, code: int) -> None:
    headers = {name: value for name, value in HEADERS.items() if name != dropped}
    assert post(api, request(), headers)[0] == code
    assert len(api.breaches) == 1
    api.breaches.clear()


@pytest.mark.parametrize("raw", [b"{", b"[]", b"\xff", json.dumps(request(user("\ud800"))).encode()])
def test_it_refuses_a_body_that_is_not_a_proper_json_object(api: FakeAPI, raw: bytes) -> None:
    assert post(api, None, raw=raw)[0] == 400
    assert api.breaches[0].startswith("request 0: body:")
    api.breaches.clear()


def test_a_wrong_key_is_refused_but_is_not_a_breach() -> None:
    with FakeAPI([text("fine")], key="k") as api:
        assert post(api, request(), {**HEADERS, "authorization": "Bearer other"})[0] == 401
        assert post(api, request(), {**HEADERS, "x-api-key": "k", "authorization": ""})[0] == 200


def test_thinking_that_comes_back_as_it_was_sent_is_accepted() -> None:
    unknown = {"type": "smell", "of": "roses"}
    blocks = (thinking("hm"), thinking("own", signature="abc"), redacted_thinking("xyz"), other_block(unknown))
    with FakeAPI([answer(*blocks, "hello"), text("bye")]) as api:
        said = json.loads(post(api, request())[1])["content"]
        assert post(api, request(user("a"), assistant(*said), user("b")))[0] == 200


@pytest.mark.parametrize("change", [{"thinking": "hmm"}, {"signature": "abd"}])
def test_thinking_that_comes_back_changed_is_refused(change: Json) -> None:
    with FakeAPI([answer(thinking("hm", signature="abc"), "hello")]) as api:
        thought, said = json.loads(post(api, request())[1])["content"]
        code, sent = post(api, request(user("a"), assistant({**thought, **change}, said), user("b")))
        assert (code, "not as the server sent it" in sent) == (400, True)
        api.breaches.clear()


def test_a_fresh_server_recognizes_thinking_signed_by_another() -> None:
    with FakeAPI([answer(thinking("hm"), "hello")]) as first:
        said = json.loads(post(first, request())[1])["content"]
    with FakeAPI([text("bye")]) as second:
        assert post(second, request(user("a"), assistant(*said), user("b")))[0] == 200


GREW = request(user("a"), assistant("b"), user("c"), system="s", tools=[TOOL])
PREFIXES: dict[str, tuple[Json, str | None]] = {
    "the same again": (GREW, None),
    "more messages": (request(*GREW["messages"], assistant("d"), user("e"), system="s", tools=[TOOL]), None),
    "more in the last message": (
        request(*GREW["messages"][:-1], user("c", "c2"), assistant("d"), user("e"), system="s", tools=[TOOL]),
        None,
    ),
    "a mark that moved": (
        request(*GREW["messages"][:-1], user({**_block("c"), **MARK}), system="s", tools=[TOOL]),
        None,
    ),
    "another conversation": (request(user("z")), None),
    "another system prompt": ({**GREW, "system": "t"}, "system has changed"),
    "other tools": ({**GREW, "tools": []}, "tools has changed"),
    "an earlier message": ({**GREW, "messages": [user("a", "x"), *GREW["messages"][1:]]}, "messages.0 has changed"),
    "a shorter history": ({**GREW, "messages": GREW["messages"][:1]}, "3 messages have become 1"),
}


@pytest.mark.parametrize(("later", "expected"), PREFIXES.values(), ids=PREFIXES.keys())
def test_it_notices_when_the_prefix_changes(api: FakeAPI, later: Json, expected: str | None) -> None:
    post(api, GREW)
    post(api, later)
    if expected is None:
        api.assert_prefix_stable()
        return
    with pytest.raises(AssertionError, match=expected):
        api.assert_prefix_stable()
    api.assert_prefix_stable(agent_filter=lambda body: body is api.requests[0])


def test_a_status_carries_retry_after_and_the_error_of_the_api() -> None:
    with FakeAPI([status(529, retry_after=1.5), status(500, body="<html>"), not_json()]) as api:
        code, sent = post(api, request())
        assert (code, json.loads(sent)["error"]["type"]) == (529, "overloaded_error")
        assert post(api, request()) == (500, "<html>")
        assert post(api, request())[0] == 200
    assert [exchange.answered is not None for exchange in api.exchanges] == [True] * 3


def test_a_cut_ends_the_connection_after_so_many_events() -> None:
    with FakeAPI([answer(text("Hello"), cut_after(3))]) as api:
        with pytest.raises(http.client.IncompleteRead) as caught:
            post(api, request(stream=True))
        assert len(list(events_in(caught.value.partial.decode()))) == 3


def test_a_cut_before_headers_sends_nothing() -> None:
    with FakeAPI([cut_before_headers()]) as api, pytest.raises(ConnectionError):
        post(api, request(stream=True))


def test_a_cut_leaves_half_of_an_answer_that_is_not_streamed() -> None:
    with FakeAPI([cut_after(3)]) as api, pytest.raises(http.client.IncompleteRead):
        post(api, request())


@pytest.mark.parametrize("fault", [stall_after(3), stall_before_headers()])
@pytest.mark.parametrize("streaming", [True, False])
def test_a_stalled_answer_continues_when_it_is_released(fault: Any, streaming: bool) -> None:
    with FakeAPI([answer(text("Hello"), fault)]) as api:
        got: list[tuple[int, str]] = []
        client = threading.Thread(target=lambda: got.append(post(api, request(stream=streaming))))
        client.start()
        api.wait_for_stall()
        assert not got
        assert api.exchanges[0].answered is None
        api.release()
        client.join(30)
        assert got[0][0] == 200
        api.wait_for_answers(1)


@pytest.mark.parametrize("fault", [stall_after(3), stall_before_headers(), drip(0.001, size=1)])
def test_it_notices_when_the_client_leaves(fault: Any) -> None:
    with FakeAPI([answer(text("Hello" * 1000, pieces=1000), fault)]) as api:
        body = json.dumps(request(stream=True))
        connection = http.client.HTTPConnection("127.0.0.1", api.port)
        connection.request("POST", "/v1/messages", body, HEADERS)
        api.wait_for_requests(1)
        assert connection.sock is not None
        connection.sock.shutdown(socket.SHUT_RDWR)
        api.wait_for_disconnect()
        connection.close()
        assert api.exchanges[0].left


def test_closing_ends_stalled_answers() -> None:
    api = FakeAPI([stall_before_headers()]).start()
    failed: list[Exception] = []

    def ask() -> None:
        try:
            post(api, request())
        except (OSError, http.client.HTTPException) as e:
            failed.append(e)

    client = threading.Thread(target=ask)
    client.start()
    api.wait_for_stall()
    api.close()
    client.join(30)
    assert not client.is_alive()


def test_a_drip_cuts_through_characters_and_still_arrives_whole() -> None:
    with FakeAPI([answer(text("žluťoučký kůň 🐎"), drip(size=1))]) as api:
        assert joined(stream(api), "text") == "žluťoučký kůň 🐎"


def test_extra_events_appear_among_those_of_the_answer() -> None:
    with FakeAPI([answer(text("Hello"), ping(1), unknown_event(2), comment(3))]) as api:
        events = stream(api)
    assert [event["type"] for event in events[1:4]] == ["ping", "content_block_start", "weather_report"]
    assert joined(events, "text") == "Hello"


def test_an_error_event_ends_the_stream() -> None:
    with FakeAPI([error_event("overloaded_error", after=2)]) as api:
        events = stream(api)
    assert [event["type"] for event in events] == ["message_start", "content_block_start", "error"]
    assert events[-1]["error"]["type"] == "overloaded_error"


def test_a_malformed_event_is_sent_as_it_is() -> None:
    with FakeAPI([malformed_event(1), answer(tool_json("bash", '{"command": "l'))]) as api:
        with pytest.raises(json.JSONDecodeError):
            stream(api)
        assert joined(stream(api), "partial_json") == '{"command": "l'


def test_rules_answer_by_what_the_user_or_a_tool_said() -> None:
    with FakeAPI(rules(("list", tool("bash", command="ls")), (r"a\.txt", text("one file")))) as api:
        use = json.loads(post(api, request(user("list them")))[1])["content"][0]
        again = request(user("list them"), assistant(use), user(result(use["id"], "a.txt")))
        assert json.loads(post(api, again)[1])["content"][0]["text"] == "one file"
        assert tool_results(api.requests[1])[0]["content"] == "a.txt"
        assert post(api, request(user("what?")))[0] == 400


def test_turns_count_the_calls_in_the_request() -> None:
    with FakeAPI(turns(1, command="echo {n}")) as api:
        use = json.loads(post(api, request())[1])["content"][0]
        assert use["input"] == {"command": "echo 0"}
        last = json.loads(post(api, request(user("hi"), assistant(use), user(result(use["id"]))))[1])
        assert last["content"][0]["text"] == "done"


def test_connections_are_counted_and_kept_alive() -> None:
    with FakeAPI(default=text("fine")) as api:
        connection = http.client.HTTPConnection("127.0.0.1", api.port)
        for _ in range(3):
            connection.request("POST", "/v1/messages", json.dumps(request(stream=True)), HEADERS)
            connection.getresponse().read()
        connection.close()
        post(api, request())
        assert (api.connections, api.disconnects) == (2, 0)
        assert [exchange.connection for exchange in api.exchanges] == [1, 1, 1, 2]
        # The server notes the end of an answer after its last byte, which the client may have read by then.
        wait_until(lambda: all(exchange.arrived <= (exchange.answered or 0) for exchange in api.exchanges[:3]))


def test_a_bug_in_the_script_fails_the_test() -> None:
    def script(_request: Json, _n: int) -> Any:
        raise ZeroDivisionError

    lost = pytest.raises((OSError, http.client.HTTPException))
    with pytest.raises(AssertionError, match="ZeroDivisionError"), FakeAPI(script) as api, lost:
        post(api, request())


def test_many_clients_at_once_are_all_served() -> None:
    with FakeAPI(default=text("fine")) as api:
        codes: list[int] = []
        clients = [threading.Thread(target=lambda: codes.append(post(api, request())[0])) for _ in range(50)]
        for client in clients:
            client.start()
        for client in clients:
            client.join(30)
        assert codes == [200] * 50


def test_the_sdk_reads_what_it_streams(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    import anthropic

    script = [answer(thinking("hm"), "Hello", tool("bash", command="ls")), text("bye")]
    ask: Json = {"model": "m", "max_tokens": 10, "messages": [user("hi")]}
    with FakeAPI(script) as api, anthropic.Anthropic(api_key="k", base_url=api.url, max_retries=0) as client:
        with client.messages.stream(**ask) as events:
            message = events.get_final_message()
        assert [block.type for block in message.content] == ["thinking", "text", "tool_use"]
        assert message.content[2].input == {"command": "ls"}
        assert client.messages.create(**ask).content[0].text == "bye"


def test_as_a_process_it_logs_requests_answers_and_breaches(tmp_path: Path) -> None:
    refused = pytest.raises(AssertionError, match="temperature")
    with refused, FakeAPIProcess("turns:1", tmp_path / "api.jsonl", keep_bodies=1) as api:
        assert post(api, request())[0] == 200
        assert post(api, request(temperature=1))[0] == 400
        first, second = api.wait_for_requests(2)
    assert (first["body"], second["body"]) == (request(), {})
    assert [entry["event"] for entry in api.log()].count("answered") == 2


def test_as_a_process_it_is_scripted_in_json(tmp_path: Path) -> None:
    script = [
        "hi",
        {"tool": "bash", "input": {"command": "ls"}},
        {"status": 529, "retry_after": 1},
        {"repeat": 2, "answer": ["x"]},
    ]
    with FakeAPIProcess(script, tmp_path / "api.jsonl") as api:
        assert "hi" in post(api, request())[1]
        assert "toolu_" in post(api, request())[1]
        assert [post(api, request())[0] for _ in range(3)] == [529, 200, 200]


def test_started_from_a_shell_it_prints_its_port_and_ends_on_sigterm() -> None:
    command = [sys.executable, "-m", "tests.support.fake_api", "--text", "hi"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=REPOSITORY) as process:
        assert process.stdout is not None
        assert int(process.stdout.readline()) > 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_a_script_file_knows_every_word() -> None:
    parsed = parse_script(
        [
            "stall_before_headers",
            "not_json",
            {"stall_after": 2},
            {"answer": [{"thinking": "hm"}, {"text": "a"}, {"cut_after": 3}], "stop_reason": "max_tokens"},
        ]
    )
    assert isinstance(parsed, list)
    assert parsed[:3] == [stall_before_headers(), not_json(), stall_after(2)]
    assert parsed[3] == answer(thinking("hm"), text("a"), cut_after(3), stop_reason="max_tokens")
