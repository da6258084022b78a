"""Server-sent events of a streamable HTTP answer, with the fields that resuming needs."""

from __future__ import annotations

from collections.abc import Iterator

from teamcli.errors import McpError
from teamcli.mcp.messages import LARGEST_MESSAGE


class EventReader:
    """Takes chunks that may end anywhere. Lines end with LF, CRLF or CR."""

    def __init__(self) -> None:
        self.last_id = ""
        self.retry_seconds: float | None = None
        self.begin()

    def begin(self) -> None:
        """Another stream follows. What was not complete in the last one is lost."""
        self._rest = b""
        self._ended_with_return = False
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of each event that is complete.

        Raises: McpError
        """
        if self._ended_with_return and chunk:  # the rest of a CRLF
            chunk = chunk.removeprefix(b"\n")
            self._ended_with_return = False
        self._ended_with_return |= chunk.endswith(b"\r")
        data = self._rest + chunk
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        self._rest = data[whole:]
        if len(self._rest) + self._size > LARGEST_MESSAGE:
            raise McpError(f"a message of its answer has more than {LARGEST_MESSAGE:,} bytes")
        for line in data[:whole].splitlines():
            if line:
                self._take(line)
            elif self._data:
                event = b"\n".join(self._data)
                self._data, self._size = [], 0
                yield event

    def _take(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        value = value.removeprefix(b" ")  # one space after the colon does not count
        if name == b"data":
            self._data.append(value)
            self._size += len(value)
        # The standard ignores an id with a NUL. A long one would not fit into the header that resumes.
        elif name == b"id" and b"\0" not in value and len(value) <= 1000:
            self.last_id = value.decode("utf-8", "replace")
        elif name == b"retry" and value.isdigit() and len(value) < 9:
            self.retry_seconds = int(value) / 1000
