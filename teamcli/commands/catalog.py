"""All slash commands, and how a line that begins with `/` finds its own."""

from __future__ import annotations

import difflib

from teamcli.commands.base import Command, Shown, command
from teamcli.commands.session import clear, cost, leave, model, permissions, sessions
from teamcli.commands.team import (
    approve,
    forget,
    inbox,
    log,
    pause,
    reject,
    resume,
    send,
    shutdown,
    stop,
    team,
    wait,
)
from teamcli.errors import UsageError
from teamcli.session import Session


@command("help", aliases=("?",))
def show_help(session: Session, arguments: str) -> str:
    """Show what can be typed here."""
    rows = [(f"/{c.name} {c.usage}".rstrip(), c.help) for c in COMMANDS]
    rows += [("!COMMAND", "Run a shell command yourself."), ("q, exit, Ctrl-D", "Leave.")]
    width = max(len(left) for left, _ in rows)
    lines = [f"  {left:<{width}}  {right}" for left, right in rows]
    return "Type a task and press Enter; the agent works on it with its tools. Ctrl-C ends a turn.\n" + "\n".join(lines)


COMMANDS: tuple[Command, ...] = (
    show_help,
    team,
    inbox,
    send,
    log,
    wait,
    stop,
    pause,
    resume,
    shutdown,
    forget,
    approve,
    reject,
    cost,
    model,
    permissions,
    clear,
    sessions,
    leave,
)

_BY_NAME = {name: entry for entry in COMMANDS for name in (entry.name, *entry.aliases)}


def run_command(session: Session, line: str) -> Shown:
    """Run a line such as `/model claude-x`.

    Raises: Leave, TeamcliError
    """
    name, _, arguments = line.removeprefix("/").partition(" ")
    if (entry := _BY_NAME.get(name)) is not None:
        return entry.run(session, arguments.strip())
    near = difflib.get_close_matches(name, _BY_NAME, 1, 0.5)
    hint = f"did you mean /{near[0]}?" if near else "/help lists them"
    raise UsageError(f"unknown command /{name}: {hint}")
