"""The socket in `.team/` to which `teamcli watch` connects. What serves watchers is loaded with the first one."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from teamcli.session.event_bus import EventBus
from teamcli.session.watching import Watching
from teamcli.storage.team_dir import LeadLock, TeamDir

if TYPE_CHECKING:
    from teamcli.session.watch_server import WatchServer

logger = logging.getLogger(__name__)


class WatchChannel:
    """Belongs to the one lead of the directory.

    It has no thread until someone connects: a thread that looks at inboxes anyway looks here, too.
    """

    def __init__(
        self,
        state: TeamDir,
        lock: LeadLock | None,
        bus: EventBus,
        watching: Watching,
        names: Callable[[], list[str]],
    ) -> None:
        """`names` returns all agents that there are. Without a lock, the directory belongs to another lead."""
        self._path = state.watch_socket
        self._lock = lock
        self._lock_path = state.lock
        self._bus = bus
        self._watching = watching
        self._names = names
        self._listener: socket.socket | None = None
        self._file: os.stat_result | None = None
        self._server: WatchServer | None = None
        self._has_warned = False
        self._is_over = False

    def look(self) -> None:
        """Serve those who have connected. Called a few times a second, by one thread."""
        # If `.team/` is deleted, another lead may have it a moment later.
        if self._is_over or self._lock is None or self._lock.is_lost(self._lock_path):
            return
        if not self._is_in_place():
            self._listen()
        if self._server is not None:
            self._server.drop_closed()
        while (connection := self._accept()) is not None:
            self._serve(connection)

    def close(self) -> None:
        """After the last look."""
        self._is_over = True
        if self._server is not None:
            self._server.close()
        if self._is_in_place():
            with suppress(OSError):
                self._path.unlink()
        if self._listener is not None:
            self._listener.close()

    def _is_in_place(self) -> bool:
        try:
            return self._file is not None and os.path.samestat(self._path.lstat(), self._file)
        except OSError:
            return False

    def _listen(self) -> None:
        from teamcli.storage.unix_socket import listen  # late, as below: the first request does without it

        if self._listener is not None:  # `.team/` was deleted, and the socket with it
            self._listener.close()
            self._listener = None
        try:
            self._listener = listen(self._path)
            self._file = self._path.lstat()
        except OSError as e:  # everything else works without it, and the next look tries again
            if not self._has_warned:
                logger.warning("teamcli watch cannot show what streams: %s: %s", self._path, e)
            self._has_warned = True

    def _accept(self) -> socket.socket | None:
        if self._listener is None:
            return None
        try:
            connection, _ = self._listener.accept()
        except OSError:  # nobody, or someone who has left already
            return None
        connection.setblocking(True)
        return connection

    def _serve(self, connection: socket.socket) -> None:
        from teamcli.session.watch_server import WatchServer
        from teamcli.storage.unix_socket import peer

        try:
            _, user = peer(connection)
        except OSError:  # it has left already
            user = -1
        if user not in (None, os.geteuid()):
            connection.close()
            return
        if self._server is None:
            self._server = WatchServer(self._bus, self._watching, self._names)
        self._server.add(connection)
