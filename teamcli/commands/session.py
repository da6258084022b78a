"""Slash commands about the session: its conversation, model, permissions, cost."""

from __future__ import annotations

from teamcli.agent.permissions import Mode
from teamcli.commands.base import Leave, Table, command
from teamcli.errors import UsageError
from teamcli.session import Session
from teamcli.sessions import session_table


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
def sessions(session: Session, arguments: str) -> Table:
    """List this directory's sessions, newest first."""
    return session_table(session.state.lead_transcript)


@command("quit", aliases=("exit", "q"))
def leave(session: Session, arguments: str) -> str:
    """Leave."""
    raise Leave
