"""What Tab offers: slash commands and their arguments, and teammates and files after `@`.

Finding files may take a moment: use it in a prompt with `complete_in_thread`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from teamcli.commands.arguments import candidates, running_subagents
from teamcli.commands.base import ArgumentKind, Option, SlashCommand
from teamcli.commands.catalog import all_commands
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


def session_completer(session: Session) -> LineCompleter:
    def teammates() -> list[Option]:
        members = session.team.roster.members()
        options = [Option(member.name, f"{member.role}, {member.status}") for member in members]
        return [*options, *running_subagents(session)]

    return LineCompleter(
        lambda: all_commands(session), teammates, lambda kind: candidates(session, kind), session.workspace.root
    )


class LineCompleter(Completer):
    def __init__(
        self,
        commands: Callable[[], Sequence[SlashCommand]],
        teammates: Callable[[], Sequence[Option]],
        values: Callable[[ArgumentKind], Sequence[Option]],
        root: Path,
    ) -> None:
        """The callables are called at each key. `values` lists what a command's argument can be."""
        self._commands = commands
        self._teammates = teammates
        self._values = values
        self._files = FileIndex(root)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        text = document.text_before_cursor
        if not may_be_completed(text):
            return
        mention = _MENTION.search(text)
        yield from islice(self._mentions(mention) if mention else self._command_line(text), MOST_SHOWN)

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
            if any(each.startswith(name.casefold()) for each in (command.name, *command.aliases)):
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


def _matching(typed: str, options: Sequence[Option]) -> list[Option]:
    """The options that start with what is typed, then those that contain it."""
    wanted = typed.casefold()
    found = [option for option in options if wanted in option.value.casefold() and can_be_typed(option.value)]
    return sorted(found, key=lambda option: not option.value.casefold().startswith(wanted))


def _completion(text: str, typed: int, display: str, meta: str) -> Completion:
    return Completion(text, -typed, display=one_line(display), display_meta=one_line(meta))
