"""The lead: it works on the user's lines, and on mail when nobody types.

Waking costs a model call, so it waits for what is worth one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from teamcli.agent.conversation import text_block
from teamcli.agent.events import LimitHit, LineTaken, Notice, Outcome, Severity, TurnEnded
from teamcli.agent.hooks import SESSION_START, HookEvent, check_prompt, hook_note
from teamcli.agent.loop import Agent, Delivery, run_turn
from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, LimitReached, PromptBlocked, UsageError
from teamcli.llm.types import Block
from teamcli.team.agent_thread import AgentThread, ThreadState
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import MessageType
from teamcli.team.typed_lines import TypedLine, TypedLines
from teamcli.workspace.bounds import Workspace

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.2
"""How long mail is gathered before it wakes the lead."""
ENDING_SECONDS = 0.3
"""How long `held` waits for a turn that may just be ending."""
MAX_IDLE_WAKES = 25
"""Wake-ups in a row in which the lead called no tool; then it sleeps until the user's next line."""
KEEP = "KEEP"
ANSWER_AGAIN = (
    "<note>This run prints only your last answer to the user, and you have given one. If it still stands word for word,"
    f" reply with exactly {KEEP}. Otherwise answer again, in full: nobody reads what you said before.</note>"
)
"""For a lead that mail wakes after its answer; without it, a short "done" would replace the answer."""
SLEEPS = f"The lead was woken {MAX_IDLE_WAKES} times without doing anything; it sleeps until your next line."


class TeamStatus(Protocol):
    """What the lead needs of its team."""

    @property
    def is_working(self) -> bool:
        """Whether a teammate is not idle."""

    def notify(self) -> None:
        """The lead turned idle, or the user has typed a line."""


class Lead(AgentThread):
    def __init__(
        self,
        agent: Agent,
        mailbox: Mailbox,
        scope: CancelScope,
        workspace: Workspace,
        team: TeamStatus,
        is_headless: bool = False,
    ) -> None:
        """`is_headless`: only the last answer is read, so results wait until every teammate is idle."""
        super().__init__(agent, mailbox, scope, workspace)
        # Nothing wakes it before the user's first line. The same holds after an interruption, after too many idle
        # wake-ups and when a limit is reached.
        self._mail_wakes = False
        self._team = team
        self._is_headless = is_headless
        self.lines = TypedLines(scope)
        self._read: list[TypedLine] = []
        """Those that the current turn has read."""
        self._mail_at: float | None = None
        """When the first mail arrived that has not been looked at."""
        self._idle_wakes = 0
        self._opened_by = "resume" if agent.conversation.messages else "startup"
        """How a session began that hooks do not know of yet; else empty."""
        self._hook_context: list[Block] = []
        """What they said about it, for the next turn."""
        self.last: TurnEnded | None = None
        """How the last turn ended, with the last answer to the user."""
        self.limit = ""
        """The limit that ended the last turn, if one did."""

    def submit(
        self, blocks: Sequence[Block], closing: Sequence[Block] = (), text: str = "", piped: str = ""
    ) -> Future[TurnEnded]:
        """A line from the user: the next turn, or part of the current one. Cancelled once the program is leaving."""
        line = TypedLine(blocks, Future(), closing, text, piped)
        if self.lines.add(line):
            self.wake()
            self._team.notify()
        return line.ended

    # What wakes and stops it

    @property
    def has_work(self) -> bool:
        return not self.scope.cancelled and (bool(self.lines) or self._should_wake())

    def mail_arrived(self) -> None:
        with self._changed:
            if self._mail_at is None:
                self._mail_at = time.monotonic()
        self.wake()

    def teammate_idle(self) -> None:
        """A teammate turned idle: results that waited for it may be due."""
        # No flag remembers that they wait: any thread may look at the lead, and none may take the wake-up away.
        if self._is_headless and self.mailbox.has_unread:
            self.mail_arrived()

    def resume(self) -> None:
        """From now on mail wakes it, even if the user has not typed anything in this run."""
        super().resume()
        self.mail_arrived()

    def resume_within_limits(self) -> bool:
        """A limit was raised: resume if that limit had stopped it, and say whether it did."""
        if not self.limit or self.agent.meter.reached():
            return False
        self.limit = ""
        self.resume()
        return True

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep it from beginning a turn inside the block.

        Raises: UsageError, while it works
        """
        with self._changed:
            # Its last words appear a moment before its turn has ended.
            self._changed.wait_for(lambda: self._state is not ThreadState.WORKING, ENDING_SECONDS)
            if self._state is ThreadState.WORKING or self.lines:
                raise UsageError("the lead is working: wait for it, or interrupt it first (Ctrl-C, /stop lead)")
            if self._state is ThreadState.HELD:
                raise UsageError("the conversation is being compacted: wait for it, or interrupt it first (Ctrl-C)")
            self._state = ThreadState.HELD
        try:
            yield
        finally:
            self._end_turn(ThreadState.IDLE)
            self.wake()

    def session_began(self, source: str) -> None:
        """Another session has replaced the last one; hooks are notified before the next turn."""
        with self._changed:
            self._opened_by = source

    def _should_wake(self) -> bool:
        """Whether unread mail is worth a model call now. Called with the lock held, by any thread: changes nothing."""
        if not self._mail_wakes or not self.mailbox.has_unread:
            return False
        holds_results = self._is_headless and self._team.is_working
        # The results of work that the user began are shown to the user, and go to the model with the next turn.
        return any(
            message.type is not MessageType.RESULT or not holds_results
            for message in self.mailbox.look()
            if not message.fields.get("by_user")
        )

    def _seconds_until_due(self) -> float | None:
        if self._mail_at is None or self._state is ThreadState.HELD:
            return None
        return max(0.0, self._mail_at + GATHER_SECONDS - time.monotonic())

    # Its turns

    def step(self) -> bool:
        with self._changed:
            if self._state is ThreadState.HELD:
                return False
            line = self.lines.take_next()
            if line is not None:
                self._mail_wakes = True
                self._idle_wakes = 0
            elif self._seconds_until_due() == 0.0:
                self._mail_at = None
                if not self._should_wake():
                    return False
            else:
                return False
            turn = self._begin_turn()
        if line is not None:
            self.agent.emit(LineTaken(self.name, line.text))
        self._run_turn(line, turn)
        return True

    def _run_turn(self, line: TypedLine | None, turn: CancelScope) -> None:
        self._read = [line] if line else []
        calls_before = self.agent.meter.tool_calls
        try:
            ended = self._work(line, turn)
        except Exception as e:  # boundary: someone waits for the end of this turn
            logger.exception("the lead failed")
            self._on_failure(e)
            ended = self._ended(Outcome.FAILED, e)
        if line is None:
            is_idle = self.agent.meter.tool_calls == calls_before
            self._idle_wakes = self._idle_wakes + 1 if is_idle else 0
        sleeps = self._idle_wakes >= MAX_IDLE_WAKES
        with self._changed:
            self.last = ended if line else self._with_answer(ended)
            self.limit = str(ended.error) if isinstance(ended.error, LimitReached) else ""
            if self.limit or sleeps:
                self._mail_wakes = False
            read, self._read = self._read, []
            # A turn takes only so much mail, and none that it could not record: the rest gets a turn of its own.
            if self._mail_at is None and self.mailbox.has_unread:
                self._mail_at = time.monotonic()
            self._end_turn(ThreadState.IDLE)
        if sleeps:  # outside the lock: a consumer of the event may write to the lead
            self.agent.emit(Notice(self.name, SLEEPS, Severity.WARNING))
        for each in read:
            each.ended.set_result(ended)

    def _work(self, line: TypedLine | None, turn: CancelScope) -> TurnEnded:
        if line is None and (why := self.agent.meter.reached()):  # before mail is taken: it stays unread
            self.agent.emit(LimitHit(self.name, str(why), why.limit, why.is_given))
            return self._ended(Outcome(why.limit), why)
        try:
            self._open_session(turn)
            lines = [self._checked(line, turn)] if line else []
        except PromptBlocked as e:
            return self._ended(Outcome.FAILED, e)
        except Cancelled as e:
            return self._ended(Outcome.INTERRUPTED, e)
        delivery = self._delivery(lines, {})
        context, self._hook_context = self._hook_context, []
        if line is None and self._is_headless and self.last and self.last.text:
            context = [*context, text_block(ANSWER_AGAIN)]
        prompt = delivery._replace(blocks=[*delivery.blocks, *context, *(line.closing if line else ())])
        return run_turn(self.agent, prompt, turn, self._incoming)

    def _ended(self, outcome: Outcome, error: Exception) -> TurnEnded:
        """A turn that made no model call, or failed."""
        ended = TurnEnded(self.name, outcome, "", 0.0, error)
        self.agent.emit(ended)
        return ended

    def _with_answer(self, ended: TurnEnded) -> TurnEnded:
        """A turn that mail began may have nothing to add: then the earlier answer stays."""
        is_kept = not ended.text.strip() or ended.text.strip(" \n.`*\"'") == KEEP
        return ended._replace(text=self.last.text) if is_kept and self.last else ended

    def _open_session(self, cancel: CancelScope) -> None:
        """Notify hooks of a session that has begun.

        Raises: PromptBlocked, if one wants the lead to do nothing; Cancelled
        """
        with self._changed:
            source, self._opened_by = self._opened_by, ""
        if not source or not self.agent.hooks.wants(SESSION_START, source):
            return
        fields = {"source": source, "model": self.agent.preamble.model}
        result = self.agent.hooks.run(HookEvent(SESSION_START, self.name, fields, source), cancel)
        if result.stop is not None:
            self.session_began(source)  # as long as it says so
            self.agent.emit(Notice(self.name, f"A hook has ended the turn: {result.stop}", Severity.WARNING))
            raise PromptBlocked(result.stop)
        if result.objection:  # there is nothing to block: the user reads it
            self.agent.emit(Notice(self.name, result.objection, Severity.WARNING))
        self._hook_context = [text_block(hook_note(SESSION_START, result.context))] if result.context else []

    def _checked(self, line: TypedLine, cancel: CancelScope) -> TypedLine:
        """The line, with what hooks add to it.

        Raises: PromptBlocked, after the user was notified; Cancelled
        """
        try:
            said = check_prompt(self.agent.hooks, self.name, "\n".join(filter(None, (line.text, line.piped))), cancel)
        except PromptBlocked as e:
            self.agent.emit(Notice(self.name, f"A hook has blocked this line: {e}", Severity.WARNING))
            raise
        return line._replace(blocks=[*line.blocks, text_block(said)]) if said else line

    def _incoming(self, noted: Mapping[str, Any]) -> Delivery:
        """Between two model calls: what the user has typed in the meantime, and mail."""
        self.mailbox.late.flush()
        lines = self.lines.take_all()
        self._read += lines
        checked = []
        for line in lines:
            self.agent.emit(LineTaken(self.name, line.text))
            with suppress(PromptBlocked, Cancelled):  # the user was notified, or has interrupted
                checked.append(self._checked(line, self._turn or self.scope))
        return self._delivery(checked, noted)

    def _delivery(self, lines: Sequence[TypedLine], noted: Mapping[str, Any]) -> Delivery:
        """These lines, each with the files that it mentions as they are now, and mail."""
        blocks: list[Block] = []
        seen_files: dict[str, str] = {}
        for line in lines:
            attached = self._attach(line.text)
            blocks += [*line.blocks, *attached.blocks]
            seen_files.update(attached.seen_files)
        mail = self.mailbox.take_after(noted).delivery()
        return Delivery([*blocks, *mail.blocks], mail.marks, seen_files)

    def _on_start(self) -> None:
        with suppress(Cancelled):  # leaving already
            self._open_session(self.scope)

    def _on_idle(self) -> None:
        self._team.notify()

    def _on_failure(self, error: Exception) -> None:
        self.agent.emit(Notice(self.name, f"{type(error).__name__}: {error}", Severity.ERROR))

    def _on_exit(self) -> None:
        self.lines.cancel()
