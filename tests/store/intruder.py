"""Someone who can write to the database as a host can, and does not have the key of the team."""

from __future__ import annotations

from typing import Any

from tests.support.postgres import HAND

TABLES = ("team", "host", "lease", "inbox", "message", "transcript", "member", "request", "task", "question", "event")


def as_hand(url: str) -> str:
    """The same database, with the rights of a worker."""
    return url.replace("postgres@", f"{HAND}@", 1)


class Intruder:
    def __init__(self, url: str) -> None:
        import psycopg

        self._connection = psycopg.connect(url, autocommit=True)
        self.refused: list[str] = []
        """What the role may not do."""

    def do(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Nothing, if the role may not do that, or the row is taken."""
        import psycopg

        try:
            cursor = self._connection.execute(sql.encode(), values or None)
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UniqueViolation) as e:
            self.refused.append(f"{sql}: {e}")
            return []
        return cursor.fetchall() if cursor.description else []

    def copy(self, table: str) -> list[dict[str, Any]]:
        """The rows as they are now, to put them back later."""
        cursor = self._connection.execute(f"select * from {table}".encode())
        names = [column.name for column in cursor.description or ()]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]

    def put_back(self, table: str, keys: tuple[str, ...], rows: list[dict[str, Any]]) -> None:
        """These rows as they were."""
        for row in rows:
            values = {name: value for name, value in row.items() if name not in (*keys, "place")}
            where = " and ".join(f"{key} = %s" for key in keys)
            changes = ", ".join(f"{name} = %s" for name in values)
            self.do(f"update {table} set {changes} where {where}", *values.values(), *(row[key] for key in keys))

    def wake(self, *topics: str) -> None:
        """What a host would notify others of."""
        for (team,) in self.do("select id from team"):
            for topic in topics:
                self.do("select pg_notify(%s, %s)", f"teamcli_{team}", topic)
                self.do("select pg_notify(%s, %s)", f"teamcli_{team}_lead", topic)

    def close(self) -> None:
        self._connection.close()
