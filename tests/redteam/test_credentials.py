"""Attacks by a project on the user's credential: whatever its files say, it never arrives where they point."""

from __future__ import annotations

import json
from itertools import chain, combinations
from pathlib import Path

import pytest

import teamcli
from teamcli.config.environment import choose
from teamcli.errors import ConfigError
from tests.support.fake_api import FakeAPI, text
from tests.support.program import MakeProgram, Program

KEY, TOKEN, ENDPOINT, HEADERS = (
    "ANTHROPIC_API_KEY",
    "ANTHROPIC_AUTH_TOKEN",
    "ANTHROPIC_BASE_URL",
    "ANTHROPIC_CUSTOM_HEADERS",
)
MINE, THEIRS = "sk-user-secret-0123456789", "sk-project-key-0123456789"

# E, K: the user's environment names an endpoint, holds a key. e, k: the project's `.env` does. t: the user has trusted
# that endpoint. The outcome is the endpoint and the key that count.
TABLE = {
    "": "-:-",
    "k": "-:k",
    "K": "-:K",
    "Kk": "-:K",
    "E": "E:-",
    "Ek": "E:k",
    "EK": "E:K",
    "EKk": "E:K",
    "e": "-:-",
    "ek": "-:-",
    "Ke": "-:K",
    "Kek": "-:K",
    "Ee": "E:-",
    "Eek": "E:-",
    "EKe": "E:K",
    "EKek": "E:K",
    "et": "e:-",
    "ekt": "e:k",
    "Ket": "e:-",
    "Kekt": "e:k",
    "Eet": "E:-",
    "Eekt": "E:-",
    "EKet": "E:K",
    "EKekt": "E:K",
}
URL = {"E": "https://mine", "e": "https://theirs"}
ALL_COMBINATIONS = ["".join(each) for each in chain.from_iterable(combinations("EKekt", n) for n in range(6))]


@pytest.fixture
def program(program: Program, forked: MakeProgram) -> Program:
    return forked(program.directory, program.home)


@pytest.mark.parametrize("case", ALL_COMBINATIONS)
@pytest.mark.parametrize("mine", [KEY, TOKEN])
@pytest.mark.parametrize("theirs", [KEY, TOKEN])
def test_the_rule_holds_for_every_combination(case: str, mine: str, theirs: str) -> None:
    users = {"PATH": "/bin", **({ENDPOINT: URL["E"]} if "E" in case else {}), **({mine: "K"} if "K" in case else {})}
    projects = {**({ENDPOINT: URL["e"]} if "e" in case else {}), **({theirs: "k"} if "k" in case else {})}
    found = choose(users, projects, URL["e"] if "t" in case else "")
    endpoint = next((who for who, url in URL.items() if url == found.get(ENDPOINT)), "-")
    expected = TABLE[case if "e" in case else case.replace("t", "")]
    assert f"{endpoint}:{found.get(KEY) or found.get(TOKEN) or '-'}" == expected
    assert found.untrusted_endpoint == (URL["e"] if "e" in case and "t" not in case and "E" not in case else "")


USERS_OWN = {
    KEY: MINE,
    TOKEN: MINE,
    HEADERS: f"X-Secret: {MINE}",
    "ANTHROPIC_PROFILE": "work",
    "ANTHROPIC_IDENTITY_TOKEN": MINE,
    "ANTHROPIC_CONFIG_DIR": "/somewhere",
    "HOME": "/home/me",
    "AWS_BEARER_TOKEN_BEDROCK": MINE,
}


def test_of_the_users_variables_only_the_model_counts_at_the_projects_endpoint() -> None:
    found = choose({**USERS_OWN, "MODEL_ID": "mine"}, {ENDPOINT: URL["e"], "MODEL_ID": "theirs"}, URL["e"])
    assert found.variables == {ENDPOINT: URL["e"], "MODEL_ID": "mine"}


def test_a_platform_that_the_user_chooses_wins_over_the_projects_endpoint() -> None:
    found = choose({"CLAUDE_CODE_USE_BEDROCK": "1"}, {ENDPOINT: URL["e"], KEY: "k"}, URL["e"])
    assert found.variables == {"CLAUDE_CODE_USE_BEDROCK": "1"}
    assert found.untrusted_endpoint == ""


@pytest.mark.parametrize("users", [{}, {ENDPOINT: "https://api.anthropic.com"}, {ENDPOINT: "https://mine/"}])
def test_a_project_that_names_the_address_in_use_redirects_nothing(users: dict[str, str]) -> None:
    named = users.get(ENDPOINT, "https://api.anthropic.com/")
    assert choose({**users, KEY: "K"}, {ENDPOINT: named, KEY: "k"}, "").get(KEY) == "K"
    found = choose(users, {ENDPOINT: named, KEY: "k"}, "")
    assert (found.get(KEY), found.untrusted_endpoint) == ("k", "")


def write_env(program: Program, **values: str) -> None:
    (program.directory / ".env").write_text("".join(f"{name}={value}\n" for name, value in values.items()))


def write_profile(program: Program) -> None:
    configs = program.home / ".config/anthropic/configs"
    configs.mkdir(parents=True)
    (configs / "default.json").write_text(json.dumps({"authentication": {"type": "user_oauth"}}))
    credentials = configs.parent / "credentials"
    credentials.mkdir()
    (credentials / "default.json").write_text(json.dumps({"access_token": MINE, "expires_at": 4102444800}))
    (credentials / "default.json").chmod(0o600)


CLIENTS = pytest.mark.parametrize("client", ["direct", "sdk"])


class TestAnEndpointInDotEnv:
    """It has been trusted, and the project has no key of its own."""

    @CLIENTS
    @pytest.mark.parametrize(
        "users",
        [{KEY: MINE}, {TOKEN: MINE}, {HEADERS: f"Authorization: Bearer {MINE}"}, {}],
        ids=["key", "token", "header", "profile"],
    )
    def test_gets_nothing_of_the_users(self, program: Program, client: str, users: dict[str, str]) -> None:
        write_profile(program)
        with FakeAPI([]) as evil:
            write_env(program, ANTHROPIC_BASE_URL=evil.url)
            for trust in (("--trust",), ()):
                ran = program.run("-p", "x", "--client", client, *trust, env=users)
                assert ran.code == 2
                assert evil.url in ran.err
                assert "no credential" in ran.err
                assert ran.err.count("\n") == 1
            assert evil.connections == 0

    @CLIENTS
    def test_gets_the_projects_key_and_none_of_the_users_headers(self, program: Program, client: str) -> None:
        write_profile(program)
        users = {KEY: MINE, HEADERS: f"X-Secret: {MINE}\nAUTHORIZATION: Basic {MINE}\nx-api-key: {MINE}"}
        with FakeAPI([text("a"), text("b")], key=THEIRS) as theirs:
            write_env(program, ANTHROPIC_BASE_URL=theirs.url, ANTHROPIC_API_KEY=THEIRS)
            for trust, answer in ((("--trust",), "a\n"), ((), "b\n")):
                assert program.run("-p", "x", "--client", client, *trust, env=users).out == answer
        assert MINE not in str(theirs.headers)
        assert "x-secret" not in str(theirs.headers).lower()

    @CLIENTS
    def test_does_not_win_over_the_users(self, program: Program, client: str) -> None:
        users = {KEY: MINE, HEADERS: f"X-Secret: {MINE}"}
        with FakeAPI([text("a")]) as mine, FakeAPI([]) as theirs:
            write_env(program, ANTHROPIC_BASE_URL=theirs.url, ANTHROPIC_API_KEY=THEIRS)
            ran = program.run("-p", "x", "--client", client, "--trust", env={**users, ENDPOINT: mine.url})
            assert ran.out == "a\n"
            assert theirs.connections == 0
        assert THEIRS not in str(mine.headers)
        assert mine.headers[0]["x-secret"] == MINE


@CLIENTS
def test_a_key_alone_in_dot_env_goes_to_the_users_endpoint(program: Program, client: str) -> None:
    with FakeAPI([text("a")], key=THEIRS) as mine:
        write_env(program, ANTHROPIC_AUTH_TOKEN=THEIRS)
        assert program.run("-p", "x", "--client", client, env={ENDPOINT: mine.url}).out == "a\n"


def test_the_doctor_says_which_key_goes_where(program: Program) -> None:
    with FakeAPI([text("a")], key=THEIRS) as theirs:
        write_env(program, ANTHROPIC_BASE_URL=theirs.url, ANTHROPIC_API_KEY=THEIRS)
        program.run("-p", "x", "--trust", env={KEY: MINE})
    out = program.run("doctor", env={KEY: MINE}).out
    assert "from ANTHROPIC_API_KEY in .env" in out
    assert f"{theirs.url}, named in .env: your own key is never sent there" in out
    write_env(program, ANTHROPIC_BASE_URL=theirs.url)
    out = program.run("doctor", env={KEY: MINE}).out
    assert "BAD  key" in out
    assert "yours is never sent" in out


def test_a_key_given_by_a_program_does_not_go_to_the_projects_endpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with FakeAPI([]) as evil:
        (tmp_path / ".env").write_text(f"ANTHROPIC_BASE_URL={evil.url}\n")
        with pytest.raises(ConfigError, match="no credential"):
            teamcli.Session(tmp_path, api_key=MINE, trust=True)
        assert evil.connections == 0
