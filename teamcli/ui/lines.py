"""What a typed line means, at a terminal or in a pipe: a task, a command, or a message to a teammate."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from teamcli.agent.mentions import unknown_mentions
from teamcli.cancel import CancelScope
from teamcli.commands.base import CommandResult, Job, Leave, Prompt
from teamcli.commands.catalog import run_command
from teamcli.errors import UsageError
from teamcli.session.session import Session
from teamcli.team.message import LEAD, find_name
from teamcli.ui.interactive import needs_terminal

QUIT_WORDS = ("q", "exit", "quit")


def is_farewell(line: str) -> bool:
    """Whether a typed line leaves the program."""
    return line.strip() in (*QUIT_WORDS, *(f"/{word}" for word in QUIT_WORDS))


class OutputStream(Protocol):
    """The output of one shell command; several may run at once."""

    def add(self, text: str) -> None: ...

    def finish(self) -> None: ...


class Repl(ABC):
    """Serves one line after another. Subclasses decide how tasks and jobs run, and how results are shown."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.addressee = LEAD
        """Who gets the line that is being served, if it is not a command."""

    @abstractmethod
    def show(self, result: CommandResult) -> None:
        """Show a command's output, and run it if it is a job."""

    @abstractmethod
    def task(self, text: str) -> None:
        """Hand a line to the lead."""

    @abstractmethod
    def run_job(self, run: Callable[[CancelScope], CommandResult]) -> None:
        """Run something that takes time, and show its result."""

    @abstractmethod
    def output_stream(self) -> OutputStream:
        """Where the output of one shell command goes."""

    @abstractmethod
    def echo(self, line: str) -> None:
        """Show a line that is not a task, if the typed line does not stay on the screen."""

    def serve(self, line: str) -> None:
        """Raises: Leave, TeamcliError."""
        text = line.strip()
        if text in QUIT_WORDS:
            raise Leave
        if not text or (text.startswith("@") and self._talk(text)):
            return
        if text.startswith("/"):
            self.echo(text)
            self._run(run_command(self._session, text))
        elif text.startswith("!"):
            self.echo(text)
            self._shell(text[1:].strip())
        elif text.startswith("#") and "\n" not in text:  # several lines are pasted text with a heading
            self.echo(text)
            instruction = text.lstrip("#").strip()
            self.show(self._session.add_instruction(instruction) if instruction else "Usage: #TEXT")
        else:
            self.plain_line(text)

    def plain_line(self, text: str) -> None:
        """A line that is not a command: a task for the lead, unless the user talks to someone else."""
        self.task(text)

    def _run(self, result: CommandResult) -> None:
        if isinstance(result, Prompt):
            self.task(result.text)
        elif isinstance(result, Job):
            if result.announcement:
                self.show(result.announcement)
            self.run_job(result.run)
        else:
            self.show(result)

    def _shell(self, command: str) -> None:
        """`!command` is the user's own, so no permission is asked."""
        if program := needs_terminal(command):
            self.run_at_terminal(command, program)
            return
        stream = self.output_stream()

        def run(scope: CancelScope) -> CommandResult:
            try:
                ending = self._session.command_hosts.shell.run(command, scope, stream.add)
            finally:
                stream.finish()
            return "\n".join(filter(None, (ending, self.tip_about_sharing())))

        self.run_job(run)

    def run_at_terminal(self, command: str, program: str) -> None:
        """Run a command that needs the whole terminal; raises UsageError if there is none to give."""
        raise UsageError(f"{program} needs a terminal of its own; run it in another window")

    def tip_about_sharing(self) -> str:
        """Shown after a command; empty if the user knows, or if nobody reads it."""
        return ""

    def _talk(self, text: str) -> bool:
        """Send `@alice text` to alice. Returns False for any other @word: the line is a task, shown with a hint."""
        name, words = [*re.split(r"\s+", text[1:], maxsplit=1), ""][:2]
        names = self._session.team.names()
        if (subagents := self._session.subagents) and subagents.owns(name) and words:
            self.echo(text)
            self.show(subagents.send(name, words))
            return True
        if find_name(name, names):
            self.echo(text)
            self.show(self._session.say(name, words) if words else f"Usage: @{name} TEXT")
            return True
        known, is_resource = [each.casefold() for each in names], self._session.is_resource
        unknown = unknown_mentions(text, self._session.workspace, known, is_resource)
        if unknown and text[1:].startswith((unknown[0], f'"{unknown[0]}')):
            who = ", ".join(names) or "none yet"
            to = "the lead as a task" if self.addressee == LEAD else self.addressee
            self.show(f"There is no teammate or file '{unknown[0]}' (teammates: {who}). Sent to {to}.")
        return False
