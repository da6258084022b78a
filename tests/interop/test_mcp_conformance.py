"""The MCP conformance suite for clients. `docs/mcp.md` has its counts."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.interop.installed import install_conformance
from tests.support.program import ROOT

pytestmark = pytest.mark.interop

LEGACY, MODERN = "2025-11-25", "2026-07-28"
BASIC = {
    LEGACY: ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry"),
    MODERN: (
        "tools_call",
        "request-metadata",
        "sep-2322-client-request-state",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "json-schema-2020-12-preservation",
    ),
}
AUTH = (
    *("metadata-default", "metadata-var1", "metadata-var2", "metadata-var3"),
    *("scope-from-www-authenticate", "scope-from-scopes-supported", "scope-omitted-when-undefined"),
    *("scope-step-up", "scope-retry-limit"),
    *("token-endpoint-auth-basic", "token-endpoint-auth-post", "token-endpoint-auth-none", "pre-registration"),
    *("resource-mismatch", "offline-access-scope", "offline-access-not-supported", "authorization-server-migration"),
    *("iss-supported", "iss-not-advertised", "iss-supported-missing", "iss-wrong-issuer", "iss-unexpected"),
    *("iss-normalized", "metadata-issuer-mismatch"),
)
SCENARIOS = [
    *((version, name) for version, names in BASIC.items() for name in names),
    *((MODERN, f"auth/{name}") for name in AUTH),
]
"""Without those for extensions, and without `auth/basic-cimd`, which wants a document of ours on the web."""


@pytest.fixture(scope="session")
def programs() -> Path:
    return install_conformance()


@pytest.mark.parametrize(("version", "scenario"), SCENARIOS, ids=lambda value: str(value))
def test_every_check_of_the_scenario_passes(programs: Path, tmp_path: Path, version: str, scenario: str) -> None:
    client = f"{sys.executable} -m tests.interop.conformance_client"
    options = ["--command", client, "--scenario", scenario, "--spec-version", version, "-o", str(tmp_path)]
    done = subprocess.run(
        [str(programs / "node"), str(programs / "conformance"), "client", *options],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
    )
    said = done.stdout + done.stderr
    counted = re.search(r"Passed: (\d+)/(\d+), 0 failed, 0 warnings", said)
    assert counted, said[-4000:]
    assert counted[1] == counted[2] != "0"
    print(f"{version} {scenario}: {counted[1]} checks")
