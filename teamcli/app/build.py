"""The composition root: turns options, settings and environment into a session. Only `app` constructs."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
from teamcli.app.command_reports import report_hook
from teamcli.app.hooks import HookOpener, Running
from teamcli.app.host_program import NOTHING_EMBEDDED, Embedding
from teamcli.app.lazy_board import LazyBoard
from teamcli.app.lazy_mcp import LazyMcp
from teamcli.app.merging import open_merging
from teamcli.app.runtime import Runtime
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
from teamcli.session.watching import Watching
from teamcli.team.bring_up import JOINED, bring_up
from teamcli.team.manager import TeammateManager, TeamParts
from teamcli.team.message import LEAD, is_subagent
from teamcli.team.outbox import Outbox
from teamcli.team.protocols import Protocols
from teamcli.team.quiescence import Quiescence
from teamcli.team.roster import Roster
from teamcli.team.running_agents import RunningAgents
from teamcli.team.stall_detector import StallDetector
from teamcli.team.task_gate import TaskGate
from teamcli.team.team_tasks import TeamTasks
from teamcli.team.undelivered_mail import UndeliveredMail
from teamcli.text.redaction import register_secrets
from teamcli.tools.catalog import preload
from teamcli.workspace.changes import Changes

if TYPE_CHECKING:
    from teamcli.app.mcp import McpServers
    from teamcli.llm.types import Message
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

        def session_id() -> str:
            return session.conversation.id if assembly.agents.lead else ""

        assembly = assemble(options, choices, state, ask, notes, resources, session_id, ask_for_server, owns_process)
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
        command_hosts=CommandHosts(runtime.host, Commands(assembly.users_host), runtime.jobs),
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
            settings.shell_output == "share",
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


def assemble(
    options: Options,
    choices: Choices,
    state: OpenState,
    ask: Ask,
    notes: list[str],
    resources: ExitStack,
    session_id: Callable[[], str],
    ask_for_server: AskForServer | None = None,
    owns_process: bool = True,
) -> Assembly:
    """`session_id` is that of the lead's conversation; empty as long as there is none.

    Raises: ConfigError
    """
    briefing = Briefing(choices, state.project, options)
    choices = choices.with_hooks_of(briefing.roles.found.values(), state.project)
    if state.engine.host_name:
        choices = choices.hiding(STORE_PASSWORD)
    dir, project, settings, engine = state.dir, state.project, choices.settings, state.engine
    events, cancel = EventBus(), CancelScope()
    record = RunRecord(Changes(), notes)

    def warn(text: str) -> None:
        events(Notice(LEAD, text, Severity.WARNING))

    def hook_facts(agent: str) -> dict[str, Any]:
        transcripts = dir.subagent_transcripts if is_subagent(agent) else dir.transcripts
        facts = {"cwd": str(root_of(agent)), "permission_mode": str(live_policy.policy.mode)}
        if agent != LEAD:
            facts |= _about_agent(agent, roster, factory.subagents.type_of(agent))
        return {"session_id": session_id(), "transcript_path": str(transcripts / f"{agent}.jsonl"), **facts}

    def root_of(agent: str) -> Path:
        return factory.places.root_of(factory.subagents.parent_of(agent))

    def messages_of(agent: str) -> tuple[Message, ...]:
        thread = agents.get(agent)
        return tuple(thread.agent.conversation.messages) if thread else ()

    register_secrets(secret_values(os.environ, settings.hidden_variables))
    host = open_host(settings, choices.workspace, project, owns_process=owns_process, warn=warn)
    resources.callback(host.close)
    watching = _record_events(events, state, record, warn, resources)
    users_host = plain_host(settings, host.programs, owns_process)
    resources.callback(users_host.close)

    def look() -> None:
        guard.check(bus)
        board.look()
        channel.look()

    roster = open_roster(dir, engine, events, settings.limits.shutdown_seconds, notes)
    bus = engine.open_bus(warn, look)
    resources.callback(bus.close)
    agents = RunningAgents(engine.others(roster, bus, lambda: parts.tasks))

    def wake(agent: str, text: str) -> bool:
        return report_hook(agents, parts.outbox, agent, text)

    running = Running(hook_facts, session_id, root_of, messages_of, wake)
    hooks, prelude = HookOpener(dir, users_host, events, cancel, resources).open(choices, running, notes)

    def task_changed(change: BoardChange) -> None:
        events(_task_event(change))
        parts.tasks.changed(change)

    gate = TaskGate(hooks, roster, agents, cancel)
    board = LazyBoard(
        engine, partial(_owners, roster), task_changed, warn, gate, lambda name: parts.tasks.why_unread(name)
    )
    guard = StateGuard(state, roster, board, agents, events, cancel)
    channel = WatchChannel(dir, state.lock, events, watching, lambda: [LEAD, *roster.names()])
    resources.callback(channel.close)
    live_policy = LivePolicy(choices.policy, partial(_save_rule, choices, state), read_rules)
    budgets = Budgets(settings.budgets, options.max_budget_usd, choices.price)
    ask, ask_for_server = engine.shared_ask(ask, ask_for_server)
    mcp = _open_mcp(options, choices, state, notes, ask_for_server, users_host, warn)
    resources.callback(mcp.close)
    runtime = Runtime(
        choices=choices,
        options=options,
        project=project,
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
    factory = AgentFactory(runtime, briefing, owns_process)
    events.subscribe(partial(_get_ready, factory), CallStarted)
    team_file = _bring_up(runtime, factory, notes)
    parts = _team_parts(runtime, agents, factory, team_file)
    team = TeammateManager(parts, factory, settings.limits.teammates)
    _follow_agents(runtime, factory, resources)
    resources.callback(factory.close)
    return Assembly(runtime, factory, agents, team, users_host, record)


def _record_events(
    events: EventBus, state: OpenState, record: RunRecord, warn: Callable[[str], None], resources: ExitStack
) -> Watching:
    """Connect what keeps the events: the timeline, watchers, and the record of the run."""
    timeline = Timeline(state.engine.open_timeline(), warn, state.engine.timeline_seconds)
    resources.callback(timeline.close)
    events.subscribe(timeline)
    watching = Watching(events, state.dir)
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


def _team_parts(
    runtime: Runtime, agents: RunningAgents, factory: AgentFactory, team_file: ProjectTeamFile
) -> TeamParts:
    roster, outbox = runtime.roster, Outbox(runtime.bus, runtime.events)
    undelivered_mail = UndeliveredMail(agents, outbox)
    quiescence = Quiescence(agents, roster, factory.subagents, runtime.options.headless)
    tasks = TeamTasks(runtime.board, roster, agents, outbox, quiescence)
    protocols = Protocols(roster, agents, outbox, undelivered_mail, quiescence, runtime.cancel, tasks)
    placement = runtime.engine.placement(roster, runtime.bus)
    merging = partial(open_merging, runtime, agents, outbox, factory.places)
    return TeamParts(
        roster=roster,
        agents=agents,
        outbox=outbox,
        undelivered_mail=undelivered_mail,
        quiescence=quiescence,
        protocols=protocols,
        tasks=tasks,
        file=team_file,
        checkouts=factory.places,
        placement=placement,
        open_merging=merging,
    )


def _owners(roster: Roster) -> list[str]:
    """Those who can be given a task."""
    return [LEAD, *(member.name for member in roster.members() if member.is_active)]


def _task_event(change: BoardChange) -> TaskChanged:
    task = change.after
    return TaskChanged(change.actor, task.id, change.what, task.subject, task.status, task.owner, change.is_outside)


def _save_rule(choices: Choices, state: OpenState, rule: str) -> None:
    # Not a rule about a tool that only the host program has: teamcli itself would reject it in the file.
    if rule in {tool.name for tool in choices.embedding.tools}:
        return
    add_allow_rule(state.dir.local_settings, rule)
    if not state.dir.is_private:
        state.project.agreement.rule_allowed(state.dir.local_settings, rule)


def _about_agent(agent: str, roster: Roster, subagent_type: str) -> dict[str, str]:
    """What hooks learn about an agent that is not the lead."""
    member = roster.find(agent)
    if member is None:
        return {"agent_id": agent, "agent_type": subagent_type}
    names = {"teammate_name": agent, "team_name": roster.team_name}
    return {"agent_id": agent, "agent_type": member.role, **names}


def _open_mcp(
    options: Options,
    choices: Choices,
    state: OpenState,
    notes: list[str],
    ask: AskForServer | None,
    users_host: CommandHost,
    warn: Callable[[str], None],
) -> LazyMcp:
    """Starts no server. Raises: ConfigError"""
    project, settings = state.project, choices.settings

    def make() -> McpServers:
        from teamcli.app.mcp import McpServers, find_servers  # late: most starts do without it

        servers = find_servers(options, settings, project)
        notes.extend(servers.problems)
        root, disabled = choices.workspace.root, settings.disabled_mcp_servers
        return McpServers(servers.found.values(), project.home, root, users_host, notes, warn, disabled, ask)

    has_own = any(plugin.servers for plugin in project.plugins(options.plugin_dirs).found)
    return LazyMcp(make, is_needed=bool(settings.mcpServers or options.mcp_config or has_own))


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
