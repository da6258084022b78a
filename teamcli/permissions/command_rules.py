"""Which commands a rule is about: strictly for rules that allow, at every depth for rules that ask or deny."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import takewhile, zip_longest
from typing import TYPE_CHECKING

from teamcli.permissions.form import Form
from teamcli.permissions.shell.commands import LineReading
from teamcli.permissions.shell.forms import is_named_by, never_covered
from teamcli.permissions.shell.loose import FoundCommand, Word
from teamcli.permissions.shell.scanner import names
from teamcli.permissions.shell.strict import Command, NotUnderstood, read_line

if TYPE_CHECKING:
    from teamcli.permissions.rules import Rule

OPEN_ENDED = (Form.PREFIX, Form.WILDCARD)
"""Forms whose rules allow commands that they do not spell out."""
_WITHOUT_VALUE = names("-p -P --paginate --no-pager --bare --no-optional-locks --verbose -v --debug -q --quiet")
_ONE_WORD = re.compile(r'"[^"@*]*"')
_STAR = "zZ7anything7Zz"
"""In place of a star, so that a pattern can be read as a command."""
_WORD_END = "\0"
_JOINTS = re.compile(r"&&|\|\|?&?|[;&\n]")


def is_line(rule: Rule, line: str) -> bool:
    """Whether the rule is for exactly this line."""
    if rule.form is Form.PATTERN:
        return rule.pattern == line.strip()
    return rule.form is Form.TEXT and rule.pattern == line


def covers(rule: Rule, command: Command) -> bool:
    """Whether a rule that allows applies to this command of a line."""
    if rule.form not in OPEN_ENDED:
        return rule.form is Form.PATTERN and commands_of(rule.pattern) == (command,)
    pattern = _prefix(rule.pattern.replace("*", _STAR) if rule.form is Form.WILDCARD else rule.pattern)
    if pattern is None or not set(pattern.assignments) <= set(command.assignments):
        return False
    # A rule for `env` alone would allow everything that env can run.
    if never_covered(command.words) and not is_named_by(_beginnings(pattern)):
        return False
    if rule.form is Form.PREFIX:
        return command.words[: len(pattern.words)] == pattern.words
    return _match_words(pattern, command.words)


def why_not_covering(form: Form, pattern: str) -> str:
    """Why a rule with this pattern allows nothing; empty if it can."""
    if form is Form.PATTERN and not commands_of(pattern):
        return "no rule allows a line that is not understood completely"
    if form not in OPEN_ENDED:
        return ""
    beginning = _prefix(pattern.replace("*", _STAR))
    if beginning is None:
        return "it is not the beginning of one plain command"
    literal = list(takewhile(lambda word: _STAR not in word, beginning.words))
    reason = never_covered(literal) if literal and not is_named_by(_beginnings(beginning)) else ""
    return f"{reason}, so each such command needs a question" if reason else ""


def _beginnings(pattern: Command) -> list[str]:
    """What is certain of each word."""
    return [word.partition(_STAR)[0] for word in pattern.words]


def _match_words(pattern: Command, words: Sequence[str]) -> bool:
    """Each word ends in a mark that no pattern contains: a literal word of the pattern is a whole word."""
    wanted = _WORD_END.join(pattern.words).replace(_STAR, "*")
    return is_match(wanted, _WORD_END.join(words), _WORD_END)


def hits(rule: Rule, line: str, reading: LineReading) -> bool:
    """Whether a rule that asks or denies applies to this line: to a command in it, or to a part that is unknown."""
    # A line that is not fully understood may run anything, so every rule that denies commands applies.
    if is_line(rule, line) or reading.doubt:
        return True
    found = [*reading.commands, *reading.guesses]
    if rule.form is Form.PREFIX:
        return any(_begins_with(command, prefix_words(rule.pattern)) for command in found)
    if rule.form is Form.WILDCARD:
        return _hits_text(rule.pattern, line, found)
    wanted = [(*command.assignments, *command.words) for command in commands_of(rule.pattern)]
    is_wanted = rule.form is Form.PATTERN and bool(wanted)
    return is_wanted and all(any(_is_same(command, words) for command in found) for words in wanted)


def _begins_with(command: FoundCommand, prefix: Sequence[str]) -> bool:
    """Options do not hide the word that a rule is about: `kubectl -n x delete` is a `kubectl delete`."""
    words = _comparable(command, prefix)
    is_value, at = False, 0
    for word in words:
        if at == len(prefix):
            break
        if word.source and not (is_value and _ONE_WORD.fullmatch(word.source)):
            return True  # an expansion may become any word, or several
        if word.value == prefix[at]:
            at, is_value = at + 1, False
        elif at == 0 or prefix[at].startswith("-") or not (is_value or word.value.startswith("-")):
            return False
        else:
            is_value = word.value.startswith("-") and "=" not in word.value and word.value not in _WITHOUT_VALUE
    return at == len(prefix) or (at > 0 and command.is_open)


def _is_same(command: FoundCommand, wanted: Sequence[str]) -> bool:
    for word, expected in zip_longest(_comparable(command, wanted), wanted):
        if word is None or word.value != expected:
            return word is not None and bool(word.source)
    return True


def _comparable(command: FoundCommand, pattern: Sequence[str]) -> tuple[Word, ...]:
    """The words as the pattern writes them: with assignments, or with the directory of the program, only if it does.

    Some file systems ignore case, so the name of a program is compared without it.
    """
    words = command.words
    if words and "/" not in pattern[0] and not words[0].source:
        name = words[0].value.rsplit("/", 1)[-1]
        words = (Word(pattern[0] if name.casefold() == pattern[0].casefold() else name), *words[1:])
    return (*command.assignments, *words) if "=" in pattern[0] else words


@lru_cache(maxsize=512)
def commands_of(pattern: str) -> tuple[Command, ...]:
    """The commands of a pattern; none if it is not one that rules can allow."""
    try:
        return read_line(pattern)
    except NotUnderstood:
        return ()


def _prefix(pattern: str) -> Command | None:
    commands = commands_of(pattern)
    return commands[0] if len(commands) == 1 and not commands[0].writes else None


def prefix_words(pattern: str) -> tuple[str, ...]:
    """The words of a prefix; none if it is not the beginning of one command."""
    if prefix := _prefix(pattern):
        return (*prefix.assignments, *prefix.words)
    # words such as `time`, `[` and X=1 can be denied, though nothing with them is ever allowed
    return tuple(pattern.split()) if re.fullmatch(r"(?!if\b)[\w./+@=:,%!\[ -]+", pattern) else ()


def _hits_text(pattern: str, line: str, found: Sequence[FoundCommand]) -> bool:
    as_command = _prefix(pattern.replace("*", _STAR))
    if as_command and any(_match_words(as_command, [word.value for word in each.words]) for each in found):
        return True
    pattern = " ".join(pattern.split())
    return any(is_match(pattern, text) for text in _texts(line, found))


def _texts(line: str, found: Sequence[FoundCommand]) -> Iterator[str]:
    """Everything in a line that Claude Code would compare with a pattern, and each command at every depth."""
    for text in (line, *_JOINTS.split(line)):
        yield " ".join(text.split())
    for command in found:
        words = [word.value for word in command.words]
        yield " ".join(words)
        if words and "/" in words[0]:
            yield " ".join([words[0].rsplit("/", 1)[-1], *words[1:]])
        if command.assignments:
            yield " ".join([*(word.value for word in command.assignments), *words])


def is_match(pattern: str, text: str, blank: str = " ") -> bool:
    """Whether a text matches, with any text in place of each star. A star at the end, after a `blank`, may be missing
    together with it."""
    alone = pattern.removesuffix(f"{blank}*")
    return _expression(pattern).fullmatch(text) is not None or (
        alone != pattern and _expression(alone).fullmatch(text) is not None
    )


@lru_cache(maxsize=512)
def _expression(pattern: str) -> re.Pattern[str]:
    first, *others = map(re.escape, pattern.split("*"))
    # What follows a star is matched at the first chance and not tried again, so that no pattern is slow.
    middle = "".join(f"(?>.*?{piece})" for piece in others[:-1])
    return re.compile(first + middle + "".join(f".*{piece}" for piece in others[-1:]), re.DOTALL)
