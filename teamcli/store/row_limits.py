"""How large a row of a team can be. Anyone with the right to write could insert one of a gigabyte: that is not
fetched."""

from __future__ import annotations

from teamcli.storage.files import LARGEST_LINE

LARGEST_ROW = LARGEST_LINE
"""In bytes. Nothing that a team writes is as large."""
LARGEST_NUMBER = 1 << 53
"""No team gets as far. A forged number may be higher, and nothing could follow the highest one."""


def bounded(column: str, most: int = LARGEST_ROW) -> str:
    """In a query: the text of a column, or null if it is larger than a team writes. Its size costs nothing."""
    return f"case when octet_length({column}) < {most} then {column} end"
