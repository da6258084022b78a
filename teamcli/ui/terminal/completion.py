"""What Tab offers: slash commands and their arguments, and after `@` teammates and files, wherever it stands.

Looking for files may take a moment: give it to a prompt with `complete_in_thread`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path

from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document

from teamcli.commands.base import ArgumentKind, SlashCommand
from teamcli.text.escaping import one_line
from teamcli.ui.terminal.file_index import FileIndex, can_be_typed

MOST_SHOWN = 12

_MENTION = re.compile(r"""(?<![^\s(\[{<'",;:])@(?:"(?P<quoted>[^"\n]*)|(?P<bare>[^\s"'`<>]*))\Z""")
_NEEDS_QUOTES = re.compile(r"[\s'`<>]")

Offer = tuple[str, str]
"""What would be typed, and what it is."""


def may_be_completed(text: str) -> bool:
    """Whether there is something to offer behind this text, as far as can be told without looking."""
    if text.startswith("!"):
        return False
    return _MENTION.search(text) is not None or (text.startswith("/") and "\n" not in text)


class LineCompleter(Completer):
    def __init__(
        self,
        commands: Callable[[], Sequence[SlashCommand]],
        teammates: Callable[[], Sequence[Offer]],
        values: Callable[[ArgumentKind], Sequence[Offer]],
        root: Path,
    ) -> None:
        """All are asked at each keystroke. `teammates` are labelled with what they are and do; `values` gives what can
        stand at a place among a command's arguments."""
        self._commands = commands
        self._teammates = teammates
        self._values = values
        self._files = FileIndex(root)

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
        yield from islice(self._completions(document.text_before_cursor), MOST_SHOWN)

    def _completions(self, text: str) -> Iterator[Completion]:
        if not may_be_completed(text):
            return
        if mention := _MENTION.search(text):
            yield from self._mentions(mention)
        else:
            yield from self._command_line(text)

    def _mentions(self, mention: re.Match[str]) -> Iterator[Completion]:
        fragment = mention["quoted"] or mention["bare"] or ""
        typed = len(mention[0])
        if mention["quoted"] is None:
            for name, label in _holding(fragment, self._teammates()):
                yield _completion(f"@{name}", typed, f"@{name}", label)
        for path in self._files.find(fragment, MOST_SHOWN):
            yield _completion(_mention_of(path, mention["quoted"] is not None), typed, path, "")

    def _command_line(self, text: str) -> Iterator[Completion]:
        name, *arguments = text[1:].split(" ")
        if arguments:
            yield from self._arguments(name, arguments)
            return
        for command in self._commands():
            if any(each.startswith(name.casefold()) for each in (command.name, *command.aliases)):
                space = " " if command.arguments else ""
                shown = f"/{command.name} {command.usage}".rstrip()
                yield _completion(f"/{command.name}{space}", len(text), shown, command.help)

    def _arguments(self, name: str, arguments: Sequence[str]) -> Iterator[Completion]:
        command = next((each for each in self._commands() if name in (each.name, *each.aliases)), None)
        *before, typed = arguments
        place = len([argument for argument in before if argument])
        if command is None or place >= len(command.arguments):
            return
        for value, label in _holding(typed, self._values(command.arguments[place])):
            yield _completion(value, len(typed), value, label)


def _holding(typed: str, offers: Sequence[Offer]) -> list[Offer]:
    """Those that begin with what is typed, then those that hold it anywhere."""
    wanted = typed.casefold()
    found = [offer for offer in offers if wanted in offer[0].casefold() and can_be_typed(offer[0])]
    return sorted(found, key=lambda offer: not offer[0].casefold().startswith(wanted))


def _completion(text: str, typed: int, display: str, meta: str) -> Completion:
    return Completion(text, -typed, display=one_line(display), display_meta=one_line(meta))


def _mention_of(path: str, is_quoted: bool) -> str:
    if not is_quoted and not _NEEDS_QUOTES.search(path):
        return f"@{path}"
    # Who goes on into a directory types on inside the quotes.
    return f'@"{path}' if path.endswith("/") else f'@"{path}"'
