"""What a transcript or the timeline is written to. `AppendLog`, a file, is one."""

from __future__ import annotations

from typing import Protocol

from teamcli.storage.files import Json


class Log(Protocol):
    """Lines of JSON, one after the other. All methods raise StateError."""

    @property
    def end(self) -> int:
        """Where the last line ends in the file that holds them, or a copy of them."""

    @property
    def torn(self) -> bytes:
        """An unfinished last line that was cut off when this was opened."""

    def append(self, *values: Json) -> None:
        """Write all `values` in one step: all of them are kept, or none."""

    def write(self, value: Json) -> None:
        """Append without waiting until it is safe; `sync` does that."""

    def sync(self) -> None:
        """Wait until what was written is safe. If that fails, it was never written."""

    def put_back(self) -> None:
        """Write the file again if it was deleted."""

    def close(self) -> None:
        """A second call does nothing."""
