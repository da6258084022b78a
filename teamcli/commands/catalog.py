"""All slash commands, and how a line that starts with `/` finds its command."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from teamcli.agent.events import Notice, Severity
from teamcli.claude_code.names import BUILT_IN_THERE
from teamcli.commands import budget, context, cost, diff, display, hooks, jobs, mcp, merge, tasks, team, watch
from teamcli.commands import session as session_commands
from teamcli.commands.base import ArgumentKind, CommandResult, Group, SlashCommand, command
from teamcli.commands.call_from_file import call
from teamcli.commands.elsewhere import INSTEAD
from teamcli.commands.help import help_table, help_text
from teamcli.config.custom_commands import DESCRIPTION_LIMIT, CustomCommand
from teamcli.config.skills import Skill
from teamcli.errors import UsageError
from teamcli.session.session import Session
from teamcli.team.message import LEAD
from teamcli.text.escaping import one_line

MOST_SUGGESTED = 3
_PLACES = ("project", "user")
"""Claude Code once called commands `/project:NAME` and `/user:NAME`. Here that reaches one whose name is built in."""


@command("help", usage="[COMMAND]", aliases=("?",), arguments=(ArgumentKind.COMMAND,))
def show_help(session: Session, arguments: str) -> CommandResult:
    """Show what can be typed here, or more about one command."""
    if arguments:
        return help_text(find_command(session, arguments.removeprefix("/")))
    found = session.catalog.custom_commands.find()
    session.catalog.custom_commands.new_problems()  # marks them as reported: the table shows them
    own = _own_commands(session)
    used = {*_BUILT_IN, *(each.name for each in own)}
    unused = [
        *(
            f"{each.source} is not used: /{each.name} is "
            + (f"built in; call it as /project:{each.name}." if each.name in _BUILT_IN else "a skill.")
            for each in found.commands
            if each.for_user and each not in own
        ),
        *(
            f"{each.shown} cannot be called: /{each.name} is another command."
            for each in session.catalog.skills
            if each.for_user and each.name in used
        ),
    ]
    return help_table(all_commands(session), (*found.problems, *unused), session.catalog.roles)


COMMANDS: tuple[SlashCommand, ...] = (
    show_help,
    team.send,
    team.team,
    watch.watch,
    team.inbox,
    team.wait,
    team.stop,
    team.pause,
    team.resume,
    team.shutdown,
    team.forget,
    merge.merge,
    team.discard,
    team.approve,
    team.reject,
    tasks.tasks,
    jobs.jobs,
    session_commands.compact,
    session_commands.clear,
    session_commands.sessions,
    session_commands.model,
    session_commands.permissions,
    session_commands.leave,
    mcp.mcp,
    team.log,
    cost.cost,
    context.context,
    budget.budget,
    diff.diff,
    team.agents,
    hooks.hooks,
    display.expand,
    display.verbose,
)
"""The built-in commands, in the order of `/help`. Add a new one here."""

_BUILT_IN = {name: each for each in COMMANDS for name in (each.name, *each.aliases)}


def all_commands(session: Session) -> tuple[SlashCommand, ...]:
    """The built-in commands, then the user's own, then skills. If names clash, the first wins."""
    own = _own_commands(session)
    taken = {*_BUILT_IN, *(each.name for each in own)}
    skills = (each for each in session.catalog.skills if each.for_user and each.name not in taken)
    return (*COMMANDS, *map(_from_file, own), *map(_from_skill, skills), *mcp.prompt_commands(session))


def _own_commands(session: Session) -> list[CustomCommand]:
    """Those that can be called by name. As in Claude Code, a skill made for it wins over a command made for it."""
    skills = {each.name for each in session.catalog.skills if each.for_user and each.source.is_claudes}
    found = (each for each in session.catalog.custom_commands.find().commands if each.for_user)
    return [
        each for each in found if each.name not in _BUILT_IN and not (each.behavior.is_claudes and each.name in skills)
    ]


def find_command(session: Session, name: str, is_headless: bool = False) -> SlashCommand:
    """Headless, a command from a file wins over one of ours that Claude Code does not have: that is what a script
    made for it means.

    Raises: UsageError, suggesting the nearest name
    """
    if (built_in := _BUILT_IN.get(name)) is not None:
        may_be_written = is_headless and name not in BUILT_IN_THERE
        return (may_be_written and _written(session, name)) or built_in
    if (prompt := mcp.find_prompt(session, name)) is not None:
        return prompt
    by_name = _BUILT_IN | {each.name: each for each in all_commands(session)}
    for problem in session.catalog.custom_commands.new_problems():
        session.events(Notice(LEAD, problem, Severity.WARNING))
    place, _, rest = name.partition(":")
    if found := by_name.get(name) or (_written(session, rest) if place in _PLACES else None):
        return found
    raise UsageError(f"unknown command /{name}: {INSTEAD.get(name.lower()) or _nearest(name, by_name)}")


def _written(session: Session, name: str) -> SlashCommand | None:
    """The command or skill in a file that has this name, even if a built-in command has it, too."""
    skill = next((each for each in session.catalog.skills if each.for_user and each.name == name), None)
    commands = session.catalog.custom_commands.find().commands
    own = next((each for each in commands if each.for_user and each.name == name), None)
    is_skill = skill is not None and (own is None or (skill.source.is_claudes and own.behavior.is_claudes))
    return _from_skill(skill) if skill and is_skill else _from_file(own) if own else None


def _nearest(name: str, names: Iterable[str]) -> str:
    begin = [f"/{each}" for each in names if name and each.startswith(name.lower())]
    near = begin or [f"/{each}" for each in difflib.get_close_matches(name, names, 1, 0.5)]
    return f"did you mean {' or '.join(near)}?" if 0 < len(near) <= MOST_SUGGESTED else "/help lists them"


def run_command(session: Session, line: str, is_headless: bool = False) -> CommandResult:
    """Run a line such as `/model claude-x`.

    Raises: Leave, TeamcliError
    """
    name, arguments = [*line.removeprefix("/").split(maxsplit=1), "", ""][:2]
    return find_command(session, name, is_headless).run(session, arguments.strip())


def _from_file(custom: CustomCommand) -> SlashCommand:
    return SlashCommand(
        custom.name,
        custom.hint,
        one_line(custom.description, DESCRIPTION_LIMIT),
        lambda session, arguments: call(session, custom.name, custom.invoke(arguments)),
        group=Group.CUSTOM,
        details=f"From {custom.source}; its text goes to the lead:\n\n{custom.text}",
    )


def _from_skill(skill: Skill) -> SlashCommand:
    return SlashCommand(
        skill.name,
        skill.hint or "[TEXT]",
        one_line(skill.description, DESCRIPTION_LIMIT),
        lambda session, arguments: call(session, skill.name, skill.invoke(arguments)),
        group=Group.SKILLS,
        details=f"A skill, from {skill.shown}; its text goes to the lead. Agents also read it when it fits their task.",
    )
