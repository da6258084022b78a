"""What a legacy server over HTTP said at its start, and every later message repeats: its version and a session."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamcli.mcp.peer import ConversationLost
from teamcli.mcp.server import Json

if TYPE_CHECKING:
    import httpx2

_SESSION = "mcp-session-id"
_LONGEST_ID = 1_000


class HttpSession:
    def __init__(self, name: str) -> None:
        self._name = name
        self._id = ""
        self._version = ""

    @property
    def has_begun(self) -> bool:
        """Never with a modern server: each of its requests says all by itself."""
        return bool(self._version)

    @property
    def has_id(self) -> bool:
        return bool(self._id)

    def begin(self, response: httpx2.Response, answer: Json) -> None:
        """Remember what the server said."""
        result = answer.get("result")
        version = result.get("protocolVersion") if isinstance(result, dict) else None
        id = response.headers.get(_SESSION, "")
        if isinstance(version, str) and version.isascii() and version.isprintable():
            self._version = version
            self._id = id if len(id) < _LONGEST_ID else ""

    def headers(self) -> dict[str, str]:
        wanted = {"MCP-Protocol-Version": self._version, _SESSION: self._id}
        return {name: value for name, value in wanted.items() if value}

    def check(self, status: int, said: str) -> None:
        """Raises: ConversationLost, if the server has forgotten the session"""
        # The specification says 404, but server-everything answers 400.
        if self._id and status in (400, 404):
            self._id = ""
            raise ConversationLost(f"MCP server {self._name} has ended the session", said)
