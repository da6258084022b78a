"""The composition root: turns options, settings and environment into a session. Only `app` constructs."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from teamcli.agent.budgets import Budgets
from teamcli.agent.events import (
    Answered,
    CallStarted,
    LimitHit,
    Notice,
    PermissionDenied,
    Severity,
    TaskChanged,
    TurnEnded,
)
from teamcli.agent.permission_question import Ask, nobody_to_ask
from teamcli.agent.transcript_sessions import read_marks
from teamcli.app.agent_factory import AgentFactory
from teamcli.app.briefing import Briefing
from teamcli.app.choices import Choices, choose, read_rules
from teamcli.app.command_hosts import open_host, plain_host
from teamcli.app.hooks import HookOpener
from teamcli.app.host_program import NOTHING_EMBEDDED, Embedding
from teamcli.app.late_part import LatePart
from teamcli.app.lazy_board import LazyBoard
from teamcli.app.lazy_mcp import LazyMcp
from teamcli.app.merging import open_merging
from teamcli.app.runtime import Runtime
from teamcli.app.session_for_hooks import SessionForHooks
from teamcli.app.state import LeadState, OpenState, StateGuard, StateOpener, open_roster
from teamcli.app.team_file import ProjectTeamFile, begin_planned, load_team_file
from teamcli.app.watch_channel import WatchChannel
from teamcli.cancel import CancelScope
from teamcli.config.custom_commands import CustomCommands, command_dirs
from teamcli.config.environment import STORE_PASSWORD, secret_values
from teamcli.config.options import Options
from teamcli.config.project import Project
from teamcli.config.project_files import TEAM_FILE
from teamcli.config.settings import add_allow_rule
from teamcli.errors import UnknownTeammate
from teamcli.exec.command_host import CommandHost
from teamcli.exec.commands import Commands
from teamcli.exec.job_list import JobList
from teamcli.llm.pricing import built_in_prices
from teamcli.session.event_bus import EventBus
from teamcli.session.lead_conversation import LeadConversation
from teamcli.session.live_policy import LivePolicy
from teamcli.session.session import (
    LEAVING_SECONDS,
    Catalog,
    CommandHosts,
    Preferences,
    RunRecord,
    Session,
)
from teamcli.session.timeline import Timeline
from teamcli.session.user_shell import UserShell
from teamcli.session.watching import Watching
from teamcli.team.bring_up import JOINED, bring_up
from teamcli.team.manager import TeammateManager, TeamParts
from teamcli.team.message import LEAD
from teamcli.team.outbox import Outbox
from teamcli.team.protocols import Protocols
from teamcli.team.quiescence import Quiescence
from teamcli.team.roster import Roster
from teamcli.team.running_agents import RunningAgents
from teamcli.team.stall_detector import StallDetector
from teamcli.team.task_gate import TaskGate
from teamcli.team.team_mail import TeamMail
from teamcli.team.team_tasks import TeamTasks
from teamcli.team.undelivered_mail import UndeliveredMail
from teamcli.text.redaction import register_secrets
from teamcli.tools.catalog import preload
from teamcli.workspace.changes import Changes

if TYPE_CHECKING:
    from teamcli.app.mcp import McpServers
    from teamcli.mcp.server import Ask as AskForServer
    from teamcli.tasks.board import BoardChange


def open_session(
    options: Options,
    project: Project,
    ask: Ask = nobody_to_ask,
    embedding: Embedding | None = None,
    ask_for_server: AskForServer | None = None,
) -> Session:
    """Build everything a lead needs.

    With an `embedding`, the process belongs to another program: its log, its garbage collector and its memory are left
    alone. `ask_for_server` puts questions of MCP servers to the user; without it they are declined.

    Raises: ConfigError, UsageError
    """
    notes: list[str] = []
    choices = choose(options, project, embedding or NOTHING_EMBEDDED, notes)
    owns_process = embedding is None or embedding.owns_process
    with ExitStack() as resources:
        opener = StateOpener(options, project, notes, resources)
        state = opener.open(choices, owns_process)
        lead_state = opener.open_lead(state, choices.model)

        def session_id() -> str:  # late: hooks report it, and the lead is built with them
            return session.conversation.id if assembly.agents.lead else ""

        ground = Ground(options, choices, state, EventBus(), CancelScope(), notes, resources, owns_process)
        assembly = assemble(ground, session_id, ask, ask_for_server)
        session = _open_lead(options, state, lead_state, assembly, notes, resources)
    if owns_process:
        gc.freeze()  # what is loaded now stays for good: the collector need not look at it again
        gc.enable()
    return session


def _open_lead(
    options: Options,
    state: OpenState,
    opened: LeadState,
    assembly: Assembly,
    notes: list[str],
    resources: ExitStack,
) -> Session:
    runtime, factory, team = assembly.runtime, assembly.factory, assembly.team
    project, settings, root = state.project, runtime.choices.settings, runtime.choices.workspace.root
    lead, known_files = factory.build_lead(team, opened.log, opened.history, read_marks(state.dir.lead_transcript))
    assembly.agents.add_lead(lead)
    notes += [*factory.briefing.notes, *filter(None, [project.claude.unused.line])]
    close_calls = partial(factory.close_calls, team)
    conversation = LeadConversation(lead, opened.session_id, opened.log, known_files, root, close_calls)
    plugins = project.plugins().folders("commands")
    folders = command_dirs(project.directory, project.home, project.agreement.covers, plugins)
    custom_commands = CustomCommands(project.sources.among(folders, plugins), root)
    models = tuple(dict.fromkeys((*built_in_prices().prices, *settings.prices)))
    shares_shell = settings.shell_output == "share"
    shell = UserShell(Commands(assembly.users_host), runtime.jobs, root, conversation if shares_shell else None)
    return Session(
        workspace=runtime.choices.workspace,
        state=state.dir,
        lead=lead,
        team=team,
        board=runtime.board,
        conversation=conversation,
        subagent_source=factory.subagents,
        live_policy=runtime.live_policy,
        budgets=runtime.budgets,
        events=runtime.events,
        watching=runtime.watching,
        command_hosts=CommandHosts(runtime.host, shell, runtime.jobs),
        catalog=Catalog(
            custom_commands,
            factory.briefing.skills.found,
            models,
            tuple(factory.briefing.roles.found.values()),
            settings.hooks,
            {plugin.name: plugin.root for plugin in project.plugins().found},
        ),
        record=assembly.record,
        preferences=Preferences(
            settings.vi_mode,
            settings.notify,
            settings.subagents.show_output,
            options.verbose,
            shares_shell,
            settings.wrap,
        ),
        cancel=runtime.cancel,
        resources=resources.pop_all(),
        mcp=runtime.mcp.existing.access(factory.places.shared) if runtime.mcp.existing else None,
        team_host=state.engine.host_life(team, runtime.bus, runtime.board, runtime.budgets, runtime.cancel),
    )


class Assembly(NamedTuple):
    """A team without its lead: what a session and a worker have in common."""

    runtime: Runtime
    factory: AgentFactory
    agents: RunningAgents
    team: TeammateManager
    users_host: CommandHost
    record: RunRecord


class Ground(NamedTuple):
    """What every part is built on."""

    options: Options
    choices: Choices
    state: OpenState
    events: EventBus
    cancel: CancelScope
    notes: list[str]
    """What the user should know at the start."""
    resources: ExitStack
    """Closes what is opened, in reverse order."""
    owns_process: bool = True

    def warn(self, text: str) -> None:
        self.events(Notice(LEAD, text, Severity.WARNING))


def assemble(
    ground: Ground, session_id: Callable[[], str], ask: Ask = nobody_to_ask, ask_for_server: AskForServer | None = None
) -> Assembly:
    """`session_id` is that of the lead's conversation; empty as long as there is none.

    Raises: ConfigError
    """
    ground, briefing = _with_roles(ground)
    options, choices, state, events, cancel, notes, resources, owns_process = ground
    dir, engine, settings = state.dir, state.engine, choices.settings
    record = RunRecord(Changes(), notes)

    # The process: its commands, and what keeps its events.
    register_secrets(secret_values(os.environ, settings.hidden_variables))
    host = open_host(settings, choices.workspace, state.project, owns_process=owns_process, warn=ground.warn)
    resources.callback(host.close)
    watching = _record_events(ground, record)
    users_host = plain_host(settings, host.programs, owns_process)
    resources.callback(users_host.close)

    # The team: who is in it, their mail, and those that run. Hosts and the board report to the team's tasks, which
    # need both.
    late_tasks: LatePart[TeamTasks] = LatePart()
    roster = open_roster(dir, engine, events, settings.limits.shutdown_seconds, notes)
    looks: list[Callable[[], None]] = []
    bus = engine.open_bus(ground.warn, partial(_call_each, looks))
    resources.callback(bus.close)
    outbox = Outbox(bus, events, engine.has_lead)
    agents = RunningAgents(engine.others(roster, bus, late_tasks))

    # What guards the work. Hooks report on agents, and the factory builds agents with hooks.
    late_factory: LatePart[AgentFactory] = LatePart()
    live_policy = LivePolicy(choices.policy, partial(_save_rule, choices, state), read_rules)
    budgets = Budgets(settings.budgets, options.max_budget_usd, choices.price)
    for_hooks = SessionForHooks(dir, roster, agents, outbox, live_policy, late_factory, session_id)
    hooks, prelude = HookOpener(dir, users_host, events, cancel, resources).open(choices, for_hooks, notes)

    board = _board(ground, roster, TaskGate(hooks, roster, agents, cancel), late_tasks)
    guard = StateGuard(state, roster, board, agents, events, cancel)
    channel = WatchChannel(dir, state.lock, events, watching, lambda: [LEAD, *roster.names()])
    resources.callback(channel.close)
    # A thread of the bus looks at these, too. Late: they need those that run, some of whom only the bus knows.
    looks += [partial(guard.check, bus), board.look, channel.look]

    ask, ask_for_server = engine.shared_ask(ask, ask_for_server)
    mcp = _open_mcp(ground, users_host, ask_for_server)
    resources.callback(mcp.close)
    runtime = Runtime(
        choices=choices,
        options=options,
        project=state.project,
        state=dir,
        engine=engine,
        events=events,
        roster=roster,
        bus=bus,
        board=board,
        host=host,
        jobs=JobList(),
        live_policy=live_policy,
        budgets=budgets,
        ask=ask,
        hooks=hooks,
        changes=record.changes,
        watching=watching,
        cancel=cancel,
        mcp=mcp,
        prelude=prelude,
    )
    factory = late_factory.bind(AgentFactory(runtime, briefing, owns_process))
    events.subscribe(partial(_get_ready, factory), CallStarted)
    team_file = _bring_up(runtime, factory, notes)
    team = _build_team(runtime, agents, outbox, factory, team_file)
    late_tasks.bind(team.tasks)
    _follow_agents(runtime, factory, resources)
    resources.callback(factory.close)
    return Assembly(runtime, factory, agents, team, users_host, record)


def _with_roles(ground: Ground) -> tuple[Ground, Briefing]:
    """Roles bring hooks of their own."""
    choices, state = ground.choices, ground.state
    briefing = Briefing(choices, state.project, ground.options)
    choices = choices.with_hooks_of(briefing.roles.found.values(), state.project)
    if state.engine.host_name:
        choices = choices.hiding(STORE_PASSWORD)
    return ground._replace(choices=choices), briefing


def _record_events(ground: Ground, record: RunRecord) -> Watching:
    """Connect what keeps the events: the timeline, watchers, and the record of the run."""
    events, engine = ground.events, ground.state.engine
    timeline = Timeline(engine.open_timeline(), ground.warn, engine.timeline_seconds)
    ground.resources.callback(timeline.close)
    events.subscribe(timeline)
    watching = Watching(events, ground.state.dir)
    events.subscribe(watching, *Watching.KINDS)
    events.subscribe(record.denials.append, PermissionDenied)
    events.subscribe(record.limits.append, LimitHit)
    return watching


def _follow_agents(runtime: Runtime, factory: AgentFactory, resources: ExitStack) -> None:
    """Count what agents use, and notice members that are stuck."""
    events, roster = runtime.events, runtime.roster
    # First, because it writes to the database.
    events.subscribe_first(partial(_count, roster, runtime.budgets), Answered, TurnEnded)
    patience_seconds, parent_of = runtime.choices.settings.stuck_after_seconds, factory.subagents.parent_of
    stall_detector = StallDetector(roster, events, runtime.cancel, patience_seconds, whose=parent_of)
    events.subscribe(stall_detector)
    resources.callback(stall_detector.join, LEAVING_SECONDS)


def _bring_up(runtime: Runtime, factory: AgentFactory, notes: list[str]) -> ProjectTeamFile:
    """Add members of the team file that are missing.

    Raises: ConfigError
    """
    choices, file = runtime.choices, None
    if runtime.has_team:
        own_tools = choices.embedding.tools
        file = load_team_file(runtime.project, choices.workspace, own_tools, factory.check_planned)
    if file is not None:
        begin = partial(begin_planned, runtime.engine, runtime.roster, runtime.bus)
        done = bring_up(runtime.roster, file, begin, brings_back=False)
        joined = [name for name, did in done if did == JOINED]
        notes += [f"Joined from {TEAM_FILE}: {', '.join(joined)}."] if joined else []
    return ProjectTeamFile(runtime.project, file)


def _build_team(
    runtime: Runtime, agents: RunningAgents, outbox: Outbox, factory: AgentFactory, team_file: ProjectTeamFile
) -> TeammateManager:
    roster = runtime.roster
    undelivered_mail = UndeliveredMail(agents, outbox)
    quiescence = Quiescence(agents, roster, factory.subagents, runtime.options.headless)
    tasks = TeamTasks(runtime.board, roster, agents, outbox, quiescence)
    protocols = Protocols(roster, agents, outbox, undelivered_mail, quiescence, runtime.cancel, tasks)
    placement = runtime.engine.placement(runtime.bus)
    merging = partial(open_merging, runtime, agents, outbox, factory.places)
    parts = TeamParts(
        roster=roster,
        agents=agents,
        outbox=outbox,
        mail=TeamMail(roster, agents, outbox),
        undelivered_mail=undelivered_mail,
        quiescence=quiescence,
        protocols=protocols,
        tasks=tasks,
        file=team_file,
        checkouts=factory.places,
        placement=placement,
        open_merging=merging,
    )
    return TeammateManager(parts, factory, runtime.choices.settings.limits.teammates)


def _board(ground: Ground, roster: Roster, gate: TaskGate, tasks: Callable[[], TeamTasks]) -> LazyBoard:
    def owners() -> list[str]:
        return [LEAD, *(member.name for member in roster.members() if member.is_active)]

    def changed(change: BoardChange) -> None:
        task, what = change.after, change.what
        event = TaskChanged(change.actor, task.id, what, task.subject, task.status, task.owner, change.is_outside)
        ground.events(event)
        tasks().changed(change)

    return LazyBoard(ground.state.engine, owners, changed, ground.warn, gate, lambda name: tasks().why_unread(name))


def _call_each(functions: Sequence[Callable[[], None]]) -> None:
    for function in functions:
        function()


def _save_rule(choices: Choices, state: OpenState, rule: str) -> None:
    # Not a rule about a tool that only the host program has: teamcli itself would reject it in the file.
    if rule in {tool.name for tool in choices.embedding.tools}:
        return
    add_allow_rule(state.dir.local_settings, rule)
    if not state.dir.is_private:
        state.project.agreement.rule_allowed(state.dir.local_settings, rule)


def _open_mcp(ground: Ground, users_host: CommandHost, ask: AskForServer | None) -> LazyMcp:
    """Starts no server. Raises: ConfigError"""
    options, choices, project = ground.options, ground.choices, ground.state.project

    def make() -> McpServers:
        from teamcli.app.mcp import McpServers, ServerSurroundings, find_servers  # late: most starts do without it

        servers = find_servers(options, choices.settings, project)
        around = ServerSurroundings(project.home, choices.workspace.root, users_host, ground.warn, ask)
        made = McpServers(servers, choices.settings.disabled_mcp_servers, around)
        ground.notes.extend(servers.problems)
        return made

    has_own = any(plugin.servers for plugin in project.plugins(options.plugin_dirs).found)
    return LazyMcp(make, is_needed=bool(choices.settings.mcpServers or options.mcp_config or has_own))


def _get_ready(factory: AgentFactory, event: CallStarted) -> None:
    """Load what a call needs while the model still writes it."""
    import teamcli.permissions.decide  # noqa: F401 - late: the first request waits for nothing that decides

    if event.tool == "bash":
        factory.places.named(factory.subagents.parent_of(event.agent)).host.prestart()
    preload(event.tool)


def _count(roster: Roster, budgets: Budgets, event: Answered | TurnEnded) -> None:
    """What counts for a teammate outlives the program: its calls, what it has used, and what its sub-agents have."""
    for name, budget in budgets.counting_for(event.agent).items():
        turns, cost_usd = (1, event.cost_usd) if isinstance(event, Answered) and name == event.agent else (0, 0.0)
        if name != LEAD:
            with suppress(UnknownTeammate):  # it was forgotten in the meantime
                roster.count(name, turns, cost_usd, budget.used.to_dict())
