"""Globs of the search tools: as in `teamcli.workspace.globs`, and `{a,b}` means either.

As in a shell, no wildcard matches the dot of a hidden name.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from teamcli.errors import ToolError
from teamcli.workspace.bounds import native_spelling
from teamcli.workspace.globs import matches_names, parse_names

_MAGIC = re.compile(r"[*?\[{\\]")
_BRACES = re.compile(r"(?<!\\)\{([^{}]*,[^{}]*)\}")
_MAX_ALTERNATIVES = 256


def compile_glob(pattern: str) -> Callable[[str], bool]:
    """A function that says whether a relative path matches.

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
    """`pattern` without braces: one for each choice."""
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
