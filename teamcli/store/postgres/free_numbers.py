"""Numbers of rows that nobody has taken. A forged row may have the next one, or the highest one there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import Cursor

_WINDOW = 10_000


def free_numbers(cursor: Cursor[Any], table: str, key: str, values: Mapping[str, Any], count: int) -> list[int]:
    """The first numbers from `first` on without a row. `key` is the condition for the rows of one log; `first` and what
    it needs are in `values`."""
    found: list[int] = []
    first = int(values["first"])
    while len(found) < count:
        cursor.execute(
            f"select number from generate_series(%(first)s::bigint, %(first)s::bigint + {_WINDOW}) as number"
            f" where not exists (select 1 from {table} where {key} and seq = number)"
            " order by number limit %(count)s".encode(),
            {**values, "first": first, "count": count - len(found)},
        )
        found += [number for (number,) in cursor.fetchall()]
        first += _WINDOW + 1
    return found
