"""The small part of bash that is understood completely. Rules that allow match nothing else.

A line is a list of simple commands, joined by `&&`, `||`, `;`, `|` or a line break. Words are literal: quotes resolve
without any expansion. Every character that is not known to be harmless is rejected, so there is nothing to foresee.
`tests/permissions/test_against_bash.py` compares what is read here with what bash runs.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple, NoReturn

from teamcli.permissions.shell.scanner import Scanner, names

MAX_LENGTH = 32 * 1024


HARMLESS_VARIABLES = names(
    "CI COLUMNS DEBUG FORCE_COLOR LANG LANGUAGE LC_ALL LINES NODE_ENV NO_COLOR PYTHONDONTWRITEBYTECODE "
    "PYTHONHASHSEED PYTHONUNBUFFERED RUST_BACKTRACE RUST_LOG TZ"
)
"""`NAME=value` may precede a command for these."""

_RESERVED = names(
    "if then else elif fi do done case esac while until for select function in time coproc"
)  # the others are made of characters that no name may contain
_NAME = re.compile(r"[\w./+@-]+", re.ASCII)
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?=)", re.ASCII)
_VALUE = re.compile(r"[\w.,:@+-]*", re.ASCII)
_BLANKS = re.compile(r"(?:[ \t]|(?<=[ \t])\\\n)*")
_BLANKS_AND_LINES = re.compile(r"(?:[ \t\n]|(?<=[ \t\n])\\\n)*")
_PLAIN = re.compile(r"(?:@\{\w+\}|[\w./:=@%+,^-]|(?<=[\w^])~|(?<=[\w./:=@%+,^-])#)+", re.ASCII)
"""A tilde in the middle of a name, as in HEAD~1, is not expanded; nor is a brace without a comma, as in @{u}."""
_SINGLE_QUOTED = re.compile(r"'([^']*)'")
_DOUBLE_QUOTED = re.compile(r'"(?:[^"\\$`]|(?<![^\x00-\x7f])\\[^\n]|\$(?=["| )/]))*"')
"""In some locales a backslash after a byte that is not ASCII is the second half of a character."""
_ESCAPED_IN_QUOTES = re.compile(r'\\([$`"\\])')
_TEXT_FROM_CAT = re.compile(
    r"""\"\$\(cat <<[ ]?(['"])([A-Za-z_]\w*)\1\n((?:(?![ \t]*\2).*\n)*?)\2\n[ \t\n]*\)\"""", re.ASCII
)
"""No line of the text begins with the delimiter: bash 5.2 ends the text at `END)`, and runs what follows."""
_REDIRECTION = re.compile(r"&>>?|[<>]&|>>|>\||<(?![<>])|>")
_JOINT = re.compile(r"&&|\|\||\|(?!&)|;(?![;&])|\n")
_WORD_ENDS = frozenset(" \t\n;|&<>")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")

_WHY_NOT = {
    "$": "it expands `$`: write the value out, or use single quotes",
    "`": "it has back-quotes: run that command by itself first, or use single quotes",
    **dict.fromkeys("*?[", "it has a file name pattern: name the files, or quote it"),
    **dict.fromkeys("{}", "it has braces: write the words out, or quote them"),
    "~": "it has a `~`: write the path out",
    **dict.fromkeys("()", "it has parentheses: make separate calls, or quote them"),
    "&": "it runs in the background: use the parameter background instead",
    "<": "it redirects input: name the file as an argument, or write it with write_file first",
    "#": "it has a comment: leave it out",
    "!": "it has a `!`: quote it, or use `||`",
    "'": "a quote is not closed",
    '"': "a double-quoted text has an expansion, a line that ends in a backslash, or no end: write values out, or use "
    "single quotes",
    "\\": "a backslash breaks a word: join the lines",
}


class Command(NamedTuple):
    words: tuple[str, ...]
    """The name and the arguments, exactly as the program gets them."""
    assignments: tuple[str, ...] = ()
    """`NAME=value` in front."""
    writes: tuple[str, ...] = ()
    """Files that its redirections write."""


class NotUnderstood(Exception):
    """Says what in the line is not understood, and how to write it instead."""


def read_line(text: str) -> tuple[Command, ...]:
    """The commands of a line.

    Raises: NotUnderstood
    """
    found = _read(text)  # a cache cannot hold an exception, so failures are texts there
    if isinstance(found, str):
        raise NotUnderstood(found)
    return found


@lru_cache(maxsize=64)
def _read(text: str) -> tuple[Command, ...] | str:
    """The commands, or why the line is not understood. One decision reads a line several times."""
    if len(text) > MAX_LENGTH:
        return f"it is longer than {MAX_LENGTH:,} characters: make several calls"
    if _UNPRINTABLE.search(text):
        return "it has control characters: leave them out"
    try:
        return _StrictReader(text).line()
    except NotUnderstood as e:
        return str(e)


class _StrictReader(Scanner):
    def line(self) -> tuple[Command, ...]:
        commands: list[Command] = []
        joint = ";"
        # After `&&`, `||` and `|` a command must follow, after `;` and a line break the line may end.
        while self._skip(_BLANKS_AND_LINES) or joint in ("&&", "||", "|") or not commands:
            commands.append(self._command())
            joint = self._take(_JOINT)
            if not joint:
                break
        if self.at < len(self.text):
            self._reject()
        return tuple(commands)

    def _command(self) -> Command:
        words: list[str] = []
        assignments: list[str] = []
        writes: list[str] = []
        while self._skip(_BLANKS) and not _JOINT.match(self.text, self.at):
            start = self.at
            if operator := self._take(_REDIRECTION):
                writes += self._target(operator, descriptor="")
                continue
            word = self._word()
            source = self.text[start : self.at]
            if self._next() in ("<", ">") and source.isdecimal():
                writes += self._target(self._take(_REDIRECTION), descriptor=source)
            elif not words and (assignment := _ASSIGNMENT.match(source)):
                _check_assignment(assignment, word)
                assignments.append(word)
            else:
                words.append(word)
        if not words:
            raise NotUnderstood("it has no command where one is expected: join commands by `&&`, `||`, `;` or `|`")
        if not _NAME.fullmatch(words[0]) or words[0] in _RESERVED:
            raise NotUnderstood(f"`{words[0]}` is not the plain name of a program: use simple commands")
        return Command(tuple(words), tuple(assignments), tuple(writes))

    def _target(self, operator: str, descriptor: str) -> list[str]:
        """The file that a redirection writes, if any."""
        if not operator or len(descriptor) > 1:
            self._reject()
        self._skip(_BLANKS)
        start = self.at
        if start == len(self.text) or self.text[start] in _WORD_ENDS:
            raise NotUnderstood(f"nothing follows `{operator}`: name a file")
        target = self._word()
        if operator in (">&", "<&"):
            if not re.fullmatch("[0-9]", self.text[start : self.at]):
                raise NotUnderstood(f"`{operator}` needs the number of a descriptor: write `&> FILE` for a file")
            return []
        if target == "/dev/null":
            return []
        if operator == "<":
            raise NotUnderstood(_WHY_NOT["<"])
        return [target]

    def _word(self) -> str:
        """A word that begins here. At least one character belongs to it."""
        text, parts, start = self.text, [], self.at
        while self.at < len(text) and (character := text[self.at]) not in _WORD_ENDS:
            if found := _PLAIN.match(text, self.at):
                parts.append(found[0])
            elif character == "'" and (found := _SINGLE_QUOTED.match(text, self.at)):
                parts.append(found[1])
            elif character == '"' and (found := _TEXT_FROM_CAT.match(text, self.at)):
                parts.append(found[3].rstrip("\n"))  # as `$(…)` does
            elif character == '"' and (found := _DOUBLE_QUOTED.match(text, self.at)):
                parts.append(_ESCAPED_IN_QUOTES.sub(r"\1", found[0][1:-1]))
            elif character == "\\" and text[self.at + 1 : self.at + 2] not in ("", "\n"):
                parts.append(text[self.at + 1])
                self.at += 2
                continue
            # An empty brace is not an expansion: `find -exec grep x {} ;`.
            elif text.startswith("{}", self.at) and self.at == start and text[start + 2 : start + 3] in ("", *" \t\n;"):
                parts.append("{}")
                self.at += 2
                continue
            else:
                self._reject()
            self.at = found.end()
        if self.at == start:
            self._reject()
        return "".join(parts)

    def _reject(self) -> NoReturn:
        character = self._next()
        raise NotUnderstood(_WHY_NOT.get(character, f"it has {character!r} outside quotes: quote it"))


def _check_assignment(assignment: re.Match[str], word: str) -> None:
    name, value = assignment[1], word[assignment.end() :]
    if assignment[2] != "=" or name not in HARMLESS_VARIABLES:
        raise NotUnderstood(f"it sets {name}: leave that out (docs/permissions.md lists the variables that may be set)")
    if not _VALUE.fullmatch(value):
        raise NotUnderstood(f"the value of {name} has characters other than letters, digits and .,:@+-_: leave it out")
