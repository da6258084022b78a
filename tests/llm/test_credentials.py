from __future__ import annotations

from pathlib import Path

import pytest

from teamcli.errors import ConfigError
from teamcli.llm.credentials import ClientChoice, Endpoint, Platform, find_endpoint

KEY = "sk-ant-secret-1"


def found(client: ClientChoice = "auto", platform: Platform | None = None, **env: str) -> Endpoint:
    endpoint = find_endpoint(env, client, platform)
    assert endpoint is not None
    return endpoint


def test_without_configuration_there_is_no_endpoint(tmp_path: Path) -> None:
    assert find_endpoint({"HOME": str(tmp_path), "ANTHROPIC_API_KEY": "", "ANTHROPIC_BASE_URL": ""}) is None


def test_a_key_alone_goes_directly_to_the_official_address_as_bearer() -> None:
    endpoint = found(ANTHROPIC_API_KEY=KEY)
    assert (endpoint.client, endpoint.base_url, endpoint.source) == (
        "direct",
        "https://api.anthropic.com",
        "ANTHROPIC_API_KEY",
    )
    assert endpoint.own_headers == {"authorization": f"Bearer {KEY}"}


def test_the_key_wins_over_the_token() -> None:
    assert found(ANTHROPIC_API_KEY=KEY, ANTHROPIC_AUTH_TOKEN="tok").secret == KEY
    assert found(ANTHROPIC_API_KEY="", ANTHROPIC_AUTH_TOKEN="tok").source == "ANTHROPIC_AUTH_TOKEN"


def test_the_secret_does_not_show() -> None:
    assert KEY not in repr(found(ANTHROPIC_API_KEY=KEY, ANTHROPIC_CUSTOM_HEADERS=f"X-Other: {KEY}"))


def test_the_sdk_is_used_when_asked_for() -> None:
    endpoint = found("sdk", ANTHROPIC_API_KEY=KEY, ANTHROPIC_BASE_URL="http://localhost:1")
    assert (endpoint.client, endpoint.secret, endpoint.base_url) == ("sdk", KEY, "http://localhost:1")


def test_an_endpoint_without_credential_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"ANTHROPIC_BASE_URL.*ANTHROPIC_API_KEY"):
        find_endpoint({"ANTHROPIC_BASE_URL": "http://localhost:1", "HOME": str(tmp_path)})


@pytest.mark.parametrize("name", ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"])
@pytest.mark.parametrize("value", ["secret key", "secret\n", "\tsecret", "sécret", "secret\x00", " "])
def test_a_garbled_key_is_refused_without_showing_it(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name) as caught:
        find_endpoint({name: value})
    assert value.strip() == "" or value.strip() not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        *(
            "localhost:8080",
            "ftp://host",
            "https://",
            "http://host:port",
            "http://host:99999",
            "nonsense",
            "http://[::1",
        ),
        *("https://user:secret@host", "https://host?key=secret", "https://host/#x", "https://host/a b", "https://höst"),
    ],
)
def test_a_base_url_that_is_not_a_plain_address_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="ANTHROPIC_BASE_URL") as caught:
        find_endpoint({"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": KEY})
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "base"),
    [
        ("https://host/", "https://host"),
        ("https://host/v1", "https://host"),
        ("https://host/v1/messages/", "https://host"),
        ("https://host/a/v1/", "https://host/a"),
        ("https://host/av1", "https://host/av1"),
        (" http://[::1]:8080/x ", "http://[::1]:8080/x"),
    ],
)
def test_a_base_url_is_brought_into_one_form(url: str, base: str) -> None:
    assert found(ANTHROPIC_BASE_URL=url, ANTHROPIC_API_KEY=KEY).base_url == base


def test_profiles_and_federation_need_the_sdk(tmp_path: Path) -> None:
    federation = {
        "ANTHROPIC_FEDERATION_RULE_ID": "r",
        "ANTHROPIC_ORGANIZATION_ID": "o",
        "ANTHROPIC_IDENTITY_TOKEN_FILE": "/token",
    }
    named = found(ANTHROPIC_PROFILE="work")
    assert (named.client, named.profile) == ("sdk", "work")
    assert found(**federation).client == "sdk"
    with pytest.raises(ConfigError, match=r"direct.*profile work.*--client sdk"):
        found("direct", ANTHROPIC_PROFILE="work")


def test_the_active_profile_on_disk_is_found(tmp_path: Path) -> None:
    configs = tmp_path / ".config" / "anthropic" / "configs"
    configs.mkdir(parents=True)
    assert find_endpoint({"HOME": str(tmp_path)}) is None
    (configs / "default.json").write_text("{}")
    assert "default.json" in found(HOME=str(tmp_path)).source
    (configs.parent / "active_config").write_text("work\n")
    assert find_endpoint({"HOME": str(tmp_path)}) is None
    (configs / "work.json").write_text("{}")
    assert "work.json" in found(HOME="/nonexistent", ANTHROPIC_CONFIG_DIR=str(configs.parent)).source
    assert found(HOME=str(tmp_path), ANTHROPIC_API_KEY=KEY).client == "direct"


def test_a_platform_that_is_asked_for_wins_over_the_key() -> None:
    assert found(platform="vertex", ANTHROPIC_API_KEY=KEY).platform == "vertex"
    assert found(CLAUDE_CODE_USE_BEDROCK="1", ANTHROPIC_API_KEY=KEY).platform == "bedrock"
    assert found(CLAUDE_CODE_USE_BEDROCK="0", ANTHROPIC_API_KEY=KEY).platform is None
    assert found(ANTHROPIC_FOUNDRY_RESOURCE="r").platform == "foundry"
    assert found(ANTHROPIC_FOUNDRY_RESOURCE="r", ANTHROPIC_API_KEY=KEY).client == "direct"


@pytest.mark.parametrize("line", ["Bad Name: x", ": x", "X: sécret"])
def test_a_custom_header_that_is_not_valid_is_refused(line: str) -> None:
    with pytest.raises(ConfigError, match="ANTHROPIC_CUSTOM_HEADERS"):
        find_endpoint({"ANTHROPIC_API_KEY": KEY, "ANTHROPIC_CUSTOM_HEADERS": f"Good: 1\n{line}"})


def test_a_custom_header_wins_over_the_key_whatever_its_case() -> None:
    endpoint = found(ANTHROPIC_API_KEY=KEY, ANTHROPIC_CUSTOM_HEADERS="AUTHORIZATION: Basic x")
    assert endpoint.own_headers == {"authorization": "Basic x"}
