"""The lead's thread: it works on the user's lines, and on mail when nobody types.

Waking costs a model call, so it waits for what is worth one; housekeeping never is.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, NamedTuple

from teamcli.agent.conversation import text_block
from teamcli.agent.events import Emit, LimitHit, LineTaken, Notice, Outcome, Severity, TurnEnded
from teamcli.agent.hooks import SESSION_START, HookEvent, check_prompt, hook_note
from teamcli.agent.loop import Agent, Delivery, run_turn
from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, LimitReached, PromptBlocked, UsageError
from teamcli.llm.types import Block
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import Message, MessageType

logger = logging.getLogger(__name__)

GATHER_SECONDS = 0.2
"""How long mail is gathered before it wakes the lead."""
ENDING_SECONDS = 0.3
"""How long whoever needs a lead at rest waits for one that may just be ending its turn."""
MAX_IDLE_WAKES = 25
"""Wake-ups in a row in which the lead called no tool; then it sleeps until the user's next line."""
KEEP = "KEEP"
ANSWER_AGAIN = (
    "<note>This run prints only your last answer to the user, and you have given one. If it still stands word for word,"
    f" reply with exactly {KEEP}. Otherwise answer again, in full: nobody reads what you said before.</note>"
)
"""For a lead that mail wakes after its answer; without it, a short "done" would take the answer's place."""
SLEEPS = f"The lead was woken {MAX_IDLE_WAKES} times without doing anything; it sleeps until your next line."


class Line(NamedTuple):
    """What the user typed, and who waits for the end of the turn that takes it up."""

    blocks: Sequence[Block]
    ended: Future[TurnEnded]
    closing: Sequence[Block] = ()
    """What stands at the end of the message, behind mail."""
    text: str = ""
    """The user's own words, to be shown."""
    piped: str = ""
    """What came beside them on standard input; it stands in the blocks already."""


Attach = Callable[[str, CancelScope], Delivery]
"""Takes the user's words; returns what goes to the model with them."""


class Lead:
    def __init__(
        self,
        agent: Agent,
        mailbox: Mailbox,
        cancel: CancelScope,
        emit: Emit,
        results_wait: Callable[[], bool],
        on_rest: Callable[[], None],
        on_line: Callable[[], None] = lambda: None,
        attach: Attach = lambda text, cancel: Delivery(),
        only_last_counts: bool = False,
    ) -> None:
        """`results_wait` says whether a teammate's result should wait for those of others that still work;
        `only_last_counts`, whether nobody reads an answer to which another is added."""
        self.agent = agent
        self.mailbox = mailbox
        self._cancel = cancel
        self._emit = emit
        self._results_wait = results_wait
        self._on_rest = on_rest
        self._on_line = on_line
        self._attach = attach
        self._only_last_counts = only_last_counts
        self._changed = threading.Condition()
        self._lines: list[Line] = []
        self._taken_up: list[Line] = []
        self._mail_at: float | None = None
        self._is_deaf = True
        """Mail does not wake it: before the user's first line, after an interruption, after too many idle wakes, and
        where a limit is reached."""
        self._idle_wakes = 0
        self._turn: CancelScope | None = None
        self._is_held = False
        self._has_left = False
        self._opened_by = "resume" if agent.conversation.messages else "startup"
        """How a session has begun of which hooks know nothing yet."""
        self._context: list[Block] = []
        """What they have said to it, for the model's next turn."""
        self.last: TurnEnded | None = None
        """How the last turn ended, with the last answer that it gave to the user."""
        self.limit = ""
        """The limit that ended it, if one did."""
        self._thread = threading.Thread(target=self._run, name=agent.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self, timeout_seconds: float) -> None:
        # a signal may end the program before it has started; a listener may close the session it listens to
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(timeout_seconds)

    def submit(
        self, blocks: Sequence[Block], closing: Sequence[Block] = (), text: str = "", piped: str = ""
    ) -> Future[TurnEnded]:
        """A line of the user's: the next turn, or, while one runs, a word in between; cancelled once it has left."""
        line = Line(blocks, Future(), closing, text, piped)
        with self._changed:
            if self._has_left:
                line.ended.cancel()
                return line.ended
            self._lines.append(line)
            self._changed.notify_all()
        self._on_line()
        return line.ended

    @property
    def queued(self) -> tuple[str, ...]:
        """What the user has typed and nobody has read yet."""
        with self._changed:
            return tuple(line.text for line in self._lines)

    def take_back(self) -> str | None:
        """Take the newest line back that nobody has read; its future is cancelled."""
        with self._changed:
            if not self._lines:
                return None
            line = self._lines.pop()
        line.ended.cancel()
        return line.text

    def withdraw(self, ended: Future[TurnEnded]) -> bool:
        """Take the line back whose future this is; false where it was read or the lead has left."""
        with self._changed:
            mine = [line for line in self._lines if line.ended is ended]
            self._lines = [line for line in self._lines if line.ended is not ended]
        for line in mine:
            line.ended.cancel()
        return bool(mine)

    def look_at_limits(self) -> bool:
        """A limit was raised: whether it had stopped at one, and may go on now. Then mail wakes it again."""
        if not self.limit or self.agent.meter.reached():
            return False
        self.limit = ""
        self.go_on()
        return True

    def go_on(self) -> None:
        """From now on mail wakes it, although the user has said nothing in this run."""
        with self._changed:
            self._is_deaf = False
        self.mail_came()

    def mail_came(self) -> None:
        """Mail has come, or what held it back may have ended."""
        with self._changed:
            if self._mail_at is None:
                self._mail_at = time.monotonic()
            self._changed.notify_all()

    def interrupt(self) -> bool:
        """End the turn, from any thread; false when it was at rest. Then only the user's next line wakes it."""
        with self._changed:
            turn = self._turn
            if turn is None:
                return False
            self._is_deaf = True
        turn.cancel("interrupted by the user")
        return True

    @property
    def is_at_rest(self) -> bool:
        """Nothing runs, and nothing is there that it would act on; once the program leaves, it acts on nothing."""
        with self._changed:
            has_work = not self._cancel.cancelled and (bool(self._lines) or self._would_wake())
            return self._turn is None and not has_work

    @contextmanager
    def held(self) -> Iterator[None]:
        """Keep it from beginning a turn inside the block.

        Raises: UsageError, while it works
        """
        with self._changed:
            # its last words are seen a moment before its turn has ended
            self._changed.wait_for(lambda: self._turn is None, ENDING_SECONDS)
            if self._turn is not None or self._lines:
                raise UsageError("the lead is working: wait for it, or interrupt it first (Ctrl-C, /stop lead)")
            if self._is_held:
                raise UsageError("the conversation is being compacted: wait for it, or interrupt it first (Ctrl-C)")
            self._is_held = True
        try:
            yield
        finally:
            with self._changed:
                self._is_held = False
                self._changed.notify_all()

    def session_began(self, source: str) -> None:
        """Another session has taken the place of the last one; hooks hear of it before the next turn."""
        with self._changed:
            self._opened_by = source

    def _run(self) -> None:
        with self._cancel.on_cancel(self._wake):
            with contextlib.suppress(Cancelled):  # leaving already
                self._open_session(self._cancel)
            while True:
                is_on, line = self._next()
                if not is_on:
                    return
                if line is not None:
                    self._emit(LineTaken(self.agent.name, line.text))
                self._do_turn(line)
                self._on_rest()

    def _next(self) -> tuple[bool, Line | None]:
        """Wait for a line, or (without one) for mail that is worth waking for; false when the program leaves."""
        with self._changed:
            while not self._cancel.cancelled:
                if self._is_held:
                    self._changed.wait()
                    continue
                if self._lines:
                    line = self._lines.pop(0)
                    self._is_deaf = False
                    self._idle_wakes = 0
                    self._turn = self._cancel.child()
                    return True, line
                if self._mail_is_due():
                    self._mail_at = None
                    if self._would_wake():
                        self._turn = self._cancel.child()
                        return True, None
                    self._on_quiet_change()
                self._changed.wait(self._until_due())
            self._has_left = True
            for line in self._lines:
                line.ended.cancel()
            return False, None

    def _on_quiet_change(self) -> None:
        # Whoever waits for quiescence must look again: mail was there, and is not worth waking for.
        threading.Thread(target=self._on_rest, daemon=True).start()

    def _do_turn(self, line: Line | None) -> None:
        assert self._turn is not None
        self._taken_up = [line] if line else []
        calls_before = self.agent.meter.tool_calls
        try:
            ended = self._work(line, self._turn)
        except Exception as e:  # boundary: the lead's thread never dies silently
            logger.exception("the lead failed")
            self._emit(Notice(self.agent.name, f"{type(e).__name__}: {e}", Severity.ERROR))
            ended = TurnEnded(self.agent.name, Outcome.FAILED, "", 0.0, e)
            self._emit(ended)
        with self._changed:
            self._turn = None
            self.last = ended if line else self._with_answer(ended)
            self.limit = str(ended.error) if isinstance(ended.error, LimitReached) else ""
            self._is_deaf = self._is_deaf or bool(self.limit)
            taken_up, self._taken_up = self._taken_up, []
            sleeps = line is None and self._has_woken_in_vain(self.agent.meter.tool_calls > calls_before)
            self._is_deaf = self._is_deaf or sleeps
            self._changed.notify_all()
        if sleeps:  # told outside the lock: who hears it may write to the lead
            self._emit(Notice(self.agent.name, SLEEPS, Severity.WARNING))
        for each in taken_up:
            each.ended.set_result(ended)

    def _work(self, line: Line | None, turn: CancelScope) -> TurnEnded:
        if line is None and (why := self.agent.meter.reached()):  # before mail is taken: it stays unread
            return self._stop_at(why)
        try:
            self._open_session(turn)
            lines = [self._admit(line, turn)] if line else []
        except (PromptBlocked, Cancelled) as e:
            outcome = Outcome.FAILED if isinstance(e, PromptBlocked) else Outcome.INTERRUPTED
            ended = TurnEnded(self.agent.name, outcome, "", 0.0, e)
            self._emit(ended)
            return ended
        told = self._told(lines, {})
        context, self._context = self._context, []
        if line is None and self._only_last_counts and self.last and self.last.text:
            context = [*context, text_block(ANSWER_AGAIN)]
        prompt = told._replace(blocks=[*told.blocks, *context, *(line.closing if line else ())])
        return run_turn(self.agent, prompt, turn, self._incoming)

    def _with_answer(self, ended: TurnEnded) -> TurnEnded:
        """A turn that mail began may have nothing to add: then the earlier answer stands."""
        is_kept = not ended.text.strip() or ended.text.strip(" \n.`*\"'") == KEEP
        return ended._replace(text=self.last.text) if is_kept and self.last else ended

    def _stop_at(self, why: LimitReached) -> TurnEnded:
        self._emit(LimitHit(self.agent.name, str(why), why.limit, why.is_given))
        ended = TurnEnded(self.agent.name, Outcome(why.limit), "", 0.0, why)
        self._emit(ended)
        return ended

    def _open_session(self, cancel: CancelScope) -> None:
        """Tell hooks of a session that has begun.

        Raises: Cancelled
        """
        with self._changed:
            source, self._opened_by = self._opened_by, ""
        if not source or not self.agent.hooks.wants(SESSION_START, source):
            return
        event = HookEvent(SESSION_START, self.agent.name, {"source": source}, source)
        result = self.agent.hooks.run(event, cancel)
        if result.objection:  # there is nothing to block: the user reads it
            self._emit(Notice(self.agent.name, result.objection, Severity.WARNING))
        self._context = [text_block(hook_note(SESSION_START, result.context))] if result.context else []

    def _admit(self, line: Line, cancel: CancelScope) -> Line:
        """A line of the user's, with what hooks say to it.

        Raises: PromptBlocked, once the user is told; Cancelled
        """
        try:
            said = check_prompt(
                self.agent.hooks, self.agent.name, "\n".join(filter(None, (line.text, line.piped))), cancel
            )
        except PromptBlocked as e:
            self._emit(Notice(self.agent.name, f"A hook has blocked this line: {e}", Severity.WARNING))
            raise
        return line._replace(blocks=[*line.blocks, text_block(said)]) if said else line

    def _has_woken_in_vain(self, used_tools: bool) -> bool:
        """Count a wake-up; whether there were too many in a row that came to nothing."""
        self._idle_wakes = 0 if used_tools else self._idle_wakes + 1
        return self._idle_wakes >= MAX_IDLE_WAKES

    def _incoming(self, noted: Mapping[str, Any]) -> Delivery:
        """Between two model calls: what the user has typed meanwhile, and mail."""
        with self._changed:
            lines, self._lines = self._lines, []
            self._taken_up += lines
        admitted = []
        for line in lines:
            self._emit(LineTaken(self.agent.name, line.text))
            with contextlib.suppress(PromptBlocked, Cancelled):  # told, or known to the user, who has interrupted
                admitted.append(self._admit(line, self._turn or self._cancel))
        return self._told(admitted, noted)

    def _told(self, lines: Sequence[Line], noted: Mapping[str, Any]) -> Delivery:
        """What these lines say, each with what belongs to it as of now, and mail."""
        blocks: list[Block] = []
        seen_files: dict[str, str] = {}
        for line in lines:
            attached = self._attach(line.text, self._turn or self._cancel)
            blocks += [*line.blocks, *attached.blocks]
            seen_files.update(attached.seen_files)
        mail = self.mailbox.take_after(noted).delivery()
        return Delivery([*blocks, *mail.blocks], mail.marks, seen_files)

    def _would_wake(self) -> bool:
        if self._is_deaf or not self.mailbox.has_unread:
            return False
        results_wait = self._results_wait()
        return any(_is_worth_waking(message, results_wait) for message in self.mailbox.look())

    def _mail_is_due(self) -> bool:
        return self._mail_at is not None and time.monotonic() >= self._mail_at + GATHER_SECONDS

    def _until_due(self) -> float | None:
        return None if self._mail_at is None else max(0.0, self._mail_at + GATHER_SECONDS - time.monotonic())

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _is_worth_waking(message: Message, results_wait: bool) -> bool:
    """Work that the user began is shown to the user, and rides with the lead's next turn."""
    if message.fields.get("by_user"):
        return False
    return message.type is not MessageType.RESULT or not results_wait
