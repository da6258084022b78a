"""A chat completions endpoint on a loopback socket: strict about the order of messages, with scripted answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 7,
    "total_tokens": 107,
    "prompt_tokens_details": {"cached_tokens": 60},
}


class Refusal(NamedTuple):
    status: int
    message: str
    code: str = ""


def deltas(text: str = "", *calls: tuple[str, str, str]) -> list[dict[str, Any]]:
    """Text letter by letter, then calls (id, name, arguments) whose arguments come in pieces of three characters."""
    made: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": letter} for letter in text)]
    for index, (id, name, arguments) in enumerate(calls):
        function = {"name": name, "arguments": ""}
        made.append({"tool_calls": [{"index": index, "id": id, "type": "function", "function": function}]})
        for start in range(0, len(arguments), 3):
            piece = {"arguments": arguments[start : start + 3]}
            made.append({"tool_calls": [{"index": index, "function": piece}]})
    return made


class Answer(NamedTuple):
    deltas: list[dict[str, Any]]
    finish_reason: str = "stop"


@contextmanager
def fake_completions(answers: Sequence[Answer | Refusal]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Its base URL, and the requests that it has got."""
    requests: list[dict[str, Any]] = []
    left = iter(answers)

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["content-length"])))
            requests.append(request)
            problem = _breach(request["messages"])
            answer = Refusal(400, problem) if problem else next(left)
            if isinstance(answer, Refusal):
                body = json.dumps({"error": {"message": answer.message, "code": answer.code}}).encode()
                self._begin(answer.status, "application/json")
                self.wfile.write(body)
                return
            self._begin(200, "text/event-stream")
            for chunk in _chunks(request, answer):
                self.wfile.write(f"data: {json.dumps(chunk)}\n\n".encode())
            self.wfile.write(b"data: [DONE]\n\n")

        def _begin(self, status: int, kind: str) -> None:
            self.send_response(status)
            self.send_header("content-type", kind)
            self.send_header("connection", "close")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1", requests
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _chunks(request: dict[str, Any], answer: Answer) -> Iterator[dict[str, Any]]:
    head = {"id": "c1", "object": "chat.completion.chunk", "created": 1, "model": request["model"]}
    for delta in answer.deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish_reason}]}
    if request.get("stream_options", {}).get("include_usage"):
        yield {**head, "choices": [], "usage": USAGE}


def _breach(messages: list[dict[str, Any]]) -> str:
    """What a strict chat template refuses: each call is answered at once, and only an answer follows results."""
    open_calls: list[str] = []
    before = ""
    for message in messages:
        role = message["role"]
        if role == "tool":
            if message["tool_call_id"] not in open_calls:
                return "a tool message answers no call"
            open_calls.remove(message["tool_call_id"])
        elif open_calls:
            return "a call has no tool message"
        elif role == before == "user":
            return "two user messages in a row"
        elif role == "user" and before == "tool":
            return "Unexpected role 'user' after role 'tool'"
        open_calls += [call["id"] for call in message.get("tool_calls") or ()]
        before = role
    return "a call has no tool message" if open_calls else ""
