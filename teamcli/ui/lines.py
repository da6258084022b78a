"""What a line means that the user types, at a terminal or in a pipe: a task, a command, a word to a teammate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Protocol

from teamcli.agent.mentions import mentioned_paths
from teamcli.cancel import CancelScope
from teamcli.commands.base import CommandResult, Job, Leave, Prompt
from teamcli.commands.catalog import run_command
from teamcli.session.session import Session
from teamcli.team.message import find_name

QUIT_WORDS = ("q", "exit", "quit")


class OutputStream(Protocol):
    """Of one command: several may run at once."""

    def add(self, text: str) -> None: ...

    def finish(self) -> None: ...


class Repl(ABC):
    """Serves one line after the other; how tasks and jobs run, and how things are shown, is the subclass's."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @abstractmethod
    def show(self, shown: CommandResult) -> None:
        """Show what a command returns, and run what is a job."""

    @abstractmethod
    def task(self, text: str) -> None:
        """Hand a line to the lead."""

    @abstractmethod
    def run_job(self, run: Callable[[CancelScope], CommandResult]) -> None:
        """Run what takes its time, and show what it returns."""

    @abstractmethod
    def output_stream(self) -> OutputStream:
        """What shows what a command of the user's own prints, part by part."""

    @abstractmethod
    def echo(self, line: str) -> None:
        """Show a line that is no task, where what was typed does not stay on the screen by itself."""

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
        elif text.startswith("#") and "\n" not in text:  # more than a line is a text that was pasted, with a heading
            self.echo(text)
            self._instruct(text.lstrip("#").strip())
        else:
            self.task(text)

    def _run(self, shown: CommandResult) -> None:
        if isinstance(shown, Prompt):
            self.task(shown.text)
        elif isinstance(shown, Job):
            if shown.announcement:
                self.show(shown.announcement)
            self.run_job(shown.run)
        else:
            self.show(shown)

    def _shell(self, command: str) -> None:
        """`!command`: the user's own, so nothing is asked."""
        stream = self.output_stream()

        def run(scope: CancelScope) -> CommandResult:
            try:
                return self._session.run_shell(command, scope, stream.add)
            finally:
                stream.finish()

        self.run_job(run)

    def _instruct(self, line: str) -> None:
        """`#line`: for the project's instructions."""
        self.show(self._session.add_instruction(line) if line else "What should stand in the project's instructions?")

    def _talk(self, text: str) -> bool:
        """`@alice text` goes to alice; what begins with another @word is a task like any other, with a hint."""
        name, _, words = text[1:].partition(" ")
        names = self._session.team.names()
        if (subagents := self._session.subagents) and subagents.owns(name) and words.strip():
            self.echo(text)
            self.show(subagents.send(name, words.strip()))
            return True
        if find_name(name, names):
            self.echo(text)
            self.show(self._session.say(name, words.strip()) if words.strip() else f"What should {name} hear?")
            return True
        if not mentioned_paths(text, self._session.workspace):
            who = ", ".join(names) or "nobody yet"
            self.show(f"There is no teammate or file '{name}' (teammates: {who}); taken as a task for the lead.")
        return False
