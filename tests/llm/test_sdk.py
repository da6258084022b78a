"""What only the SDK can do: profiles and platforms."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from teamcli.errors import AuthError
from teamcli.llm.backoff import Backoff
from teamcli.llm.client import Client, connect
from teamcli.llm.credentials import find_endpoint
from teamcli.llm.types import Message
from tests.llm.calls import RunningCall, ask, asking, user
from tests.support.fake_api import FakeAPI, stall_before_headers, text


def client_for(monkeypatch: pytest.MonkeyPatch, **env: str) -> Client:
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    endpoint = find_endpoint(env)
    assert endpoint is not None
    assert endpoint.client == "sdk"
    return connect(endpoint, Backoff(), retries=0)


def make_profile(directory: Path, name: str, base_url: str) -> None:
    for folder in ("configs", "credentials"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    config = {"authentication": {"type": "user_oauth"}, "base_url": base_url}
    (directory / "configs" / f"{name}.json").write_text(json.dumps(config))
    secret = directory / "credentials" / f"{name}.json"
    secret.touch(mode=0o600)
    secret.write_text(json.dumps({"access_token": f"token-of-{name}"}))


@pytest.mark.parametrize("name", ["default", "work"])
def test_a_profile_on_disk_brings_token_and_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    with FakeAPI([stall_before_headers(), text("hello")], key=f"token-of-{name}") as api:
        make_profile(tmp_path, name, api.url)
        named = {} if name == "default" else {"ANTHROPIC_PROFILE": name}
        client = client_for(monkeypatch, ANTHROPIC_CONFIG_DIR=str(tmp_path), **named)
        call = RunningCall(client)
        api.wait_for_stall()
        call.cancel()
        assert ask(client).text == "hello"
        client.close()


def test_a_profile_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client = client_for(monkeypatch, ANTHROPIC_CONFIG_DIR=str(tmp_path), ANTHROPIC_PROFILE="nobody")
    with pytest.raises(AuthError, match=r"the profile nobody \(ANTHROPIC_PROFILE\)"):
        ask(client)
    client.close()


def test_a_platform_is_reached_by_its_own_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeAPI(["from the cloud"]) as api:
        client = client_for(monkeypatch, ANTHROPIC_FOUNDRY_BASE_URL=api.url, ANTHROPIC_FOUNDRY_API_KEY="azure-key")
        assert ask(client).text == "from the cloud"
        client.close()


def test_what_follows_results_goes_to_a_platform_as_the_api_documents_it(monkeypatch: pytest.MonkeyPatch) -> None:
    result = {"type": "tool_result", "tool_use_id": "t1", "content": "a.txt"}
    call = {"type": "tool_use", "id": "t1", "name": "bash", "input": {}}
    last = Message("user", (result, {"type": "text", "text": "<message>hi</message>"}))
    with FakeAPI(["seen"], is_official=True) as api:
        client = client_for(monkeypatch, ANTHROPIC_FOUNDRY_BASE_URL=api.url, ANTHROPIC_FOUNDRY_API_KEY="azure-key")
        ask(client, asking(user("go"), Message("assistant", (call,)), last))
        client.close()
    assert api.requests[0]["messages"][-1] == last.to_dict()
    assert len(api.requests[0]["system"]) == 1


@pytest.mark.parametrize(
    ("switch", "platform"),
    [
        ("CLAUDE_CODE_USE_VERTEX", "vertex"),
        ("CLAUDE_CODE_USE_BEDROCK", "bedrock"),
        ("CLAUDE_CODE_USE_FOUNDRY", "foundry"),
    ],
)
def test_a_platform_without_its_settings_is_explained(
    monkeypatch: pytest.MonkeyPatch, switch: str, platform: str, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    client = client_for(monkeypatch, **{switch: "1"})
    with pytest.raises(AuthError, match=f"the credentials of {platform}: .+"):
        ask(client)
    client.close()
