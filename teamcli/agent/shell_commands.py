"""All that a command line would run: its own commands, and those that they start (`env`, `xargs`, `bash -c`, …)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from functools import lru_cache

from teamcli.agent.command_runners import joined, runs_of, runs_of_variable
from teamcli.agent.runs import Guess, Line, Run, Runs, Unknown
from teamcli.agent.shell_words import ANYTHING, Script, SimpleCommand, Word, guess_commands, names, parse_line

_MAX_DEPTH = 8
_MOST_GUESSES = 500
_GUESS_DEPTH = 4
"""Guesses multiply, so that only two are made one within the other."""
_PRINTING = names("echo printf cat")
_DECLARING = names("declare typeset local export readonly")
_NAME_VALUE = re.compile(r"([A-Za-z_]\w*)=(.*)", re.ASCII | re.DOTALL)
_VARIABLE = re.compile(r"\$(?:([A-Za-z_]\w*)|\{([A-Za-z_]\w*)\})", re.ASCII)
_BRACES = re.compile(r"([^\s{}'\"$`\\]*)\{([^\s{}'\"$`\\]*)\}([^\s{}'\"$`\\]*)")


@lru_cache(maxsize=64)
def read_commands(text: str) -> Script:
    """Every simple command that `text` would run, as far as that can be known. Never raises."""
    return _read(text, 0)


def program_name(command: SimpleCommand) -> str:
    """The name without its directory: `/usr/bin/sudo` is `sudo`."""
    return command.words[0].value.rsplit("/", 1)[-1] if command.words else ""


def _read(text: str, depth: int) -> Script:
    script = parse_line(text)
    found = _Found(list(script.commands), script.problem, script.has_fork_bomb, list(script.guesses))
    if depth > _MAX_DEPTH:
        found.object_to("it nests too many shells", is_anything=True)
    else:
        _look_into(found, script, depth)
    return Script(tuple(found.commands), found.problem, found.has_fork_bomb, (), tuple(found.guesses))


def _look_into(found: _Found, script: Script, depth: int) -> None:
    for command in script.commands:
        found.add_inner(command, depth + 1)
        found.note_assignments(command.assignments, depth + 1)
    if found.reads_input:
        found.add_input(script, depth + 1)
    if found.evaluates and any(map(_hides_commands, script.commands)):
        found.guesses.append(ANYTHING)
    values = _assigned(script.commands)
    for command in script.commands:
        for expanded in _expansions(command, values):
            found.guess(expanded, depth + 1)
    for guess in script.guesses:
        if guess.words and guess is not ANYTHING:
            found.guess_inner(guess, depth + 1)


@dataclass
class _Found:
    commands: list[SimpleCommand]
    problem: str = ""
    has_fork_bomb: bool = False
    guesses: list[SimpleCommand] = field(default_factory=list)
    reads_input: bool = False
    evaluates: bool = False

    def object_to(self, why: str, is_anything: bool) -> None:
        """Note why the line cannot be judged."""
        self.problem = self.problem or why
        if is_anything:
            self.guesses.append(ANYTHING)

    def add_input(self, script: Script, depth: int) -> None:
        """A shell that reads commands may be given what stands in the line itself."""
        printed = [joined(command.words[1:]) for command in script.commands if program_name(command) in _PRINTING]
        for line in (*script.inputs, *printed):
            self._add_line(line, "the shell", depth)

    def note_assignments(self, assignments: tuple[Word, ...], depth: int) -> None:
        for assignment in assignments:
            for run in runs_of_variable(assignment):
                self._add(run, "the shell", depth)

    def add_inner(self, command: SimpleCommand, depth: int) -> None:
        for run in runs_of(program_name(command), command.words) if command.words else ():
            self._add(run, program_name(command), depth)

    def guess(self, command: SimpleCommand, depth: int) -> None:
        if len(self.guesses) < _MOST_GUESSES:
            self.guesses.append(command)
            self.guess_inner(command, depth)
        else:  # nobody gets through by making many
            self.object_to("there is too much that it may run", is_anything=True)

    def guess_inner(self, command: SimpleCommand, depth: int) -> None:
        inner = _Found([], guesses=self.guesses)
        if depth <= _MAX_DEPTH:
            inner.add_inner(command, depth + _GUESS_DEPTH)
        elif any(True for _ in runs_of(program_name(command), command.words)):
            self.guesses.append(ANYTHING)
        self.guesses += inner.commands
        self.has_fork_bomb = self.has_fork_bomb or inner.has_fork_bomb

    def _add(self, run: Run, name: str, depth: int) -> None:
        match run:
            case Runs(command):
                if command.words:
                    self._add_command(command, depth)
            case Line(line):
                self._add_line(line, name, depth)
            case Guess(command, line, is_text):
                if command is not None:
                    self.guess(command, depth)
                if line:
                    self._guess_line(line, is_text, depth)
            case Unknown(why, reads_input, anything, text, evaluates):
                self.object_to(why, anything)
                self.reads_input = self.reads_input or reads_input
                self.evaluates = self.evaluates or evaluates
                self.guesses += guess_commands(text)

    def _guess_line(self, line: str, is_text: bool, depth: int) -> None:
        if depth > _MAX_DEPTH or len(self.guesses) >= _MOST_GUESSES:
            self.object_to("there is too much that it may run", is_anything=True)
            return
        script = _read(line, depth + _GUESS_DEPTH)
        self.guesses += (*script.commands, *(each for each in script.guesses if each is not ANYTHING or not is_text))

    def _add_command(self, command: SimpleCommand, depth: int) -> None:
        self.commands.append(command)
        self.note_assignments(command.assignments, depth)
        if not command.words[0].is_static:
            self.problem = self.problem or f"`{command.words[0].source}` is known only when it runs"
        if depth > _MAX_DEPTH:
            self.object_to("it nests too many commands", is_anything=True)
        else:
            self.add_inner(command, depth + 1)

    def _add_line(self, line: Word, name: str, depth: int) -> None:
        script = _read(line.value, depth)
        self.commands += script.commands
        self.guesses += script.guesses
        self.has_fork_bomb = self.has_fork_bomb or script.has_fork_bomb
        self.problem = self.problem or script.problem
        if not line.is_static:
            self.object_to(f"what `{name}` runs is known only when it runs", is_anything=True)


def _hides_commands(command: SimpleCommand) -> bool:
    """A word holds, as text, what would run where that text is evaluated."""
    return any(map(_hides_command, (*command.words, *command.assignments)))


def _hides_command(word: Word) -> bool:
    if word.is_static:
        return "$(" in word.value or "`" in word.value
    return re.search(r"'[^']*(?:\$\(|`)|\\[$`]", word.source) is not None


def _assigned(commands: tuple[SimpleCommand, ...]) -> dict[str, str]:
    """What the line itself gives to variables, where that is plain to see."""
    values = {}
    for command in commands:
        declared = command.words[1:] if program_name(command) in _DECLARING else ()
        for word in (*command.assignments, *declared):
            found = _NAME_VALUE.fullmatch(word.value) if word.is_static else None
            if found:
                values[found[1]] = found[2]
    return values


def _expansions(command: SimpleCommand, values: dict[str, str]) -> list[SimpleCommand]:
    """What the command becomes with these values, or with its braces expanded: `X=su; ${X}do`, `{rm,-rf,/}`."""
    if all(word.is_static for word in command.words):
        return []
    words = tuple(expanded for word in command.words for expanded in _expanded(word, values))
    return [SimpleCommand(words, command.assignments)] if words and words != command.words else []


def _expanded(word: Word, values: dict[str, str]) -> list[Word]:
    if word.is_static:
        return [word]
    braces = _BRACES.fullmatch(word.source) if "," in word.source else None
    if braces:
        return [Word(f"{braces[1]}{part}{braces[3]}") for part in braces[2].split(",")]
    text = _VARIABLE.sub(lambda found: values.get(found[1] or found[2], found[0]), word.value)
    if text == word.value:
        return [word]
    is_static = not re.search(r"[$`*?\[~{]", text)
    parts = [text] if word.source.startswith('"') else text.split()
    return [Word(part, "" if is_static else part) for part in parts]
