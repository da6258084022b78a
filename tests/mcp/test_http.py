"""Servers over streamable HTTP, in both eras."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, LoginNeeded, McpError
from teamcli.mcp.authorizer import Authorizer, NoAuthorizer
from teamcli.mcp.client import McpClient
from teamcli.mcp.http import HttpTransport
from teamcli.mcp.param_headers import InvalidHeader, encode_value, find_param_headers, param_values
from teamcli.mcp.server import CallProgress, ServerConfig
from tests.mcp.fake_http import FakeHttp, serving
from tests.mcp.servers import PATIENT, Recorder, call, text_of
from tests.support.waiting import wait_until

FORMS = [
    {"era": era, "is_stream": is_stream, "line_end": line_end}
    for era in ("legacy", "modern")
    for is_stream, line_end in ((False, "\n"), (True, "\n"), (True, "\r\n"), (True, "\r"))
]


@contextmanager
def connected(
    fake: FakeHttp,
    authorizer: Authorizer | None = None,
    recorder: Recorder | None = None,
    headers: dict[str, str] | None = None,
) -> Iterator[McpClient]:
    recorder = recorder or Recorder()
    config = ServerConfig("web", url=fake.url, headers=headers or {}, timeouts=PATIENT)
    client = McpClient(
        config,
        lambda receiver: HttpTransport(config, receiver, authorizer or NoAuthorizer()),
        Path("/"),
        recorder.accept,
        recorder.on_change,
        recorder.on_status,
    )
    try:
        yield client
    finally:
        client.close()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: "-".join(map(repr, form.values())))
def test_tools_are_listed_and_called_whatever_the_form_of_the_answers(form: dict[str, Any]) -> None:
    with serving(**form) as fake, connected(fake) as client:
        assert [tool.name for tool in client.tools(CancelScope())] == ["echo"]
        assert text_of(call(client, "echo", text="hé\nllo")) == "hé\nllo"
        assert client.status.era == form["era"]


def test_a_legacy_server_gets_version_and_session_with_every_message_and_a_goodbye() -> None:
    with serving() as fake:
        with connected(fake) as client:
            call(client, "echo")
        for method in ("notifications/initialized", "tools/call", "DELETE"):
            (headers,) = fake.seen(method)
            assert (headers["mcp-session-id"], headers["mcp-protocol-version"]) == ("s-1", "2025-11-25")


def test_a_modern_server_gets_the_standard_headers_and_no_session() -> None:
    with serving(era="modern") as fake, connected(fake) as client:
        call(client, "echo")
        (headers,) = fake.seen("tools/call")
        assert [headers.get(name) for name in ("mcp-protocol-version", "mcp-method", "mcp-name", "mcp-session-id")] == [
            "2026-07-28",
            "tools/call",
            "echo",
            None,
        ]


def test_the_configured_headers_go_with_every_request() -> None:
    with serving() as fake, connected(fake, headers={"X-Team": "blue"}) as client:
        call(client, "echo")
        assert {headers.get("x-team") for _, headers, _ in fake.requests} == {"blue"}


@pytest.mark.parametrize("status", [400, 404])
def test_an_expired_session_is_begun_anew_and_the_call_repeated(status: int) -> None:
    with serving(expired_status=status) as fake, connected(fake) as client:
        call(client, "echo")
        fake.session = "s-2"
        assert text_of(call(client, "echo", text="again")) == "again"
        assert fake.seen("tools/call")[-1]["mcp-session-id"] == "s-2"


def test_a_session_that_always_expires_ends_in_an_error() -> None:
    with serving() as fake, connected(fake) as client:
        call(client, "echo")
        fake.status = 404
        with pytest.raises(McpError):
            call(client, "echo")


def test_an_interrupted_stream_is_resumed_after_its_last_event() -> None:
    with serving(is_stream=True, breaks_after="e7") as fake, connected(fake) as client:
        assert text_of(call(client, "echo", text="resumed")) == "resumed"
        assert [headers["last-event-id"] for headers in fake.seen("GET") if "last-event-id" in headers] == ["e7"]


@pytest.mark.parametrize(("era", "id"), [("legacy", ""), ("modern", "e7")])
def test_a_stream_that_cannot_be_resumed_fails_the_call(era: str, id: str) -> None:
    with (
        serving(era=era, is_stream=True, breaks_after=id) as fake,
        connected(fake) as client,
        pytest.raises(McpError, match="broke off its answer"),
    ):
        call(client, "echo")


def test_progress_comes_with_the_stream() -> None:
    reports: list[CallProgress] = []
    with serving(is_stream=True) as fake, connected(fake) as client:
        client.call("echo", {}, CancelScope(), reports.append)
    assert reports == [CallProgress(1)]


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_changes_come_with_the_stream_of_events(era: str) -> None:
    recorder = Recorder()
    with serving(era=era, has_events=True) as fake, connected(fake, recorder=recorder) as client:
        client.start(CancelScope())
        fake.push({"method": "notifications/tools/list_changed"})
        assert recorder.wait_until(lambda: recorder.changes == ["tools"])


@pytest.mark.parametrize(("era", "method"), [("legacy", "GET"), ("modern", "subscriptions/listen")])
def test_a_stream_of_events_that_ends_is_opened_again(era: str, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("teamcli.mcp.conversation._FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr("teamcli.mcp.http._FIRST_RETRY_SECONDS", 0.01)
    with serving(era=era, has_events=True) as fake, connected(fake) as client:
        client.start(CancelScope())
        fake.push({"method": "end"})
        wait_until(lambda: len(fake.seen(method)) == 2)


def test_a_list_whose_answer_breaks_off_is_asked_for_again() -> None:
    with serving(era="modern", is_stream=True, breaks_once="tools/list") as fake, connected(fake) as client:
        assert [tool.name for tool in client.tools(CancelScope())] == ["echo"]


def test_a_server_without_a_stream_of_events_is_not_asked_again() -> None:
    with serving() as fake, connected(fake) as client:
        for _ in range(5):
            call(client, "echo")
        wait_until(lambda: fake.seen("GET"))
        assert len(fake.seen("GET")) == 1


def test_an_error_about_one_request_does_not_end_the_session() -> None:
    with serving() as fake, connected(fake) as client:
        with pytest.raises(McpError, match="refused resources/read"):
            client.read_resource("file:///x", CancelScope())
        assert len(fake.seen("initialize")) == 1


def test_an_answer_that_is_not_mcp_is_named_however_often_it_comes() -> None:
    with serving(page=b"<html>Welcome</html>") as fake, connected(fake) as client:
        for _ in range(4):
            with pytest.raises(McpError, match="answered server/discover with something that is not MCP"):
                client.tools(CancelScope())
        assert client.status.error_detail == "<html>Welcome</html>"


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_error_is_named_with_its_status(status: int) -> None:
    with (
        serving(status=status) as fake,
        connected(fake) as client,
        pytest.raises(McpError, match=f"status {status}") as e,
    ):
        client.start(CancelScope())
    assert "out of order" in e.value.detail


def test_an_address_where_nothing_listens_is_named() -> None:
    with serving() as fake:
        pass
    with connected(fake) as client, pytest.raises(McpError, match=r"cannot be reached at http://127\.0\.0\.1"):
        client.start(CancelScope())


def test_something_that_is_not_an_mcp_server_is_refused() -> None:
    with serving(status=404) as fake, connected(fake) as client, pytest.raises(McpError, match="no protocol version"):
        client.start(CancelScope())


def test_a_redirect_to_another_origin_is_refused_and_gets_nothing() -> None:
    with serving() as other, serving(redirect=other.url) as fake:
        headers = {"Authorization": "Bearer secret"}
        with connected(fake, headers=headers) as client, pytest.raises(McpError, match="redirects"):
            client.start(CancelScope())
        assert other.requests == []


def test_a_redirect_within_the_origin_is_followed() -> None:
    with serving(redirect="/mcp/next") as fake, connected(fake) as client:
        assert text_of(call(client, "echo", text="x")) == "x"


def test_redirects_in_a_circle_end_in_an_error() -> None:
    with serving(redirect="/mcp") as fake, connected(fake) as client, pytest.raises(McpError, match="too often"):
        client.start(CancelScope())


def test_without_a_token_the_state_says_that_a_login_is_needed() -> None:
    with serving(token="t1") as fake, connected(fake) as client:
        with pytest.raises(LoginNeeded, match="needs a login"):
            client.tools(CancelScope())
        assert client.status.state == "needs_login"


def test_a_configured_header_that_is_refused_is_named() -> None:
    with (
        serving(token="t1") as fake,
        connected(fake, headers={"authorization": "Bearer old"}) as client,
        pytest.raises(LoginNeeded, match="refuses the configured Authorization header"),
    ):
        client.tools(CancelScope())


class Renewing:
    def __init__(self, *tokens: str) -> None:
        self._tokens = list(tokens)
        self.refused: list[str] = []

    def token(self) -> str:
        return self._tokens[0]

    def renew(self, refused: str, status: int, headers: object) -> bool:
        self.refused.append(refused)
        self._tokens.pop(0)
        return bool(self._tokens)


def test_a_token_that_has_expired_is_renewed_and_the_call_repeated() -> None:
    authorizer = Renewing("t1", "t2")
    with serving(token="t1") as fake, connected(fake, authorizer) as client:
        call(client, "echo")
        fake.token = "t2"
        assert text_of(call(client, "echo", text="x")) == "x"
    assert authorizer.refused == ["t1"]


def test_a_token_that_is_refused_for_good_makes_the_state_say_so() -> None:
    with serving(token="t1") as fake, connected(fake, Renewing("t1", "t2", "t3")) as client:
        call(client, "echo")
        fake.token = "other"
        with pytest.raises(LoginNeeded):
            call(client, "echo")
        assert client.status.state == "needs_login"


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_eight_threads_call_at_once_and_each_gets_its_own_answer(era: str) -> None:
    with serving(era=era, is_stream=True) as fake, connected(fake) as client, ThreadPoolExecutor(8) as pool:
        texts = [str(number) for number in range(80)]
        assert [text_of(result) for result in pool.map(lambda text: call(client, "echo", text=text), texts)] == texts


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_a_cancelled_call_ends_at_once_and_a_legacy_server_is_notified(era: str) -> None:
    cancel = CancelScope()
    with serving(era=era) as fake, connected(fake) as client:
        client.start(CancelScope())
        fake.answer = lambda body: threading.Event().wait(5) or {}  # type: ignore[method-assign,assignment]
        threading.Timer(0.1, cancel.cancel).start()
        with pytest.raises(Cancelled):
            client.call("echo", {}, cancel)
        wait_until(lambda: era == "modern" or fake.seen("notifications/cancelled"))


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        ("us-west1", "us-west1"),
        ("a b\tc", "a b\tc"),
        ("", ""),
        (" a", "=?base64?IGE=?="),
        ("é", "=?base64?w6k=?="),
        ("a\r\nX: y", "=?base64?YQ0KWDogeQ==?="),
        ("=?base64?x?=", "=?base64?PT9iYXNlNjQ/eD89?="),
    ],
)
def test_a_value_that_a_header_cannot_carry_is_encoded(value: str, encoded: str) -> None:
    assert encode_value(value) == encoded


def test_annotated_arguments_become_headers_at_any_depth() -> None:
    schema = {
        "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "more": {"type": "object", "properties": {"deep": {"type": "boolean", "x-mcp-header": "Deep"}}},
            "none": {"type": "integer", "x-mcp-header": "None"},
        }
    }
    values = param_values(find_param_headers(schema), {"region": "eu", "more": {"deep": True}, "none": None})
    assert values == {"Mcp-Param-Region": "eu", "Mcp-Param-Deep": "true"}


@pytest.mark.parametrize(
    "properties",
    [
        {"a": {"type": "string", "x-mcp-header": ""}},
        {"a": {"type": "string", "x-mcp-header": "a b"}},
        {"a": {"type": "string", "x-mcp-header": "a\r\nb"}},
        {"a": {"type": "string", "x-mcp-header": 5}},
        {"a": {"type": "number", "x-mcp-header": "A"}},
        {"a": {"type": "object", "x-mcp-header": "A"}},
        {"a": {"type": "string", "x-mcp-header": "A"}, "b": {"type": "string", "x-mcp-header": "a"}},
        {"a": {"type": "array", "items": {"type": "string", "x-mcp-header": "A"}}},
        {"a": {"anyOf": [{"type": "string", "x-mcp-header": "A"}]}},
    ],
)
def test_an_annotation_that_is_forbidden_makes_a_tool_invalid(properties: dict[str, Any]) -> None:
    with pytest.raises(InvalidHeader):
        find_param_headers({"properties": properties})


def test_a_tool_with_a_forbidden_annotation_is_left_out_and_others_get_their_headers() -> None:
    def tool(name: str, header: str) -> dict[str, Any]:
        return {
            "name": name,
            "inputSchema": {"properties": {"text": {"type": "string", "x-mcp-header": header}}},
        }

    with serving(era="modern", tools=[tool("echo", "Text"), tool("bad", "a b")]) as fake, connected(fake) as client:
        assert [each.name for each in client.tools(CancelScope())] == ["echo"]
        call(client, "echo", text="hi")
        assert fake.seen("tools/call")[0]["mcp-param-text"] == "hi"
