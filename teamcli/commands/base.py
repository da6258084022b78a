"""The shape of a slash command, and of what it shows: data that a terminal sets as it likes, and a pipe as text."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple, TypeAlias

from teamcli.cancel import CancelScope
from teamcli.session.session import Session
from teamcli.text.escaping import escape_controls
from teamcli.text.table import Cell as Cell
from teamcli.text.table import Column as Column
from teamcli.text.table import Table as Table


class Leave(Exception):
    """Raised by a command that ends the REPL."""


class Option(NamedTuple):
    value: str
    label: str
    """What it is, in a few words; may be empty."""
    is_current: bool = False


class Choice(NamedTuple):
    """One of several: the user names a number or a value, and `choose` does it."""

    title: str
    options: tuple[Option, ...]
    choose: Callable[[str], Shown]
    """Takes a value; returns what to show. Raises TeamcliError."""

    def to_text(self) -> str:
        width = max((len(option.value) for option in self.options), default=0)
        lines = (f"{'*' if o.is_current else ' '} {o.value:<{width}}  {o.label}".rstrip() for o in self.options)
        return escape_controls("\n".join([self.title, *lines]))


class Expand(NamedTuple):
    """Show what was folded away."""

    which: int
    """Counted from the newest, which is 1."""


class Verbosity(NamedTuple):
    """Show everything, or fold again."""

    on: bool | None
    """None: the other of the two."""


class Diff(NamedTuple):
    """A unified diff."""

    text: str
    title: str


class Prompt(NamedTuple):
    """To be submitted to the lead as the user's line."""

    text: str


class Job(NamedTuple):
    """What takes its time: whoever runs the command watches it, and ends it by its scope when the user wants so."""

    run: Callable[[CancelScope], Now]
    """Returns what to show. Raises Cancelled."""
    announcement: str
    """What to show before; may be empty."""


Now: TypeAlias = str | Table | Choice | Expand | Verbosity | Diff | Prompt
"""What needs no waiting."""
Shown: TypeAlias = Now | Job


def plain(shown: Now) -> str:
    """The same as text without colours, for a pipe; nothing in it drives a terminal."""
    match shown:
        case str():
            return escape_controls(shown)
        case Table() | Choice():
            return shown.to_text()
        case Expand():
            return "Nothing is folded here: /expand is for the terminal."
        case Verbosity():
            return "What is shown here stays as it is: /verbose is for the terminal."
        case Diff():
            return escape_controls("\n".join(filter(None, (shown.title, shown.text.rstrip("\n")))))
        case Prompt():
            return escape_controls(shown.text)


class Kind(StrEnum):
    """What stands at a place among a command's arguments, for completion."""

    TEAMMATE = "teammate"
    AGENT = "agent"
    """A teammate or the lead."""
    ANYBODY = "anybody"
    """Those, or a sub-agent that has not ended."""
    SUBAGENT = "sub-agent"
    MODEL = "model"
    MODE = "mode"
    SESSION = "session"
    COMMAND = "command"
    BUDGET = "budget"
    """An agent, the team or the session."""
    AMOUNT = "amount"
    """How much a budget allows."""
    PLAN = "plan"
    """The id of a plan that waits."""
    TEXT = "text"
    """Anything, to the end of the line."""


class Group(StrEnum):
    """The parts of the help, in its order."""

    TALK = "Talk"
    TEAM = "Team"
    SESSION = "Session"
    LOOK = "Look"
    CUSTOM = "Your own"
    SKILLS = "Skills"


class Command(NamedTuple):
    name: str
    usage: str
    """Its arguments, as help shows them."""
    help: str
    run: Callable[[Session, str], Shown]
    """Takes what stands behind the name; returns what to show. Raises TeamcliError for what the user can mend."""
    aliases: tuple[str, ...] = ()
    arguments: tuple[Kind, ...] = ()
    """What stands at each place; nothing is known of places beyond."""
    group: Group = Group.SESSION
    details: str = ""
    """More than the one line, for `/help NAME`."""


def command(
    name: str,
    usage: str = "",
    aliases: tuple[str, ...] = (),
    arguments: tuple[Kind, ...] = (),
    group: Group = Group.SESSION,
) -> Callable[[Callable[[Session, str], Shown]], Command]:
    """Turn a function into a Command value; its docstring is the help, the first paragraph in the list and the rest for
    `/help NAME`. Listing it in the catalogue registers it."""

    def wrap(function: Callable[[Session, str], Shown]) -> Command:
        first, _, rest = (function.__doc__ or "").strip().partition("\n\n")
        details = "\n".join(line.strip() for line in rest.splitlines())
        return Command(name, usage, " ".join(first.split()), function, aliases, arguments, group, details)

    return wrap
