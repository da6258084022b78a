"""Server-sent events: bytes from a socket → the JSON objects they carry.

Chunks may end anywhere. Comments, empty events and unused fields are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from teamcli.errors import ModelError, ServerFault

LARGEST_EVENT = 16_000_000
END_OF_EVENT = b"\n\n"
"""Fed after the last chunk, it ends an event that lacks its closing empty line."""


class EventParser:
    """Takes chunks; each call of `feed` yields the events that are complete."""

    def __init__(self) -> None:
        self._rest = b""
        self._name = ""
        self._data: list[bytes] = []

    def feed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        for line in self._lines(self._rest + chunk):
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif line.startswith(b"event:"):
                self._name = line[6:].decode("utf-8", "replace").strip()
            elif not line and (self._data or self._name) and (event := self._event()) is not None:
                yield event

    def _lines(self, data: bytes) -> list[bytes]:
        # A carriage return at the very end may be half of a CRLF, so it waits for the next chunk.
        whole = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
        self._rest = data[whole:]
        if len(self._rest) + sum(map(len, self._data)) > LARGEST_EVENT:
            raise ModelError(
                f"The endpoint's answer does not end: one event of it has more than {LARGEST_EVENT:,} bytes."
            )
        return data[:whole].splitlines()

    def _event(self) -> dict[str, Any] | None:
        name, data = self._name, b"\n".join(self._data)
        self._name, self._data = "", []
        if not data or name == "ping":
            return None
        try:
            event = json.loads(data.decode("utf-8", "replace"))
        except (ValueError, RecursionError):
            event = None
        if isinstance(event, dict):
            event.setdefault("type", name)
            return event
        if name:
            raise ServerFault(f"The endpoint sent a malformed event ({name}).")
        return None  # without a name it is the end mark of a gateway, such as `[DONE]`
