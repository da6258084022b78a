"""A session: the lead and its team, what they may do and what they have used. UIs drive it and listen to its events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from teamcli.agent.budgets import Budgets
from teamcli.agent.context_window import compact
from teamcli.agent.conversation import History, text_block
from teamcli.agent.events import Event, LimitHit, PermissionDenied, TurnEnded
from teamcli.agent.hooks import SESSION_END, HookEvent, check_prompt
from teamcli.agent.limits import Budget
from teamcli.agent.loop import Agent
from teamcli.agent.prompt import FACTS_FRAME, environment_facts
from teamcli.agent.tool import Progress
from teamcli.agent.transcript import begin_session, find_session, list_sessions, session_rows
from teamcli.cancel import CancelScope
from teamcli.config.custom_commands import CustomCommands
from teamcli.config.instructions import add_instruction
from teamcli.config.skills import Skill
from teamcli.errors import Cancelled, PromptBlocked, UsageError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.commands import Commands
from teamcli.exec.running_command import describe_exit
from teamcli.llm.types import Block, Usage
from teamcli.permissions.policy import Mode, Policy
from teamcli.session.timeline import Timeline
from teamcli.storage.files import AppendLog
from teamcli.storage.team_dir import LeadLock, TeamDir
from teamcli.team.lead import Lead
from teamcli.team.manager import TeammateManager
from teamcli.team.message import LEAD as LEAD
from teamcli.team.message import USER
from teamcli.text.redaction import redact_value
from teamcli.text.tags import tagged
from teamcli.tools.catalog import ALL_TOOLS
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.changes import Changes
from teamcli.workspace.known_files import KnownFiles

if TYPE_CHECKING:
    from teamcli.permissions.rules import Rule
    from teamcli.subagents.manager import SubAgentManager

EMBEDDED = "embedded"
OWN_MODEL = "own"
"""The name of a model that the program has which teamcli is built into, unless it gives another."""
SHELL_TIMEOUT_SECONDS = 600.0
SHELL_PACE = 64_000
"""In a tenth of a second; a file is shown whole, and an endless command does not drown the terminal."""
LEAVING_SECONDS = 1.5
GO_ON = "<note>Go on with what you were doing.</note>"

Consumer = Callable[[Any], object]
"""Takes events of the kinds that it has subscribed to."""

logger = logging.getLogger(__name__)


class Preferences(NamedTuple):
    """What the user likes at the terminal."""

    vi_mode: bool = False
    notify: Literal["off", "bell", "desktop"] = "bell"
    shows_subagents: bool = False
    """What sub-agents say is shown as they say it."""


class EventBus:
    """Hands each event to all who listen, in the thread in which it happened, one after the other."""

    def __init__(self) -> None:
        self._consumers: list[tuple[Consumer, tuple[type[Event], ...]]] = []
        self._concerned: dict[type[Event], list[Consumer]] = {}
        self._lock = threading.RLock()  # one event at a time, so that no consumer mixes two; a consumer may emit

    def subscribe(self, consumer: Consumer, *kinds: type[Event]) -> None:
        """Tell `consumer` of all events, or only of these kinds."""
        with self._lock:
            self._consumers.append((consumer, kinds))
            self._concerned = {}

    def unsubscribe(self, consumer: Consumer) -> None:
        """Tell it nothing any more; from within a call of its own as well."""
        with self._lock:
            self._consumers = [each for each in self._consumers if each[0] != consumer]
            self._concerned = {}

    def __call__(self, event: Event) -> None:
        event = redact_value(event)
        with self._lock:
            for consumer in self._consumers_of(type(event)):
                try:
                    consumer(event)
                except Exception:  # boundary: whoever only looks on must not be able to stop an agent
                    logger.exception("%s failed and is told nothing any more", consumer)
                    self.unsubscribe(consumer)

    def _consumers_of(self, kind: type[Event]) -> list[Consumer]:
        if kind not in self._concerned:
            self._concerned[kind] = [consumer for consumer, kinds in self._consumers if not kinds or kind in kinds]
        return self._concerned[kind]


class LivePolicy:
    """The live policy: the mode can change while agents work, and *always* adds rules."""

    def __init__(
        self,
        policy: Policy,
        save_rule: Callable[[str], None],
        read_rules: Callable[[Sequence[str]], tuple[Rule, ...]],
    ) -> None:
        self.policy = policy
        self._read_rules = read_rules
        self._save_rule = save_rule
        self._lock = threading.Lock()
        self._listeners: list[Callable[[], None]] = []

    def set_mode(self, mode: Mode) -> None:
        with self._lock:
            self.policy = self.policy._replace(mode=mode)
        self._tell()

    @contextmanager
    def on_change(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener` after each change, while the block runs."""
        with self._lock:
            self._listeners.append(listener)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)

    def always_allow(self, rule: str) -> None:
        """Raises: StateError, ConfigError."""
        with self._lock:
            self.policy = self.policy._replace(allow=(*self.policy.allow, *self._read_rules([rule])))
        self._tell()
        with self._lock:
            self._save_rule(rule)

    def _tell(self) -> None:
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener()


@dataclass
class Session:
    """Everything of a running team. Built by `app`, closed by whoever runs it."""

    id: str
    model: str
    workspace: Workspace
    state: TeamDir
    lead: Lead
    team: TeammateManager
    has_team_tools: bool
    live_policy: LivePolicy
    budgets: Budgets
    events: EventBus
    log: AppendLog
    timeline: Timeline
    host: CommandHost
    """Of the agents' commands."""
    users_host: CommandHost
    """Of hooks and of what the user runs: never confined."""
    commands: Commands
    """The user's own."""
    known_files: KnownFiles
    cancel: CancelScope
    changes: Changes
    custom_commands: CustomCommands
    models: tuple[str, ...]
    """Those whose price is known."""
    close_calls: Callable[[Agent], None]
    """Answers the calls that a crash left open in a conversation."""
    skills: tuple[Skill, ...] = ()
    find_subagents: Callable[[], SubAgentManager | None] = lambda: None
    have_subagents: Callable[[], SubAgentManager] | None = None
    """Makes their manager where there is none yet."""
    release: Callable[[], None] = lambda: None
    """Ends what all agents have shared."""
    recover: Callable[[], None] = lambda: None
    """Tells what an earlier run could not tell any more."""
    lock: LeadLock | None = None
    preferences: Preferences = field(default_factory=Preferences)
    notes: list[str] = field(default_factory=list)
    """What the user should know about how this session was set up."""
    denials: list[PermissionDenied] = field(default_factory=list)
    limits: list[LimitHit] = field(default_factory=list)
    _facts: str = ""
    """What the lead was last told of its surroundings."""
    _news: list[Block] = field(default_factory=list)
    """What the user has done that the lead has not been told yet."""
    _told_news: list[Block] = field(default_factory=list)
    """What went with the newest line."""

    def __post_init__(self) -> None:
        self._facts = self._last_facts()
        self.events.subscribe(self._notice_unread, TurnEnded)

    def start(self, resume_all: bool = False) -> None:
        """Let the threads run. `resume_all`: those that were interrupted go on as well."""
        self.recover()
        self.lead.start()
        self.team.start(resume_all)

    def submit(self, text: str, piped: str = "") -> Future[TurnEnded]:
        """A line of the user's, with what was piped in beside it: the lead's next turn, or a word in between."""
        return self.lead.submit(self._prompt(text, piped), self._roster_block(), text, piped)

    def say(self, name: str, text: str) -> str:
        """A word of the user's to a teammate, where hooks let it pass; returns what to tell the user.

        Raises: PromptBlocked, TeamError, StateError, Cancelled
        """
        name = self.team.recipient(USER, name)
        try:
            added = check_prompt(self.lead.agent.hooks, name, text, self.cancel)
        except PromptBlocked as e:
            raise PromptBlocked(f"a hook has blocked this line: {e}") from e
        return self.team.say(name, f"{text}\n{added}" if added else text)

    def _notice_unread(self, ended: TurnEnded) -> None:
        if isinstance(ended.error, PromptBlocked | Cancelled):  # by a hook, or while one looked at it
            self._tell_again()

    def _tell_again(self) -> None:
        """The newest line was not read: what went with it goes with the next one."""
        self._facts = ""
        self._news, self._told_news = [*self._told_news, *self._news], []

    def add_instruction(self, line: str) -> str:
        """A line of the user's for the project's instructions (`#line`); the lead hears of it with its next turn.

        Raises: ConfigError
        """
        name = add_instruction(self.workspace.root, line)
        words = f"The user has added to the instructions in {name}: {line}"
        self._news.append(text_block(tagged("note", words, "", "")))
        return f"Added to {name}: {line}"

    def take_back(self) -> str | None:
        """The newest line that the lead has not read yet, taken back; None where there is none."""
        text = self.lead.take_back()
        if text is not None:
            self._tell_again()
        return text

    def withdraw(self, turn: Future[TurnEnded]) -> bool:
        """Take back the line behind `turn`; false where the lead has read it."""
        is_back = self.lead.withdraw(turn)
        if is_back:
            self._tell_again()
        return is_back

    def interrupt(self) -> bool:
        """End the lead's turn, from any thread; false when it was at rest."""
        return self.lead.interrupt("interrupted by the user")

    def clear(self) -> None:
        """Begin a new session with an empty conversation.

        Raises: StateError, and UsageError while the lead works
        """
        with self.lead.held():
            self._take_up(None, History(), "clear")

    def resume(self, wanted: str) -> None:
        """Go on with an earlier session of this directory; how far mail is read stays as it is.

        Raises: StateError, and UsageError for an unknown session or while the lead works
        """
        transcript = self.state.lead_transcript
        found = find_session(list_sessions(transcript), wanted)
        with self.lead.held():
            self._take_up(found.id, History.read(session_rows(transcript, found.id)), "resume")

    def compact(self, focus: str, cancel: CancelScope) -> bool:
        """Make the lead's conversation shorter, keeping above all what `focus` names; false where nothing can go.

        Raises: ModelError, StateError, Cancelled, LimitReached, and UsageError while the lead works
        """
        with self.lead.held():
            is_done = compact(self.lead.agent, focus, cancel)
            self._facts = self._last_facts()
        return is_done

    def use_model(self, model: str) -> None:
        """Raises: UsageError."""
        if self.model == EMBEDDED:
            raise UsageError("the embedded model is on, and there is no other without a key (see teamcli doctor)")
        is_bounded = any(budget.max_usd is not None for budget in self.lead.agent.meter.budgets)
        if is_bounded and self.lead.agent.price(Usage(), model) is None:
            raise UsageError(f"no price is known for {model}, and there is a budget; give one under `prices`")
        self.model = model
        self.lead.agent.use(replace(self.lead.agent.preamble, model=model))

    def warm_up(self) -> None:
        """Load what the first turn needs; for a thread of its own, while the user still types."""
        self.lead.agent.llm.warm_up()
        self.host.prestart()
        for tool in ALL_TOOLS:
            tool.load()

    def run_shell(self, command: str, cancel: CancelScope, progress: Progress) -> str:
        """A command of the user's own (`!command`): shown as it runs, and nothing is asked.

        Raises: ToolError, Cancelled
        """
        finished = self.commands.run(command, self.workspace.root, SHELL_TIMEOUT_SECONDS, cancel, progress, SHELL_PACE)
        if finished.ended.timed_out:
            return f"[ended after {SHELL_TIMEOUT_SECONDS:.0f} s]"
        return f"[{describe_exit(finished.ended.exit_code)}]" if finished.ended.exit_code else ""

    @property
    def budget(self) -> Budget:
        """Of all agents together, in this run."""
        return self.budgets.session

    @property
    def agents(self) -> list[Agent]:
        """Everybody who has worked in this run, the lead first."""
        return [*self.team.agents.agents, *(self.subagents.agents() if self.subagents else ())]

    @property
    def subagents(self) -> SubAgentManager | None:
        """None where there were none in this run."""
        return self.find_subagents()

    @property
    def usage(self) -> Usage:
        return sum((agent.meter.usage for agent in self.agents), Usage())

    def cost_line(self) -> str:
        """What this session has used, in one sentence."""
        used = self.usage
        tokens = f"{used.context_tokens - used.output_tokens:,} tokens in, {used.output_tokens:,} out"
        price = f"${self.budget.spent_usd:.4f}" if self.budget.is_known else "price of the model unknown"
        calls = sum(agent.meter.turns for agent in self.agents)
        estimated = " (estimated)" if used.is_estimated else ""
        return f"{calls} model {'call' if calls == 1 else 'calls'}, {tokens}{estimated}, {price}."

    def close(self) -> None:
        """Stop everything at once and in order: agents first, then their commands, then the files they write to."""
        self.cancel.cancel("teamcli is leaving")
        # A cancelled turn ends within milliseconds, and records what it had; who was told to leave waits no longer.
        self.lead.join(LEAVING_SECONDS)
        if self.subagents:
            self.subagents.close()
        self.team.close()
        self._tell_of_end("exit")
        self.host.close()
        self.users_host.close()
        for agent in self.agents:
            agent.llm.close()
            agent.conversation.close()
        self.release()
        self.log.close()
        self.timeline.close()
        self.state.discard()
        if self.lock is not None:
            self.lock.release()

    def _tell_of_end(self, reason: str) -> None:
        hooks = self.lead.agent.hooks
        if hooks.wants(SESSION_END, reason):
            hooks.run(HookEvent(SESSION_END, LEAD, {"reason": reason}, reason), CancelScope())

    def _take_up(self, session_id: str | None, history: History, why: str) -> None:
        self._tell_of_end(why)
        agent = self.lead.agent
        self.id = begin_session(self.log, self.model, session_id)
        agent.conversation.switch_to(history)
        self.known_files.restore(history.seen_files)
        self.close_calls(agent)
        self._facts = self._last_facts()
        self.lead.session_began(why)

    def _last_facts(self) -> str:
        """What the conversation was last told of the surroundings."""
        told = (block for message in self.lead.agent.conversation.messages for block in message.content)
        facts = [block["text"] for block in told if str(block.get("text", "")).startswith(FACTS_FRAME)]
        return facts[-1] if facts else ""

    def _prompt(self, text: str, piped: str) -> list[Block]:
        """The user's words, and what has changed around the lead since it was last told."""
        blocks = [*map(text_block, filter(None, (text, piped))), *self._news]
        self._told_news, self._news = self._news, []
        facts = environment_facts(self.workspace.root)
        if facts != self._facts:
            blocks.append(text_block(facts))
            self._facts = facts
        return blocks

    def _roster_block(self) -> list[Block]:
        """Who is there already, for a lead that begins afresh beside them."""
        if self.lead.agent.conversation.messages or not self.has_team_tools or not self.team.roster.members():
            return []
        return [text_block(tagged("team", self.team.describe()))]
