"""Variables in the configuration of a server."""

from __future__ import annotations

import pytest

from teamcli.errors import ConfigError
from teamcli.mcp.expand import expand_config
from teamcli.mcp.server import ServerConfig


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


def test_a_variable_that_is_not_set_is_named() -> None:
    with pytest.raises(ConfigError, match="MCP server x: the variable MISSING is not set"):
        expand_config(ServerConfig("x", "a", ("${MISSING}",)), {})
