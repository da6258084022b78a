from __future__ import annotations

import subprocess
import sys

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


def test_the_direct_client_never_loads_the_sdk() -> None:
    code = """
from teamcli.llm import backoff, client, credentials
endpoint = credentials.find_endpoint({"ANTHROPIC_API_KEY": "k"})
model = client.connect(endpoint, backoff.Backoff())
model.warm_up()
model.close()
"""
    loaded = modules_after(code)
    assert "httpx2" in loaded and loaded.isdisjoint({"anthropic", "pydantic"})
