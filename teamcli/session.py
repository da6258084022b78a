"""A session: the lead, its transcript, what it may do and what it has used. UIs drive it and listen to its events."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from teamcli.agent.conversation import text_block
from teamcli.agent.events import Emit, Event, PermissionDenied, TurnEnded
from teamcli.agent.journal import Journal
from teamcli.agent.limits import Budget
from teamcli.agent.loop import Agent, run_turn
from teamcli.agent.permissions import Mode, Policy, parse_rules
from teamcli.agent.prompt import FACTS_FRAME, environment_facts
from teamcli.agent.tool import Progress
from teamcli.agent.transcript import begin_session
from teamcli.cancel import CancelScope
from teamcli.errors import UsageError
from teamcli.files import AppendLog
from teamcli.llm.types import Block, Usage
from teamcli.state import LeadLock, TeamDir
from teamcli.tools.bash import describe_exit
from teamcli.tools.command_host import CommandHost
from teamcli.tools.commands import Commands
from teamcli.tools.known_files import KnownFiles
from teamcli.workspace import Workspace

LEAD = "lead"
EMBEDDED = "embedded"
SHELL_TIMEOUT_SECONDS = 600.0
LEAVING_SECONDS = 1.5

logger = logging.getLogger(__name__)


class Fanout:
    """Hands each event to all who listen, in the thread in which it happened, one after the other."""

    def __init__(self) -> None:
        self._consumers: list[Emit] = []
        self._lock = threading.RLock()  # one event at a time, so that no consumer mixes two; a consumer may emit

    def subscribe(self, consumer: Emit) -> None:
        with self._lock:
            self._consumers.append(consumer)

    def __call__(self, event: Event) -> None:
        with self._lock:
            for consumer in tuple(self._consumers):
                try:
                    consumer(event)
                except Exception:  # boundary: whoever only looks on must not be able to stop an agent
                    logger.exception("%s failed and is told nothing any more", consumer)
                    self._consumers.remove(consumer)


class Permits:
    """The live policy: the mode can change while agents work, and *always* adds rules."""

    def __init__(self, policy: Policy, save_rule: Callable[[str], None]) -> None:
        self.policy = policy
        self._save_rule = save_rule
        self._lock = threading.Lock()

    def set_mode(self, mode: Mode) -> None:
        with self._lock:
            self.policy = self.policy._replace(mode=mode)

    def always_allow(self, rule: str) -> None:
        """Raises: StateError, ConfigError."""
        with self._lock:
            self.policy = self.policy._replace(allow=(*self.policy.allow, *parse_rules([rule])))
            self._save_rule(rule)


@dataclass
class Session:
    """Everything of a running lead. Built by `app`, closed by whoever runs it."""

    id: str
    model: str
    workspace: Workspace
    team: TeamDir
    lead: Agent
    permits: Permits
    budget: Budget
    events: Fanout
    log: AppendLog
    journal: Journal
    host: CommandHost
    commands: Commands
    known_files: KnownFiles
    cancel: CancelScope = field(default_factory=CancelScope)
    lock: LeadLock | None = None
    notes: list[str] = field(default_factory=list)
    """What the user should know about how this session was set up."""
    denials: list[PermissionDenied] = field(default_factory=list)
    _facts: str = ""
    """What the lead was last told of its surroundings."""
    _turn: CancelScope | None = None
    _at_rest: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._at_rest.set()
        told = (block for message in self.lead.conversation.messages for block in message.content)
        facts = [block["text"] for block in told if str(block.get("text", "")).startswith(FACTS_FRAME)]
        self._facts = facts[-1] if facts else ""

    def submit(self, text: str, extra: tuple[Block, ...] = ()) -> TurnEnded:
        """Run one turn of the lead, in the calling thread, to its end."""
        turn = self._turn = self.cancel.child()
        self._at_rest.clear()
        try:
            return run_turn(self.lead, self._prompt(text, extra), turn)
        finally:
            self._turn = None
            self._at_rest.set()

    def interrupt(self) -> bool:
        """End the lead's turn, from any thread; false when it was at rest."""
        turn = self._turn
        if turn is None:
            return False
        turn.cancel("interrupted by the user")
        return True

    def clear(self) -> None:
        """Begin a new session with an empty conversation.

        Raises: StateError
        """
        self.id = begin_session(self.log, self.model)
        self.lead.conversation.start_afresh()
        self.known_files.clear()
        self._facts = ""

    def use_model(self, model: str) -> None:
        """Raises: UsageError."""
        if self.model == EMBEDDED:
            raise UsageError("the embedded model is on, and there is no other without a key (see teamcli doctor)")
        if self.budget.max_usd is not None and self.lead.price(Usage(), model) is None:
            raise UsageError(f"no price is known for {model}, and there is a budget; give one under `prices`")
        self.model = model
        self.lead.preamble = replace(self.lead.preamble, model=model)

    def warm_up(self) -> None:
        """Load what the first turn needs; for a thread of its own, while the user still types."""
        self.lead.llm.warm_up()
        self.host.prestart()

    def run_shell(self, command: str, cancel: CancelScope, progress: Progress) -> str:
        """A command of the user's own (`!command`): shown as it runs, and nothing is asked.

        Raises: ToolError, Cancelled
        """
        finished = self.commands.run(command, self.workspace.root, SHELL_TIMEOUT_SECONDS, cancel, progress)
        if finished.ended.timed_out:
            return f"[ended after {SHELL_TIMEOUT_SECONDS:.0f} s]"
        return f"[{describe_exit(finished.ended.exit_code)}]" if finished.ended.exit_code else ""

    def cost_line(self) -> str:
        """What this session has used, in one sentence."""
        used = self.lead.meter.usage
        tokens = f"{used.context_tokens - used.output_tokens:,} tokens in, {used.output_tokens:,} out"
        price = f"${self.budget.spent_usd:.4f}" if self.budget.is_known else "price of the model unknown"
        return f"{self.lead.meter.turns} model calls, {tokens}, {price}."

    def close(self) -> None:
        """Stop everything at once and in order: agents first, then their commands, then the files they write to."""
        self.cancel.cancel("teamcli is leaving")
        # A cancelled turn ends within milliseconds, and records what it had; who was told to leave waits no longer.
        self._at_rest.wait(LEAVING_SECONDS)
        self.commands.close()
        self.host.close()
        self.lead.llm.close()
        self.log.close()
        self.journal.close()
        self.team.discard()
        if self.lock is not None:
            self.lock.release()

    def _prompt(self, text: str, extra: tuple[Block, ...]) -> list[Block]:
        """The user's words, and at the end what has changed around the agent since it was last told."""
        blocks = [text_block(text), *extra]
        facts = environment_facts(self.workspace.root)
        if facts != self._facts:
            blocks.append(text_block(facts))
            self._facts = facts
        return blocks
