"""What Tab offers and what Enter completes: slash commands and their arguments, and teammates and files after `@`.

Finding files may take a moment: use it in a prompt with `complete_in_thread`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from teamcli.agent.mentions import unknown_mentions
from teamcli.commands.arguments import candidates, running_subagents
from teamcli.commands.base import ArgumentKind, Option, SlashCommand
from teamcli.commands.catalog import all_commands
from teamcli.commands.mcp import resource_options
from teamcli.session.session import Session
from teamcli.text.escaping import one_line
from teamcli.ui.terminal.file_index import FileIndex, can_be_typed

MOST_SHOWN = 12

_MENTION = re.compile(r"""(?<![^\s(\[{<'",;:])@(?:"(?P<quoted>[^"\n]*)|(?P<bare>[^\s"'`<>]*))\Z""")
_NEEDS_QUOTES = re.compile(r"[\s'`<>]")


def may_be_completed(text: str) -> bool:
    """Whether the end of the text is something that can have completions. Does not look for any."""
    if text.startswith("!"):
        return False
    return _MENTION.search(text) is not None or (text.startswith("/") and "\n" not in text)


class CompletedLine(NamedTuple):
    text: str
    can_be_sent: bool
    """False if the user should see it first, or has to add something."""


def session_completer(session: Session) -> LineCompleter:
    def teammates() -> list[Option]:
        members = session.team.roster.members()
        options = [Option(member.name, f"{member.role}, {member.status}") for member in members]
        return [*options, *running_subagents(session), *resource_options(session)]

    def unknown(text: str) -> Sequence[str]:
        names = {option.value.casefold() for option in teammates()}
        return unknown_mentions(text, session.workspace, names, session.is_resource)

    return LineCompleter(
        lambda: all_commands(session),
        teammates,
        lambda kind: candidates(session, kind),
        unknown,
        session.workspace.root,
    )


class LineCompleter(Completer):
    def __init__(
        self,
        commands: Callable[[], Sequence[SlashCommand]],
        teammates: Callable[[], Sequence[Option]],
        values: Callable[[ArgumentKind], Sequence[Option]],
        unknown: Callable[[str], Sequence[str]],
        root: Path,
    ) -> None:
        """The callables are called at each key. `values` lists what a command's argument can be, `unknown` the words
        after `@` in a text that name nothing."""
        self._commands = commands
        self._teammates = teammates
        self._values = values
        self._unknown = unknown
        self._files = FileIndex(root)
        self._dead_end = ""
        """The last text that ends in a mention without completions."""
        self._hint = ("", "")
        """The last text that `hint` was asked about, and its answer."""

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        if not may_be_completed(text):
            return
        mention = _MENTION.search(text)
        found = list(islice(self._mentions(mention) if mention else self._command_line(text), MOST_SHOWN))
        if mention and not found:
            self._dead_end = text
        yield from found

    def only(self, text: str) -> CompletedLine | None:
        """The line with the command or the mention at its end completed, if that is unfinished and there is only one
        way to complete it."""
        if mention := _MENTION.search(text):
            unfinished = text[mention.start() :]
            found = list(islice(self._mentions(mention), 2)) if self._unknown(unfinished) else []
            if len(found) != 1 or not self._files.is_complete:
                return None
            line = text[: mention.start()] + found[0].text
            return CompletedLine(line, can_be_sent=False) if line != text else None  # the file has just disappeared
        if not text.startswith("/") or len(text) < 2 or re.search(r"\s", text):
            return None
        commands = [each for each in self._commands() if _begins(each, text[1:])]
        if len(commands) != 1 or text[1:] in (commands[0].name, *commands[0].aliases):
            return None
        needs_more = commands[0].needs_arguments
        return CompletedLine(f"/{commands[0].name}" + " " * needs_more, not needs_more)

    def hint(self, text: str) -> str:
        """Which mentions in a half-typed line name nothing; usually empty. The one that is being typed counts only once
        it cannot be completed."""
        is_typing = text != self._dead_end and (mention := _MENTION.search(text))
        finished = text[: mention.start()] if is_typing and mention else text
        if finished != self._hint[0]:
            words = ", ".join(f"@{one_line(word, 40)}" for word in self._unknown(finished))
            self._hint = (finished, f"{words}: no such file or teammate" if words else "")
        return self._hint[1]

    def _mentions(self, mention: re.Match[str]) -> Iterator[Completion]:
        fragment = mention["quoted"] or mention["bare"] or ""
        is_quoted, typed = mention["quoted"] is not None, len(mention[0])
        for option in () if is_quoted else _matching(fragment, self._teammates()):
            yield _completion(f"@{option.value}", typed, f"@{option.value}", option.label)
        for path in self._files.find(fragment, MOST_SHOWN):
            text = f"@{path}"
            if is_quoted or _NEEDS_QUOTES.search(path):
                # A directory stays open, so that the user can continue inside the quotes.
                text = f'@"{path}' if path.endswith("/") else f'@"{path}"'
            yield _completion(text, typed, path, "")

    def _command_line(self, text: str) -> Iterator[Completion]:
        name, *arguments = text[1:].split(" ")
        if arguments:
            yield from self._arguments(name, arguments)
            return
        for command in self._commands():
            if _begins(command, name):
                space = " " if command.arguments else ""
                yield _completion(f"/{command.name}{space}", len(text), command.heading, command.help)

    def _arguments(self, name: str, arguments: Sequence[str]) -> Iterator[Completion]:
        command = next((each for each in self._commands() if name in (each.name, *each.aliases)), None)
        *before, typed = arguments
        position = len([argument for argument in before if argument])
        if command is None or position >= len(command.arguments):
            return
        for option in _matching(typed, self._values(command.arguments[position])):
            yield _completion(option.value, len(typed), option.value, option.label)


def _begins(command: SlashCommand, typed: str) -> bool:
    return any(name.startswith(typed.casefold()) for name in (command.name, *command.aliases))


def _matching(typed: str, options: Sequence[Option]) -> list[Option]:
    """The options that start with what is typed, then those that contain it."""
    wanted = typed.casefold()
    found = [option for option in options if wanted in option.value.casefold() and can_be_typed(option.value)]
    return sorted(found, key=lambda option: not option.value.casefold().startswith(wanted))


def _completion(text: str, typed: int, display: str, meta: str) -> Completion:
    return Completion(text, -typed, display=one_line(display), display_meta=one_line(meta))
