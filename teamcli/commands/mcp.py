"""`/mcp`: see MCP servers, reconnect them, log in, switch them off and on."""

from __future__ import annotations

from typing import TYPE_CHECKING

from teamcli.agent.events import Notice
from teamcli.cancel import CancelScope
from teamcli.commands.base import (
    ArgumentKind,
    Column,
    CommandResult,
    Group,
    Job,
    Option,
    Prompt,
    SlashCommand,
    Table,
    command,
)
from teamcli.errors import UsageError
from teamcli.session.session import Session
from teamcli.team.message import LEAD
from teamcli.text.counting import counted
from teamcli.text.escaping import one_line

if TYPE_CHECKING:
    from teamcli.mcp.managed import ManagedServer
    from teamcli.mcp.server import PromptInfo
    from teamcli.session.mcp import McpAccess

NO_SERVERS = "No MCP servers are configured. Add one with: teamcli mcp add NAME -- COMMAND"
COLUMNS = (
    Column("SERVER", "name"),
    Column("STATE"),
    Column("TOOLS", "dim", right=True),
    Column("COMMAND OR ADDRESS", shrinks=True),
    Column("FROM", "dim"),
    Column("", "dim", goes_below=True),
)
VERBS = (
    Option("reconnect", "start it again"),
    Option("login", "log in with your browser"),
    Option("logout", "forget the login"),
    Option("disable", "do not use it in this run"),
    Option("enable", "use it again"),
)
_STATES = {"stopped": "not started", "needs_login": "needs a login: /mcp login {}"}


@command(
    "mcp",
    usage="[VERB NAME]",
    arguments=(ArgumentKind.MCP_VERB, ArgumentKind.MCP_SERVER),
    group=Group.SESSION,
)
def mcp(session: Session, arguments: str) -> CommandResult:
    """Show MCP servers: state, tools, errors.

    /mcp                  list the servers
    /mcp NAME             show its tools, and what it said if it failed
    /mcp reconnect NAME   start it again, and list its tools again
    /mcp login NAME       log in with your browser; /mcp logout NAME forgets that
    /mcp disable NAME     do not use it in this run; /mcp enable NAME uses it again
    A server starts when it is first needed. Its prompts are commands: /SERVER:PROMPT. Its resources: @SERVER:URI.
    """
    if session.mcp is None:
        return NO_SERVERS
    words = arguments.split()
    if not words:
        return server_table(session.mcp)
    verb, name = words if len(words) == 2 else ("", words[0])
    if verb not in ("", *(option.value for option in VERBS)) or len(words) > 2:
        raise UsageError("usage: /mcp [NAME], /mcp reconnect|login|logout|disable|enable NAME")
    session.mcp.find(name)
    return _details(session.mcp.find(name)) if not verb else _act(session, session.mcp, verb, name)


def server_table(servers: McpAccess) -> Table:
    rows = tuple(
        (
            server.name,
            state(server),
            "?" if server.tools is None else str(len(server.tools)),
            server.configured.what,
            server.configured.source,
            one_line(server.status.error, 300),
        )
        for server in servers.servers.values()
    )
    return Table("", COLUMNS, rows)


def state(server: ManagedServer) -> str:
    if not server.is_enabled:
        return "disabled"
    found = server.status.state
    return _STATES.get(found, found).format(server.name)


def server_options(session: Session) -> tuple[Option, ...]:
    return tuple(Option(each.name, state(each)) for each in session.mcp.servers.values()) if session.mcp else ()


def resource_options(session: Session) -> list[Option]:
    """What can be mentioned with `@`."""
    servers = session.mcp.servers.values() if session.mcp else ()
    return [
        Option(f"{server.name}:{each.uri}", one_line(each.title or each.name, 60))
        for server in servers
        if server.is_enabled
        for each in server.resources
    ]


def prompt_commands(session: Session) -> list[SlashCommand]:
    """A command for each prompt that is known."""
    if session.mcp is None:
        return []
    return [
        _prompt_command(server.name, prompt)
        for server in session.mcp.servers.values()
        if server.is_enabled
        for prompt in server.prompts
    ]


def find_prompt(session: Session, name: str) -> SlashCommand | None:
    """The command for `SERVER:PROMPT`, whether or not the server has been asked for its prompts."""
    found = session.mcp.find_prompt(name) if session.mcp else None
    if found is None:
        return None
    server, prompt = found
    return SlashCommand(name, "[TEXT]", "", lambda session, words: run_prompt(session, server, prompt, words))


def run_prompt(session: Session, server: str, prompt: str, words: str) -> CommandResult:
    def run(cancel: CancelScope) -> Prompt:
        assert session.mcp is not None
        return Prompt(session.mcp.prompt(server, prompt, words, cancel))

    return Job(run, "")


def _prompt_command(server: str, prompt: PromptInfo) -> SlashCommand:
    usage = " ".join(each.name.upper() if each.is_required else f"[{each.name.upper()}]" for each in prompt.arguments)
    return SlashCommand(
        f"{server}:{prompt.name}",
        one_line(usage, 100),
        one_line(prompt.description or prompt.title, 100),
        lambda session, words: run_prompt(session, server, prompt.name, words),
        group=Group.MCP,
        details=f"A prompt of the MCP server {server}; its text goes to the lead.",
    )


def _details(server: ManagedServer) -> str:
    status, tools = server.status, server.tools
    lines = [
        f"{server.name}: {state(server)} ({server.configured.what}, from {server.configured.source})",
        one_line(f"{status.server_name} {status.server_version}, protocol {status.protocol_version}", 200)
        if status.protocol_version
        else "",
        status.error,
        status.error_detail,
        "Its tools are not known yet." if tools is None else f"{counted(len(tools), 'tool')}:",
        *(
            f"  {name}  {one_line(tool.description or tool.title, 100)}".rstrip()
            for name, tool in (tools or {}).items()
        ),
        *(f"  /{server.name}:{each.name}  {one_line(each.description, 100)}".rstrip() for each in server.prompts),
        *(f"  @{server.name}:{one_line(each.uri, 200)}" for each in server.resources),
    ]
    return "\n".join(filter(None, lines))


def _act(session: Session, servers: McpAccess, verb: str, name: str) -> CommandResult:
    if verb in ("disable", "enable"):
        servers.switch(name, verb == "enable")
        return f"{name} is {verb}d for this run."
    if verb == "logout":
        servers.log_out(name)
        return f"The login to {name} is forgotten."
    if verb == "reconnect":
        return Job(lambda cancel: _details(servers.reconnect(name, cancel)), f"Connecting to {name} …")

    def show(address: str) -> None:
        session.events(Notice(LEAD, f"Log in with your browser: {address}"))

    return Job(lambda cancel: _details(servers.login(name, show, cancel)), "")
