"""Logging in to a server over HTTP with OAuth 2.1, by means of the `mcp` package (the extra `teamcli[mcp]`).

The package is loaded only when a token has to be fetched or renewed. Tokens are stored in one private file per server,
for the user alone.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from teamcli.cancel import CancelScope, run_abandonable
from teamcli.errors import LoginNeeded, McpError, StateError
from teamcli.mcp.server import Json, ServerConfig
from teamcli.storage.files import make_private_dir, read_regular, write_json
from teamcli.text.redaction import is_secret, register_secrets

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import OAuthClientProvider

logger = logging.getLogger(__name__)

INSTALL_HINT = "install teamcli with its extra: pip install 'teamcli[mcp]'"
_LOGIN_SECONDS = 300.0
_RENEWAL_SECONDS = 30.0
_LARGEST_FILE = 1_000_000
_PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}


class OAuthLogin:
    """The tokens of one server. Implements `http.Authorizer`; safe for any number of threads."""

    def __init__(self, config: ServerConfig, directory: Path) -> None:
        """`directory` holds the tokens of all servers."""
        self._config = config
        name = hashlib.sha256(config.url.encode()).hexdigest()[:24]
        self._store = TokenFile(directory / f"{name}.json", config.url)
        self._lock = threading.Lock()
        self._challenge: tuple[int, Mapping[str, str]] = (401, {})

    def token(self) -> str:
        return self._store.access_token

    def renew(self, refused: str, status: int, headers: Mapping[str, str]) -> bool:
        with self._lock:
            self._challenge = status, headers
            self._store.load()  # another teamcli may have renewed it
            if self._store.access_token not in ("", refused):
                return True
            # A 403 asks for more rights than the token has, and only the user can give those.
            if not self._store.can_refresh or status != 401:
                return False
            try:
                self._run(None, CancelScope(), _RENEWAL_SECONDS)
            except McpError as e:
                logger.warning("%s", e)
                return False
            return self._store.access_token not in ("", refused)

    def login(self, open_browser: Callable[[str], None], cancel: CancelScope) -> None:
        """Let the user log in. `open_browser` gets the address to open, and shows it if it cannot open it.

        Raises: McpError, Cancelled
        """
        with self._lock:
            self._run(open_browser, cancel, _LOGIN_SECONDS)

    def log_out(self) -> None:
        """Forget the tokens.

        Raises: StateError
        """
        with self._lock:
            self._store.delete()

    def _run(self, open_browser: Callable[[str], None] | None, cancel: CancelScope, seconds: float) -> None:
        """Raises: McpError, Cancelled"""
        name = self._config.name
        try:
            import mcp.client.auth  # noqa: F401 - only to see whether it is there
        except ImportError as e:
            raise LoginNeeded(f"MCP server {name} needs a login with OAuth; {INSTALL_HINT}") from e
        status, headers = self._challenge
        flow = _Flow(self._config, self._store, open_browser, status, headers)
        try:
            run_abandonable(flow.run, cancel, f"mcp login {name}", seconds)
        except TimeoutError as e:
            raise LoginNeeded(f"MCP server {name}: nobody logged in within {seconds / 60:.0f} minutes") from e
        finally:
            flow.stop()


class TokenFile:
    """What has to be kept of a login: tokens, the client's registration, and where they are valid."""

    def __init__(self, path: Path, url: str) -> None:
        self._path = path
        self._url = url
        self.content: Json = {}
        self.load()

    @property
    def access_token(self) -> str:
        token = self._part("tokens").get("access_token", "")
        return token if isinstance(token, str) and token.isascii() and token.isprintable() else ""

    @property
    def can_refresh(self) -> bool:
        return bool(self._part("tokens").get("refresh_token")) and bool(self._part("client"))

    @property
    def port(self) -> int:
        """The port that the client was registered with."""
        port = self.content.get("port")
        return port if isinstance(port, int) else 0

    def load(self) -> None:
        try:
            found = json.loads(read_regular(self._path, _LARGEST_FILE))
        except (OSError, ValueError):  # not there, or damaged: the user logs in again
            found = {}
        self.content = found if isinstance(found, dict) and found.get("url") == self._url else {}
        self._redact()

    def update(self, **parts: Any) -> None:
        """Raises: StateError"""
        self.content = {**self.content, **parts, "url": self._url}
        self._redact()
        make_private_dir(self._path.parent)
        write_json(self._path, self.content)

    def delete(self) -> None:
        """Raises: StateError"""
        self.content = {}
        try:
            self._path.unlink(missing_ok=True)
        except OSError as e:
            raise StateError(f"cannot delete {self._path}: {e.strerror}") from e

    def _redact(self) -> None:
        tokens, client = self._part("tokens"), self._part("client")
        found = (tokens.get("access_token"), tokens.get("refresh_token"), client.get("client_secret"))
        register_secrets(each for each in found if isinstance(each, str) and is_secret(each))

    def _part(self, name: str) -> Json:
        part = self.content.get(name)
        return part if isinstance(part, dict) else {}


class _NeedsUser(Exception):
    """The user would have to log in, and is not asked now."""


class _Flow:
    """One run of the OAuth flow, in an event loop of its own."""

    def __init__(
        self,
        config: ServerConfig,
        store: TokenFile,
        open_browser: Callable[[str], None] | None,
        status: int,
        headers: Mapping[str, str],
    ) -> None:
        self._config = config
        self._store = store
        self._open_browser = open_browser
        self._status = status
        self._headers = {name: value for name, value in headers.items() if name.lower() == "www-authenticate"}
        self._stop: Callable[[], object] = lambda: None

    def stop(self) -> None:
        """End it, if it is still running. Safe to call from any thread."""
        self._stop()

    def run(self) -> None:
        """Raises: McpError"""
        import asyncio

        import httpx2
        from mcp.client.auth import OAuthFlowError
        from pydantic import ValidationError

        name = self._config.name
        try:
            asyncio.run(self._main())
        except asyncio.CancelledError:
            raise LoginNeeded(f"MCP server {name}: the login was canceled") from None
        except _NeedsUser:
            raise LoginNeeded(f"MCP server {name} needs a login; log in with /mcp") from None
        except (OAuthFlowError, httpx2.HTTPError, httpx2.InvalidURL, ValidationError, ValueError, OSError) as e:
            raise LoginNeeded(f"MCP server {name}: the login failed", str(e)[:2000]) from e

    async def _main(self) -> None:
        import asyncio

        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None

        def stop() -> None:
            if not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

        self._stop = stop
        try:
            wanted = self._config.oauth.callback_port or self._store.port
            async with _Callback(wanted, is_needed=self._open_browser is not None) as callback:
                if callback.port != self._store.port:
                    self._store.content.pop("client", None)  # it was registered with another address
                await self._authorize(callback)
        finally:
            self._stop = lambda: None

    async def _authorize(self, callback: _Callback) -> None:
        """Drive the flow of the package. It wants to send a request, whose answer we usually know already."""
        import httpx2

        provider = self._provider(callback)
        refused = self._store.access_token
        # Since 2025-06-18, requests for tokens name the server. The package takes the version from here.
        original = httpx2.Request("POST", self._config.url, headers={"MCP-Protocol-Version": "2025-11-25"})
        was_challenged = False
        async with httpx2.AsyncClient(timeout=_RENEWAL_SECONDS, follow_redirects=False) as http:
            flow = provider.async_auth_flow(original)
            request = await flow.__anext__()
            while True:
                if request is not original:
                    response = await http.send(request)
                elif was_challenged or request.headers.get("authorization") not in (None, f"Bearer {refused}"):
                    break
                else:
                    was_challenged = True
                    response = await self._challenge(http, request)
                request = await flow.asend(response)
            await flow.aclose()
        self._keep_places(provider, callback.port)

    async def _challenge(self, http: httpx2.AsyncClient, request: httpx2.Request) -> httpx2.Response:
        """What the server says without a valid token. It says where to log in."""
        import httpx2

        if not self._headers:
            answer = await http.post(request.url, json=_PING)
            self._headers = {"www-authenticate": answer.headers.get("www-authenticate", "")}
        return httpx2.Response(self._status, headers=self._headers, request=request)

    def _provider(self, callback: _Callback) -> OAuthClientProvider:
        from mcp.client.auth import OAuthClientProvider
        from mcp.shared.auth import OAuthClientMetadata, OAuthMetadata, ProtectedResourceMetadata

        metadata = OAuthClientMetadata.model_validate(
            {
                "client_name": "teamcli",
                "redirect_uris": [callback.address],
                "grant_types": ["authorization_code", "refresh_token"],
                "response_types": ["code"],
                "token_endpoint_auth_method": None if self._config.oauth.client_id else "none",
                "application_type": "native",
            }
        )

        async def open_browser(address: str) -> None:
            if self._open_browser is None:
                raise _NeedsUser
            self._open_browser(address)

        storage = _Storage(self._store, self._config, callback.address)
        provider = OAuthClientProvider(self._config.url, metadata, storage, open_browser, callback.wait)
        context, content = provider.context, self._store.content
        if place := content.get("authorization_server"):
            context.oauth_metadata = OAuthMetadata.model_validate(place)
        if resource := content.get("resource"):
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(resource)
        if self._store.can_refresh and self._status == 401:
            context.token_expiry_time = 1.0  # refused, so it has expired, whatever it says
        return provider

    def _keep_places(self, provider: OAuthClientProvider, port: int) -> None:
        """For renewals, which must go to where the tokens came from."""
        context = provider.context
        server, resource = context.oauth_metadata, context.protected_resource_metadata
        self._store.update(
            authorization_server=server and server.model_dump(mode="json", exclude_none=True),
            resource=resource and resource.model_dump(mode="json", exclude_none=True),
            port=port,
        )


class _Storage:
    """The storage that the package wants."""

    def __init__(self, store: TokenFile, config: ServerConfig, address: str) -> None:
        self._store = store
        self._oauth = config.oauth
        self._address = address

    async def get_tokens(self) -> Any:
        from mcp.shared.auth import OAuthToken

        tokens = self._store.content.get("tokens")
        return None if tokens is None else OAuthToken.model_validate(tokens)

    async def set_tokens(self, tokens: Any) -> None:
        self._store.update(tokens=tokens.model_dump(mode="json", exclude_none=True))

    async def get_client_info(self) -> Any:
        from mcp.shared.auth import OAuthClientInformationFull

        known = self._store.content.get("client")
        if self._oauth.client_id:
            secret = self._oauth.client_secret
            known = {
                "client_id": self._oauth.client_id,
                "client_secret": secret or None,
                "token_endpoint_auth_method": "client_secret_basic" if secret else "none",
                "redirect_uris": [self._address],
            }
        return None if known is None else OAuthClientInformationFull.model_validate(known)

    async def set_client_info(self, client_info: Any) -> None:
        self._store.update(client=client_info.model_dump(mode="json", exclude_none=True))


_DONE = b"You can close this page and return to teamcli."


class _Callback:
    """A small server on this machine, to which the browser returns after the login."""

    def __init__(self, port: int, is_needed: bool) -> None:
        self.port = port
        self._is_needed = is_needed

    @property
    def address(self) -> str:
        # Not `localhost`, which may lead to another interface (RFC 8252, 8.3).
        return f"http://127.0.0.1:{self.port}/callback"

    async def __aenter__(self) -> _Callback:
        import asyncio

        self._server: asyncio.Server | None = None
        self._answer: asyncio.Future[Mapping[str, str]] = asyncio.get_running_loop().create_future()
        if self._is_needed:
            try:
                self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port)
            except OSError:  # another program uses it
                self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
            self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()

    async def wait(self) -> Any:
        from mcp.shared.auth import AuthorizationCodeResult

        found = await self._answer
        return AuthorizationCodeResult(code=found.get("code", ""), state=found.get("state"), iss=found.get("iss"))

    async def _serve(self, reader: Any, writer: Any) -> None:
        from urllib.parse import parse_qsl, urlsplit

        words = (await reader.readline()).decode("latin-1").split()
        target = urlsplit(words[1] if len(words) > 1 else "")
        is_answer = target.path == "/callback" and ("code" in target.query or "error" in target.query)
        if is_answer and not self._answer.done():
            self._answer.set_result(dict(parse_qsl(target.query)))
        status, text = (b"200 OK", _DONE) if is_answer else (b"404 Not Found", b"")
        head = b"HTTP/1.1 %b\r\ncontent-type: text/plain\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        writer.write(head % (status, len(text)) + text)
        await writer.drain()
        writer.close()
