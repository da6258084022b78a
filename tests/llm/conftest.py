from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Literal

import pytest

from teamcli.llm.backoff import Backoff
from teamcli.llm.client import Client, connect
from teamcli.llm.connection import Timeouts
from teamcli.llm.credentials import AuthHeader, find_endpoint

KEY = "sk-ant-test-0123456789"

MakeClient = Callable[..., Client]


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith(("ANTHROPIC_", "CLAUDE_CODE_", "SSL_CERT_")) or name.lower().endswith(
            ("_proxy", "_ca_bundle")
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(params=["direct", "direct, proxies set", "sdk"])
def kind(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Literal["direct", "sdk"]:
    """With proxies set, the direct client uses `httpx2`, also for what goes past them."""
    if request.param == "direct, proxies set":
        monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
        monkeypatch.setenv("NO_PROXY", "*")
    return "sdk" if request.param == "sdk" else "direct"


@pytest.fixture
def make_client(kind: Literal["direct", "sdk"]) -> Iterator[MakeClient]:
    """Real clients, of either kind, that retry fast."""
    made: list[Client] = []

    def make(
        url: str,
        retries: int | None = 2,
        backoff: Backoff | None = None,
        timeouts: Timeouts | None = None,
        auth_header: AuthHeader = "auto",
        **env: str,
    ) -> Client:
        credential = {} if "ANTHROPIC_AUTH_TOKEN" in env else {"ANTHROPIC_API_KEY": KEY}
        endpoint = find_endpoint({"ANTHROPIC_BASE_URL": url, **credential, **env}, kind, auth_header=auth_header)
        assert endpoint is not None
        assert endpoint.client == kind
        made.append(connect(endpoint, backoff or Backoff(base_seconds=0.001), retries, timeouts))
        return made[-1]

    yield make
    for client in made:
        client.close()
