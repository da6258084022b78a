"""Claude Code's command line in our options: other spellings, lists of words, and flags that mean nothing here."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

from teamcli.claude_code.names import is_claude_tool, our_tool

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    "--allowed-tools": ("--allowedTools",),
    "--disallowed-tools": ("--disallowedTools",),
    "--dangerously-skip-permissions": ("--permission-mode", "bypassPermissions"),
    "-d": ("--debug",),
    "-n": ("--name",),
    "-v": ("--version",),
}
"""Flags that are another word for options of ours."""
WITHOUT_EFFECT: Mapping[str, int] = {
    "--allow-dangerously-skip-permissions": 0,
    "--betas": 1,
    "--chrome": 0,
    "--debug-file": 1,
    "--debug-to-stderr": 0,
    "--disable-slash-commands": 0,
    "--exclude-dynamic-system-prompt-sections": 0,
    "--file": 1,
    "--forward-subagent-text": 0,
    "--ide": 0,
    "--include-hook-events": 0,
    "--init": 0,
    "--maintenance": 0,
    "--mcp-debug": 0,
    "--name": 1,
    "--no-chrome": 0,
    "--prompt-suggestions": 0,
    "--resume-drops-turn": 1,
    "--resume-session-at": 1,
    "--session-mirror": 0,
    "--task-budget": 1,
    "--teammate-mode": 1,
    "--thinking-display": 1,
}
"""Flags that mean nothing here, and how many values each has."""
MODES: Mapping[str, str] = {"auto": "default", "dontAsk": "default", "manual": "default"}
"""Permission modes of Claude Code that are called otherwise here, or come closest to one of ours: none grants more."""
_DEBUG = "--debug"
_KINDS = r"!?[a-z0-9]+(,!?[a-z0-9]+)+|!\w+|api|file|hooks|mcp|statsig"
"""What may follow `--debug` there: the kinds of messages to log. Here all are."""
_END = "--"
_RULE = r"(?:^|(?<=[, )]))([\w*-]+)(?:\([^()]*(?:\([^()]*\)[^()]*)*\))?(?=[, ]|$)"
"""A name, perhaps with parentheses, in which there may be more of them. Compiled at first use."""


class Translated(NamedTuple):
    arguments: list[str]
    without_effect: tuple[str, ...]
    """The flags that mean nothing here."""


def translate(arguments: Sequence[str], is_our_tool: Callable[[str], bool]) -> Translated:
    """A command line of Claude Code as one of ours. What it does not know stays as it is, like all after `--`."""

    def is_rule(word: str) -> bool:
        return bool(names := _rule_names(word)) and all(is_our_tool(name) or is_claude_tool(name) for name in names)

    takes: Mapping[str, Callable[[str], bool]] = {
        "--allowedTools": is_rule,
        "--disallowedTools": is_rule,
        "--tools": is_rule,
        "--add-dir": lambda word: Path(word).is_dir(),
        "--mcp-config": _is_configuration,
    }
    words, dropped = _Words(arguments), dict[str, None]()
    translated = list(_translated(words, takes, dropped))
    return Translated([*translated, *words.rest], tuple(dropped))


class _Words:
    """The words of a command line, up to `--`."""

    def __init__(self, arguments: Sequence[str]) -> None:
        end = arguments.index(_END) if _END in arguments else len(arguments)
        self._words = list(arguments[:end])
        self.rest = list(arguments[end:])

    def __iter__(self) -> Iterator[str]:
        while self._words:
            yield self._words.pop(0)

    def take(self, count: int) -> list[str]:
        taken, self._words = self._words[:count], self._words[count:]
        return taken

    def take_while(self, is_value: Callable[[str], bool]) -> list[str]:
        taken = list(takewhile(lambda word: not word.startswith("-") and is_value(word), self._words))
        return self.take(len(taken))


def _translated(words: _Words, takes: Mapping[str, Callable[[str], bool]], dropped: dict[str, None]) -> Iterator[str]:
    for word in words:
        flag, has_value, value = word.partition("=") if word.startswith("--") else (word, "", "")
        flag, *more = SPELLINGS.get(flag, (flag,))
        if flag in WITHOUT_EFFECT:
            dropped[flag] = None
            words.take(0 if has_value else WITHOUT_EFFECT[flag])
        elif flag == _DEBUG:
            words.take_while(lambda each: bool(re.fullmatch(_KINDS, each)))
            yield flag
        elif flag in takes and not has_value:
            # The first word is a value whatever it is: what is wrong with it is reported when it is read.
            values = [*words.take(1), *words.take_while(takes[flag])]
            yield from (f"{flag}={each}" for each in values) if values else (flag,)
        else:
            yield from (f"{flag}={value}" if has_value else flag, *more)


def _rule_names(text: str) -> list[str]:
    """The tools that a list of permission rules names; empty if it is not one."""
    return [] if re.sub(_RULE, "", text).strip(", ") else [found[1] for found in re.finditer(_RULE, text)]


def _is_configuration(word: str) -> bool:
    return word.lstrip().startswith("{") or word.endswith(".json") or Path(word).is_file()


def existing_tools(given: Sequence[str]) -> tuple[str, ...] | None:
    """The tools that `--tools` leaves, in our names; None for all."""
    names = [name for text in given for name in _rule_names(text)]
    return None if "default" in names else tuple(dict.fromkeys(our_tool(name) for name in names))


def mode_of(name: str) -> str:
    """Our permission mode for one of Claude Code's."""
    return MODES.get(name, name)
