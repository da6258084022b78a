"""Globs matched name by name, without backtracking, so that no glob is slow.

`*`, `?` and `[…]` stay within one name, `**` spans directories. In the search tools `{a,b}` means either, and as in a
shell no wildcard matches the dot of a hidden name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from teamcli.errors import ToolError
from teamcli.workspace.bounds import native_spelling

_TOKEN = re.compile(r"\\.|\[[!^]\]?[^\]/]+\]|\[(?![!^])\]?[^\]/]+\]|.", re.DOTALL)
"""Empty brackets are just brackets."""
_MAGIC = re.compile(r"[*?\[{\\]")
_BRACES = re.compile(r"(?<!\\)\{([^{}]*,[^{}]*)\}")
_MAX_ALTERNATIVES = 256


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
    """Whether these names match. With `covers_contents`, everything in a matching directory matches too."""
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
    # What follows a star is matched at the first chance and not tried again. Only the last star may need to backtrack.
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


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """A function that tells whether a relative path matches.

    Raises: ToolError
    """
    try:
        globs = [parse_names(_names(one), hides_dots=True) for one in _alternatives(native_spelling(pattern))]
    except re.error as e:
        raise ToolError(f"{pattern!r} is not a valid glob: {e.msg}") from e
    except UnicodeEncodeError as e:
        raise ToolError(f"{pattern!r} is not a valid glob: {e.reason}") from e

    def matches(path: str) -> bool:
        names = path.split("/")
        # most paths already differ in the last name
        return any(parts and parts[-1].name.fullmatch(names[-1]) and matches_names(parts, names) for parts in globs)

    return matches


def has_wildcard(pattern: str) -> bool:
    return _MAGIC.search(pattern) is not None


def split_fixed_directory(pattern: str) -> tuple[str, str]:
    """Cut a pattern after its leading directories that have no wildcard: `src/api/*.py` → `src/api/`, `*.py`."""
    magic = _MAGIC.search(pattern)
    end = pattern.rfind("/", 0, magic.start() if magic else len(pattern)) + 1
    return pattern[:end], pattern[end:]


def names_hidden(pattern: str) -> bool:
    """Whether some name in the pattern begins with a dot."""
    return any(name.startswith(".") for one in _alternatives(pattern) for name in one.split("/"))


def depth_of(pattern: str) -> int | None:
    """How many levels down a match can be, or None for any number."""
    levels = [_names(one) for one in _alternatives(pattern)]
    return None if any("**" in names for names in levels) else max(len(names) for names in levels)


def _alternatives(pattern: str) -> list[str]:
    """One pattern without braces for each choice."""
    finished: list[str] = []
    open_ = [pattern]
    while open_:
        one = open_.pop()
        braces = _BRACES.search(one)
        if braces is None:
            finished.append(one)
        else:
            open_ += [one[: braces.start()] + choice + one[braces.end() :] for choice in braces[1].split(",")]
        if len(finished) + len(open_) > _MAX_ALTERNATIVES:
            raise ToolError(f"{pattern!r} has more than {_MAX_ALTERNATIVES} alternatives in its braces")
    return finished


def _names(pattern: str) -> list[str]:
    return [name for name in pattern.split("/") if name not in ("", ".")]
