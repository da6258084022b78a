"""What calling a command or a skill means: its text with the arguments filled in, and what its front matter wants."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from teamcli.config.front_matter import Folder, FrontMatter, Nested, words_of

FIELDS = ("allowed-tools", "model", "context", "agent", "arguments")
FORK = "fork"
GENERAL = "general-purpose"
_INHERITED = ("", "inherit", "default")
# Compiled at first use: most starts do not need them.
_OURS = r"(\\?)\$(?:(ARGUMENTS\b)|([1-9](?!\d)))"
_CLAUDES = r"(\\?)\$(?:(ARGUMENTS\b(?!\[\d+\]))|ARGUMENTS\[(\d+)\]|(\d)(?!\d)|([A-Za-z_]\w*))"
_SHELL = r"(?m)(?:^|(?<=\s))!`([^`\n]+)`|^```![ \t]*\n((?:(?!```)[^\n]*\n)*)```[ \t]*$"


class Invocation(NamedTuple):
    """The text for the lead, ready but for the output of its commands."""

    text: str
    grants: tuple[str, ...] = ()
    """Rules that allow calls during the turn."""
    model: str = ""
    """For the turn; empty for the lead's own."""
    agent: str = ""
    """The role of the sub-agent that gets the text instead of the lead; empty if none does."""
    is_claudes: bool = False
    """Made for Claude Code, so that commands in the text may read without a rule."""


class Behavior(NamedTuple):
    """What the front matter of a command or a skill says about calling it."""

    grants: tuple[str, ...] = ()
    model: str = ""
    agent: str = ""
    names: tuple[str, ...] = ()
    """Of its arguments."""
    variables: Mapping[str, str] = {}
    """Those that are replaced as `${NAME}`."""
    is_claudes: bool = False

    def invoke(self, text: str, arguments: str) -> Invocation:
        fill = with_claudes_arguments if self.is_claudes else with_arguments
        filled = self._replaced(fill(text, arguments, self.names))
        grants = tuple(map(self._replaced, self.grants))
        return Invocation(filled, grants, self.model, self.agent, self.is_claudes)

    def _replaced(self, text: str) -> str:
        for name, value in self.variables.items():
            text = text.replace(f"${{{name}}}", value)
        return text


def read_behavior(matter: FrontMatter, folder: Folder, directory: Path, root: Path) -> Behavior:
    """`directory` is where the file is, `root` the project."""
    model, agent = (_text(matter, field) for field in ("model", "agent"))
    variables = {"CLAUDE_PROJECT_DIR": str(root), "CLAUDE_SKILL_DIR": str(directory)}
    if folder.plugin_root is not None:
        variables["CLAUDE_PLUGIN_ROOT"] = str(folder.plugin_root)
    return Behavior(
        words_of(matter.fields.get("allowed-tools", "")),
        "" if model in _INHERITED else model,
        (agent or GENERAL) if _text(matter, "context") == FORK else "",
        words_of(matter.fields.get("arguments", "")),
        variables,
        folder.is_claudes,
    )


def _text(matter: FrontMatter, field: str) -> str:
    value = matter.fields.get(field, "")
    return value if isinstance(value, str) and not isinstance(value, Nested) else ""


def with_arguments(text: str, arguments: str, names: tuple[str, ...] = ()) -> str:
    """The task with its placeholders filled, or with the arguments after it if it has none."""
    if not re.search(_OURS, text):
        return "\n\n".join(filter(None, (text, arguments)))
    words = _split(arguments)

    def fill(found: re.Match[str]) -> str:
        if found[1]:
            return found[0][1:]
        return arguments if found[2] else words[int(found[3]) - 1] if int(found[3]) <= len(words) else ""

    return re.sub(_OURS, fill, text)


def with_claudes_arguments(text: str, arguments: str, names: tuple[str, ...] = ()) -> str:
    """The same for files that were made for Claude Code.

    There, `$N` counts from 0. But the authors of files mean the first argument by `$1`, so we count from 0 only in a
    text that has a `$0`. What has no value stays as it is: it may belong to a shell line.
    """
    words = _split(arguments)
    first = 0 if re.search(r"(?<!\\)\$0(?!\d)", text) else 1
    is_used = False

    def fill(found: re.Match[str]) -> str:
        nonlocal is_used
        escape, all_of_them, index, number, name = found.groups()
        if escape:
            return found[0][1:] if all_of_them or index or number or name in names else found[0]
        if all_of_them:
            is_used = True
            return arguments
        position = _position(index, number, name, names, first)
        is_used = is_used or position is not None
        return words[position] if position is not None and 0 <= position < len(words) else found[0]

    filled = re.sub(_CLAUDES, fill, text)
    return filled if is_used or not arguments else f"{filled}\n\nARGUMENTS: {arguments}"


def _position(index: str, number: str, name: str, names: tuple[str, ...], first: int) -> int | None:
    """Which argument a placeholder means; None if it is not one."""
    if index is not None:
        return int(index)
    if number is not None:
        return int(number) - first
    return names.index(name) if name in names else None


def shell_lines(text: str) -> Iterator[re.Match[str]]:
    """The commands in a text whose output belongs there: !`command`, and blocks that begin with ```!."""
    return re.finditer(_SHELL, text)


def command_of(found: re.Match[str]) -> str:
    return (found[1] or found[2] or "").strip()


def _split(arguments: str) -> list[str]:
    import shlex  # late: most starts do not need it

    try:
        return shlex.split(arguments)
    except ValueError:  # most likely an apostrophe
        return arguments.split()
