"""All slash commands, and how a line that begins with `/` finds its own."""

from __future__ import annotations

import difflib

from teamcli.agent.events import Notice, Severity
from teamcli.commands.base import Command, Group, Kind, Prompt, Shown, command
from teamcli.commands.budget import budget
from teamcli.commands.help import help_table, help_text
from teamcli.commands.look import cost, diff, expand, verbose
from teamcli.commands.session import clear, compact, leave, model, permissions, sessions
from teamcli.commands.team import (
    agents,
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
from teamcli.config.custom_commands import DESCRIPTION_LIMIT, CustomCommand
from teamcli.config.skills import Skill
from teamcli.errors import UsageError
from teamcli.session.session import LEAD, Session
from teamcli.text.escaping import one_line


@command("help", usage="[COMMAND]", aliases=("?",), arguments=(Kind.COMMAND,))
def show_help(session: Session, arguments: str) -> Shown:
    """Show what can be typed here, or more of one command."""
    if arguments:
        return help_text(find_command(session, arguments.removeprefix("/")))
    found = session.custom_commands.find()
    session.custom_commands.untold_problems()  # they are told here
    shadowed = [f"{each.source} is not used: /{each.name} is built in." for each in found.commands if _is_ours(each)]
    taken = {*_BY_NAME, *(each.name for each in found.commands)}
    shadowed += [
        f"{each.shown} cannot be called: /{each.name} is another command."
        for each in session.skills
        if each.name in taken and each.for_user
    ]
    return help_table(all_commands(session), (*found.problems, *shadowed))


COMMANDS: tuple[Command, ...] = (
    show_help,
    send,
    team,
    inbox,
    wait,
    stop,
    pause,
    resume,
    shutdown,
    forget,
    approve,
    reject,
    compact,
    clear,
    sessions,
    model,
    permissions,
    leave,
    log,
    cost,
    budget,
    diff,
    agents,
    expand,
    verbose,
)
"""Those that are built in, in the order in which help and README list them."""

_BY_NAME = {name: entry for entry in COMMANDS for name in (entry.name, *entry.aliases)}


def all_commands(session: Session) -> tuple[Command, ...]:
    """Those that are built in, then the user's own, then skills; of one name the first."""
    own = [each for each in session.custom_commands.find().commands if not _is_ours(each)]
    taken = {*_BY_NAME, *(each.name for each in own)}
    skills = (each for each in session.skills if each.for_user and each.name not in taken)
    return (*COMMANDS, *map(_as_command, own), *map(_skill_command, skills))


def find_command(session: Session, name: str) -> Command:
    """Raises: UsageError, suggesting the nearest."""
    if (built_in := _BY_NAME.get(name)) is not None:
        return built_in
    by_name = _BY_NAME | {entry.name: entry for entry in all_commands(session)}
    _tell_problems(session)
    if name in by_name:
        return by_name[name]
    near = difflib.get_close_matches(name, by_name, 1, 0.5)
    hint = f"did you mean /{near[0]}?" if near else "/help lists them"
    raise UsageError(f"unknown command /{name}: {hint}")


def run_command(session: Session, line: str) -> Shown:
    """Run a line such as `/model claude-x`.

    Raises: Leave, TeamcliError
    """
    name, arguments = [*line.removeprefix("/").split(maxsplit=1), "", ""][:2]
    return find_command(session, name).run(session, arguments.strip())


def _is_ours(custom: CustomCommand) -> bool:
    return custom.name in _BY_NAME


def _as_command(custom: CustomCommand) -> Command:
    details = f"From {custom.source}; its text goes to the lead:\n\n{custom.text}"
    return Command(
        custom.name,
        custom.hint,
        custom.description,
        lambda session, arguments: Prompt(custom.prompt(arguments)),
        group=Group.CUSTOM,
        details=details,
    )


def _skill_command(skill: Skill) -> Command:
    return Command(
        skill.name,
        skill.hint or "[TEXT]",
        one_line(skill.description, DESCRIPTION_LIMIT),
        lambda session, arguments: Prompt(skill.prompt(arguments)),
        group=Group.SKILLS,
        details=f"A skill, from {skill.shown}; its text goes to the lead. Agents read it by themselves when it fits.",
    )


def _tell_problems(session: Session) -> None:
    for problem in session.custom_commands.untold_problems():
        session.events(Notice(LEAD, problem, Severity.WARNING))
