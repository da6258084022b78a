"""Globs matched name by name, without backtracking: no glob is slow, however it is made.

`*`, `?` and `[…]` stay within one name, `**` spans directories.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_TOKEN = re.compile(r"\\.|\[[!^]\]?[^\]/]+\]|\[(?![!^])\]?[^\]/]+\]|.", re.DOTALL)
"""Brackets with nothing in them are just brackets."""


class Part(NamedTuple):
    """One name of a glob, or `**`."""

    name: re.Pattern[str]
    repeats: bool


def parse_names(names: Iterable[str], hides_dots: bool = False) -> tuple[Part, ...]:
    """The names of a glob. With `hides_dots` no wildcard matches the dot of a hidden name, as in a shell.

    Raises: re.error
    """
    return tuple(_parse_name(name, hides_dots) for name in names)


def matches_names(parts: Sequence[Part], names: Sequence[str], covers_contents: bool = False) -> bool:
    """Whether these names are a match. With `covers_contents`, everything in a directory that matches does as well."""
    end = len(parts)
    if not names:
        return all(part.repeats for part in parts)
    reached = _skip(parts, {0})
    for name in names:
        if covers_contents and end in reached:
            return True
        taken = [at for at in reached if at < end and parts[at].name.fullmatch(name)]
        reached = _skip(parts, {at + 1 for at in taken} | {at for at in taken if parts[at].repeats})
    return end in reached


def _skip(parts: Sequence[Part], reached: set[int]) -> set[int]:
    """`**` may mean no directory at all, but `src/**` does not match `src`."""
    for at in range(len(parts) - 1):
        if at in reached and parts[at].repeats:
            reached.add(at + 1)
    return reached


def _parse_name(name: str, hides_dots: bool) -> Part:
    pieces = [""]
    for token in _TOKEN.findall(name):
        if token == "*":
            pieces.append("")
        else:
            pieces[-1] += _translate(token)
    first, *others = [pieces[0], *filter(None, pieces[1:-1]), *pieces[1:][-1:]]
    # What follows a star is taken at its first chance and not tried again: only the last star may have to give way.
    body = first + "".join(f"(?>.*?{piece})" for piece in others[:-1]) + "".join(f".*{piece}" for piece in others[-1:])
    visible = r"(?!\.)" if hides_dots and name[:1] in ("*", "?", "[") else ""
    return Part(re.compile(visible + body, re.DOTALL), name == "**")


def _translate(token: str) -> str:
    if token == "?":
        return "."
    if len(token) < 3:
        return re.escape(token[-1])
    is_negated = token[1] in "!^"
    inside = re.sub(r"-{2,}|[^\w-]", lambda match: f"\\{match[0][0]}", token[1 + is_negated : -1])
    return f"[{'^' if is_negated else ''}{inside}]"
