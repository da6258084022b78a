"""`teamcli up`: the members of the team file join, while no lead runs in the directory."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from teamcli.app.choices import read_settings
from teamcli.app.engine import Engine, FileEngine
from teamcli.app.state import open_roster
from teamcli.app.team_file import begin_planned, load_team_file
from teamcli.config.options import ExitStatus, Options
from teamcli.config.project import Project, inspect_project
from teamcli.config.project_files import TEAM_FILE
from teamcli.errors import ConfigError
from teamcli.session.event_bus import EventBus
from teamcli.session.timeline import Timeline
from teamcli.storage.team_dir import LeadLock, TeamDir, lock_holder
from teamcli.store.location import find_store, refuse_without_store
from teamcli.team.bring_up import bring_up
from teamcli.team.requests import SHUTDOWN_SECONDS
from teamcli.text.escaping import escape_controls
from teamcli.workspace.bounds import Workspace

NOT_TRUSTED = f"{TEAM_FILE} is new or changed, and you have not agreed to it; look at it, then run teamcli up --trust"
NO_FILE = (
    f'there is no {TEAM_FILE}: write one, with the lines [[member]], name = "alice" and role = "coder" for each'
    " member, or type /team save in teamcli"
)
RUNS = f"teamcli runs in this directory (process {{}}); leave it and start it again, and it uses {TEAM_FILE}"


def run_up(options: Options) -> int:
    """Print what was done with each member; returns the exit code.

    Raises: ConfigError, StateError, UsageError
    """
    project = inspect_project(Path.cwd())
    if not os.path.lexists(project.team.team_toml):
        raise ConfigError(NO_FILE)
    project = project.trust() if options.trust and project.pending else project
    with ExitStack() as resources:
        for line in _bring_up(options, project, resources):
            print(escape_controls(line))
    return ExitStatus.DONE


def _bring_up(options: Options, project: Project, resources: ExitStack) -> list[str]:
    file = load_team_file(project, Workspace(project.directory))
    if file is None:
        raise ConfigError(NOT_TRUSTED)
    if url := find_store(options.store, os.environ, project.home):
        dir, engine = _open_store(url, options, project, resources)
    else:
        refuse_without_store(options.team)
        dir, engine = _open_files(project, resources)
    notes: list[str] = []
    events = EventBus()
    timeline = Timeline(engine.open_timeline(), notes.append, engine.timeline_seconds)
    resources.callback(timeline.close)
    events.subscribe(timeline)
    roster = open_roster(dir, engine, events, SHUTDOWN_SECONDS, notes)
    resources.callback(roster.close)
    bus = engine.open_bus(notes.append, on_look=lambda: None)
    resources.callback(bus.close)
    done = bring_up(roster, file, partial(begin_planned, engine, roster, bus), brings_back=True)
    return [*notes, *(f"{name}: {did}" for name, did in done)] if done else [*notes, f"{TEAM_FILE} has no members"]


def _open_files(project: Project, resources: ExitStack) -> tuple[TeamDir, Engine]:
    dir = project.team
    dir.prepare()
    if (lock := LeadLock.take(dir.lock)) is None:
        raise ConfigError(RUNS.format(lock_holder(dir.lock)))
    resources.callback(lock.release)
    if not project.claim().may_use_state:
        raise ConfigError("the team in .team/ was not made here; look at it, then run teamcli up --trust")
    return dir, FileEngine(dir, project.home, durable=True)


def _open_store(url: str, options: Options, project: Project, resources: ExitStack) -> tuple[TeamDir, Engine]:
    """As the lead's host in this directory: only one process may change the team like this."""
    from teamcli.app.store_state import host_name, open_store  # late: it needs the extra `postgres`

    lock = TeamDir.mirror(project.directory, host_name("", has_lead=True)).lock
    if (holder := lock_holder(lock)) is not None:
        raise ConfigError(RUNS.format(holder))
    lease_seconds = read_settings(project).lease_seconds
    state = open_store(options, project.claim(), url, lease_seconds, resources, has_lead=True)
    return state.dir, state.engine
