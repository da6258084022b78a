"""Glob patterns as regular expressions over paths with `/`.

`*`, `?` and `[…]` stay within one name, `**` spans directories, `{a,b}` means either. As in a shell, no wildcard stands
for the dot of a hidden name. Matching takes time in proportion to the path, whatever the pattern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

from teamcli.errors import ToolError
from teamcli.workspace import native_spelling

_MAGIC = re.compile(r"[*?\[{\\]")
_BRACES = re.compile(r"(?<!\\)\{([^{}]*,[^{}]*)\}")
_TOKEN = re.compile(r"\\(?P<escaped>.)|\[(?P<negated>[!^]?)(?P<set>\]?[^\]/]*)\]|(?P<any>\?)|(?P<literal>.)", re.DOTALL)
_MAX_ALTERNATIVES = 256

_NOT_HIDDEN = r"(?!\.)"
_DIRECTORIES = rf"(?:{_NOT_HIDDEN}[^/]+/)*"


def compile_glob(pattern: str) -> re.Pattern[str]:
    """Raises: ToolError"""
    try:
        return re.compile("|".join(f"(?:{_translate(one)})" for one in _alternatives(native_spelling(pattern))))
    except re.error as e:
        raise ToolError(f"{pattern!r} is not a valid glob: {e.msg}") from e
    except UnicodeEncodeError as e:
        raise ToolError(f"{pattern!r} is not a valid glob: {e.reason}") from e


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
    levels = [[name for name in one.split("/") if name not in ("", ".")] for one in _alternatives(pattern)]
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


def _translate(pattern: str) -> str:
    names = [name for name in pattern.split("/") if name not in ("", ".")]
    names = [name for name, following in pairwise([*names, ""]) if not name == following == "**"]
    if not names:
        return _NOT_HIDDEN + "$"
    *directories, last = names
    above = "".join(_DIRECTORIES if name == "**" else f"{_translate_name(name)}/" for name in directories)
    return above + (f"{_DIRECTORIES}{_translate_name('*')}" if last == "**" else _translate_name(last))


def _translate_name(name: str) -> str:
    begins_wild = name[:1] in ("*", "?", "[")
    first, *others = (_translate_piece(piece) for piece in _split_at_stars(name))
    # What follows a star is taken at its first chance and not tried again: only the last star may have to give way.
    body = first + "".join(f"(?>[^/]*?{piece})" for piece in others[:-1]) + "".join(f"[^/]*{p}" for p in others[-1:])
    return (_NOT_HIDDEN if begins_wild else "") + body


def _split_at_stars(name: str) -> list[str]:
    pieces = [""]
    for token in _TOKEN.finditer(name):
        if token["literal"] == "*":
            pieces.append("")
        else:
            pieces[-1] += token[0]
    return [pieces[0], *(piece for piece in pieces[1:-1] if piece), *pieces[1:][-1:]]


def _translate_piece(piece: str) -> str:
    return "".join(_translate_tokens(piece))


def _translate_tokens(piece: str) -> Iterator[str]:
    for token in _TOKEN.finditer(piece):
        if token["any"]:
            yield "[^/]"
        elif token["set"]:
            characters = re.sub(r"([\[\]\\&~|^])", r"\\\1", token["set"].replace("--", "-"))
            yield f"(?!/)[{'^' if token['negated'] else ''}{characters}]"
        else:
            # brackets with nothing in them are just brackets
            yield re.escape(token["escaped"] or token["literal"] or token[0])
