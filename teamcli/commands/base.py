"""What a slash command is, and what it returns: data that a terminal renders in color and a pipe as plain text."""

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
    """A short description; may be empty."""
    is_current: bool = False


class Choice(NamedTuple):
    """A list to choose from. The user answers with a number or a value, which goes to `choose`."""

    title: str
    options: tuple[Option, ...]
    choose: Callable[[str], CommandResult]
    """Takes a value and returns what to show. Raises TeamcliError."""

    def to_text(self) -> str:
        width = max((len(option.value) for option in self.options), default=0)
        lines = (f"{'*' if o.is_current else ' '} {o.value:<{width}}  {o.label}".rstrip() for o in self.options)
        return escape_controls("\n".join([self.title, *lines]))


class Expand(NamedTuple):
    """Show folded text in full."""

    which: int = 0
    """Counted from the newest, which is 1; 0 for the call or message that was shown last."""


class Verbosity(NamedTuple):
    on: bool | None
    """None toggles it."""


class Watch(NamedTuple):
    """Turn the screen to an agent."""

    name: str


class Diff(NamedTuple):
    """A unified diff."""

    text: str
    title: str


class Prompt(NamedTuple):
    """Text to submit to the lead as if the user had typed it."""

    text: str


class Job(NamedTuple):
    """Work that takes time. The REPL runs it in the background and cancels its scope if the user interrupts."""

    run: Callable[[CancelScope], CommandOutput]
    """Returns what to show. Raises Cancelled."""
    announcement: str
    """Shown before it starts; may be empty."""


CommandOutput: TypeAlias = str | Table | Choice | Expand | Verbosity | Watch | Diff | Prompt
"""What can be shown right away."""
CommandResult: TypeAlias = CommandOutput | Job


def plain(output: CommandOutput) -> str:
    """The output as plain text for a pipe, with control characters escaped."""
    match output:
        case str():
            return escape_controls(output)
        case Table() | Choice():
            return output.to_text()
        case Expand():
            return "Nothing is folded here. /expand works at a terminal."
        case Verbosity():
            return "/verbose works at a terminal."
        case Watch():
            return f"/watch works at a live prompt. In another terminal: teamcli watch {output.name}"
        case Diff():
            return escape_controls("\n".join(filter(None, (output.title, output.text.rstrip("\n")))))
        case Prompt():
            return escape_controls(output.text)


class ArgumentKind(StrEnum):
    """What a command expects as an argument. Completion offers the values of `arguments.candidates`."""

    TEAMMATE = "teammate"
    AGENT = "agent"
    """A teammate or the lead."""
    ANY_AGENT = "any agent"
    """A teammate, the lead, or a running sub-agent."""
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
    """The id of a plan that waits for a review."""
    TEAM_VERB = "team verb"
    """What `/team` can do with the team."""
    TASK_VERB = "task verb"
    """What `/tasks` does, or the number of a task."""
    TASK = "task"
    """The number of an open task."""
    JOB_VERB = "job verb"
    """`stop`, or the id of a job."""
    JOB = "job"
    """The id of a running job, or all of them."""
    MCP_VERB = "MCP verb"
    """What `/mcp` does, or the name of a server."""
    MCP_SERVER = "MCP server"
    SWITCH = "switch"
    """`on` or `off`."""
    TEXT = "text"
    """Free text to the end of the line."""


class Group(StrEnum):
    """The sections of `/help`, in order."""

    TALK = "Talk"
    TEAM = "Team"
    SESSION = "Session"
    REPORTS = "Reports"
    CUSTOM = "Your own"
    SKILLS = "Skills"
    MCP = "Prompts of MCP servers"


class SlashCommand(NamedTuple):
    name: str
    usage: str
    """Its arguments, as help shows them."""
    help: str
    run: Callable[[Session, str], CommandResult]
    """Takes the text after the name and returns what to show. Raises TeamcliError for mistakes the user can fix."""
    aliases: tuple[str, ...] = ()
    arguments: tuple[ArgumentKind, ...] = ()
    """The kind of each argument, in order; completion offers nothing after the last."""
    group: Group = Group.SESSION
    details: str = ""
    """More help, for `/help NAME`."""

    @property
    def heading(self) -> str:
        return f"/{self.name} {self.usage}".rstrip()

    @property
    def needs_arguments(self) -> bool:
        """Whether it does nothing useful without arguments; those in brackets are optional."""
        return bool(self.usage) and not self.usage.startswith("[")


def command(
    name: str,
    usage: str = "",
    aliases: tuple[str, ...] = (),
    arguments: tuple[ArgumentKind, ...] = (),
    group: Group = Group.SESSION,
) -> Callable[[Callable[[Session, str], CommandResult]], SlashCommand]:
    """Turn a function into a SlashCommand. Its docstring is the help: the first paragraph for the list, the rest for
    `/help NAME`. Add the command to `COMMANDS` in `catalog.py` to register it."""

    def wrap(function: Callable[[Session, str], CommandResult]) -> SlashCommand:
        first, _, rest = (function.__doc__ or "").strip().partition("\n\n")
        # The docstring is indented like the code around it, the help is not.
        details = "\n".join(line.strip() for line in rest.splitlines())
        return SlashCommand(name, usage, " ".join(first.split()), function, aliases, arguments, group, details)

    return wrap
