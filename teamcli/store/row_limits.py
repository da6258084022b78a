"""How large a row of a team can be. Anyone with the right to write could insert one of a gigabyte: that is not
fetched."""

from __future__ import annotations

from teamcli.storage.files import LARGEST_LINE

LARGEST_ROW = LARGEST_LINE
"""In bytes. Nothing that a team writes is as large."""
LARGEST_TASK = 8_000_000
"""In bytes. The file of a task may have 2 MB, and escapes take up to three times as much."""
LARGEST_REST = 1_000_000
"""In bytes: what a roster has besides its members and requests."""
LARGEST_SIGNATURE = 1_000
PAGE_BYTES = 1_000_000
"""What a slow line carries long before a statement has taken too long, and before a lease has to be renewed."""
LARGEST_NUMBER = 1 << 53
"""No team gets as far. A forged number may be higher, and nothing could follow the highest one."""


def bounded(column: str, most: int = LARGEST_ROW) -> str:
    """In a query: the text of a column, or null if it is larger than a team writes. Its size costs nothing."""
    return f"case when octet_length({column}) < {most} then {column} end"


def page(columns: str, rows: str, size: str, order: str) -> str:
    """A query for the first of these rows that together have no more bytes than a page, and at least for one. `size` is
    the column that may be long. `counted` is how many rows there are."""
    return f"""
        select {columns} from (
            select found.*, count(*) over () as counted, row_number() over (order by {order}) as nth,
                sum(octet_length({size})) over (order by {order} rows unbounded preceding) as bytes
            from ({rows}) as found
        ) as page where nth = 1 or bytes <= {PAGE_BYTES} order by {order}
    """
