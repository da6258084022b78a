"""The REPL at a terminal. The main thread runs the prompt, a second thread serves the lines, agents work in their own
threads, and a render thread prints what they do above the prompt."""

from __future__ import annotations

import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.cancel import CancelScope
from teamcli.commands.base import (
    Choice,
    CommandResult,
    Diff,
    Expand,
    Job,
    Leave,
    Prompt,
    Table,
    Verbosity,
    Watch,
    plain,
)
from teamcli.errors import Cancelled, TeamcliError
from teamcli.permissions.policy import Mode
from teamcli.session.session import Session
from teamcli.team.message import LEAD, MessageType
from teamcli.team.requests import Kind
from teamcli.text.console import shorten
from teamcli.text.escaping import one_line
from teamcli.ui.leaving import leaving_hint
from teamcli.ui.lines import OutputStream, Repl, is_farewell
from teamcli.ui.render.event_renderer import EventRenderer, Screen, prompt_label
from teamcli.ui.render.style import DIM, RED, YELLOW, AgentColors, Line, Piece, TerminalStyle
from teamcli.ui.signals import in_thread
from teamcli.ui.terminal.banner import InboxTip
from teamcli.ui.terminal.completion import session_completer
from teamcli.ui.terminal.fragments import visible, wrapped
from teamcli.ui.terminal.line_queue import LineQueue
from teamcli.ui.terminal.notify import Notifier
from teamcli.ui.terminal.pager import read_in_pager
from teamcli.ui.terminal.plain_prompt import AroundThePrompt, PlainPrompt, is_dumb
from teamcli.ui.terminal.prompt import LivePrompt
from teamcli.ui.terminal.prompt_output import AbovePrompt
from teamcli.ui.terminal.questions import ChoiceQuestion, PromptQuestion, QuestionQueue, plan_question
from teamcli.ui.terminal.render_thread import RenderThread
from teamcli.ui.terminal.shell_output import ShellOutputs
from teamcli.ui.terminal.status_bar import Room, StatusBar
from teamcli.ui.terminal.view_switch import ViewSwitch
from teamcli.ui.terminal.views import Views

logger = logging.getLogger(__name__)

QUEUED_LINES = 2
LEAVING_PATIENCE_SECONDS = 0.5
"""How long leaving waits for the lines that were typed before."""
NOBODY_TO_WATCH = "There is nobody to watch yet. Ask the lead to hire someone; /watch NAME then shows what they do."
SHARED = "The lead sees this with your next line (the setting shell_output changes that)."
UP_HINT = "  (Up takes it back)"
MODES = (Mode.DEFAULT, Mode.ACCEPT_EDITS, Mode.PLAN)
"""What Shift-Tab cycles through. The mode that asks nothing must be typed by name."""


class Terminal(Repl):
    """Connects the prompt, the render thread and the session. Implements `PromptPort`."""

    def __init__(self, session: Session, questions: QuestionQueue, page: AbovePrompt | AroundThePrompt) -> None:
        super().__init__(session)
        names = session.team.roster.names()
        self._questions = questions
        self._page = page
        self._style = TerminalStyle.of(sys.__stdout__ or sys.stdout)
        self._colors = AgentColors(names)
        self._status = StatusBar(session, self._colors, lambda: self._prompt.redraw())
        self._lines = LineQueue()
        self._has_left = threading.Event()
        self._jobs: list[CancelScope] = []
        self._tips_about_sharing = session.preferences.shares_shell
        self._tip = InboxTip(is_wanted=not names, is_in_files=session.team_host is None)
        self._prompt = (
            PlainPrompt(self, questions, self._style, page, lambda: self._renderer.flush())  # which is made below
            if isinstance(page, AroundThePrompt)
            else self._live_prompt()
        )
        self._notifier = Notifier(session.preferences.notify, self._prompt.ring)
        views = Views(self._renderer_of(LEAD), self._renderer_of)
        self._renderer = RenderThread(views, self._status.board, page, self._prompt.redraw, self._on_event)
        self._shell_outputs = ShellOutputs(
            lambda text: self._renderer.render(lambda renderer: renderer.output(text)), self._prompt.redraw
        )
        self._view = ViewSwitch(session, self._renderer, self._prompt.turn)
        questions.subscribe(self._on_question)
        for request in session.team.roster.requests.all_open(kind=Kind.PLAN):
            self._ask_about_plan(request.id)

    def _live_prompt(self) -> LivePrompt:
        session = self._session
        history, use_vi = session.state.root / "history", session.preferences.vi_mode
        return LivePrompt(self, self._questions, self._style, history, session_completer(session), use_vi)

    def _renderer_of(self, name: str) -> EventRenderer:
        likes = self._session.preferences
        return EventRenderer(
            self._style,
            self._colors,
            Screen("banner", is_dumb(), continues_lines=not is_dumb()),
            name,
            likes.shows_subagents,
            wraps_words=likes.wrap == "words",
        )

    def run(self, first_task: str) -> None:
        """Until the user leaves."""
        self._session.events.subscribe(self._renderer)
        threading.Thread(target=self._lines.serve, args=(self._serve_line,), name="typed", daemon=True).start()
        self._renderer.start()
        if self._session.preferences.verbose:
            self.show(Verbosity(on=True))
        self._renderer.render(lambda renderer: renderer.recap(self._session.lead.agent.conversation.messages))
        self._session.start()  # only now, so that nothing happens unseen
        if first_task:
            self._lines.add(first_task, LEAD)
        try:
            # Loading the model client takes long, so it starts only once the user can type.
            self._prompt.run(on_ready=lambda: in_thread(self._session.warm_up, "warm-up"))
        finally:
            self._has_left.set()
            self._shell_outputs.finish()
            self._renderer.change(Views.unfinished)
            self._renderer.stop()

    # In the thread that serves lines

    def _serve_line(self, line: str, addressee: str) -> None:
        self.addressee = addressee
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
        except Exception as e:  # boundary: a bug in one command must not end the thread that serves lines
            logger.exception("serving %r failed", what)
            self._say(f"teamcli: {type(e).__name__}: {e}", RED)

    def plain_line(self, text: str) -> None:
        if self.addressee == LEAD:
            self.task(text)
        else:
            name = self.addressee
            self._renderer.change(lambda views: views.typed(name, text))
            said = self._view.say(name, text)
            if said != f"Sent message to {name}":  # which the line itself shows
                self.show(said)

    def task(self, text: str) -> None:
        self._session.submit(text)
        self._prompt.redraw()

    def echo(self, line: str) -> None:
        self._renderer.render(lambda renderer: renderer.typed(line))

    def show(self, result: CommandResult) -> None:
        render = self._renderer.render
        match result:
            case Table():
                render(lambda renderer: renderer.table(result))
            case Choice():
                self._questions.add(ChoiceQuestion(result))
            case Expand():
                render(lambda renderer: renderer.expand(result.which))
            case Verbosity():
                self._renderer.change(lambda views: views.set_verbose(result.on))
            case Watch() if not is_dumb():
                self._watch(result.name)
            case Diff():
                render(lambda renderer: renderer.diff(result.text, result.title))
            case Job() | Prompt():
                self._run(result)
            case _:
                self._say(plain(result))

    def run_job(self, run: Callable[[CancelScope], CommandResult]) -> None:
        """In its own thread, so that the next line does not wait for it."""
        scope = self._session.cancel.child()
        self._jobs.append(scope)

        def work() -> None:
            with self._failures_shown("a job"):
                try:
                    result = run(scope)
                finally:
                    self._jobs.remove(scope)
                if result:
                    self.show(result)

        threading.Thread(target=work, name="job", daemon=True).start()

    def run_at_terminal(self, command: str, program: str) -> None:
        prompt, page = self._prompt, self._page
        if isinstance(prompt, PlainPrompt) or isinstance(page, AroundThePrompt):
            super().run_at_terminal(command, program)
            return

        def run(scope: CancelScope) -> str:
            page.write_now()  # the command itself comes before what it prints
            return self._session.command_hosts.shell.run_at_terminal(command, scope)

        self._renderer.flush()
        self.run_job(lambda scope: prompt.editor.hand_over(lambda: run(scope)))

    def tip_about_sharing(self) -> str:
        is_wanted, self._tips_about_sharing = self._tips_about_sharing, False
        return SHARED if is_wanted else ""

    def output_stream(self) -> OutputStream:
        return self._shell_outputs.open()

    def _watch(self, name: str) -> None:
        others = self._session.team.names()
        if name != LEAD or self._view.is_watching:
            self._view.turn_to(name)
        elif others:
            self._say(f"This is the lead. /watch NAME or Shift-Down turns the screen to: {', '.join(others)}.")
        else:
            self._say(NOBODY_TO_WATCH)

    def _say(self, text: str, color: str = "") -> None:
        self._renderer.render(lambda renderer: renderer.note(text, color))

    # For the prompt, in the main thread

    def enter(self, text: str) -> None:
        if text.strip():
            self._notifier.user_is_here()
            if text.split()[0] == "/watch":
                # At once, because the keys that follow are meant for the agent that it shows.
                with self._failures_shown(text):
                    self.serve(text)
            else:
                self._lines.add(text, self._view.shown)
                if is_farewell(text):
                    threading.Thread(target=self._leave_soon, name="leaving", daemon=True).start()

    def _leave_soon(self) -> None:
        """Lines before this one may wait for a database that cannot be reached. Leaving does not wait for them."""
        if not self._has_left.wait(LEAVING_PATIENCE_SECONDS):
            with suppress(RuntimeError):  # it has left just now
                self._prompt.exit()

    @property
    def unfinished(self) -> list[str]:
        """The lines that were typed and not carried out."""
        return [*self._lines.unfinished, *self._session.lead.lines.queued]

    def interrupt(self) -> bool:
        # A command that the user waits for comes before the lead.
        return self._end_job() or self._session.interrupt()

    def _end_job(self) -> bool:
        for scope in tuple(self._jobs):  # a copy: a job removes its scope in its own thread
            scope.cancel("interrupted by the user")
            return True
        return False

    @property
    def is_watching(self) -> bool:
        return self._view.is_watching

    def label(self) -> Piece:
        return prompt_label(self._view.shown, self._colors, self._style.width())

    def turn(self, step: int) -> None:
        if not self._view.turn_by(step, most_rows=_screen_rows() // 2):
            self._say(NOBODY_TO_WATCH, DIM)

    def return_to_lead(self, after_jobs: bool) -> None:
        if not (after_jobs and self._end_job()):
            self._view.turn_to(LEAD)

    def take_back(self) -> str | None:
        return self._session.take_back()

    def next_mode(self) -> None:
        mode = self._session.live_policy.policy.mode
        following = MODES[(MODES.index(mode) + 1) % len(MODES)] if mode in MODES else MODES[0]
        self._session.live_policy.set_mode(following)

    def expand(self) -> None:
        self.show(Expand())

    def toggle_tasks(self) -> None:
        self._status.tasks.toggle()

    def leave(self) -> None:
        self._prompt.exit()

    def read(self, question: PromptQuestion) -> None:
        with self._failures_shown("a question"):
            programs = self._session.command_hosts.agents.programs
            read_in_pager([*question.head(), *question.body()], self._style, programs)

    def answer(self, question: PromptQuestion, text: str) -> bool:
        try:
            result = question.take(text)
        except TeamcliError as e:
            self._say(f"teamcli: {e}", RED)
            return True
        if result:
            self.show(result)
        return result is not None

    def above(self) -> list[Line]:
        width = self._style.width() - 1
        # Wrapped again, because the terminal may have become narrower.
        lines = [part for line in self._page.growing for part in wrapped(line, width)] or [[]]
        if len(lines) > (rows := max(6, _screen_rows() - 8)):
            lines = [[("…", DIM)], *lines[1 - rows :]]
        if output := self._shell_outputs.line:
            lines = [*lines, [(output, "")]]
        queued = () if self._view.is_watching else self._session.lead.lines.queued
        return [visible(line) for line in [*lines, *queued_lines(queued, width)]]

    def bar(self, width: int, taken: int, hint: str) -> list[Line]:
        questions = self._questions.open
        room = Room(width, _screen_rows(), taken)
        if hint:
            return self._status.lines(room, questions, leaving_hint(self._session, hint), is_urgent=True)
        shown = self._view.shown
        hint = self._status.hint(self._questions.current, bool(questions), bool(self._jobs), shown)
        is_watching = shown != LEAD
        return self._status.lines(room, questions, hint, shown if is_watching else "", is_urgent=is_watching)

    # Events, in the render thread

    def _on_event(self, event: Event) -> None:
        self._status.note(event)
        if tip := self._tip.after(event):
            self._say(tip, DIM)
        match event:
            case events.MailSent(type=MessageType.PLAN_APPROVAL_REQUEST):
                self._ask_about_plan(str(event.fields.get("request_id", "")))
            case events.StatusChanged(status="shutdown") if event.agent == self._view.shown:
                self._say(f"{event.agent} was shut down. Esc returns to the lead.", YELLOW)
            case events.TurnStarted() | events.TurnEnded():
                self._notifier.work_changed(self._status.board.is_busy)

    def _ask_about_plan(self, request_id: str) -> None:
        if question := plan_question(self._session.team, request_id):
            self._questions.add(question)

    def _on_question(self) -> None:
        self._notifier.question_waits()
        self._prompt.redraw()


def queued_lines(texts: Sequence[str], width: int) -> list[Line]:
    """The newest queued lines. Up takes the last one back."""
    room = max(10, width - len("  queued: ") - len(UP_HINT))
    shown = [shorten(one_line(text), room) for text in texts[-QUEUED_LINES:]]
    lines: list[Line] = [[("  queued: ", YELLOW), (text, DIM)] for text in shown]
    if lines:
        lines[-1].append((UP_HINT, DIM))
    if (more := len(texts) - QUEUED_LINES) > 0:
        lines.insert(0, [(f"  {more} more queued", YELLOW)])
    return lines


def _screen_rows() -> int:
    try:
        return os.get_terminal_size((sys.__stdout__ or sys.stdout).fileno()).lines
    except (OSError, ValueError):
        return 24
