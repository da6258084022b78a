"""Variables in the configuration of a server."""

from __future__ import annotations

import pytest

from teamcli.errors import ConfigError
from teamcli.mcp.configured import with_variables
from teamcli.mcp.expand import expand_config
from teamcli.mcp.secrets import secrets_of
from teamcli.mcp.server import OAuthSettings, ServerConfig, ServerTimeouts


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("${A}", "one"),
        ("x${A}y${B}z", "xoneytwoz"),
        ("${A:-three}", "one"),
        ("${C:-three}", "three"),
        ("${C:-}", ""),
        ("${EMPTY:-three}", "three"),
        ("${EMPTY}", ""),
        ("${C:-a:-b/c d}", "a:-b/c d"),
        ("$A", "$A"),
        ("$${A}", "$one"),
        ("${1}", "${1}"),
        ("${A", "${A"),
        ("${NESTED}", "${A}"),
    ],
)
def test_a_variable_is_replaced_once(text: str, expanded: str) -> None:
    variables = {"A": "one", "B": "two", "EMPTY": "", "NESTED": "${A}"}
    assert expand_config(ServerConfig("x", text), variables).command == expanded


def test_variables_are_replaced_everywhere() -> None:
    config = ServerConfig("x", "${A}", ("${A}",), {"N": "${A}"}, "${A}", "${A}", {"H": "Bearer ${A}"})
    expanded = expand_config(config, {"A": "1"})
    assert expanded[:7] == ("x", "1", ("1",), {"N": "1"}, "1", "1", {"H": "Bearer 1"})


def test_keys_in_a_configuration_are_recognized() -> None:
    env = {"API_KEY": "abc-12345678", "PLACE": "def-12345678", "TOKEN": "none"}
    headers = {"Authorization": "Bearer ghi-12345678", "X-Team": "jkl-12345678"}
    config = ServerConfig("x", env=env, headers=headers, oauth=OAuthSettings("id", "mno-12345678"))
    assert secrets_of(config) == {"abc-12345678", "ghi-12345678", "mno-12345678"}


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(ConfigError, match="MCP server x: the variable MISSING is not set"):
        expand_config(ServerConfig("x", "a", ("${MISSING}",)), {})


@pytest.mark.parametrize(
    ("variables", "start", "call", "longest"),
    [
        ({}, 30, 60, 600),
        ({"MCP_TIMEOUT": "90000", "MCP_TOOL_TIMEOUT": "1500"}, 90, 1.5, 600),
        ({"MCP_TOOL_TIMEOUT": "100000000"}, 30, 100_000, 100_000),
        ({"MCP_TIMEOUT": "soon", "MCP_TOOL_TIMEOUT": "-1"}, 30, 60, 600),
    ],
)
def test_variables_bound_starts_and_calls(variables: dict[str, str], start: float, call: float, longest: float) -> None:
    assert with_variables(ServerTimeouts(), variables) == ServerTimeouts(start, 30, call, longest)


def test_the_bound_of_a_server_wins_over_the_variable() -> None:
    assert with_variables(ServerTimeouts(call_seconds=5), {"MCP_TOOL_TIMEOUT": "1500"}).call_seconds == 5
