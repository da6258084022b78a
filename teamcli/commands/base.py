"""The shape of a slash command."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from teamcli.cancel import CancelScope
from teamcli.session import Session


class Leave(Exception):
    """Raised by a command that ends the REPL."""


class Job(NamedTuple):
    """What takes its time: whoever runs the command watches it, and ends it by its scope when the user wants so."""

    run: Callable[[CancelScope], str]
    """Returns what to show. Raises Cancelled."""
    announcement: str
    """What to show before."""


class Command(NamedTuple):
    name: str
    usage: str
    """Its arguments, as help shows them."""
    help: str
    run: Callable[[Session, str], str | Job]
    """Takes what stands behind the name; returns what to show. Raises TeamcliError for what the user can mend."""
    aliases: tuple[str, ...] = ()


def command(
    name: str, usage: str = "", aliases: tuple[str, ...] = ()
) -> Callable[[Callable[[Session, str], str | Job]], Command]:
    """Turn a function into a Command value; its docstring is the help. Listing it in the catalogue registers it."""

    def wrap(function: Callable[[Session, str], str | Job]) -> Command:
        return Command(name, usage, (function.__doc__ or "").strip(), function, aliases)

    return wrap
