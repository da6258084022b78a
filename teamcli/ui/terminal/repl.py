"""The REPL at a terminal. The prompt has the main thread for ever; lines are served in a second thread, agents work in
their own, and a painter puts what they do above the prompt."""

from __future__ import annotations

import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from signal import SIGHUP, SIGTERM
from typing import TextIO, cast

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.cancel import CancelScope
from teamcli.commands.arguments import candidates, running_subagents
from teamcli.commands.base import ArgumentKind, Choice, CommandResult, Diff, Expand, Job, Leave, Table, Verbosity, plain
from teamcli.commands.catalog import all_commands
from teamcli.config.options import ExitStatus
from teamcli.errors import Cancelled, TeamcliError
from teamcli.permissions.policy import Mode
from teamcli.session.session import EMBEDDED, LEAD, Session
from teamcli.team.message import MessageType
from teamcli.team.requests import Kind
from teamcli.team.roster import Member
from teamcli.text.escaping import one_line
from teamcli.text.table import shorten
from teamcli.ui.lines import OutputStream, Repl
from teamcli.ui.render.cells import visible
from teamcli.ui.render.event_renderer import EventRenderer, last_lines
from teamcli.ui.render.style import DIM, RED, YELLOW, AgentColours, Line, TerminalStyle
from teamcli.ui.render.tables import set_table
from teamcli.ui.render.wrapping import wrap
from teamcli.ui.signals import SignalReceived, in_thread, signals_raise
from teamcli.ui.terminal.banner import banner, farewell, inbox_tip
from teamcli.ui.terminal.completion import LineCompleter, Offer
from teamcli.ui.terminal.notify import Notifier
from teamcli.ui.terminal.plain_prompt import AroundThePrompt, PlainPrompt
from teamcli.ui.terminal.prompt import LivePrompt
from teamcli.ui.terminal.prompt_output import AbovePrompt
from teamcli.ui.terminal.questions import Asked, ChoiceQuestion, PlanQuestion, QuestionQueue
from teamcli.ui.terminal.render_thread import RenderThread
from teamcli.ui.terminal.status import AgentState, Meter, StatusBoard, meter_line

logger = logging.getLogger(__name__)

TAIL_LINES = 6
QUEUED_LINES = 2
UP_HINT = "  (Up takes it back)"
LONGEST_SHELL_LINE = 8000
"""So much is shown without waiting for its end."""
MODES = (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.PLAN)
"""What Shift-Tab goes through; the mode that asks nothing must be named."""


class ShellOutput:
    """What one command of the user's own prints, shown line by line: another may run beside it."""

    def __init__(self, show: Callable[[str], None], redraw: Callable[[], None]) -> None:
        self._show = show
        self._redraw = redraw
        self.line = ""
        """The one that is not finished."""
        self.is_over = False

    def add(self, text: str) -> None:
        whole, _, self.line = (self.line + text).rpartition("\n")
        if whole:
            self._show(whole)
        if len(self.line) > LONGEST_SHELL_LINE:
            self._show_rest()
        elif self.line:
            self._redraw()

    def finish(self) -> None:
        self.is_over = True
        self._show_rest()

    def _show_rest(self) -> None:
        rest, self.line = self.line, ""
        if rest:
            self._show(rest)


class Terminal(Repl):
    """Connects the prompt, the painter and the session. Serves as the prompt's host."""

    def __init__(self, session: Session, questions: QuestionQueue, page: AbovePrompt | AroundThePrompt) -> None:
        super().__init__(session)
        members = session.team.roster.members()
        self._questions = questions
        self._page = page
        self._style = TerminalStyle.of(sys.__stdout__ or sys.stdout)
        self._board = StatusBoard(LEAD, map(_agent_state, members))
        self._scroll = EventRenderer(self._style, AgentColours([member.name for member in members]), "banner")
        self._scroll.echoes = not is_dumb()
        self._scroll.shows_subagents = session.preferences.shows_subagents
        self._typed: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._jobs: list[CancelScope] = []
        self._shell_outputs: list[ShellOutput] = []
        """Of commands of the user's own, replaced as a whole."""
        self._wants_tip = not members
        self._hired = ""
        self._prompt = PlainPrompt(self, questions, self._style) if is_dumb() else self._live_prompt()
        self._notifier = Notifier(session.preferences.notify, self._prompt.ring)
        self._painter = RenderThread(self._scroll, self._board, page, self._prompt.redraw)
        self._painter.before = self._note_event
        self._unread = 0
        self._context: tuple[float | None, int] = (None, 0)
        """The share of its window that the lead's conversation takes, and its tokens."""
        questions.on_question = self._question_came
        for request in session.team.roster.requests.standing(kind=Kind.PLAN):
            self._lay_plan_down(request.id)

    def _live_prompt(self) -> LivePrompt:
        history = self._session.state.root / "history"
        use_vi = self._session.preferences.vi_mode
        return LivePrompt(self, self._questions, self._style, history, _completer(self._session), use_vi)

    def run(self, first_task: str) -> None:
        """Until the user leaves."""
        self._session.events.subscribe(self._painter)
        threading.Thread(target=self._serve_lines, name="typed", daemon=True).start()
        self._painter.start()
        self._painter.paint(lambda scroll: scroll.recap(self._session.lead.agent.conversation.messages))
        self._session.start()  # only now, so that nothing happens unseen
        if first_task:
            self._typed.put(first_task)
        try:
            self._prompt.run(on_ready=lambda: in_thread(self._session.warm_up, "warm-up"))
        finally:
            for output in self._shell_outputs:
                output.finish()
            self._painter.paint(EventRenderer.unfinished)
            self._painter.stop()

    # Lines, in the thread that serves them

    def _serve_lines(self) -> None:
        while True:
            line = self._typed.get()
            with self._failures_shown(line):
                self.serve(line)

    @contextmanager
    def _failures_shown(self, what: str) -> Iterator[None]:
        try:
            yield
        except Leave:
            self._prompt.exit()
        except Cancelled:
            self._say("Interrupted", YELLOW)
        except TeamcliError as e:
            self._say(f"teamcli: {e}", RED)
        except Exception as e:  # boundary: a bug in one command must not make the prompt deaf
            logger.exception("serving %r failed", what)
            self._say(f"teamcli: {type(e).__name__}: {e}", RED)

    def task(self, text: str) -> None:
        self._session.submit(text)
        self._prompt.redraw()

    def echo(self, line: str) -> None:
        self._painter.paint(lambda scroll: scroll.typed(line))

    def show(self, shown: CommandResult) -> None:
        match shown:
            case Table():
                self._painter.paint(lambda scroll: scroll.prose(set_table(shown, self._style)))
            case Choice():
                self._questions.add(ChoiceQuestion(shown))
            case Expand():
                self._painter.paint(lambda scroll: scroll.expand(shown.which))
            case Verbosity():
                self._painter.paint(partial(_switch_verbosity, on=shown.on))
            case Diff():
                self._painter.paint(lambda scroll: scroll.diff(shown.text, shown.title))
            case Job():
                self._run(shown)
            case _:
                self._say(plain(shown))

    def run_job(self, run: Callable[[CancelScope], CommandResult]) -> None:
        """In a thread of its own: the next line need not wait for it."""
        scope = self._session.cancel.child()
        self._jobs.append(scope)

        def work() -> None:
            with self._failures_shown("a job"):
                try:
                    ending = run(scope)
                finally:
                    self._jobs.remove(scope)
                if ending:
                    self.show(ending)

        threading.Thread(target=work, name="job", daemon=True).start()

    def output_stream(self) -> OutputStream:
        stream = ShellOutput(lambda text: self._painter.paint(lambda scroll: scroll.output(text)), self._prompt.redraw)
        self._shell_outputs = [*(each for each in self._shell_outputs if not each.is_over), stream]
        return stream

    @property
    def _shell_line(self) -> str:
        """The newest that a command of the user's own has not finished."""
        return next((each.line for each in reversed(self._shell_outputs) if each.line), "")

    def _say(self, text: str, colour: str = "") -> None:
        self._painter.paint(lambda scroll: scroll.note(text, colour))

    # What the prompt asks for, in the main thread

    def enter(self, text: str) -> None:
        if text.strip():
            self._notifier.user_is_here()
            self._typed.put(text)

    def interrupt(self) -> bool:
        for scope in tuple(self._jobs):
            scope.cancel("interrupted by the user")
            return True
        return self._session.interrupt()

    def take_back(self) -> str | None:
        return self._session.take_back()

    def next_mode(self) -> None:
        mode = self._session.live_policy.policy.mode
        following = MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else MODES[0]
        self._session.live_policy.set_mode(following)

    def expand(self) -> None:
        self.show(Expand(1))

    def leave(self) -> None:
        self._prompt.exit()

    def show_question(self, asked: Asked) -> list[Line]:
        lines = [visible(line) for line in asked.lines()]
        whole = [part for line in lines for part in wrap(line, self._style.width() - 1, keep_urls=False)]
        if len(whole) <= max(4, _rows() // 3):
            return lines
        self._painter.paint(lambda scroll: scroll.question(lines))
        return lines[:1]

    def answer(self, asked: Asked, text: str) -> bool:
        try:
            shown = asked.take(text)
        except TeamcliError as e:
            self._say(f"teamcli: {e}", RED)
            return True
        if shown is not None:
            self.show(shown)
        return shown is not None

    def above(self) -> list[Line]:
        rows = max(1, min(TAIL_LINES, _rows() // 4))
        tail = last_lines(self._page.growing, self._style.width() - 1, rows)
        if self._shell_line:
            tail.append([(self._shell_line, "")])
        return [visible(line) for line in [*tail, *queued_lines(self._session.lead.queued, self._style.width() - 1)]]

    def bar(self, width: int, hint: str) -> list[Line]:
        now = time.monotonic()
        asking = [asked.agent for asked in self._questions.open]
        hint = hint or self._hint(has_questions=bool(asking))
        return [self._board.agent_line(width, now, asking), meter_line(self._meter(), hint, width)]

    def _hint(self, has_questions: bool) -> str:
        current = self._questions.current
        if has_questions and current is None:
            return "Enter answers"
        if isinstance(current, ChoiceQuestion):
            return "Esc closes it"
        if current is not None and current.agent != LEAD:
            return "Esc puts it off"
        key = "Ctrl-C" if self._session.preferences.vi_mode else "Esc"  # there Esc leaves the insert mode first
        return f"{key} interrupts" if self._board.lead_is_working or self._jobs else "/help"

    def _meter(self) -> Meter:
        session = self._session
        used = session.budget
        digits = 2 if used.spent_usd >= 0.1 or not used.spent_usd else 4
        cost = f"${used.spent_usd:.{digits}f}" if used.is_known else f"{session.usage.context_tokens:,} tokens"
        share, tokens = self._context
        return Meter(session.model, session.live_policy.policy.mode, share, cost, self._unread, tokens)

    # Events, in the painter's thread

    def _note_event(self, event: Event) -> None:
        match event:
            case events.Answered() if event.agent == LEAD and event.model != EMBEDDED:
                self._show_context(event.usage.context_tokens)
            case events.Compacted() if event.agent == LEAD and self._session.model != EMBEDDED:
                self._show_context(event.tokens_after)
            case events.MailSent():
                self._mail_was_sent(event)
            case events.StatusChanged(status="spawning") if self._wants_tip and not self._hired:
                self._hired = event.agent
            case events.Recorded() if self._hired and event.agent == LEAD:
                self._wants_tip, hired, self._hired = False, self._hired, ""
                self._painter.paint(lambda scroll: scroll.note(inbox_tip(hired), DIM))
            case events.TurnStarted() | events.TurnEnded():
                self._unread = len(self._session.lead.mailbox.look())
                self._notifier.work_changed(self._board.is_busy)

    def _show_context(self, tokens: int) -> None:
        agent = self._session.lead.agent
        self._context = (agent.context.filled(tokens, agent.preamble.model), tokens)

    def _mail_was_sent(self, event: events.MailSent) -> None:
        self._unread = len(self._session.lead.mailbox.look())
        if event.type == MessageType.PLAN_APPROVAL_REQUEST:
            self._lay_plan_down(str(event.fields.get("request_id", "")))

    def _lay_plan_down(self, request_id: str) -> None:
        requests = self._session.team.roster.requests

        def still_open(id: str) -> bool:
            return any(request.id == id for request in requests.standing(kind=Kind.PLAN))

        if still_open(request_id):
            review = partial(self._session.team.review_plan, "user")
            self._questions.add(PlanQuestion(requests.get(request_id), still_open, review))

    def _question_came(self) -> None:
        self._notifier.question_waits()
        self._prompt.redraw()


def queued_lines(texts: Sequence[str], width: int) -> list[Line]:
    """The last of what waits to be read: the newest is the one that can be taken back."""
    room = max(10, width - len("  queued: ") - len(UP_HINT))
    shown = [shorten(one_line(text), room) for text in texts[-QUEUED_LINES:]]
    lines: list[Line] = [[("  queued: ", YELLOW), (text, DIM)] for text in shown]
    if lines:
        lines[-1].append((UP_HINT, DIM))
    if (more := len(texts) - QUEUED_LINES) > 0:
        lines.insert(0, [(f"  {more} more queued", YELLOW)])
    return lines


def _completer(session: Session) -> LineCompleter:
    def teammates() -> list[Offer]:
        mates = [(member.name, f"{member.role}, {member.status}") for member in session.team.roster.members()]
        return [*mates, *((each.value, each.label) for each in running_subagents(session))]

    def values(kind: ArgumentKind) -> list[Offer]:
        return [(option.value, option.label) for option in candidates(session, kind)]

    return LineCompleter(lambda: all_commands(session), teammates, values, session.workspace.root)


def _switch_verbosity(scroll: EventRenderer, on: bool | None) -> str:
    scroll.is_verbose = not scroll.is_verbose if on is None else on
    return scroll.note("Everything is shown." if scroll.is_verbose else "Only what matters is shown.", DIM)


def _agent_state(member: Member) -> AgentState:
    notes = [word for word in ("interrupted", "paused") if getattr(member, word)]
    return AgentState(member.name, member.status, ", ".join([*notes, *(["error"] if member.error else [])]))


def is_dumb() -> bool:
    """Whether the terminal can only print."""
    return os.environ.get("TERM", "dumb") in ("dumb", "unknown", "")


def _rows() -> int:
    try:
        return os.get_terminal_size((sys.__stdout__ or sys.stdout).fileno()).lines
    except (OSError, ValueError):
        return 24


@contextmanager
def above_the_prompt() -> Iterator[AbovePrompt | AroundThePrompt]:
    """Whatever is printed inside the block, by whomever, appears above the prompt, in whole lines."""
    if is_dumb():
        yield AroundThePrompt(sys.stdout)
        return
    before = sys.stdout, sys.stderr
    with AbovePrompt() as page:
        sys.stdout = sys.stderr = cast(TextIO, page)
        try:
            yield page
        finally:
            sys.stdout, sys.stderr = before


def ask_trust(directory: Path, offers: Iterable[str]) -> bool:
    """Whether to use what a directory brings along; asked before anything of it is used. `offers` are safe to print."""
    print(f"{one_line(str(directory), 400)} brings something that you have not agreed to:", *offers, sep="\n")
    try:
        answer = input("Trust this? If not, these are ignored. [y/N] ")
    except (EOFError, KeyboardInterrupt):
        return False
    return answer.strip().lower() in ("y", "yes")


def run_terminal(session: Session, first_task: str, questions: QuestionQueue) -> int:
    """Start the session and serve the user; leaving is no failure, whatever became of the tasks."""
    print(banner(session, TerminalStyle.of(sys.stdout)), end="", flush=True)
    with signals_raise(SIGTERM, SIGHUP, insists=True):
        try:
            with above_the_prompt() as page:
                Terminal(session, questions, page).run(first_task)
        except SignalReceived as e:
            return e.exit_code
    print(farewell(session, TerminalStyle.of(sys.stdout)))
    return ExitStatus.DONE
