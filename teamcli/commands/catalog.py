"""All slash commands, and how a line that begins with `/` finds its own."""

from __future__ import annotations

import difflib

from teamcli.agent.permissions import Mode
from teamcli.commands.base import Command, Leave, command
from teamcli.errors import UsageError
from teamcli.session import Session
from teamcli.sessions import session_table


@command("help", aliases=("?",))
def show_help(session: Session, arguments: str) -> str:
    """Show what can be typed here."""
    rows = [(f"/{c.name} {c.usage}".rstrip(), c.help) for c in COMMANDS]
    rows += [("!COMMAND", "Run a shell command yourself."), ("q, exit, Ctrl-D", "Leave.")]
    width = max(len(left) for left, _ in rows)
    lines = [f"  {left:<{width}}  {right}" for left, right in rows]
    return "Type a task and press Enter; the agent works on it with its tools. Ctrl-C ends a turn.\n" + "\n".join(lines)


@command("clear")
def clear(session: Session, arguments: str) -> str:
    """Begin a new session with an empty conversation."""
    session.clear()
    return f"A new session: {session.id}"


@command("cost")
def cost(session: Session, arguments: str) -> str:
    """Show what this session has used."""
    return session.cost_line()


@command("model", usage="[ID]")
def model(session: Session, arguments: str) -> str:
    """Show the model, or use another from now on."""
    if arguments:
        session.use_model(arguments)
    return f"Model: {session.model}"


@command("permissions", usage="[MODE]")
def permissions(session: Session, arguments: str) -> str:
    """Show the permission mode and rules, or switch the mode."""
    if arguments:
        try:
            session.permits.set_mode(Mode(arguments))
        except ValueError as e:
            raise UsageError(f"unknown mode '{arguments}': there are {', '.join(Mode)}") from e
    policy = session.permits.policy
    rules = [(verdict, rule) for verdict in ("deny", "ask", "allow") for rule in getattr(policy, verdict)]
    return "\n".join([f"Mode: {policy.mode}", *(f"  {verdict:<5}  {rule}" for verdict, rule in rules)])


@command("sessions")
def sessions(session: Session, arguments: str) -> str:
    """List this directory's sessions, newest first."""
    return session_table(session.team.lead_transcript)


@command("quit", aliases=("exit", "q"))
def leave(session: Session, arguments: str) -> str:
    """Leave."""
    raise Leave


COMMANDS: tuple[Command, ...] = (show_help, clear, cost, model, permissions, sessions, leave)

_BY_NAME = {name: entry for entry in COMMANDS for name in (entry.name, *entry.aliases)}


def run_command(session: Session, line: str) -> str:
    """Run a line such as `/model claude-x`.

    Raises: Leave, TeamcliError
    """
    name, _, arguments = line.removeprefix("/").partition(" ")
    if (entry := _BY_NAME.get(name)) is not None:
        return entry.run(session, arguments.strip())
    near = difflib.get_close_matches(name, _BY_NAME, 1, 0.5)
    hint = f"did you mean /{near[0]}?" if near else "/help lists them"
    raise UsageError(f"unknown command /{name}: {hint}")
