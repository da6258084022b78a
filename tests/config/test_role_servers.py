"""Servers in the front matter of a role, in the forms that people write."""

from __future__ import annotations

from typing import Any

import pytest

from teamcli.config.role_servers import read_role_servers

PLAYWRIGHT = {"type": "stdio", "command": "npx", "args": ["-y", "@playwright/mcp@latest"]}


def matter(*lines: str) -> str:
    return "\n".join(["---", "name: x", *lines, "model: sonnet", "---", "mcpServers: not here"])


@pytest.mark.parametrize(
    ("lines", "names", "own"),
    [
        ((), (), {}),
        (("mcpServers: github, slack",), ("github", "slack"), {}),
        (("mcpServers: [github, slack]",), ("github", "slack"), {}),
        (("mcpServers:", "  - github", "  # a comment", "", "  - slack"), ("github", "slack"), {}),
        (("mcpServers:", "- github"), ("github",), {}),
        (("mcpServers:", "  github:", "  slack:"), ("github", "slack"), {}),
        (
            (
                *("mcpServers:", "  - playwright:", "      type: stdio", "      command: npx"),
                *('      args: ["-y", "@playwright/mcp@latest"]', "  - github"),
            ),
            ("github",),
            {"playwright": PLAYWRIGHT},
        ),
        (
            (
                *("mcpServers:", "  playwright:", "    type: stdio", "    command: npx", "    args:"),
                *("      - -y", '      - "@playwright/mcp@latest"'),
            ),
            (),
            {"playwright": PLAYWRIGHT},
        ),
        (
            ("mcpServers:", "  web:", "    url: https://example.com/mcp", "    headers:", '      X-Key: "${KEY}"'),
            (),
            {"web": {"url": "https://example.com/mcp", "headers": {"X-Key": "${KEY}"}}},
        ),
        (('mcpServers: {"a": {"command": "x", "sandbox": false}}',), (), {"a": {"command": "x", "sandbox": False}}),
    ],
)
def test_names_and_definitions_are_read(lines: tuple[str, ...], names: tuple[str, ...], own: dict[str, Any]) -> None:
    assert read_role_servers(matter(*lines)) == (names, own)


@pytest.mark.parametrize(
    "lines",
    [
        ("mcpServers:", "  a:", "      b: 1", "   c"),
        ("mcpServers:", "    a: 1", "  b: 2"),
        ("mcpServers: 5",),
        ("mcpServers:", *("  " * depth + f"a{depth}:" for depth in range(1, 20))),
    ],
)
def test_what_makes_no_sense_is_an_error(lines: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="mcpServers"):
        read_role_servers(matter(*lines))
