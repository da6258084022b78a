from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("httpx2", "httpcore2", "anthropic", "pydantic")


def modules_after(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)
    return set(run.stdout.split())


def test_nothing_heavy_is_loaded_before_the_first_request() -> None:
    code = """
from teamcli.llm import accumulator, backoff, client, credentials, faults, pricing, sse, types
for choice in ("direct", "sdk"):
    endpoint = credentials.find_endpoint({"ANTHROPIC_API_KEY": "k"}, choice)
    client.connect(endpoint, backoff.Backoff()).close()
"""
    assert modules_after(code).isdisjoint(HEAVY)


WARM_UP = """
from teamcli.llm import backoff, client, credentials
endpoint = credentials.find_endpoint({"ANTHROPIC_API_KEY": "k"})
model = client.connect(endpoint, backoff.Backoff())
model.warm_up()
model.close()
"""


def test_the_direct_client_loads_nothing_heavy_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    loaded = modules_after(WARM_UP)
    assert "teamcli.llm.plain_connection" in loaded
    assert loaded.isdisjoint({*HEAVY, "http.client", "email"})


def test_the_direct_client_never_loads_the_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    loaded = modules_after(WARM_UP)
    assert "httpx2" in loaded
    assert loaded.isdisjoint({"anthropic", "pydantic"})
