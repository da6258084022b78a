"""Headers that repeat parts of a modern request, so that what routes it need not read its body."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from teamcli.mcp.server import Json

_MARK = "x-mcp-header"
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_SAFE = re.compile(r"[!-~](?:[ -~\t]*[!-~])?|")
_ENCODED = re.compile(r"=\?base64\?.*\?=")
_TYPES = ("string", "integer", "boolean")
_NAMED_BY = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}


class ParamHeader(NamedTuple):
    header: str
    path: tuple[str, ...]
    """Where its value is in the arguments."""


class InvalidHeader(ValueError):
    """A tool whose schema has an annotation that the specification forbids."""


def standard_headers(message: Json, version: str) -> dict[str, str]:
    method, params = message["method"], message.get("params") or {}
    headers = {"MCP-Protocol-Version": version, "Mcp-Method": method}
    name = params.get(_NAMED_BY.get(method, ""))
    return {**headers, "Mcp-Name": encode_value(name)} if isinstance(name, str) else headers


def find_param_headers(schema: Mapping[str, Any]) -> tuple[ParamHeader, ...]:
    """Those that a tool's schema asks for.

    Raises: InvalidHeader
    """
    found = tuple(_annotations(schema, (), is_reachable=True))
    names = [each.header.lower() for each in found]
    if len(set(names)) < len(names):
        raise InvalidHeader("two parameters have the same header")
    return found


def param_values(headers: tuple[ParamHeader, ...], arguments: Mapping[str, Any]) -> dict[str, str]:
    values = {}
    for header, path in headers:
        value: Any = arguments
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, str | int | float):
            text = str(value).lower() if isinstance(value, bool) else str(value)
            values[f"Mcp-Param-{header}"] = encode_value(text)
    return values


def encode_value(text: str) -> str:
    """As it is if a header can carry it, otherwise in base64."""
    if _SAFE.fullmatch(text) and not _ENCODED.fullmatch(text):
        return text
    return f"=?base64?{base64.b64encode(text.encode('utf-8', 'replace')).decode()}?="


def _annotations(schema: Any, path: tuple[str, ...], is_reachable: bool) -> Iterator[ParamHeader]:
    """Only `properties` lead to parameters that are certainly there; elsewhere an annotation is invalid."""
    if isinstance(schema, list):
        for each in schema:
            yield from _annotations(each, path, is_reachable=False)
    if not isinstance(schema, dict):
        return
    if _MARK in schema:
        yield _checked(schema, path, is_reachable)
    for key, value in schema.items():
        if key == "properties" and isinstance(value, dict):
            for name, property in value.items():
                yield from _annotations(property, (*path, name), is_reachable)
        elif key not in (_MARK, "default", "const", "enum", "examples"):
            yield from _annotations(value, path, is_reachable=False)


def _checked(schema: Json, path: tuple[str, ...], is_reachable: bool) -> ParamHeader:
    name = schema[_MARK]
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise InvalidHeader(f"{_MARK}: is not the name of a header")
    if not is_reachable or not path or schema.get("type") not in _TYPES:
        raise InvalidHeader(f"{_MARK}: belongs to a parameter that is a string, an integer or a boolean")
    return ParamHeader(name, path)
