"""`/context`: how full the agents' context windows are."""

from __future__ import annotations

from teamcli.agent.context_window import used_tokens
from teamcli.agent.loop import Agent
from teamcli.commands.base import Cell, Column, Group, Table, command
from teamcli.session.session import Session

COLUMNS = (
    Column("AGENT", "name"),
    Column("MODEL", "dim", shrinks=True, may_go=True),
    Column("TOKENS", right=True),
    Column("WINDOW", "dim", right=True),
    Column("FULL", right=True),
)
NOTES = ("A conversation is compacted when it is nearly full; /compact shortens the lead's now, /clear starts over.",)


@command("context", group=Group.REPORTS)
def context(session: Session, arguments: str) -> Table:
    """Show how full the context window of each agent is.

    TOKENS is what its next request would have, as far as teamcli can count. /cost shows what was used so far.
    """
    agents = {agent.name: agent for agent in session.agents}  # of a name that was hired again, the newest
    return Table("", COLUMNS, tuple(_row(agent) for agent in agents.values()), NOTES)


def _row(agent: Agent) -> tuple[str | Cell, ...]:
    model, tokens = agent.preamble.model, used_tokens(agent)
    share = agent.context.filled(tokens, model)
    if share is None:
        return (agent.name, model, f"{tokens:,}", "unknown", "")
    full = Cell(f"{share:.0%}", "warn" if share >= agent.context.share else "")
    return (agent.name, model, f"{tokens:,}", f"{agent.context.limit(model):,}", full)
