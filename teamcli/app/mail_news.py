"""Mail that members on other hosts have sent, for the screen of the lead's host. Events are known only where they
happen."""

from __future__ import annotations

from collections.abc import Callable

from teamcli.store.postgres.bus import PostgresBus
from teamcli.team.manager import TeammateManager
from teamcli.team.roster import Member


class MailNews:
    """Used by one thread, that of the listener, after `begin`."""

    def __init__(self, bus: PostgresBus, team: TeammateManager, is_here: Callable[[Member], bool]) -> None:
        """`is_here` says of a member whether this process runs it."""
        self._bus = bus
        self._team = team
        self._is_here = is_here
        self._shown: dict[str, int] = {}
        """How far each inbox was shown."""

    def begin(self) -> None:
        """Show what comes from now on.

        Raises: StateError
        """
        self._shown = self._bus.ends()

    def show(self, name: str) -> None:
        """Raises: StateError"""
        messages, end = self._bus.sent_elsewhere(name, self._shown.get(name, 0))
        if end:  # anyone can notify of an inbox that is not there
            self._shown[name] = end
        for message in messages:
            sender = self._team.roster.find(message.sender)
            if sender is not None and not self._is_here(sender):
                self._team.outbox.show(message)

    def show_all(self) -> None:
        """Notifications may have been missed.

        Raises: StateError
        """
        for name, end in self._bus.ends().items():
            if end > self._shown.get(name, 0):
                self.show(name)
