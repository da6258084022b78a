"""`teamcli store`: the database behind teams. It migrates, lists, deletes, exports and imports."""

from __future__ import annotations

import json
import os
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from teamcli.cancel import CancelScope
from teamcli.cli.tables import print_table
from teamcli.cli.team import warn
from teamcli.commands.reports.team import age
from teamcli.config.environment import STORE
from teamcli.config.options import ExitStatus
from teamcli.config.project import inspect_project
from teamcli.config.trust import home_dir
from teamcli.errors import UsageError
from teamcli.storage.team_dir import TeamDir
from teamcli.store.exporting import export_team
from teamcli.store.importing import Import
from teamcli.store.known_teams import KnownTeams
from teamcli.store.location import check_team_name, find_store, root_commit, root_or_nothing, shown_url
from teamcli.store.postgres.database import Database
from teamcli.store.postgres.roles import role_script
from teamcli.store.postgres.schema import check_version, migrate
from teamcli.store.postgres.team_rows import Team
from teamcli.store.postgres.teams import (
    TeamRecord,
    TeamSummary,
    delete_team,
    find_team,
    live_hosts,
    open_team,
    place_of,
    summaries,
)
from teamcli.team.signing import load_key
from teamcli.text.counting import counted
from teamcli.text.escaping import escape_controls, one_line
from teamcli.text.table import Column, Table
from teamcli.workspace.bounds import TEAM_DIR

_COLUMNS = (
    Column("TEAM", "name"),
    Column("REPOSITORY"),
    Column("MEMBERS", right=True),
    Column("MESSAGES", right=True),
    Column("ACTIVE", "dim", right=True),
    Column("HOSTS", shrinks=True),
)


def run_store(arguments: Namespace) -> int:
    """Do what `arguments.verb` says; returns the exit code.

    Raises: UsageError, ConfigError
    """
    if arguments.verb == "roles":
        print(role_script())
        return ExitStatus.DONE
    url = find_store(arguments.store, os.environ, home_dir())
    if not url:
        raise UsageError(f"name the database: --store postgresql://USER@HOST/DATABASE, or {STORE}")
    with _opened(url) as database:
        verbs: dict[str, Callable[[Database, str, Namespace], None]] = {
            "migrate": _migrate,
            "teams": _list,
            "delete": _delete,
            "export": _export,
            "import": _import,
        }
        verbs[arguments.verb](database, url, arguments)
    return ExitStatus.DONE


@contextmanager
def _opened(url: str) -> Iterator[Database]:
    database = Database(url, CancelScope(), waits=False)
    try:
        yield database
    finally:
        database.close()


def _migrate(database: Database, url: str, arguments: Namespace) -> None:
    before, after = database.run(migrate)
    if before == after:
        print(f"{shown_url(url)} is up to date (version {after}).")
    else:
        print(f"{shown_url(url)}: migrated from version {before} to {after}.")


def _list(database: Database, url: str, arguments: Namespace) -> None:
    database.run(check_version)
    found = database.run(summaries)
    if arguments.json:
        for each in found:
            print(json.dumps(_as_json(each)))
    elif found:
        print_table(Table("", _COLUMNS, tuple(map(_row, found))))
    else:
        print("No teams yet. Start one: teamcli --store URL, or bring one from files: teamcli store import.")


def _row(each: TeamSummary) -> tuple[str, ...]:
    record = each.record
    ago = f"{age(time.time() - each.active_at)} ago"
    hosts = one_line(", ".join(each.hosts), 200) or "none"
    return one_line(record.name, 64), record.root[:12], str(each.members), str(each.messages), ago, hosts


def _as_json(each: TeamSummary) -> dict[str, object]:
    record = each.record
    return {
        "name": record.name,
        "root": record.root,
        "uid": record.uid,
        "members": each.members,
        "messages": each.messages,
        "active": each.active_at,
        "hosts": list(each.hosts),
    }


def _delete(database: Database, url: str, arguments: Namespace) -> None:
    database.run(check_version)
    record = _chosen(database, arguments)
    summary = next(each for each in database.run(summaries) if each.record.id == record.id)
    what = f"{counted(summary.members, 'member')}, {counted(summary.messages, 'message')}"
    if not (arguments.yes or _confirmed(f"Delete the team '{record.name}' of {record.root[:12]} ({what})?")):
        raise UsageError("nothing was deleted; --yes deletes without asking")
    database.run(lambda cursor: delete_team(cursor, record))
    KnownTeams(home_dir()).forget(place_of(url, record))
    print(f"Deleted the team '{record.name}'.")


def _confirmed(question: str) -> bool:
    if not sys.stdin.isatty():
        return False
    print(f"{escape_controls(question)} [y/N] ", end="", flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _chosen(database: Database, arguments: Namespace) -> TeamRecord:
    """The team of this repository, or the one that --team (NAME or NAME@ROOT) chooses."""
    return find_team(database, root_or_nothing(Path.cwd(), arguments.team), arguments.team)


def _team(database: Database, url: str, arguments: Namespace, create: bool = False) -> Team:
    if create:
        name = check_team_name(arguments.team) if arguments.team else ""
        return open_team(url, root_commit(Path.cwd()), name, create=True, database=database)
    record = _chosen(database, arguments)
    return open_team(url, record.root, record.name, create=False, database=database)


def _export(database: Database, url: str, arguments: Namespace) -> None:
    database.run(check_version)
    target = _directory(arguments)
    team = _team(database, url, arguments)
    if hosts := database.run(lambda cursor: live_hosts(cursor, team.id)):
        warn(f"the team is running on {', '.join(hosts)}: what it does meanwhile is not in the export")
    if target.root.name == TEAM_DIR and target.root.parent.is_dir():
        # Before there is a team: otherwise the next start would take it for someone else's.
        inspect_project(target.root.parent).claim()
    with _progress("Exporting") as progress:
        aside = export_team(team, target, load_key(home_dir()), arguments.force, progress, warn)
    print(f"Exported to {target.root}.")
    if aside:
        print(f"What was there is in {aside}.")


def _import(database: Database, url: str, arguments: Namespace) -> None:
    source = _directory(arguments)
    if not source.has_state:
        raise UsageError(f"{source.root} has no team to import")
    if source.root.name == TEAM_DIR and not inspect_project(source.root.parent).may_use_state:
        # The team's key would sign what someone else has put into a repository.
        raise UsageError(f"{source.root} was made by someone else: agree to it first, with teamcli --trust")
    team = _team(database, url, arguments, create=True)
    with _progress("Importing") as progress:
        aside = Import(team, source, load_key(home_dir()), progress, warn).run()
    print(f"Imported {source.root} into {shown_url(url)}. The files are in {aside}.")
    print(f"Other machines need the key of the team: ~/.teamcli/teams/{team.uid}.key")


def _directory(arguments: Namespace) -> TeamDir:
    """An absolute path, so that messages name it, and without links: what is moved aside stays in it."""
    return TeamDir(Path(arguments.directory or TEAM_DIR).absolute())


@contextmanager
def _progress(verb: str) -> Iterator[Callable[[str], None]]:
    """Shows what is being moved, in one line that disappears. Nothing if standard error is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda part: None
        return

    def show(part: str) -> None:
        print(f"\r\x1b[K{verb}: {one_line(part, 60)}", end="", file=sys.stderr, flush=True)

    try:
        yield show
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
