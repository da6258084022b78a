"""The tables, and how a database gets them. Columns are added, never renamed: older programs keep working."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from teamcli.errors import StateError

if TYPE_CHECKING:
    from psycopg import Cursor

MIGRATIONS = (
    """
    create table team (
        id bigint generated always as identity primary key,
        uid text not null unique,
        root text not null,
        name text not null,
        created_at timestamptz not null default clock_timestamp(),
        last_task bigint not null default 0,
        task_changes bigint not null default 0,
        doc text not null default '{}',
        unique (root, name)
    );
    create table host (
        team bigint not null references team on delete cascade,
        name text not null,
        epoch bigint not null,
        expires_at timestamptz not null,
        doc text not null,
        primary key (team, name)
    ) with (fillfactor = 50);
    create table lease (
        team bigint not null references team on delete cascade,
        name text not null,
        epoch bigint not null,
        host text not null,
        host_epoch bigint not null,
        primary key (team, name)
    ) with (fillfactor = 50);
    create table inbox (
        team bigint not null references team on delete cascade,
        name text not null,
        tail bigint not null default 0,
        incarnation integer not null default 0,
        primary key (team, name)
    ) with (fillfactor = 50);
    create table message (
        team bigint not null,
        inbox text not null,
        pos bigint not null,
        id text not null,
        body text not null,
        sent_at timestamptz not null default clock_timestamp(),
        primary key (team, inbox, pos),
        unique (team, inbox, id),
        foreign key (team, inbox) references inbox on delete cascade
    );
    create table transcript (
        team bigint not null references team on delete cascade,
        agent text not null,
        incarnation integer not null,
        seq bigint not null,
        epoch bigint not null,
        entry text not null,
        sig text not null,
        primary key (team, agent, incarnation, seq)
    );
    create table member (
        team bigint not null references team on delete cascade,
        name text not null,
        place bigint generated always as identity,
        version bigint not null default 1,
        doc text not null,
        sig text not null,
        primary key (team, name)
    );
    create unique index member_name on member (team, lower(name));
    create table request (
        team bigint not null references team on delete cascade,
        id text not null,
        place bigint generated always as identity,
        version bigint not null default 1,
        doc text not null,
        sig text not null,
        primary key (team, id)
    );
    create table task (
        team bigint not null references team on delete cascade,
        id bigint not null,
        version bigint not null default 1,
        change bigint not null default 0,
        status text not null,
        owner text,
        doc text not null,
        sig text not null,
        primary key (team, id)
    );
    create index task_change on task (team, change);
    create table question (
        team bigint not null references team on delete cascade,
        id text not null,
        host text not null,
        host_epoch bigint not null,
        doc text not null,
        sig text not null,
        answer text,
        answer_sig text,
        primary key (team, id)
    );
    create table event (
        team bigint not null references team on delete cascade,
        host text not null,
        seq bigint not null,
        entry text not null,
        primary key (team, host, seq)
    );
    create table document (
        team bigint not null references team on delete cascade,
        name text not null,
        body text not null,
        sig text not null default '',
        primary key (team, name)
    );
    """,
    # A member that was removed leaves a row without a document, and its name is free.
    """
    drop index member_name;
    create unique index member_name on member (team, lower(name)) where doc <> '';
    alter table event add column sig text not null default '';
    alter table inbox add column sig text not null default '';
    create table task_commit (
        team bigint not null references team on delete cascade,
        slot integer not null,
        token text not null,
        primary key (team, slot)
    ) with (fillfactor = 50);
    """,
)
_KEY = 0x7465616D636C69
"""Of the advisory lock that lets one program migrate at a time."""


def version_of(cursor: Cursor[Any]) -> int:
    """Which migrations the database has; 0 for an empty one."""
    cursor.execute("select to_regclass('meta') is not null")
    row = cursor.fetchone()
    if not row or not row[0]:
        return 0
    cursor.execute("select version from meta")
    found = cursor.fetchone()
    return int(found[0]) if found else 0


def migrate(cursor: Cursor[Any]) -> tuple[int, int]:
    """Bring the database to this program's version, in the transaction of the cursor. Returns the versions before and
    after.

    Raises: StateError, if a newer teamcli has migrated it
    """
    cursor.execute("select pg_advisory_xact_lock(%s)", (_KEY,))
    before = version_of(cursor)
    _refuse_newer(before)
    if not before:
        cursor.execute("create table meta (version integer not null)")
        cursor.execute("insert into meta values (0)")
    for script in MIGRATIONS[before:]:
        cursor.execute(script.encode())
    cursor.execute("update meta set version = %s", (len(MIGRATIONS),))
    return before, len(MIGRATIONS)


def check_version(cursor: Cursor[Any]) -> None:
    """Raises: StateError, if the tables are missing, older or newer."""
    version = version_of(cursor)
    _refuse_newer(version)
    if version < len(MIGRATIONS):
        state = f"has tables of version {version}" if version else "has no tables of teamcli"
        raise StateError(
            f"the database {state}, and this teamcli needs version {len(MIGRATIONS)}: teamcli store migrate"
        )


def _refuse_newer(version: int) -> None:
    if version > len(MIGRATIONS):
        raise StateError(
            f"the database was migrated by a newer teamcli (to version {version}, this one knows {len(MIGRATIONS)});"
            " update teamcli to use it"
        )
