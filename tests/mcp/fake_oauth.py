"""A small authorization server whose user agrees to everything."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

from tests.mcp.fake_http import FakeHttp


class FakeOAuth:
    def __init__(self) -> None:
        self.url = ""
        self.resource = ""
        self.issued = 0
        self.grants: list[str] = []
        self.registrations: list[dict[str, Any]] = []
        self.refuses_refresh = False
        self.on_token: Callable[[str], None] = lambda token: None

    def metadata(self) -> dict[str, Any]:
        return {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/deep/token",
            "registration_endpoint": f"{self.url}/register",
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
        }

    def issue(self, grant: str) -> dict[str, Any] | None:
        self.grants.append(grant)
        if grant == "refresh_token" and self.refuses_refresh:
            return None
        self.issued += 1
        token = f"token-{self.issued}"
        self.on_token(token)
        return {"access_token": token, "token_type": "Bearer", "refresh_token": f"refresh-{self.issued}"}


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        fake, target = self.server.fake, urlsplit(self.path)
        if target.path == "/resource":
            self._reply(200, {"resource": fake.resource, "authorization_servers": [fake.url]})
        elif target.path == "/.well-known/oauth-authorization-server":
            self._reply(200, fake.metadata())
        elif target.path == "/authorize":
            asked = {name: values[0] for name, values in parse_qs(target.query).items()}
            back = urlencode({"code": "c", "state": asked["state"]})
            self._reply(302, {}, location=f"{asked['redirect_uri']}?{back}")
        else:
            self._reply(404, {})

    def do_POST(self) -> None:
        fake = self.server.fake
        data = self.rfile.read(int(self.headers["content-length"])).decode()
        if self.path == "/register":
            fake.registrations.append(json.loads(data))
            self._reply(201, {**json.loads(data), "client_id": "client-1"})
        elif self.path == "/deep/token":
            tokens = fake.issue(parse_qs(data)["grant_type"][0])
            self._reply(200 if tokens else 400, tokens or {"error": "invalid_grant"})
        else:
            self._reply(404, {})

    def _reply(self, status: int, body: Any, **headers: str) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {"content-type": "application/json", "content-length": str(len(data)), **headers}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, fake: FakeOAuth) -> None:
        self.fake = fake
        super().__init__(("127.0.0.1", 0), _Handler)


@contextmanager
def protecting(server: FakeHttp) -> Iterator[FakeOAuth]:
    """Let `server` accept only the newest token of the authorization server."""
    fake = FakeOAuth()
    with _Server(fake) as listener:
        fake.url = f"http://127.0.0.1:{listener.server_port}"
        fake.resource = server.url
        server.token = "none yet"
        server.challenge = f'Bearer resource_metadata="{fake.url}/resource"'
        fake.on_token = lambda token: setattr(server, "token", token)
        thread = threading.Thread(target=listener.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield fake
        finally:
            listener.shutdown()
            thread.join()
