"""How a conversation begins, in both eras of the protocol.

Legacy servers want `initialize` first. Modern ones (2026-07-28) take any request that carries its own metadata, and
`server/discover` says what they are. Over stdio `initialize` goes first, because some legacy servers hang or exit when
they get anything else; over HTTP `server/discover` does.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from teamcli import __version__
from teamcli.cancel import CancelScope
from teamcli.errors import McpError
from teamcli.mcp.messages import UNSUPPORTED_VERSION, RpcError
from teamcli.mcp.peer import Clock, McpRequest, Peer
from teamcli.mcp.server import Era, Json, ServerStatus

MODERN_VERSION = "2026-07-28"
LEGACY_VERSIONS = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
_CLIENT = {"name": "teamcli", "version": __version__}
_META = "io.modelcontextprotocol/"
_LONGEST_INSTRUCTIONS = 20_000
_LONGEST_NAME = 200
_MOST_TRIES = 3


class Hello(NamedTuple):
    """What a server said about itself."""

    era: Era
    version: str
    capabilities: Mapping[str, Any] = MappingProxyType({})
    name: str = ""
    server_version: str = ""
    instructions: str = ""

    @property
    def status(self) -> ServerStatus:
        about = (self.era, self.version, self.name, self.server_version, self.instructions, self.capabilities)
        return ServerStatus("ready", "", "", *about)


def capabilities(can_ask: bool) -> Json:
    """What this client can do."""
    return {"elicitation": {"form": {}, "url": {}}} if can_ask else {}


def modern_meta(can_ask: bool) -> Json:
    """What every modern request carries."""
    return {
        f"{_META}protocolVersion": MODERN_VERSION,
        f"{_META}clientCapabilities": capabilities(can_ask),
        f"{_META}clientInfo": _CLIENT,
    }


def version_in(message: Json) -> str:
    """The version that a modern request carries; empty for others."""
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, dict) else None
    return str(meta.get(f"{_META}protocolVersion", "")) if isinstance(meta, dict) else ""


def greet(peer: Peer, name: str, can_ask: bool, first: Era, seconds: float, cancel: CancelScope) -> Hello:
    """Begin with the era `first`; if the server refuses that, try the other one.

    Raises: McpError, Cancelled
    """
    deadline = time.monotonic() + seconds
    ways = [_initialize, _discover] if first == "legacy" else [_discover, _initialize]
    refusals: list[str] = []
    while ways and len(refusals) < _MOST_TRIES:
        way = ways.pop(0)
        try:
            return way(peer, name, can_ask, Clock(max(0.0, deadline - time.monotonic())), cancel)
        except RpcError as e:
            refusals.append(f"{e} ({e.code})")
            # A modern server that was asked in the old way.
            if _offers_our_version(e):
                ways = [_discover]
    raise McpError(f"MCP server {name} speaks no protocol version that teamcli knows", "; ".join(refusals)[:2000])


def _offers_our_version(error: RpcError) -> bool:
    """Whether a server that refuses a version says that it knows ours."""
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return error.code == UNSUPPORTED_VERSION and isinstance(supported, list) and MODERN_VERSION in supported


def _initialize(peer: Peer, name: str, can_ask: bool, clock: Clock, cancel: CancelScope) -> Hello:
    params = {
        "protocolVersion": LEGACY_VERSIONS[0],
        "capabilities": capabilities(can_ask),
        "clientInfo": _CLIENT,
    }
    result = peer.request(McpRequest("initialize", params, clock), cancel)
    version = result.get("protocolVersion")
    if version not in LEGACY_VERSIONS:
        # Counts as a refusal, after which the other era is tried.
        raise RpcError(0, f"it offers version {str(version)[:50]!r}")
    # Nothing may be sent in between: servers built with rmcp hang up.
    peer.notify("notifications/initialized")
    return _hello("legacy", version, result, result.get("serverInfo"))


def _discover(peer: Peer, name: str, can_ask: bool, clock: Clock, cancel: CancelScope) -> Hello:
    result = peer.request(McpRequest("server/discover", {"_meta": modern_meta(can_ask)}, clock), cancel)
    versions = result.get("supportedVersions")
    if not isinstance(versions, list) or MODERN_VERSION not in versions:
        raise RpcError(0, f"it offers versions {str(versions)[:200]}")
    meta = result.get("_meta")
    info = meta.get(f"{_META}serverInfo") if isinstance(meta, dict) else None
    return _hello("modern", MODERN_VERSION, result, info)


def _hello(era: Era, version: str, result: Json, info: Any) -> Hello:
    info = info if isinstance(info, dict) else {}
    found = result.get("capabilities")
    return Hello(
        era,
        version,
        found if isinstance(found, dict) else {},
        _text(info.get("name"), _LONGEST_NAME),
        _text(info.get("version"), _LONGEST_NAME),
        _text(result.get("instructions"), _LONGEST_INSTRUCTIONS),
    )


def _text(value: Any, limit: int) -> str:
    return value[:limit] if isinstance(value, str) else ""
