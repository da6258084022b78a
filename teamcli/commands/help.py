"""What `/help` teaches: everything that can be typed or pressed, and more of one command."""

from __future__ import annotations

from collections.abc import Iterable

from teamcli.commands.base import Cell, Column, Command, Group, Table

INTRODUCTION = "Type a task and press Enter: the lead works on it, alone or with teammates that it hires."
COLUMNS = (Column("", "name"), Column("", shrinks=True))
WORDS = {
    Group.TALK: (
        ("TEXT", "A task for the lead, or, while it works, a word to it."),
        ("@NAME TEXT", "A word to a teammate."),
        ("@PATH", "Names a file, anywhere in a task."),
        ("!COMMAND", "Run a shell command yourself."),
        ("#TEXT", "Add a line to the project's instructions."),
    ),
}
KEYS = (
    ("Enter", "Send the line."),
    ("Alt-Enter, Ctrl-J", "A new line within it."),
    ("Esc, Ctrl-C", "Interrupt the lead; Ctrl-C also clears the line."),
    ("Ctrl-C twice", "At an empty prompt: leave."),
    ("Up", "Take back what the lead has not read, or typed before."),
    ("Ctrl-R", "Search what was typed before."),
    ("Ctrl-O", "Show the whole of what was folded last."),
    ("Shift-Tab", "The next permission mode."),
    ("Ctrl-X Ctrl-E", "Write the line in your editor."),
    ("Ctrl-Z", "Suspend; `fg` in the shell comes back."),
)
EXAMPLES = (
    ("", "why does test_login fail? mend it"),
    ("", "hire bob as reviewer, mend the parser, let bob look"),
    ("", "@bob look at the tests, too"),
)
NOTES = (
    "Mail between agents lies in .team/inbox/NAME.jsonl, one message a line; any program may read it or append to it.",
    "/help COMMAND tells more of one command.",
)

Row = tuple[str | Cell, ...]


def help_table(commands: Iterable[Command], problems: Iterable[str]) -> Table:
    """All of it, in groups."""
    listed = tuple(commands)
    rows: list[Row] = []
    for group in Group:
        inside = [*WORDS.get(group, ()), *((heading(each), each.help) for each in listed if each.group is group)]
        rows += _section(group, inside)
    return Table(
        INTRODUCTION, COLUMNS, (*rows, *_section("Keys", KEYS), *_section("Examples", EXAMPLES)), (*problems, *NOTES)
    )


def help_text(command: Command) -> str:
    """One command, with all that is to be said of it."""
    others = f"Also: {', '.join(f'/{alias}' for alias in command.aliases)}" if command.aliases else ""
    return "\n".join(filter(None, (heading(command), command.help, command.details, others)))


def heading(command: Command) -> str:
    return f"/{command.name} {command.usage}".rstrip()


def _section(title: str, inside: Iterable[tuple[str, str]]) -> list[Row]:
    rows: list[Row] = [(f"  {left}", right) for left, right in inside]
    return [(Cell(title, "dim"), ""), *rows] if rows else []
