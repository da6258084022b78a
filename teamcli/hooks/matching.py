"""Which hooks an event concerns, by its subject."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial

from teamcli.claude_code.hook_words import subject_names

Matches = Callable[[str], bool]
"""Takes the subject of an event, such as a tool's name."""
_NAMES = re.compile(r"[\w\s,|-]*", re.ASCII)
_EXCLUDES = re.compile(r"\(\?<?!|\[\^")


def matcher_of(event: str, matcher: str, is_claudes: bool = False) -> Matches:
    """How a matcher decides. Of a regular expression, Claude Code wants a part of the name to match, we the whole."""
    if matcher in ("", "*"):
        return lambda subject: True
    if _NAMES.fullmatch(matcher):
        wanted = {name.strip() for name in re.split(r"[|,]", matcher)}
        return lambda subject: not subject or not wanted.isdisjoint(subject_names(event, subject))
    compiled = re.compile(matcher)
    return partial(_matches, event, compiled.search if is_claudes else compiled.fullmatch, _EXCLUDES.search(matcher))


def _matches(event: str, match: Callable[[str], object], excludes: object, subject: str) -> bool:
    # Some events, such as Stop, have no subject that a matcher could apply to.
    if not subject:
        return True
    names = subject_names(event, subject)
    # "Anything but Bash" must not mean `bash`, only because that is another name.
    names = names[1:2] or names if excludes else names
    return any(match(name) for name in names)
