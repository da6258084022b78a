"""The credential that requests to a server over HTTP carry: a token, unless its configuration has a header for that."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamcli.errors import LoginNeeded
from teamcli.mcp.authorizer import Authorizer
from teamcli.mcp.http_response import detail
from teamcli.mcp.server import ServerConfig

if TYPE_CHECKING:
    import httpx2


class HttpLogin:
    def __init__(self, config: ServerConfig, authorizer: Authorizer) -> None:
        self._name = config.name
        self._authorizer = authorizer
        self._is_configured = any(name.lower() == "authorization" for name in config.headers)

    def token(self) -> str:
        """Empty if there is none, or if the configuration has its own credential, which a token must not replace."""
        return "" if self._is_configured else self._authorizer.token()

    def renew(self, refused: str, response: httpx2.Response) -> bool:
        """Whether `token` now gives another one than the one that was `refused`."""
        if self._is_configured:
            return False
        return self._authorizer.renew(refused, response.status_code, dict(response.headers))

    def needed(self, response: httpx2.Response) -> LoginNeeded:
        what = (
            "refuses the configured Authorization header; replace it"
            if self._is_configured
            else "needs a login; log in with /mcp"
        )
        return LoginNeeded(f"MCP server {self._name} {what}", detail(response))
