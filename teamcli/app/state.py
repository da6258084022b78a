"""Opens the state on disk: the directory, the lock, the session, the roster; and guards it while teamcli runs."""

from __future__ import annotations

import os
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from teamcli.agent.conversation import History
from teamcli.agent.events import (
    Emit,
    Notice,
    Severity,
    StatusChanged,
)
from teamcli.agent.transcript_sessions import begin_session, find_session, fork_session, list_sessions, session_rows
from teamcli.app.choices import Choices
from teamcli.app.engine import Engine, FileEngine
from teamcli.app.lazy_board import LazyBoard
from teamcli.cancel import CancelScope
from teamcli.config.environment import STORE
from teamcli.config.options import Options
from teamcli.config.project import Project
from teamcli.errors import ConfigError, StateError, UsageError
from teamcli.storage.debug_log import log_to
from teamcli.storage.team_dir import LeadLock, TeamDir, lock_holder
from teamcli.team.message import LEAD
from teamcli.team.message_bus import FileBus, MessageBus
from teamcli.team.roster import Member, Roster
from teamcli.team.running_agents import RunningAgents

if TYPE_CHECKING:
    from teamcli.storage.log import Log


class OpenState(NamedTuple):
    """The state on disk, opened."""

    dir: TeamDir
    lock: LeadLock | None
    engine: Engine
    project: Project
    """As it is after this directory was claimed."""


class LeadRuns(ConfigError):
    """Another process leads this team. A run without a team can work next to it."""

    def __init__(self, who: str, remedy: str) -> None:
        super().__init__(f"{who}; {remedy}")
        self.who = who


class LeadState(NamedTuple):
    """The lead's conversation, opened."""

    log: Log
    session_id: str
    history: History


class StateOpener:
    """Opens the directory's own state, or a private one if that is asked for or another lead has the directory."""

    def __init__(self, options: Options, project: Project, notes: list[str], resources: ExitStack) -> None:
        """`notes` collects what the user should know; `resources` closes what is opened."""
        self._options = options
        self._project = project
        self._notes = notes
        self._resources = resources
        self._resumes = options.resume is not None or options.continue_last

    def open(self, choices: Choices, owns_process: bool) -> OpenState:
        """Raises: ConfigError, StateError, UsageError."""
        if not self._options.no_team:
            if url := store_of(self._options, choices):
                try:
                    return self._open_store(url, choices.settings.lease_seconds, owns_process)
                except LeadRuns as e:
                    if not (self._options.headless and owns_process):  # a program that asked for a team must know
                        raise
                    self._notes.append(f"{e.who[0].upper()}{e.who[1:]}; this run will not join its team.")
                    return self._open_files(choices, self._private_dir(), None, owns_process)
            if self._options.team or self._options.host:
                from teamcli.store.location import refuse_without_store

                refuse_without_store(self._options.team, self._options.host)
        dir, lock = self._team_dir()
        if not dir.is_private:
            known = self._project.notes
            self._project = self._project.claim()
            self._notes += [note for note in self._project.notes if note not in known]
            if not self._project.may_use_state:
                # A roster, mail and transcripts that others wrote must not make an agent act: leave them alone.
                if self._resumes:
                    raise ConfigError("the conversations in .team/ were not made here; look at them, then use --trust")
                if lock is not None:
                    lock.release()
                dir, lock = self._private_dir(), None
        return self._open_files(choices, dir, lock, owns_process)

    def _open_files(self, choices: Choices, dir: TeamDir, lock: LeadLock | None, owns_process: bool) -> OpenState:
        if owns_process:
            log_to(dir.logs, self._options.debug)
        engine = FileEngine(dir, self._project.home, choices.settings.durable)
        return OpenState(dir, lock, engine, self._project)

    def _open_store(self, url: str, lease_seconds: float, owns_process: bool) -> OpenState:
        from teamcli.app.store_state import open_store  # late: it needs the extra `postgres`

        self._project = self._project.claim()
        with ExitStack() as opened:  # if it fails, nothing of it is needed anymore
            state = open_store(self._options, self._project, url, lease_seconds, opened, has_lead=True)
            self._resources.push(opened.pop_all())
        if owns_process:
            log_to(state.dir.logs, self._options.debug)
        return state

    def open_lead(self, state: OpenState, model: str) -> LeadState:
        """Raises: StateError, UsageError."""
        transcript = state.dir.lead_transcript
        log = state.engine.open_log(LEAD)
        self._resources.callback(log.close)
        session_id, history = self._session_to_resume(transcript)
        if log.torn:
            self._notes.append("A line that a crash had left unfinished was cut from the transcript.")
        return LeadState(log, self._begin(log, model, session_id, transcript), history)

    def _begin(self, log: Log, model: str, resumed: str | None, transcript: Path) -> str:
        """Raises: UsageError, StateError."""
        wanted, is_fork = self._options.session_id, self._options.fork_session
        if wanted and any(each.id == wanted for each in list_sessions(transcript)):
            raise UsageError(f"--session-id: there is a session '{wanted}' here; use --resume {wanted}")
        if resumed is None or not is_fork:
            return begin_session(log, model, resumed or wanted or None)
        return fork_session(log, model, session_rows(transcript, resumed), wanted or None)

    def _team_dir(self) -> tuple[TeamDir, LeadLock | None]:
        if not self._options.no_team:
            dir = self._project.team
            dir.prepare()
            if (lock := LeadLock.take(dir.lock)) is not None:
                self._resources.callback(lock.release)
                return dir, lock
            holder = f"process {lock_holder(dir.lock)}"
            if not self._options.headless:
                raise ConfigError(f"teamcli already runs in this directory ({holder}); leave it, or use --no-team")
            self._notes.append(f"Another teamcli is running here ({holder}); this run will not join its team.")
        return self._private_dir(), None

    def _private_dir(self) -> TeamDir:
        private = TeamDir.temporary()
        self._resources.callback(private.discard)
        return private

    def _session_to_resume(self, transcript: Path) -> tuple[str | None, History]:
        if not self._resumes:
            return None, History()
        sessions, wanted = list_sessions(transcript), self._options.resume
        if not wanted and not sessions:
            self._notes.append("There is no session to continue here: this is a new one.")
            return None, History()
        session = find_session(sessions, wanted) if wanted else sessions[0]
        return session.id, History.read(session_rows(transcript, session.id))


def store_of(options: Options, choices: Choices) -> str:
    """The URL of the store; empty if the state is in files, as it usually is."""
    given = options.store or choices.embedding.settings.get("store")  # by the program that embeds the session
    if not (given or os.environ.get(STORE) or choices.settings.store):
        return ""
    from teamcli.config.trust import home_dir
    from teamcli.store.location import find_store

    return find_store(given, os.environ, home_dir())


def open_roster(dir: TeamDir, engine: Engine, emit: Emit, shutdown_seconds: float, notes: list[str]) -> Roster:
    def on_change(member: Member) -> None:
        names = (
            "role",
            "error",
            "interrupted",
            "paused",
            "limit",
            "waiting_for",
            "stuck_since",
            "incarnation",
            "runs_on",
        )
        details = {name: v for name in names if (v := getattr(member, name))}
        emit(StatusChanged(member.name, member.status, details, is_outside=not engine.is_here(member)))

    def warn(text: str) -> None:
        emit(Notice(LEAD, text, Severity.WARNING))

    roster = Roster(engine.roster_store(), on_change, warn, shutdown_seconds=shutdown_seconds)
    if roster.needs_recovery:
        found = roster.recover(dir.transcripts, dir.inbox)
        notes += [roster.problem, *found] if roster.problem else found
    roster.mark_interrupted(engine.is_here)
    return roster


class StateGuard:
    """Writes the state again if `.team/` is deleted while the program runs."""

    def __init__(
        self,
        state: OpenState,
        roster: Roster,
        board: LazyBoard,
        agents: RunningAgents,
        emit: Emit,
        cancel: CancelScope,
    ) -> None:
        self._dir = state.dir
        self._lock = state.lock
        self._owner = state.dir.read_owner_token()
        self._roster = roster
        self._board = board
        self._agents = agents
        self._emit = emit
        self._cancel = cancel
        self._was_lost = False
        self._warned: set[str] = set()

    def check(self, bus: MessageBus) -> None:
        """Called by the bus each time it looks at the inboxes."""
        if self._lock is None or not isinstance(bus, FileBus):
            return
        # Only at the second look: the program that deletes the directory may not be done at the first.
        was_lost, self._was_lost = self._was_lost, self._lock.is_lost(self._dir.lock)
        if not self._was_lost or not was_lost or self._cancel.cancelled:
            return
        text = self._put_back(self._lock, bus)
        if text not in self._warned:  # what cannot be written is tried again
            self._warned.add(text)
            self._emit(Notice(LEAD, text, Severity.WARNING))
        if self._lock.is_lost(self._dir.lock) and lock_holder(self._dir.lock) is not None:
            self._cancel.cancel("another teamcli leads here now")

    def _put_back(self, lock: LeadLock, bus: FileBus) -> str:
        """Returns what to show the user."""
        root = self._dir.root
        try:
            self._dir.prepare()
            if not lock.take_again(self._dir.lock):
                holder = f"process {lock_holder(self._dir.lock)}"
                return f"{root} was deleted, and another teamcli ({holder}) leads here now: this one stops"
            self._dir.write_owner_token(self._owner)
            bus.put_back()
            self._roster.put_back()
            self._board.put_back()
            for agent in self._agents.agents:
                agent.conversation.put_back()
        except StateError as e:
            return f"{root} was deleted, and cannot be written again: {e}"
        return (
            f"{root} was deleted while teamcli runs: the team, its conversations and its mail were written again;"
            " to start afresh, leave teamcli first"
        )
