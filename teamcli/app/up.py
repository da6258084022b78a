"""`teamcli up`: the members of the team file join, while no lead runs in the directory."""

from __future__ import annotations

import os
from contextlib import ExitStack
from functools import partial
from pathlib import Path

from teamcli.app.engine import FileEngine
from teamcli.app.state import open_roster
from teamcli.app.team_file import begin_planned, load_team_file
from teamcli.config.options import ExitStatus
from teamcli.config.project import Project, inspect_project
from teamcli.config.project_files import TEAM_FILE
from teamcli.errors import ConfigError
from teamcli.session.event_bus import EventBus
from teamcli.session.timeline import Timeline
from teamcli.storage.team_dir import LeadLock, lock_holder
from teamcli.team.bring_up import bring_up
from teamcli.team.requests import SHUTDOWN_SECONDS
from teamcli.text.escaping import escape_controls
from teamcli.workspace.bounds import Workspace

NOT_TRUSTED = f"{TEAM_FILE} is new or changed, and you have not agreed to it; look at it, then run teamcli up --trust"
NO_FILE = (
    f'there is no {TEAM_FILE}: write one, with the lines [[member]], name = "alice" and role = "coder" for each'
    " member, or type /team save in teamcli"
)


def run_up(trust: bool) -> int:
    """Print what was done with each member; returns the exit code.

    Raises: ConfigError, StateError
    """
    project = inspect_project(Path.cwd())
    if not os.path.lexists(project.team.team_toml):
        raise ConfigError(NO_FILE)
    project = project.trust() if trust and project.pending else project
    with ExitStack() as resources:
        for line in _bring_up(project, resources):
            print(escape_controls(line))
    return ExitStatus.DONE


def _bring_up(project: Project, resources: ExitStack) -> list[str]:
    file, dir = load_team_file(project, Workspace(project.directory)), project.team
    if file is None:
        raise ConfigError(NOT_TRUSTED)
    dir.prepare()
    if (lock := LeadLock.take(dir.lock)) is None:
        raise ConfigError(
            f"teamcli runs in this directory (process {lock_holder(dir.lock)}); leave it and start it again,"
            f" and it uses {TEAM_FILE}"
        )
    resources.callback(lock.release)
    if not project.claim().may_use_state:
        raise ConfigError("the team in .team/ was not made here; look at it, then run teamcli up --trust")
    notes: list[str] = []
    events = EventBus()
    engine = FileEngine(dir, project.home, durable=True)
    timeline = Timeline(engine.open_timeline(), notes.append, engine.timeline_seconds)
    resources.callback(timeline.close)
    events.subscribe(timeline)
    roster = open_roster(dir, engine, events, SHUTDOWN_SECONDS, notes)
    resources.callback(roster.close)
    bus = engine.open_bus(notes.append, on_look=lambda: None)
    resources.callback(bus.close)
    done = bring_up(roster, file, partial(begin_planned, engine, roster, bus), brings_back=True)
    return [*notes, *(f"{name}: {did}" for name, did in done)] if done else [*notes, f"{TEAM_FILE} has no members"]
