"""A network between a client and PostgreSQL that a test can cut or stall: a port on loopback before the socket."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from pathlib import Path
from types import TracebackType


class Proxy:
    def __init__(self, target: Path) -> None:
        """`target` is the directory with the server's socket."""
        self._target = str(target / ".s.PGSQL.5432")
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._flows = threading.Event()
        self._flows.set()
        self._is_cut = False
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{database}"

    def cut(self) -> None:
        """End all connections, and refuse new ones."""
        self._is_cut = True
        self._end_all()

    def stall(self) -> None:
        """Keep all connections and accept new ones, but carry nothing. What stalls is lost."""
        self._flows.clear()

    def restore(self) -> None:
        self._end_stalled()
        self._is_cut = False
        self._flows.set()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._listening.close()
        self._end_all()
        self._flows.set()

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listening.accept()
                if self._is_cut:
                    client.close()
                else:
                    self._join(client)

    def _join(self, client: socket.socket) -> None:
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(self._target)
        except OSError:
            client.close()
            server.close()
            return
        self._pairs.append((client, server))
        for source, sink in ((client, server), (server, client)):
            threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self._flows.wait()
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _end_stalled(self) -> None:
        if not self._flows.is_set():
            self._end_all()

    def _end_all(self) -> None:
        pairs, self._pairs = self._pairs, []
        for end in (end for pair in pairs for end in pair):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
