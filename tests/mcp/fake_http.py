"""A small MCP server over HTTP, in either era, with the ways in which such servers differ and fail."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODERN = "2026-07-28"


class FakeHttp:
    """Its fields decide how it behaves; they can be changed at any time."""

    def __init__(self) -> None:
        self.era = "legacy"
        self.is_stream = False
        self.line_end = "\n"
        self.has_events = False
        """Whether there is a GET stream."""
        self.session = "s-1"
        self.expired_status = 404
        self.token = ""
        """Required, if set."""
        self.challenge = "Bearer"
        self.redirect = ""
        self.status = 0
        """Of every POST, if set."""
        self.page = b""
        """The answer to every POST, if set."""
        self.breaks_after: str | None = None
        """The stream of a call ends after an event with this id, and the answer comes with the next GET."""
        self.breaks_once = ""
        """The stream of the first request with this method ends without an answer."""
        self.requests: list[tuple[str, dict[str, str], Any]] = []
        self.events: list[dict[str, Any]] = []
        self.changed = threading.Condition()
        self.tools: list[dict[str, Any]] = [{"name": "echo", "inputSchema": {"type": "object"}}]
        self.url = ""

    def seen(self, method: str) -> list[dict[str, str]]:
        """The headers of the requests with this JSON-RPC or HTTP method."""
        return [headers for verb, headers, body in self.requests if method in (verb, (body or {}).get("method", ""))]

    def push(self, message: dict[str, Any]) -> None:
        with self.changed:
            self.events.append({"jsonrpc": "2.0", **message})
            self.changed.notify_all()

    def answer(self, body: dict[str, Any]) -> dict[str, Any]:
        method, params = body["method"], body.get("params") or {}
        about: dict[str, Any] = {"capabilities": {"tools": {"listChanged": True}}}
        if method == "initialize" and self.era == "legacy":
            result = {"protocolVersion": params["protocolVersion"], "serverInfo": {"name": "http"}, **about}
        elif method == "server/discover" and self.era == "modern":
            result = {"supportedVersions": [MODERN], "resultType": "complete", **about}
        elif method == "tools/list":
            result = {"tools": self.tools}
        elif method == "tools/call":
            result = {"content": [{"type": "text", "text": params["arguments"].get("text", "")}]}
        else:
            return {"jsonrpc": "2.0", "id": body["id"], "error": {"code": -32601, "message": "unknown"}}
        return {"jsonrpc": "2.0", "id": body["id"], "result": result}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_POST(self) -> None:
        fake = self.server.fake
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        self._note(body)
        if not self._is_refused(body):
            self._answer(fake, body)

    def do_GET(self) -> None:
        fake = self.server.fake
        self._note(None)
        if fake.breaks_after is not None and "last-event-id" in self.headers:
            broken = next(body for _, _, body in reversed(fake.requests) if body and body["method"] == "tools/call")
            self._start_stream()
            self._event(fake.answer(broken), "after")
            return self._end_stream()
        if not fake.has_events:
            return self._reply(405)
        self._start_stream()
        self._push_events(fake)
        return self._end_stream()

    def _push_events(self, fake: FakeHttp) -> None:
        """Until one says that the stream ends."""
        with contextlib.suppress(OSError, IndexError):
            while True:
                with fake.changed:
                    fake.changed.wait_for(lambda: fake.events, 60)
                    message = fake.events.pop(0)
                if message.get("method") == "end":
                    return
                self._event(message, "e1")

    def do_DELETE(self) -> None:
        self._note(None)
        self._reply(200)

    def _is_refused(self, body: dict[str, Any]) -> bool:
        fake = self.server.fake
        is_start = body.get("method") in ("initialize", "server/discover")
        if fake.redirect and self.path == "/mcp":
            self._reply(307, location=fake.redirect)
        elif fake.token and self.headers.get("authorization") != f"Bearer {fake.token}":
            self._reply(401, {"error": "x"}, **{"www-authenticate": fake.challenge})
        elif fake.page:
            self._send(200, fake.page, {"content-type": "text/html"})
        elif fake.status:
            self._reply(fake.status, {"why": "out of order"})
        elif fake.era == "legacy" and not is_start and self.headers.get("mcp-session-id") != fake.session:
            self._reply(fake.expired_status, {"error": {"code": -32000, "message": "no session"}, "id": None})
        elif "id" not in body or "method" not in body:
            self._reply(202)
        else:
            return False
        return True

    def _answer(self, fake: FakeHttp, body: dict[str, Any]) -> None:
        if body["method"] == "subscriptions/listen" and fake.has_events:
            self._start_stream()
            self._push_events(fake)
            return self._end_stream()
        answer = fake.answer(body)
        session = {"mcp-session-id": fake.session} if body["method"] == "initialize" else {}
        if "error" in answer:
            return self._reply(400 if fake.era == "legacy" else 404, answer)
        if not fake.is_stream:
            return self._reply(200, answer, **session)
        self._start_stream(**session)
        if body["method"] == fake.breaks_once:
            fake.breaks_once = ""
            return self._end_stream()
        if body["method"] == "tools/call" and fake.breaks_after is not None:
            if fake.breaks_after:
                self._write(f"retry: 1{fake.line_end}")
            self._event(None, fake.breaks_after)
        else:
            token = (body["params"].get("_meta") or {}).get("progressToken")
            if token is not None:
                params = {"progressToken": token, "progress": 1}
                self._event({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
            self._event(answer)
        return self._end_stream()

    def _note(self, body: Any) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.fake.requests.append((self.command, headers, body))

    def _reply(self, status: int, body: Any = None, **headers: str) -> None:
        data = b"" if body is None else json.dumps(body).encode()
        self._send(status, data, {"content-type": "application/json", **headers})

    def _send(self, status: int, data: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _start_stream(self, **headers: str) -> None:
        self.send_response(200)
        for name, value in {"content-type": "text/event-stream", "connection": "close", **headers}.items():
            self.send_header(name, value)
        self.end_headers()

    def _event(self, message: Any, id: str = "") -> None:
        end = self.server.fake.line_end
        data = "" if message is None else json.dumps(message)
        self._write((f"id: {id}{end}" if id else "") + f": comment{end}event: message{end}data: {data}{end}{end}")

    def _write(self, text: str) -> None:
        self.wfile.write(text.encode())
        self.wfile.flush()

    def _end_stream(self) -> None:
        self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, fake: FakeHttp) -> None:
        self.fake = fake
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients hang up in the middle of an answer. Other errors are bugs of the fake."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


@contextmanager
def serving(**fields: Any) -> Iterator[FakeHttp]:
    fake = FakeHttp()
    for name, value in fields.items():
        setattr(fake, name, value)
    with _Server(fake) as server:
        fake.url = f"http://127.0.0.1:{server.server_port}/mcp"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield fake
        finally:
            server.shutdown()
            thread.join()
