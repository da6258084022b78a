"""`teamcli worker`: runs members of a team in a database, without a lead."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM

from teamcli.agent.events import Event, Notice, StatusChanged
from teamcli.app.build import Ground, assemble
from teamcli.app.choices import choose
from teamcli.app.host_program import NOTHING_EMBEDDED
from teamcli.app.state import store_of
from teamcli.app.store_state import open_store
from teamcli.cancel import CancelScope
from teamcli.config.options import ExitStatus, Options
from teamcli.config.project import inspect_project
from teamcli.errors import UsageError
from teamcli.session.event_bus import EventBus
from teamcli.storage.debug_log import log_to
from teamcli.team.hosting import DRAIN_SECONDS
from teamcli.team.message import LEAD
from teamcli.text.escaping import escape_controls
from teamcli.ui.signals import LOOK_SECONDS, SignalReceived, signals_raise

LEAVING_SECONDS = DRAIN_SECONDS + 20.0
_NOT_HANDED_OVER = (
    "The database does not answer, so this host leaves without handing over {names}. Another host takes over within"
    " {seconds:g} s of the database being back, from what is recorded. Nothing recorded is lost."
)


def run_worker(options: Options, slots: int) -> int:
    """Runs until a signal ends it; returns the exit code.

    Raises: ConfigError, StateError, UsageError
    """
    project = inspect_project(Path.cwd())
    project = project.trust() if project.pending and options.trust else project
    notes: list[str] = []
    choices = choose(options, project, NOTHING_EMBEDDED, notes)
    url = store_of(options, choices)
    if not url:
        raise UsageError("a worker needs the team's database: use --store URL, or set TEAMCLI_STORE")
    with ExitStack() as resources:
        state = open_store(
            options, project.claim(), url, choices.settings.lease_seconds, resources, has_lead=False, slots=slots
        )
        log_to(state.dir.logs, options.debug)
        ground = Ground(options, choices, state, EventBus(), CancelScope(), notes, resources)
        team = assemble(ground, session_id=str)
        runtime = team.runtime
        life = state.engine.host_life(team.team, runtime.bus, runtime.board, runtime.budgets, runtime.cancel)
        assert life is not None
        for note in notes:
            _print(note)
        team.runtime.events.subscribe(_show, StatusChanged, Notice)
        cancel = team.runtime.cancel
        with signals_raise(SIGINT, SIGTERM, SIGHUP, leaving_seconds=LEAVING_SECONDS):
            try:
                team.factory.subagents.report_lost(team.team)
                team.team.start(resume_all=False)
                life.start()
                _print(
                    f"Host '{life.hosting.name}' is ready for up to {slots} members. Ctrl-C hands them over and ends."
                )
                while not cancel.wait(LOOK_SECONDS):
                    pass
                code: int = ExitStatus.FAILED
                _print(f"This host stops: {cancel.reason}")
            except SignalReceived as e:
                code = ExitStatus.DONE if e.signal_name == "SIGTERM" else e.exit_code
                _print("Handing over the members of this host ... (Ctrl-C once more: leave at once)")
                if kept := life.leave():
                    _print(_NOT_HANDED_OVER.format(names=", ".join(kept), seconds=choices.settings.lease_seconds))
            finally:
                cancel.cancel("teamcli is leaving")
                team.team.close()
                life.close()
        return code


def _show(event: Event) -> None:
    if isinstance(event, StatusChanged) and not event.is_outside:
        what = event.details.get("error") or event.details.get("waiting_for") or ""
        _print(f"{event.agent}: {event.status}{f' ({what})' if what else ''}")
    elif isinstance(event, Notice):  # what is about the whole host has the lead's name, who is not here
        _print(event.text if event.agent == LEAD else f"{event.agent}: {event.text}")


def _print(text: str) -> None:
    print(escape_controls(text), file=sys.stderr, flush=True)
