"""`/expand` and `/verbose`: how much the terminal shows."""

from __future__ import annotations

from teamcli.commands.base import ArgumentKind, Expand, Group, Verbosity, command
from teamcli.errors import UsageError
from teamcli.session.session import Session

SWITCH = {"": None, "on": True, "off": False}


@command("expand", usage="[N]", group=Group.REPORTS)
def expand(session: Session, arguments: str) -> Expand:
    """Show in full what was folded.

    Without N, the call or message that was shown last, as Ctrl-O does. With N, the Nth newest, thoughts included.
    """
    if arguments and not (arguments.isdecimal() and int(arguments)):
        raise UsageError(f"N must be a whole number from 1 up, not '{arguments}': /expand [N]")
    return Expand(int(arguments or 0))


@command("verbose", usage="[on|off]", arguments=(ArgumentKind.SWITCH,), group=Group.REPORTS)
def verbose(session: Session, arguments: str) -> Verbosity:
    """Show more from now on, or fold again."""
    if arguments not in SWITCH:
        raise UsageError(f"'{arguments}' is neither on nor off: /verbose [on|off]")
    return Verbosity(SWITCH[arguments])
