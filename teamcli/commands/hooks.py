"""`/hooks`: which commands run by themselves, and when."""

from __future__ import annotations

from teamcli.commands.base import Column, CommandResult, Group, Table, command
from teamcli.session.session import Session
from teamcli.text.escaping import one_line

NO_HOOKS = "No hooks. Settings and plugins can have some: see docs/hooks.md."
COLUMNS = (Column("EVENT", "name"), Column("MATCHER"), Column("COMMAND", shrinks=True), Column("FROM", "dim"))
_COMMAND_LENGTH, _LENGTH = 200, 60


@command("hooks", group=Group.REPORTS)
def hooks(session: Session, arguments: str) -> CommandResult:
    """List hooks: commands that run when something happens."""
    rows = tuple(
        (
            one_line(event, _LENGTH),
            one_line(group.matcher, _LENGTH),
            one_line(hook.command, _COMMAND_LENGTH),
            one_line(group.source, _LENGTH) or "teamcli's settings",
        )
        for event, groups in session.catalog.hooks.items()
        for group in groups
        for hook in group.hooks
    )
    return Table("" if rows else NO_HOOKS, COLUMNS, rows)
