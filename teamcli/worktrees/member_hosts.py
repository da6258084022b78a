"""What runs the commands of isolated members: for each a host of its own, with the variables of its checkout."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from zlib import crc32

from teamcli.exec.command_host import CommandHost
from teamcli.worktrees.checkout import Checkout, Notes, checkouts_in

OpenHost = Callable[[Path, Mapping[str, str]], CommandHost]
"""Opens what runs the commands of the member whose checkout is at that path, with these variables."""
MOST_READY = 16
"""Of members that do nothing, so many keep the processes that would run their next command."""
_FIRST_PORT, _PORTS, _MEMBERS = 20_000, 10, 1_000


class MemberHosts:
    """Safe for any number of threads."""

    def __init__(self, directory: Path, open_host: OpenHost) -> None:
        """`directory` is `.team/worktrees`."""
        self._directory = directory
        self._open_host = open_host
        self._hosts: dict[str, CommandHost] = {}
        self._ready: dict[str, None] = {}
        """Members that do nothing and have such processes, the last one last."""
        self._slots: dict[str, int] = {}
        self._lock = threading.RLock()  # opening a host needs the member's slot

    def of(self, member: str) -> CommandHost:
        with self._lock:
            if member not in self._hosts:
                checkout = Checkout(member, self._directory / member)
                self._hosts[member] = self._open_host(checkout.path, self._variables(checkout))
            return self._hosts[member]

    def idle(self, member: str) -> None:
        """A member has nothing to do for now: it does not keep processes for its commands, if many others do."""
        with self._lock:
            self._ready.pop(member, None)
            self._ready[member] = None
            first = list(self._ready)[:-MOST_READY]
            for each in first:
                del self._ready[each]
            hosts = [self._hosts[each] for each in first if each in self._hosts]
        for host in hosts:
            host.end_processes()

    def close(self, member: str) -> None:
        """End the commands of a member."""
        with self._lock:
            host = self._hosts.pop(member, None)
        if host is not None:
            host.close()

    def close_all(self) -> None:
        for member in tuple(self._hosts):
            self.close(member)

    def slot(self, checkout: Checkout) -> int:
        """A number that no other member has. Its host may need it before there is a checkout."""
        if notes := Notes.read(checkout):
            return notes.slot
        with self._lock:
            if checkout.member not in self._slots:
                noted = {notes.slot for each in checkouts_in(self._directory) if (notes := Notes.read(each))}
                taken = noted | set(self._slots.values())
                self._slots[checkout.member] = next(slot for slot in range(len(taken) + 1) if slot not in taken)
            return self._slots[checkout.member]

    def _variables(self, checkout: Checkout) -> dict[str, str]:
        # Projects begin at different places, so that two teams on one machine seldom meet.
        place = (crc32(os.fsencode(self._directory)) + self.slot(checkout)) % _MEMBERS
        return {"TEAMCLI_WORKTREE": str(checkout.path), "TEAMCLI_PORT_BASE": str(_FIRST_PORT + place * _PORTS)}
