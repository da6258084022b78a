"""What is said to a server from its start to its end: requests with what its era needs, and its questions."""

from __future__ import annotations

import logging
import math
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, McpError
from teamcli.mcp.elicitation import MOST_QUESTIONS, MOST_ROUNDS, encode_answer, parse_question
from teamcli.mcp.handshake import Hello, greet, modern_meta
from teamcli.mcp.messages import INTERNAL_ERROR, METHOD_NOT_FOUND, URL_ELICITATION_REQUIRED, RpcError
from teamcli.mcp.peer import ABANDONED, LISTEN, AnswerBroken, Clock, McpRequest, OpenTransport, Peer
from teamcli.mcp.server import Ask, Era, Json, Kind, ServerConfig, decline

logger = logging.getLogger(__name__)

_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 300.0
"""Before subscribing again."""
_RETRY_SECONDS = 0.5
"""Before asking again, if the server wants that without having a question."""
_KINDS: tuple[Kind, ...] = ("tools", "prompts", "resources")
_CHANGES: Mapping[str, Kind] = {f"notifications/{kind}/list_changed": kind for kind in _KINDS}


class McpConversation:
    def __init__(
        self,
        config: ServerConfig,
        root: Path,
        ask: Ask,
        on_change: Callable[[Kind], None],
        on_lost: Callable[[McpError], None],
        open_transport: OpenTransport,
    ) -> None:
        """Raises: McpError"""
        self._name = config.name
        self._root = root
        self._ask = ask
        self._can_ask = ask is not decline
        self._on_change = on_change
        self._on_lost = on_lost
        self._lock = threading.Lock()
        self._asked = 0
        """Questions of a legacy server since the last call."""
        self._scope = CancelScope()
        self.hello = Hello("", "")
        self._peer = Peer(config.name, self, open_transport)

    @property
    def is_lost(self) -> bool:
        return self._peer.is_lost

    def begin(self, first: Era, seconds: float, cancel: CancelScope) -> None:
        """Raises: McpError, Cancelled"""
        self.hello = greet(self._peer, self._name, self._can_ask, first, seconds, cancel)
        if self.hello.era == "modern" and self._changing_kinds():
            threading.Thread(target=self._listen, name=f"mcp changes {self._name}", daemon=True).start()

    def request(self, request: McpRequest, cancel: CancelScope) -> Json:
        """Raises: RpcError, McpError, Cancelled"""
        if self.hello.era == "modern":
            request = request._replace(params={**request.params, "_meta": modern_meta(self._can_ask)})
        return self._peer.request(request, cancel)

    def request_in_rounds(self, request: McpRequest, cancel: CancelScope) -> Json:
        """The same, with all questions that the server has about it answered.

        Raises: RpcError, McpError, Cancelled
        """
        with self._lock:
            self._asked = 0
        answers: Json = {}
        for _ in range(MOST_ROUNDS):
            try:
                result = self.request(request._replace(params={**request.params, **answers}), cancel)
            except RpcError as e:
                if e.code != URL_ELICITATION_REQUIRED or not self._visit_all(e.data, cancel):
                    raise
                continue
            kind = result.get("resultType", "complete")
            if kind == "complete":
                return result
            if kind != "input_required":
                raise McpError(f"MCP server {self._name} answered {request.method} with a result of an unknown type")
            answers = self._answer_all(result, cancel)
        raise McpError(f"MCP server {self._name} asked more than {MOST_ROUNDS} times about one call; it was given up")

    def close(self) -> None:
        self._scope.cancel("closed")
        self._peer.close()

    def on_request(self, method: str, params: Json, cancel: CancelScope) -> Json:
        if method == "ping":
            return {}
        if method == "roots/list":
            return {"roots": [{"uri": self._root.as_uri(), "name": self._root.name}]}
        if method == "elicitation/create" and self._can_ask:
            return self._answer_in_call(params, cancel)
        raise RpcError(METHOD_NOT_FOUND, "Method not found")

    def on_notification(self, method: str, params: Json) -> None:
        if method in _CHANGES:
            self._on_change(_CHANGES[method])

    def on_lost(self, error: McpError) -> None:
        self._scope.cancel("lost")
        self._on_lost(error)

    def _listen(self) -> None:
        """Hear of changes from a modern server, again and again if the stream ends."""
        kinds, pause_seconds = self._changing_kinds(), _FIRST_PAUSE_SECONDS
        params = {"notifications": {f"{kind}ListChanged": True for kind in kinds}}
        while not self._scope.cancelled:
            began = time.monotonic()
            try:
                self.request(McpRequest(LISTEN, params, Clock(math.inf)), self._scope)
            except AnswerBroken as e:
                logger.debug("%s", e)
            except (RpcError, McpError, Cancelled) as e:  # it cannot do that, or is gone
                logger.debug("MCP server %s: no subscription: %s", self._name, e)
                return
            if time.monotonic() - began > _LONGEST_PAUSE_SECONDS:
                pause_seconds = _FIRST_PAUSE_SECONDS
            self._scope.wait(pause_seconds)
            pause_seconds = min(2 * pause_seconds, _LONGEST_PAUSE_SECONDS)
            for kind in kinds:  # something may have changed meanwhile
                self._on_change(kind)

    def _changing_kinds(self) -> list[Kind]:
        capabilities = self.hello.capabilities
        offered: dict[Kind, Any] = {kind: capabilities.get(kind) for kind in _KINDS}
        return [kind for kind, offer in offered.items() if isinstance(offer, dict) and offer.get("listChanged") is True]

    def _answer_in_call(self, params: Json, cancel: CancelScope) -> Json:
        """Answer a legacy server, which may ask at any time.

        Raises: RpcError, Cancelled
        """
        with self._lock:
            self._asked += 1
            if self._asked > MOST_ROUNDS * MOST_QUESTIONS:
                raise RpcError(INTERNAL_ERROR, "too many questions")
        try:
            return self._answer_one(params, cancel)
        except Cancelled:
            # Nobody waits for the call anymore, but the server still waits for this answer.
            if cancel.reason != ABANDONED:
                raise
            return {"action": "cancel"}

    def _answer_one(self, params: Json, cancel: CancelScope) -> Json:
        question = parse_question(self._name, params)
        return encode_answer(question, self._ask(question, cancel))

    def _answer_all(self, result: Json, cancel: CancelScope) -> Json:
        """What to repeat the request with."""
        requests = result.get("inputRequests")
        requests = requests if isinstance(requests, dict) else {}
        if len(requests) > MOST_QUESTIONS:
            raise McpError(f"MCP server {self._name} has more than {MOST_QUESTIONS} questions at once")
        # Without a question the server only wants to be asked again, with its state.
        if not requests and cancel.wait(_RETRY_SECONDS):
            cancel.check()
        answers: Json = {"inputResponses": {key: self._respond(each, cancel) for key, each in requests.items()}}
        if "requestState" in result:
            answers["requestState"] = result["requestState"]
        return answers

    def _respond(self, request: Any, cancel: CancelScope) -> Json:
        params = request.get("params") if isinstance(request, dict) else None
        if not isinstance(params, dict) or request.get("method") != "elicitation/create":
            raise McpError(f"MCP server {self._name} asks for something that teamcli does not support")
        if not self._can_ask:
            return {"action": "decline"}
        try:
            return self._answer_one(params, cancel)
        except RpcError as e:
            raise McpError(f"MCP server {self._name} asked a question that cannot be shown: {e}") from e

    def _visit_all(self, data: Any, cancel: CancelScope) -> bool:
        """Whether the user has followed all links that a call needs first."""
        questions = data.get("elicitations") if isinstance(data, dict) else None
        if not isinstance(questions, list) or not 0 < len(questions) <= MOST_QUESTIONS or not self._can_ask:
            return False
        try:
            return all(self._answer_one({**each, "mode": "url"}, cancel)["action"] == "accept" for each in questions)
        except (RpcError, TypeError):  # not questions
            return False
