"""Globs as in .gitignore, matched without backtracking: no glob is slow, however it is made."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

_TOKEN = re.compile(r"\\.|\[[!^]?\]?[^\]/]+\]|.", re.DOTALL)
_ANY_DEPTH = "**"
Token = str | re.Pattern[str]
Part = str | tuple[Token, ...]


def check_glob(glob: str) -> None:
    """Raises: re.error"""
    _parts(glob)


def matches_glob(glob: str, path: str) -> bool:
    """Whether the glob is about this relative path. What matches a directory matches everything in it."""
    parts = _parts(glob)
    end = len(parts)
    reached = _skipping({0}, parts)
    for name in path.split("/") if path else ():
        if end in reached:
            return True
        stay = {at for at in reached if parts[at] == _ANY_DEPTH}
        go = {at + 1 for at in reached if parts[at] == _ANY_DEPTH or _matches_name(parts[at], name)}
        reached = _skipping(stay | go, parts)
    return end in reached


def _skipping(reached: Iterable[int], parts: tuple[Part, ...]) -> set[int]:
    """`**` may stand for no directory at all, but `src/**` is not about `src`."""
    found = set(reached)
    for at in range(len(parts) - 1):
        if at in found and parts[at] == _ANY_DEPTH:
            found.add(at + 1)
    return found | {len(parts)} if set(parts) <= {_ANY_DEPTH} else found


@lru_cache(maxsize=512)
def _parts(glob: str) -> tuple[Part, ...]:
    is_anchored = "/" in glob.rstrip("/")
    names = glob.removeprefix("./").strip("/").split("/")
    parts = [_ANY_DEPTH if name == _ANY_DEPTH else tuple(map(_token, _TOKEN.findall(name))) for name in names]
    return tuple(parts) if is_anchored else (_ANY_DEPTH, *parts)


def _token(text: str) -> Token:
    if len(text) > 2 and text[0] == "[":
        is_negated = text[1] in "!^" and len(text) > 3
        inside = re.sub(r"-{2,}|[^\w-]", lambda match: f"\\{match[0][0]}", text[2 if is_negated else 1 : -1])
        return re.compile(f"[{'^' if is_negated else ''}{inside}]", re.DOTALL)
    return re.compile(re.escape(text[1]), re.DOTALL) if len(text) == 2 else text


def _matches_name(part: Part, name: str) -> bool:
    """Each star takes as little as it can; only the last one ever has to take more."""
    at = position = 0
    star = taken = -1
    while position < len(name):
        if at < len(part) and part[at] == "*":
            star, taken = at, position
            at += 1
        elif at < len(part) and _matches_character(part[at], name[position]):
            at, position = at + 1, position + 1
        elif star >= 0:
            taken += 1
            at, position = star + 1, taken
        else:
            return False
    return all(token == "*" for token in part[at:])


def _matches_character(token: Token, character: str) -> bool:
    return token in ("?", character) if isinstance(token, str) else token.fullmatch(character) is not None
