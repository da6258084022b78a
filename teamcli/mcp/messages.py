"""JSON-RPC messages: bytes → checked objects, and back.

A server may send anything. What is not a JSON object is ignored. A message that is nested too deep becomes an error,
because code that walks through it later may be recursive.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from teamcli.mcp.server import Json

LARGEST_MESSAGE = 16_000_000
"""Bytes of one message."""
DEEPEST = 100
"""How deep objects and arrays may be nested."""
INTERNAL_ERROR, METHOD_NOT_FOUND = -32603, -32601
URL_ELICITATION_REQUIRED = -32042
HEADER_MISMATCH, UNSUPPORTED_VERSION = -32020, -32022

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class RpcError(Exception):
    """The server's answer to a request is an error."""

    def __init__(self, code: int, message: str, data: Any = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


def encode(message: Json) -> bytes:
    """Without a line break. Lone surrogates become '?'."""
    return _encode(message).encode("utf-8", "replace")


def decode(data: bytes) -> Json | None:
    """None if it is not a message."""
    try:
        value = json.loads(data.decode("utf-8", "replace"), parse_constant=lambda name: None)
        if b"\\ud" in data.lower():  # may be a lone surrogate, which could not be encoded again
            value = json.loads(_encode(value).encode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict):
        return None
    return _too_deep(value) if _is_too_deep(value) else value


def kind_of(message: Json) -> Literal["request", "notification", "response", ""]:
    """By the keys that are there: an id may be 0, and is not unique across the two directions."""
    if isinstance(message.get("method"), str):
        return "request" if message.get("id") is not None else "notification"
    return "response" if "result" in message or "error" in message else ""


def result_of(message: Json) -> Json:
    """Raises: RpcError"""
    error = message.get("error")
    if error is not None:
        error = error if isinstance(error, dict) else {}
        code = error.get("code")
        text = error.get("message")
        raise RpcError(code if isinstance(code, int) else 0, text if isinstance(text, str) else "", error.get("data"))
    result = message.get("result")
    return result if isinstance(result, dict) else {}


def _is_too_deep(value: Json) -> bool:
    level: list[Any] = [value]
    for _ in range(DEEPEST):
        level = [
            each
            for container in level
            for each in (container.values() if isinstance(container, dict) else container)
            if isinstance(each, dict | list)
        ]
        if not level:
            return False
    return True


def _too_deep(message: Json) -> Json | None:
    if kind_of(message) != "response":
        return None
    text = f"the answer is nested more than {DEEPEST} levels deep"
    return {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": INTERNAL_ERROR, "message": text}}
