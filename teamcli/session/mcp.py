"""What the user can see and do about MCP servers in a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from teamcli.cancel import CancelScope
from teamcli.errors import LoginNeeded, McpError, UsageError
from teamcli.mcp.managed import ManagedServer
from teamcli.mcp.pool import Pool
from teamcli.mcp.results import prompt_text
from teamcli.mcp.server import PromptInfo
from teamcli.text.escaping import one_line


class Login(Protocol):
    def login(self, open_browser: Callable[[str], None], cancel: CancelScope) -> None:
        """Raises: McpError, Cancelled"""

    def log_out(self) -> None:
        """Raises: StateError"""


class McpAccess:
    def __init__(
        self,
        pool: Pool,
        login: Callable[[str], Login],
        open_browser: Callable[[str], object],
        close: Callable[[], None],
    ) -> None:
        """`pool` are the servers in the workspace; `close` ends those of members, too."""
        self._pool = pool
        self._login = login
        self._open_browser = open_browser
        self.close = close

    @property
    def servers(self) -> Mapping[str, ManagedServer]:
        return self._pool.servers

    def find(self, name: str) -> ManagedServer:
        """Raises: UsageError"""
        if name not in self.servers:
            raise UsageError(f"there is no MCP server {name} (there are: {', '.join(self.servers)})")
        return self.servers[name]

    def reconnect(self, name: str, cancel: CancelScope) -> ManagedServer:
        """Raises: McpError, Cancelled, UsageError"""
        server = self.find(name)
        server.connection.reconnect(cancel)
        server.list_all(cancel)
        return server

    def login(self, name: str, show: Callable[[str], None], cancel: CancelScope) -> ManagedServer:
        """`show` gets the address, which the user may have to open by hand.

        Raises: McpError, Cancelled, UsageError
        """

        def open_browser(address: str) -> None:
            show(address)
            self._open_browser(address)

        self._with_address(name)
        try:
            server = self.reconnect(name, cancel)  # it says what it wants
        except LoginNeeded:
            self._login(name).login(open_browser, cancel)
            server = self.reconnect(name, cancel)
        return server

    def log_out(self, name: str) -> None:
        """Forget its tokens, and end the connection that uses them.

        Raises: UsageError, StateError
        """
        server = self._with_address(name)
        self._login(name).log_out()
        server.disconnect()

    def _with_address(self, name: str) -> ManagedServer:
        """Raises: UsageError"""
        if not (server := self.find(name)).configured.config.url:
            raise UsageError(f"the MCP server {name} is a program on this machine, which needs no login")
        return server

    def switch(self, name: str, is_on: bool) -> None:
        """For this run. Raises: UsageError"""
        self.find(name).switch(is_on)

    def find_prompt(self, name: str) -> tuple[str, str] | None:
        """Server and prompt in `SERVER:PROMPT` or `mcp__SERVER__PROMPT`; None if no server has that name."""
        rest = name.removeprefix("mcp__")
        server, _, prompt = rest.partition("__" if rest != name else ":")
        return (server, prompt) if server in self.servers and prompt else None

    def prompt(self, server: str, name: str, words: str, cancel: CancelScope) -> str:
        """The text of a prompt with these arguments.

        Raises: McpError, Cancelled, UsageError
        """
        found = self.find(server)
        prompts = {each.name: each for each in found.connection.prompts(cancel)}
        if name not in prompts:
            raise UsageError(
                f"the MCP server {server} has no prompt {name} (there are: {', '.join(prompts) or 'none'})"
            )
        given = prompt_arguments(prompts[name], words)
        return prompt_text(found.connection.get_prompt(name, given, cancel))

    def call(self, tool: str, given: Mapping[str, Any], cancel: CancelScope) -> str:
        """Call `mcp__SERVER__TOOL` for the program itself; returns the text of its result.

        Raises: McpError, Cancelled
        """
        server = self._pool.server_of(tool)
        result = server.connection.call(server.find(tool, cancel).name, given, cancel)
        text = "\n".join(str(block["text"]) for block in result.content if "text" in block)
        if result.is_error:
            raise McpError(f"{tool} failed: {one_line(text)}")
        return text

    def owns(self, word: str) -> bool:
        """Whether a mention (`@word`) names a resource."""
        server, separator, uri = word.partition(":")
        return bool(separator and uri) and server in self.servers


def prompt_arguments(prompt: PromptInfo, words: str) -> dict[str, str]:
    """`NAME=value` by name, other words in order; the last argument gets the rest.

    Raises: UsageError, naming what is missing
    """
    names = [argument.name for argument in prompt.arguments]
    given: dict[str, str] = {}
    rest = words.split()
    while rest and "=" in rest[0] and rest[0].partition("=")[0] in names:
        name, _, value = rest.pop(0).partition("=")
        given[name] = value
    free = [name for name in names if name not in given]
    for position, name in enumerate(free):
        if rest:
            given[name] = " ".join(rest) if position == len(free) - 1 else rest[0]
            rest = rest[1:]
    missing = [each.name for each in prompt.arguments if each.is_required and not given.get(each.name)]
    if missing:
        usage = " ".join(
            each.name.upper() if each.is_required else f"[{each.name.upper()}]" for each in prompt.arguments
        )
        raise UsageError(f"{prompt.name} needs {', '.join(missing)}; its arguments: {usage}")
    return given
