"""Servers as users configure them: entries of `mcpServers`, checked. A bad entry is dropped with one line."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from teamcli.mcp.server import OAuthSettings, ServerConfig, ServerTimeouts
from teamcli.text.escaping import one_line

LONGEST_NAME = 48
MOST_SERVERS = 100
_HTTP = ("http", "streamable-http", "streamable_http", "streamableHttp")


class Configured(NamedTuple):
    config: ServerConfig
    """Its variables are not expanded."""
    source: str
    """Where it is configured, as shown to the user."""
    is_confined: bool = True
    """Whether it runs in the sandbox."""

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def what(self) -> str:
        """Its command or address, safe to print."""
        config = self.config
        return one_line(config.url or " ".join((config.command, *config.args)), 160)


class Servers(NamedTuple):
    found: dict[str, Configured]
    problems: list[str]

    def add(self, entries: Any, source: str) -> None:
        """Later entries replace earlier ones with the same name, as a whole."""
        if not isinstance(entries, Mapping):
            self.problems.append(f"{source}: mcpServers is not used: it should be an object in braces")
            return
        for name, entry in entries.items():
            try:
                server = read_server(str(name), entry, source)
                if server is not None and len(self.found) >= MOST_SERVERS and server.name not in self.found:
                    raise ValueError(f"there are more than {MOST_SERVERS}")
            except ValueError as e:
                self.problems.append(one_line(f"{source}: the MCP server {name} is not used: {e}", 300))
                continue
            if server is not None:
                self.found[server.name] = server
                if "headersHelper" in entry:
                    problem = f"{source}: headersHelper of the MCP server {name} is not used; give it headers"
                    self.problems.append(one_line(problem, 300))


def read_server(name: str, entry: Any, source: str) -> Configured | None:
    """None for one that is switched off there.

    Raises: ValueError
    """
    if not isinstance(entry, Mapping):
        raise ValueError("it should be an object in braces")
    if entry.get("disabled") is True:
        return None
    config = ServerConfig(
        server_name(name),
        _text(entry, "command"),
        _texts(entry, "args"),
        _variables(entry, "env"),
        _text(entry, "cwd"),
        _text(entry, "url"),
        _variables(entry, "headers"),
        _timeouts(entry),
        _oauth(entry),
    )
    _check_kind(config, entry.get("type") or entry.get("transport"))
    return Configured(config, source, entry.get("sandbox") is not False)


def server_name(name: str) -> str:
    """The name in the form that names of tools can contain. It has no `__`, which separates server and tool.

    Raises: ValueError
    """
    usable = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_-]", "_", name)).strip("_")
    if not usable or len(usable) > LONGEST_NAME:
        raise ValueError(f"its name should have 1 to {LONGEST_NAME} letters, digits, '_' or '-'")
    return usable


def config_digest(config: ServerConfig, directory: str) -> str:
    """Changes with anything that may change what the server offers."""
    text = json.dumps([config._asdict(), directory], sort_keys=True, default=dict)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _check_kind(config: ServerConfig, kind: Any) -> None:
    if kind == "sse":
        raise ValueError("the transport sse is not supported; does the server have one of type http?")
    if kind is not None and kind not in ("stdio", *_HTTP):
        raise ValueError(f"its type {kind!r:.40} is not known; there are: stdio, http")
    if bool(config.command) == bool(config.url):
        raise ValueError("it should have either a command or a url")
    if (kind in _HTTP and not config.url) or (kind == "stdio" and not config.command):
        raise ValueError(f"its type is {kind}, which needs a {'url' if kind in _HTTP else 'command'}")


def _text(entry: Mapping[str, Any], key: str) -> str:
    value = entry.get(key) or ""
    if not isinstance(value, str) or "\0" in value:
        raise ValueError(f"{key}: should be a text")
    return value


def _texts(entry: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = entry.get(key) or []
    if not isinstance(value, list) or not all(_is_plain(each) for each in value):
        raise ValueError(f"{key}: should be a list of texts")
    return tuple(map(str, value))


def _variables(entry: Mapping[str, Any], key: str) -> dict[str, str]:
    value = entry.get(key) or {}
    if not isinstance(value, Mapping) or not all(_is_plain(each) for pair in value.items() for each in pair):
        raise ValueError(f"{key}: should be an object with texts")
    return {name: str(each) for name, each in value.items()}


def _is_plain(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool) and "\0" not in str(value)


def with_variables(timeouts: ServerTimeouts, variables: Mapping[str, str]) -> ServerTimeouts:
    """With the time bounds of all servers that the user's environment gives, in milliseconds."""
    start, call = (_milliseconds(variables.get(name, "")) for name in ("MCP_TIMEOUT", "MCP_TOOL_TIMEOUT"))
    if start:
        timeouts = timeouts._replace(start_seconds=start)
    if call and timeouts.call_seconds == ServerTimeouts().call_seconds:  # not its own
        timeouts = _calls_within(timeouts, call)
    return timeouts


def _milliseconds(text: str) -> float:
    """In seconds; 0 if it is not a usable number."""
    return int(text) / 1000 if text.isdecimal() and len(text) < 10 else 0.0


def _calls_within(timeouts: ServerTimeouts, seconds: float) -> ServerTimeouts:
    longest = max(seconds, timeouts.longest_call_seconds)
    return timeouts._replace(call_seconds=seconds, longest_call_seconds=longest)


def _timeouts(entry: Mapping[str, Any]) -> ServerTimeouts:
    """`timeout` is in milliseconds, as elsewhere."""
    value = entry.get("timeout")
    if value is None:
        return ServerTimeouts()
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 < value < 1e9:
        raise ValueError("timeout: should be a number of milliseconds above 0")
    return _calls_within(ServerTimeouts(), value / 1000)


def _oauth(entry: Mapping[str, Any]) -> OAuthSettings:
    value = entry.get("oauth") or {}
    port = value.get("callbackPort", 0) if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(port, int) or not 0 <= port < 65536:
        raise ValueError("oauth: should be an object with clientId, clientSecret and callbackPort")
    return OAuthSettings(_text(value, "clientId"), _text(value, "clientSecret"), port)
