"""The MCP servers of a program: which ones are configured, where they run, and who sees them."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from teamcli.app.workplaces import Workplace
from teamcli.cancel import CancelScope
from teamcli.config.environment import SECRET_VARIABLES, visible_variables
from teamcli.config.mcp_file import servers_in
from teamcli.config.options import Options
from teamcli.config.project import Project
from teamcli.config.roles import Role
from teamcli.config.settings import Settings
from teamcli.errors import ConfigError
from teamcli.exec.command_host import CommandHost
from teamcli.mcp.configured import Configured, Servers, config_digest, with_variables
from teamcli.mcp.expand import expand_config
from teamcli.mcp.kept_lists import KeptLists
from teamcli.mcp.managed import Connect, ManagedServer
from teamcli.mcp.pool import Pool
from teamcli.mcp.secrets import secrets_of
from teamcli.mcp.server import Ask, Elicitation, ElicitationAnswer, Kind, ServerConfig, ServerConnection
from teamcli.session.mcp import McpAccess
from teamcli.storage.files import LARGEST_DOCUMENT, read_regular
from teamcli.text.redaction import register_secrets
from teamcli.tools.mcp.view import View

if TYPE_CHECKING:
    from teamcli.mcp.oauth import OAuthLogin

USER_SETTINGS = "~/.teamcli/settings.json"
COMMAND_LINE = "--mcp-config"
CLOSING_SECONDS = 1.0
"""For a server to end by itself. What runs then ends with its host."""


def find_servers(options: Options, settings: Settings, project: Project) -> Servers:
    """All that are configured and agreed to. `--mcp-config` wins over the project, which wins over the user.

    Raises: ConfigError, for `--mcp-config`
    """
    servers = Servers({}, [])
    if not options.strict_mcp_config and not options.bare:
        for name, entry in settings.mcpServers.items():
            servers.add({name: entry}, project.source_of_server(name, entry) or USER_SETTINGS)
        for plugin in project.plugins(options.plugin_dirs).found:
            servers.add(plugin.servers, f"plugin {plugin.name}")
    for given in options.mcp_config:
        servers.add(_given_servers(given), COMMAND_LINE)
    return servers


def _given_servers(given: str) -> object:
    try:
        text = given if given.lstrip().startswith("{") else read_regular(Path(given).expanduser(), LARGEST_DOCUMENT)
        return servers_in(json.loads(text))
    except OSError as e:
        raise ConfigError(f"{COMMAND_LINE}: {given} cannot be read: {e.strerror}") from e
    except (ValueError, RecursionError) as e:
        raise ConfigError(f"{COMMAND_LINE}: {given:.200} is not usable: {e}") from e


def expanded(configured: Configured, directory: Path, variables: Mapping[str, str] = os.environ) -> ServerConfig:
    """Raises: ConfigError"""
    # The key for the model is not for servers, whatever their configuration says.
    visible = {name: value for name, value in variables.items() if name not in SECRET_VARIABLES}
    config = expand_config(configured.config, {"CLAUDE_PROJECT_DIR": str(directory), **visible})
    config = config._replace(timeouts=with_variables(config.timeouts, variables))
    register_secrets(secrets_of(config))
    return config


def _decline(question: Elicitation, cancel: CancelScope) -> ElicitationAnswer:
    """Nobody is there to answer, but servers may ask."""
    return ElicitationAnswer("decline")


class ServerSurroundings(NamedTuple):
    """What MCP servers have around them: where they are started, and how they reach the user."""

    home: Path
    """Of teamcli: for logins, and for lists of what servers offer."""
    root: Path
    users_host: CommandHost
    """Runs servers that the user does not want confined."""
    warn: Callable[[str], None]
    """Reports what is wrong with servers that a role brings."""
    ask: Ask | None = None
    """Puts their questions to the user; without it they are declined."""


class McpServers:
    """Each place has its own servers, since they can change files: the workspace, and the checkouts of members."""

    def __init__(self, servers: Servers, disabled: Collection[str], around: ServerSurroundings) -> None:
        """Adds a line to the problems of `servers` for each that is not usable."""
        self._home = around.home / "mcp"
        self._root = around.root
        self._users_host = around.users_host
        self._ask = around.ask or _decline
        self._warn = around.warn
        self._disabled = disabled
        self._kept = KeptLists(self._home / "lists")
        self._configs: dict[str, tuple[Configured, ServerConfig]] = {}
        self._pools: dict[Path, Pool] = {}
        self._warned: set[str] = set()
        self._lock = threading.Lock()
        for server in servers.found.values():
            self._add(server, servers.problems)
        self._shared = tuple(self._configs)
        """Those that every agent sees."""

    def _add(self, server: Configured, problems: list[str]) -> None:
        try:
            self._configs[server.name] = server, expanded(server, self._root)
        except ConfigError as e:
            problems.append(f"{e} ({server.source}).")

    def pool(self, place: Workplace) -> Pool:
        with self._lock:
            root = place.workspace.root
            if root not in self._pools:
                self._pools[root] = Pool([self._managed(*self._configs[name], place) for name in self._shared])
            return self._pools[root]

    def view(self, place: Workplace, role: Role | None = None) -> View:
        """What an agent sees there: the configured servers, and those of its role."""
        own = self._servers_of(role) if role and role.mcp_servers else ()
        pool = self.pool(place)
        for name in own:
            if name not in pool.servers:
                pool.add(self._managed(*self._configs[name], place))
        return View(pool, tuple(dict.fromkeys((*self._shared, *own))))

    def _servers_of(self, role: Role) -> tuple[str, ...]:
        """The user has agreed to them with the file of the role."""
        servers, problems = Servers({}, []), list[str]()
        servers.add(role.mcp_servers, f"role {role.name}")
        with self._lock:
            for name, server in servers.found.items():
                if name not in self._configs:
                    self._add(server, problems)
                elif self._configs[name][0].config != server.config:
                    problems.append(f"{server.source}: there is another MCP server {name}, which it uses instead.")
        for problem in {*servers.problems, *problems} - self._warned:
            self._warned.add(problem)
            self._warn(problem)
        return tuple(name for name in servers.found if name in self._configs)

    def access(self, place: Workplace) -> McpAccess:
        """What the user sees of them."""
        return McpAccess(self.pool(place), self.login, self._open_browser, self.close)

    def _open_browser(self, address: str) -> None:
        from teamcli.exec.browser import open_in_browser  # late: almost nobody logs in

        open_in_browser(address, self._users_host.programs, visible_variables(os.environ))

    def login(self, name: str) -> OAuthLogin:
        from teamcli.mcp.oauth import OAuthLogin  # late: only servers over HTTP need it

        return OAuthLogin(self._configs[name][1], self._home)

    def close(self) -> None:
        with self._lock:
            pools, self._pools = list(self._pools.values()), {}
        for pool in pools:
            pool.close(CLOSING_SECONDS)

    def _managed(self, configured: Configured, config: ServerConfig, place: Workplace) -> ManagedServer:
        digest = config_digest(config, str(self._root))
        is_enabled = configured.name not in self._disabled
        return ManagedServer(configured, digest, self._connect(configured, config, place), self._kept, is_enabled)

    def _connect(self, configured: Configured, config: ServerConfig, place: Workplace) -> Connect:
        host = place.host if configured.is_confined else self._users_host
        root = place.workspace.root

        def connect(on_change: Callable[[Kind], None]) -> ServerConnection:
            # Late: the first request waits for none of it if the tools are known.
            from teamcli.mcp.authorizer import NoAuthorizer
            from teamcli.mcp.client import McpClient
            from teamcli.mcp.http import HttpTransport
            from teamcli.mcp.stdio import open_stdio

            if not config.url:
                return McpClient(
                    config, lambda receiver: open_stdio(config, host, root, receiver), root, self._ask, on_change
                )
            has_token = any(name.lower() == "authorization" for name in config.headers)
            authorizer = NoAuthorizer() if has_token else self.login(config.name)
            return McpClient(
                config, lambda receiver: HttpTransport(config, receiver, authorizer), root, self._ask, on_change
            )

        return connect
