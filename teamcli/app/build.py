"""The composition root: the only place that constructs. Turns options, settings and environment into a session."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from teamcli.agent.approval import Ask, nobody_to_ask
from teamcli.agent.budgets import Budgets
from teamcli.agent.conversation import History
from teamcli.agent.events import (
    Answered,
    CallStarted,
    LimitHit,
    Notice,
    PermissionDenied,
    Severity,
    StatusChanged,
    TurnEnded,
)
from teamcli.agent.hooks import NO_HOOKS, Hooks
from teamcli.agent.transcript import begin_session, find_session, list_sessions, read_marks, session_rows
from teamcli.app.agent_factory import AgentFactory, Choices
from teamcli.app.embedding import NOTHING_EMBEDDED, Embedding
from teamcli.cancel import CancelScope
from teamcli.config.claude_code import unused_settings
from teamcli.config.custom_commands import CustomCommands, command_dirs
from teamcli.config.environment import MODEL, secret_values
from teamcli.config.options import Options
from teamcli.config.project import Project, inspect_project
from teamcli.config.settings import HOOK_EVENTS, Settings, add_allow_rule, load_settings
from teamcli.errors import ConfigError, StateError, UnknownTeammate
from teamcli.exec.command_host import CommandHost
from teamcli.exec.commands import Commands
from teamcli.exec.programs import Programs
from teamcli.exec.sandbox.paths import listed_paths, real_path
from teamcli.llm.credentials import ClientChoice, Endpoint, find_endpoint
from teamcli.llm.pricing import DEFAULT_MODEL, built_in_prices, cost
from teamcli.llm.types import Usage
from teamcli.permissions.policy import Mode, Policy
from teamcli.session.event_bus import EventBus
from teamcli.session.lead_conversation import LeadConversation
from teamcli.session.live_policy import LivePolicy
from teamcli.session.session import (
    EMBEDDED,
    LEAVING_SECONDS,
    OWN_MODEL,
    Catalog,
    Hosts,
    Preferences,
    RunRecord,
    Session,
)
from teamcli.session.timeline import Timeline
from teamcli.storage.files import AppendLog
from teamcli.storage.logs import log_to
from teamcli.storage.team_dir import LeadLock, TeamDir, lock_holder
from teamcli.team.bus import FileBus
from teamcli.team.left_mail import LeftMail
from teamcli.team.manager import TeammateManager, TeamParts
from teamcli.team.message import LEAD, is_subagent
from teamcli.team.outbox import Outbox
from teamcli.team.protocols import Protocols
from teamcli.team.quiescence import BackgroundWork, Quiescence
from teamcli.team.roster import Member, Roster
from teamcli.team.running_agents import RunningAgents
from teamcli.team.signing import load_key
from teamcli.team.stall_detector import StallDetector
from teamcli.text.escaping import escape_controls
from teamcli.text.redaction import register_secrets
from teamcli.tools.catalog import ALL_TOOLS, ToolDefinition, preload
from teamcli.ui import headless
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.changes import Changes

if TYPE_CHECKING:
    from teamcli.agent.loop import Agent
    from teamcli.exec.sandbox.sandbox import Sandbox
    from teamcli.hooks.runner import RegisteredHook
    from teamcli.permissions.rules import Rule

OFFERS_IN_A_LINE = 10
NO_KEY = (
    "No API key: a small embedded model is on, which follows plain words such as `run ls`."
    " For a real one set ANTHROPIC_API_KEY, in the environment or in .env."
)


def run_headless(options: Options) -> int:
    """`teamcli -p`; returns the exit code."""
    stdin = headless.read_stdin(options.prompt, may_be_empty=options.continue_last or bool(options.resume))
    place = _trusted_as_told(options)
    session = open_session(options, place)
    try:
        _print_notes([*untrusted_notes(place), *session.record.notes])
        resumes = options.continue_last or bool(options.resume)
        return headless.run_headless(session, options.prompt, stdin, options.output_format, resumes)
    finally:
        session.close()


def run_repl(options: Options) -> int:
    """`teamcli`: at a terminal or on a pipe; returns the exit code."""
    return _run_at_terminal(options) if sys.stdin.isatty() and sys.stdout.isatty() else _run_on_pipe(options)


def _run_at_terminal(options: Options) -> int:
    from teamcli.ui.terminal.questions import QuestionQueue

    place = _trusted_as_told(options)
    if place.must_ask and not options.trust:
        from teamcli.ui.terminal.run import ask_trust

        shown = [line for offer in place.pending for line in offer.lines]
        place = place.trust() if ask_trust(place.directory, shown) else place.refuse()
    questions = QuestionQueue()
    session = open_session(options, place, questions.ask)
    session.hosts.agents.prestart()
    session.record.notes += untrusted_notes(place)
    try:
        from teamcli.ui.terminal.run import (
            run_terminal,  # takes a while, in which the sandbox gets ready for the banner
        )

        return run_terminal(session, options.prompt, questions)
    finally:
        session.close()


def _run_on_pipe(options: Options) -> int:
    from teamcli.ui.piped import run_piped

    place = _trusted_as_told(options)
    session = open_session(options, place)
    try:
        _print_notes([*session.record.notes, *untrusted_notes(place)])
        return run_piped(session, options.prompt)
    finally:
        session.close()


def _trusted_as_told(options: Options) -> Project:
    place = inspect_project(Path.cwd())
    return place.trust() if place.pending and options.trust else place


def _print_notes(notes: list[str]) -> None:
    for note in notes:
        print(f"teamcli: {escape_controls(note)}", file=sys.stderr)


def untrusted_notes(place: Project) -> list[str]:
    """What is not used, in one line."""
    if not place.offers:
        return []
    more = f"; and {len(place.offers) - OFFERS_IN_A_LINE} more" if len(place.offers) > OFFERS_IN_A_LINE else ""
    return [f"Not used, because not trusted (--trust): {'; '.join(place.offers[:OFFERS_IN_A_LINE])}{more}."]


def read_settings(place: Project, given: Mapping[str, Any] = MappingProxyType({})) -> Settings:
    """`given` are settings that count more than those on disk.

    Raises: ConfigError
    """
    return load_settings(place.home / "settings.json", place.settings, given)


def choose_endpoint(options: Options, place: Project, settings: Settings) -> Endpoint | None:
    """None stands for the embedded model.

    Raises: ConfigError
    """
    if options.offline:
        return None
    client = cast(ClientChoice, options.client or settings.client)
    environment = place.environment
    return find_endpoint(
        environment.variables, client, settings.platform, settings.auth_header, environment.no_credential
    )


def choose_model(options: Options, place: Project, settings: Settings, endpoint: Endpoint | None) -> str:
    if endpoint is None:
        return EMBEDDED
    return options.model or place.environment.get(MODEL) or settings.model or DEFAULT_MODEL


def safe_programs(settings: Settings, workspace: Workspace, place: Project) -> Programs:
    """Those that agents cannot replace."""
    opened = listed_paths(settings.sandbox_writable, workspace.root, place.home.parent)
    return Programs(None, [workspace.root, *workspace.extra, *opened, place.home, real_path(place.home)])


def plain_host(settings: Settings, programs: Programs, owns_process: bool = True) -> CommandHost:
    """What runs the user's own commands and hooks, which no sandbox confines."""
    return CommandHost(os.environ, settings.hidden_variables, owns_process, programs=programs)


def open_host(
    settings: Settings,
    workspace: Workspace,
    place: Project,
    is_trial: bool = False,
    owns_process: bool = True,
    warn: Callable[[str], None] = lambda text: None,
) -> CommandHost:
    """What runs the commands of agents; in a trial it leaves no traces.

    Raises: ConfigError, where there must be a sandbox and there is none
    """
    is_needed = settings.sandbox == "required" or settings.sandbox_network != "on"
    programs = safe_programs(settings, workspace, place)
    if settings.sandbox == "off":
        if settings.sandbox_network != "on":
            raise ConfigError("`sandbox_network` closes the network by the sandbox, which `sandbox` turns off")
        return plain_host(settings, programs, owns_process)

    def make_sandbox() -> Sandbox:
        from teamcli.exec.sandbox.plan import SandboxSettings
        from teamcli.exec.sandbox.sandbox import Sandbox

        network, places = settings.sandbox_network, (settings.sandbox_writable, settings.sandbox_closed)
        roots = (workspace.root, *workspace.extra)
        guarded = _hook_files(settings, workspace.root)
        return Sandbox(SandboxSettings(roots, place.home.parent, network, *places, is_trial, guarded), programs)

    host = CommandHost(
        os.environ,
        settings.hidden_variables,
        owns_process,
        make_sandbox,
        is_needed,
        programs,
        lambda why: warn(f"No sandbox: {why}; commands run with your own rights."),
    )
    if is_needed and (why := host.why_unconfined() or host.why_refused()):
        setting = "sandbox" if settings.sandbox == "required" else "sandbox_network"
        raise ConfigError(f"the setting `{setting}` needs a sandbox, and there is none: {why}; see teamcli doctor")
    return host


def open_session(
    options: Options, place: Project, ask: Ask = nobody_to_ask, embedding: Embedding | None = None
) -> Session:
    """Build everything a lead needs. With an `embedding` the process is another program's: its log, its garbage
    collector and its memory are left alone.

    Raises: ConfigError, UsageError
    """
    session = _Builder(options, place, ask, embedding).build()
    if embedding is None:
        gc.freeze()  # what is loaded by now stays for good: the collector need not look at it again and again
        gc.enable()
    return session


class _State(NamedTuple):
    """What lies on disk, opened."""

    team: TeamDir
    lock: LeadLock | None
    log: AppendLog
    session_id: str
    history: History


@dataclass
class _Builder:
    """Builds one session: chooses, opens the state, assembles. `notes` collects what the user should know."""

    options: Options
    place: Project
    ask: Ask
    embedding: Embedding | None = None
    """Of the program that has teamcli built in; None where teamcli is the program."""
    notes: list[str] = field(default_factory=list)

    def build(self) -> Session:
        choices = self._choose()
        with ExitStack() as undo:
            state = self._open_state(choices, undo)
            return self._assemble(choices, state, undo)

    def _choose(self) -> Choices:
        options, place = self.options, self.place
        self.notes += [*place.environment.notes, *place.notes]
        self.notes += filter(None, [unused_settings(place.directory, place.home.parent)])
        embedding = self.embedding or NOTHING_EMBEDDED
        settings = read_settings(place, embedding.settings)
        endpoint = choose_endpoint(options, place, settings) if embedding.llm is None else None
        model = choose_model(options, place, settings, endpoint)
        if embedding.llm is not None:
            model = options.model or OWN_MODEL
        elif endpoint is None and not options.offline:
            self.notes.append(NO_KEY)
        price = partial(_price, settings=settings)
        if price(Usage(), model) is None and (setting := _in_dollars(options, settings)):
            raise ConfigError(f"{setting}: no price is known for {model}; give one under `prices` in settings")
        workspace = Workspace(place.directory, tuple(_directory(path) for path in options.add_dirs))
        policy = read_policy(options, settings, workspace.root, self._own_tools)
        return Choices(settings, workspace, policy, endpoint, model, price, embedding)

    @property
    def _own_tools(self) -> tuple[ToolDefinition, ...]:
        return self.embedding.tools if self.embedding else ()

    def _save_rule(self, team: TeamDir, rule: str) -> None:
        """Not one about a tool that only this program has: teamcli itself would find it to be a mistake there."""
        if rule in {tool.name for tool in self._own_tools}:
            return
        add_allow_rule(team.local_settings, rule)
        if not team.is_private:
            self.place.agreement.rule_allowed(team.local_settings, rule)

    def _open_state(self, choices: Choices, undo: ExitStack) -> _State:
        """The directory's own state, or a private one where that is asked for or another lead has the directory."""
        team, lock = self._team_dir(undo)
        if not team.is_private:
            known = self.place.notes
            self.place = self.place.claim()
            self.notes += [note for note in self.place.notes if note not in known]
        is_ours = team.is_private or self.place.may_use_state
        if not is_ours:
            # A roster, mail and transcripts that others wrote must not make an agent act: leave them all alone.
            self._refuse_to_continue()
            if lock is not None:
                lock.release()
            team, lock = self._private_dir(undo), None
        if self.embedding is None:
            log_to(team.logs, self.options.debug)
        session_id, history = self._session_to_continue(team)
        # Nobody else writes transcripts: the lead's lock, or a private directory, keeps other programs away.
        log = AppendLog(team.lead_transcript, choices.settings.durable, is_shared=False)
        undo.callback(log.close)
        if log.torn:
            self.notes.append("A line that a crash had left unfinished was cut from the transcript.")
        return _State(team, lock, log, begin_session(log, choices.model, session_id), history)

    def _team_dir(self, undo: ExitStack) -> tuple[TeamDir, LeadLock | None]:
        if not self.options.no_team:
            team = self.place.team
            team.prepare()
            if (lock := LeadLock.take(team.lock)) is not None:
                undo.callback(lock.release)
                return team, lock
            holder = f"process {lock_holder(team.lock)}"
            if not self.options.headless:
                raise ConfigError(f"teamcli already runs in this directory ({holder}); leave it, or use --no-team")
            self.notes.append(f"Another teamcli leads in this directory ({holder}): working alone beside it.")
        return self._private_dir(undo), None

    def _private_dir(self, undo: ExitStack) -> TeamDir:
        private = TeamDir.temporary()
        undo.callback(private.discard)
        return private

    def _session_to_continue(self, team: TeamDir) -> tuple[str | None, History]:
        wanted = self.options.resume
        if wanted is None and not self.options.continue_last:
            return None, History()
        sessions = list_sessions(team.lead_transcript)
        if not wanted and not sessions:
            self.notes.append("There is no session to continue here: this is a new one.")
            return None, History()
        session = find_session(sessions, wanted) if wanted else sessions[0]
        return session.id, History.read(session_rows(team.lead_transcript, session.id))

    def _refuse_to_continue(self) -> None:
        if self.options.resume is not None or self.options.continue_last:
            raise ConfigError("the conversations in .team/ were not made here; look at them, then use --trust")

    def _assemble(self, choices: Choices, state: _State, undo: ExitStack) -> Session:
        team_dir = state.team
        events = EventBus()
        cancel = CancelScope()

        def tell(text: str) -> None:
            events(Notice(LEAD, text, Severity.WARNING))

        def facts(agent: str) -> dict[str, Any]:
            transcripts = team_dir.subagent_transcripts if is_subagent(agent) else team_dir.transcripts
            place = {"cwd": str(choices.workspace.root), "permission_mode": str(live_policy.policy.mode)}
            return {"session_id": conversation.id, "transcript_path": str(transcripts / f"{agent}.jsonl"), **place}

        owns_process = self.embedding is None
        register_secrets(secret_values(os.environ, choices.settings.hidden_variables))
        host = open_host(choices.settings, choices.workspace, self.place, owns_process=owns_process, warn=tell)
        undo.callback(host.close)
        changes = Changes()
        timeline = Timeline(AppendLog(team_dir.events, durable=False, is_shared=False), tell)
        undo.callback(timeline.close)
        record = RunRecord(changes, self.notes)
        events.subscribe(timeline)
        events.subscribe(record.denials.append, PermissionDenied)
        events.subscribe(record.limits.append, LimitHit)
        events.subscribe(partial(_get_ready, host), CallStarted)
        users_host = plain_host(choices.settings, host.programs, owns_process)
        undo.callback(users_host.close)

        roster = self._roster(team_dir, events, choices.settings.limits.shutdown_seconds)
        owner, told = team_dir.read_owner_token(), set[str]()
        lost_at_last_look = False

        def look_after_state() -> None:
            """Somebody may delete all of `.team/` while we run."""
            nonlocal lost_at_last_look
            was_lost = lost_at_last_look  # else they may still be at it
            lost_at_last_look = state.lock is not None and state.lock.is_lost(team_dir.lock)
            if state.lock is None or not lost_at_last_look or not was_lost or cancel.cancelled:
                return
            said = _put_back(team_dir, state.lock, owner, team.agents.agents, roster, bus)
            if said not in told:  # what cannot be written is tried again
                told.add(said)
                tell(said)
            if state.lock.is_lost(team_dir.lock) and lock_holder(team_dir.lock) is not None:
                cancel.cancel("another teamcli leads here now")

        key = load_key(self.place.home)
        bus = FileBus(team_dir.inbox, key, choices.settings.durable, tell, on_look=look_after_state)
        undo.callback(bus.close)
        live_policy = LivePolicy(choices.policy, partial(self._save_rule, team_dir), _read_rules)
        factory = AgentFactory(
            choices,
            self.options,
            self.place,
            team_dir,
            events,
            roster,
            bus,
            host,
            live_policy,
            self.ask,
            cancel,
            self._hooks(choices, users_host, events, facts),
            changes,
        )
        team = TeammateManager(
            _team_parts(roster, bus, events, cancel, factory.subagents, self.options.headless),
            factory,
            choices.settings.limits.teammates,
        )
        lead = factory.build_lead(team, state.log, state.history, read_marks(team_dir.lead_transcript))
        team.agents.add_lead(lead.lead)
        events.subscribe(partial(_count, roster, factory.budgets), Answered, TurnEnded)
        pulse = StallDetector(
            roster, events, cancel, choices.settings.stuck_after_seconds, whose=factory.subagents.parent_of
        )
        events.subscribe(pulse)

        undo.callback(pulse.join, LEAVING_SECONDS)
        undo.callback(factory.close)
        self.notes += factory.notes
        conversation = LeadConversation(
            lead.lead,
            state.session_id,
            state.log,
            lead.known_files,
            choices.workspace.root,
            partial(factory.close_calls, team),
        )
        custom_commands = CustomCommands(
            command_dirs(self.place.directory, self.place.home, self.place.agreement.covers), choices.workspace.root
        )
        models = tuple(dict.fromkeys((*built_in_prices().prices, *choices.settings.prices)))
        settings = choices.settings
        return Session(
            workspace=choices.workspace,
            state=team_dir,
            lead=lead.lead,
            team=team,
            conversation=conversation,
            subagent_source=factory.subagents,
            live_policy=live_policy,
            budgets=factory.budgets,
            events=events,
            hosts=Hosts(host, Commands(users_host)),
            catalog=Catalog(custom_commands, factory.skills.found, models),
            record=record,
            preferences=Preferences(settings.vi_mode, settings.notify, settings.subagents.show_output),
            cancel=cancel,
            resources=undo.pop_all(),
        )

    def _hooks(
        self, choices: Choices, host: CommandHost, events: EventBus, facts: Callable[[str], dict[str, Any]]
    ) -> Hooks:
        groups = choices.settings.hooks
        unknown = ", ".join(name for name in groups if name not in HOOK_EVENTS)
        if unknown:
            known = ", ".join(HOOK_EVENTS)
            self.notes.append(f"Hooks for {unknown} are never run: there is no such event (there are: {known}).")
        registered: list[RegisteredHook] = []
        if groups:
            from teamcli.hooks.commands import command_hooks  # late: most starts do without it

            registered += command_hooks(groups, host, choices.workspace.root, events)
        if choices.embedding.hooks:
            from teamcli.hooks.functions import function_hooks  # late as well

            registered += function_hooks(choices.embedding.hooks)
        if not registered:
            return NO_HOOKS
        from teamcli.hooks.runner import HookRunner

        return HookRunner(registered, events, facts)

    def _roster(self, team_dir: TeamDir, events: EventBus, shutdown_seconds: float) -> Roster:
        roster = Roster(
            team_dir.config,
            lambda member: events(_status(member)),
            lambda text: events(Notice(LEAD, text, Severity.WARNING)),
            shutdown_seconds=shutdown_seconds,
        )
        if roster.needs_recovery:
            found = roster.recover(team_dir.transcripts, team_dir.inbox)
            self.notes += [roster.problem, *found] if roster.problem else found
        roster.mark_interrupted()
        return roster


def _team_parts(
    roster: Roster, bus: FileBus, events: EventBus, cancel: CancelScope, background: BackgroundWork, is_headless: bool
) -> TeamParts:
    agents, outbox = RunningAgents(), Outbox(bus, events)
    left_mail = LeftMail(agents, outbox)
    quiescence = Quiescence(agents, roster, background, is_headless)
    protocols = Protocols(roster, agents, outbox, left_mail, quiescence, cancel)
    return TeamParts(roster, agents, outbox, left_mail, quiescence, protocols)


def read_policy(options: Options, settings: Settings, root: Path, own_tools: Sequence[ToolDefinition] = ()) -> Policy:
    """Mode and rules of the settings and of the command line, which add up.

    Raises: ConfigError
    """
    rules, names = settings.permissions, {tool.name for tool in (*ALL_TOOLS, *own_tools)}
    return Policy(
        mode=Mode(options.permission_mode or rules.mode or Mode.DEFAULT),
        allow=_read_rules([*rules.allow, *options.allowed_tools], names),
        ask=_read_rules(rules.ask, names),
        deny=_read_rules([*rules.deny, *options.disallowed_tools], names),
        hook_files=_hook_files(settings, root),
    )


def _hook_files(settings: Settings, root: Path) -> tuple[Path, ...]:
    if not settings.hooks:
        return ()
    from teamcli.hooks.files import hook_files  # late: most starts do without hooks

    return hook_files(settings.hooks, root)


def _read_rules(rules: Sequence[str], known_tools: Collection[str] = ()) -> tuple[Rule, ...]:
    """Raises: ConfigError"""
    if not rules:
        return ()
    from teamcli.permissions.rules import parse_rules  # late: most starts do without any

    return parse_rules(rules, known_tools)


def _status(member: Member) -> StatusChanged:
    details = ("role", "error", "interrupted", "paused", "limit", "waiting_for", "stuck_since", "incarnation")
    return StatusChanged(member.name, member.status, {name: v for name in details if (v := getattr(member, name))})


def _put_back(
    team_dir: TeamDir, lock: LeadLock, owner: str, agents: Sequence[Agent], roster: Roster, bus: FileBus
) -> str:
    """`.team/` was deleted under the running program: write again what it still has; what to say about it."""
    try:
        team_dir.prepare()
        if not lock.take_again(team_dir.lock):
            holder = f"process {lock_holder(team_dir.lock)}"
            return f"{team_dir.root} was deleted, and another teamcli ({holder}) leads here now: this one stops"
        team_dir.write_owner_token(owner)
        bus.put_back()
        roster.put_back()
        for agent in agents:
            agent.conversation.put_back()
    except StateError as e:
        return f"{team_dir.root} was deleted, and cannot be written again: {e}"
    return (
        f"{team_dir.root} was deleted while teamcli runs: the team, its conversations and its mail were written again;"
        " to start afresh, leave teamcli first"
    )


def _get_ready(host: CommandHost, event: CallStarted) -> None:
    """Load what a call needs while the model still writes it."""
    import teamcli.permissions.decide  # noqa: F401 - late: the first request waits for nothing that decides

    if event.tool == "bash":
        host.prestart()
    preload(event.tool)


def _count(roster: Roster, budgets: Budgets, event: Answered | TurnEnded) -> None:
    """What counts for a teammate outlives the program: its calls, what it has used, and what its sub-agents have."""
    for name, budget in budgets.counting_for(event.agent).items():
        turns, cost_usd = (1, event.cost_usd) if isinstance(event, Answered) and name == event.agent else (0, 0.0)
        if name != LEAD:
            with suppress(UnknownTeammate):  # forgotten meanwhile
                roster.count(name, turns, cost_usd, budget.used.to_dict())


def _in_dollars(options: Options, settings: Settings) -> str:
    """Where dollars are bounded; empty where they are not. Teammates named there may have a model of their own."""
    if options.max_budget_usd is not None:
        return "--max-budget-usd"
    plan = settings.budgets._asdict()
    return next((f"budgets.{name}.usd" for name, each in plan.items() if name != "agents" and each.usd is not None), "")


def _price(usage: Usage, model: str, settings: Settings) -> float | None:
    return 0.0 if model == EMBEDDED else cost(usage, model, settings.prices)


def _directory(path: Path) -> Path:
    try:
        resolved = path.expanduser().resolve()
    except (OSError, RuntimeError) as e:  # `~somebody` whom nobody knows, links that go round in circles
        raise ConfigError(f"--add-dir: {path} cannot be found: {e}") from e
    if not resolved.is_dir():
        raise ConfigError(f"--add-dir: {path} is not a directory")
    return resolved
