"""What `/help` shows: everything that can be typed or pressed, or the details of one command."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from teamcli.commands.base import Cell, Column, Group, SlashCommand, Table
from teamcli.config.roles import Role
from teamcli.text.escaping import one_line

MOST_ROLES = 30
_LENGTH = 100
_DESCRIPTION_LENGTH = 55
INTRODUCTION = "Type a task and press Enter. The lead works on it, alone or with teammates that it hires."
COLUMNS = (Column("", "name"), Column("", goes_below=True))
TALK = (
    ("TEXT", "A task for the lead, or a note to it while it works."),
    ("@NAME TEXT", "A message to a teammate."),
    ("@PATH", "Mention a file, anywhere in a task."),
    ("!COMMAND", "Run a shell command; the lead sees its output."),
    ("#TEXT", "Add a line to the project's instructions."),
)
KEYS = (
    ("Enter", "Send the line."),
    ("Alt-Enter, Ctrl-J", "Start a new line within it."),
    ("Esc, Ctrl-C", "Interrupt the lead; Ctrl-C also clears the line."),
    ("Ctrl-C twice", "At an empty prompt: leave."),
    ("Up", "Take back an unread line, or recall an earlier one."),
    ("Shift-Down, Shift-Up", "Watch the next or previous teammate; Esc returns."),
    ("Ctrl-R", "Search earlier lines."),
    ("Ctrl-O", "Show all of the last call, or of a question."),
    ("PgUp, PgDn", "Scroll through a long question."),
    ("Ctrl-T", "Show or hide the task board."),
    ("Shift-Tab", "Switch to the next permission mode."),
    ("Ctrl-X Ctrl-E", "Write the line in your editor."),
    ("Ctrl-Z", "Suspend; `fg` in the shell comes back."),
)
EXAMPLES = (
    ("", "why does test_login fail? fix it"),
    ("", "hire bob as reviewer, fix the parser, let bob review it"),
    ("", "@bob look at the tests, too"),
)
NOTES = (
    "Mail between agents is in .team/inbox/NAME.jsonl, one message a line; any program may read it or append to it.",
    "/help COMMAND shows more about one command.",
)


def help_table(commands: Iterable[SlashCommand], problems: Iterable[str], roles: Sequence[Role] = ()) -> Table:
    sections: dict[str, list[tuple[str, str]]] = {group: [] for group in Group}
    sections[Group.TALK] += TALK
    for each in commands:
        sections[each.group].append((each.heading, each.help))
    sections["Roles of agents"] = _role_rows(roles)
    sections |= {"Keys": list(KEYS), "Examples": list(EXAMPLES)}
    rows: list[tuple[str | Cell, ...]] = []
    for title, entries in sections.items():
        rows += [(Cell(title, "dim"), ""), *((f"  {left}", right) for left, right in entries)] if entries else []
    return Table(INTRODUCTION, COLUMNS, tuple(rows), (*problems, *NOTES))


def _role_rows(roles: Sequence[Role]) -> list[tuple[str, str]]:
    rows = [
        (one_line(role.name, _LENGTH), one_line(role.description, _DESCRIPTION_LENGTH)) for role in roles[:MOST_ROLES]
    ]
    more = [one_line(role.name, _LENGTH) for role in roles[MOST_ROLES:]]
    return [*rows, (f"{len(more)} more", ", ".join(more))] if more else rows


def help_text(command: SlashCommand) -> str:
    """The details of one command."""
    others = f"Also: {', '.join(f'/{alias}' for alias in command.aliases)}" if command.aliases else ""
    return "\n".join(filter(None, (command.heading, command.help, command.details, others)))
