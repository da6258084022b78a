"""Variables in the configuration of a server: `${NAME}` and `${NAME:-default}`."""

from __future__ import annotations

import re
from collections.abc import Mapping

from teamcli.errors import ConfigError
from teamcli.mcp.server import ServerConfig

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


def expand_config(config: ServerConfig, variables: Mapping[str, str]) -> ServerConfig:
    """The configuration with its variables replaced in command, arguments, environment, directory, URL and headers.

    Raises: ConfigError, for a variable that is not set and has no default
    """

    def expand(text: str) -> str:
        return _VARIABLE.sub(replace, text)

    def replace(found: re.Match[str]) -> str:
        name, default = found[1], found[2]
        if default is not None:
            return variables.get(name) or default
        if name not in variables:
            raise ConfigError(f"MCP server {config.name}: the variable {name} is not set; set it or give a default")
        return variables[name]

    return config._replace(
        command=expand(config.command),
        args=tuple(map(expand, config.args)),
        env={name: expand(value) for name, value in config.env.items()},
        cwd=expand(config.cwd),
        url=expand(config.url),
        headers={name: expand(value) for name, value in config.headers.items()},
    )
