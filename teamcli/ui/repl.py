"""The REPL: a line is a task, a command or a quit word. The same loop serves a terminal and a pipe."""

from __future__ import annotations

import itertools
import os
import queue
import signal
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Protocol, TextIO, TypeVar, cast

from teamcli.agent.approval import Consent, Question, Reply
from teamcli.cancel import CancelScope
from teamcli.commands.base import Job, Leave, Now, Prompt, plain
from teamcli.commands.catalog import run_command
from teamcli.errors import Cancelled, TeamcliError
from teamcli.files import open_private
from teamcli.options import ExitStatus
from teamcli.plain import neutralise
from teamcli.session import Session
from teamcli.ui.headless import exit_status
from teamcli.ui.signals import SignalReceived, in_thread, signals_raise
from teamcli.ui.view import CYAN, View

T = TypeVar("T")

ALWAYS_ASKED = "Allowed this once: a rule of yours asks every time."
LEAVE_WITHIN_SECONDS = 2.0
QUIT_WORDS = ("q", "exit", "quit")


class Lines(Protocol):
    """Where the user's lines come from."""

    def __iter__(self) -> Iterator[str]: ...

    def ask(self, question: str) -> str:
        """One more line, in answer to `question`; empty at the end of input. Raises KeyboardInterrupt."""
        ...

    def interrupts_to(self, news: NewsQueue) -> AbstractContextManager[object]:
        """Turn Ctrl-C inside the block into news, where this is a place at which the user presses it."""
        ...


class QuestionCame(Exception):
    """Raised in the prompt, to leave it for a question; what was typed comes back afterwards."""


class Interrupt:
    """Ctrl-C was pressed."""


class Done:
    """What is being watched has ended."""


News = Question | Interrupt | Done


class NewsQueue:
    """What the main thread waits for. On a SimpleQueue, because a signal handler may put into it."""

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[News] = queue.SimpleQueue()
        self._questions = 0
        self._lock = threading.Lock()
        self.on_question: Callable[[], None] = lambda: None

    @property
    def has_question(self) -> bool:
        return self._questions > 0

    def put(self, news: News) -> None:
        self._queue.put(news)

    def ask(self, question: Question) -> None:
        """From any thread: bring a question before the user."""
        with self._lock:
            self._questions += 1
        self._queue.put(question)
        self.on_question()

    def get(self, wait: bool = True) -> News | None:
        """The next piece; None where there is none and nobody waits."""
        try:
            news = self._queue.get(wait)
        except queue.Empty:
            return None
        if isinstance(news, Question):
            with self._lock:
                self._questions -= 1
        return news


class Repl:
    """Takes lines in the main thread; what they start runs in another, so that it can be watched and ended."""

    def __init__(self, session: Session, view: View, news: NewsQueue) -> None:
        self._session = session
        self._view = view
        self._news = news
        self.status = ExitStatus.DONE
        """What a script should know of how the tasks went; the worst of them."""
        self.has_left = False
        """The user said so; else the lines have ended."""

    def run(self, lines: Lines, first_task: str = "") -> None:
        """Serve lines until the user leaves or they end."""
        for line in itertools.chain([first_task], lines):
            text = line.strip()
            try:
                if text in QUIT_WORDS:
                    raise Leave
                self._serve(text, lines)
            except Leave:
                self.has_left = True
                return
            except KeyboardInterrupt:  # too late for what it was meant for
                self._view.say("")
            except TeamcliError as e:
                self._view.say(f"teamcli: {e}")

    def answer_questions(self, lines: Lines) -> None:
        """Bring before the user what came up while nothing was watched."""
        while (news := self._news.get(wait=False)) is not None:
            if isinstance(news, Question) and news.is_open:
                self._ask(news, lines)

    def _serve(self, text: str, lines: Lines) -> None:
        self.answer_questions(lines)
        if not text:
            return
        if text.startswith("@") and self._talk(text):
            return
        if text.startswith("/"):
            self._command(text, lines)
        elif text.startswith("!"):
            self._shell(text[1:].strip(), lines)
        else:
            self._task(text, lines)

    def _talk(self, text: str) -> bool:
        """`@alice text` goes to alice; what begins with another @word is a task like any other, with a hint."""
        name, _, words = text[1:].partition(" ")
        names = self._session.team.names()
        if name.casefold() in (each.casefold() for each in names):
            heard = self._session.team.say(name, words.strip()) if words.strip() else f"What should {name} hear?"
            self._view.say(heard)
            return True
        if not (self._session.workspace.root / name).exists():
            who = ", ".join(names) or "nobody yet"
            self._view.say(f"There is no teammate or file '{name}' (teammates: {who}); taken as a task for the lead.")
        return False

    def _task(self, text: str, lines: Lines) -> None:
        turn = self._session.submit(text)
        ended = self._watch(turn, self._session.interrupt, lines)
        self.status = worse(self.status, exit_status(self._session, ended))

    def _watch(self, work: Future[T], end_it: Callable[[], object], lines: Lines) -> T:
        """Bring questions before the user while `work` runs; Ctrl-C ends the work, never the program."""
        work.add_done_callback(lambda _: self._news.put(Done()))
        with lines.interrupts_to(self._news):
            while not work.done():
                match self._news.get():
                    case Interrupt():
                        end_it()
                    case Question() as question if question.is_open:
                        self._ask(question, lines)
        return work.result()

    def _ask(self, question: Question, lines: Lines) -> None:
        self._view.show_question(question)
        try:
            answer = lines.ask("Allow? [y]es once, [a]lways, [n]o, or say what to do instead: ").strip()
        except KeyboardInterrupt:
            self._news.put(Interrupt())
            return
        match answer.lower():
            case "y" | "yes":
                question.answer(Reply(Consent.ONCE))
            case "a" | "always":
                self._view.say(f"From now on allowed: {question.rule}" if question.rule else ALWAYS_ASKED)
                question.answer(Reply(Consent.ALWAYS))
            case "" | "n" | "no":
                question.answer(Reply(Consent.NO))
            case _:
                question.answer(Reply(Consent.NO, answer))

    def _shell(self, command: str, lines: Lines) -> None:
        """`!command`: the user's own, so nothing is asked."""
        self._run_job(lambda scope: self._session.run_shell(command, scope, self._view.stream_text), lines)

    def _command(self, text: str, lines: Lines) -> None:
        answer = run_command(self._session, text)
        if isinstance(answer, Prompt):
            self._task(answer.text, lines)
        elif not isinstance(answer, Job):
            self._view.say(plain(answer))
        else:
            with lines.interrupts_to(self._news):  # from the moment it is announced
                if answer.announcement:
                    self._view.say(answer.announcement)
                self._run_job(answer.run, lines)

    def _run_job(self, run: Callable[[CancelScope], Now], lines: Lines) -> None:
        """Run what takes its time in a thread, and show how it ended."""
        scope = self._session.cancel.child()
        try:
            job = in_thread(lambda: run(scope), "job")
            if ending := self._watch(job, lambda: scope.cancel("interrupted by the user"), lines):
                self._view.say(plain(ending))
        except Cancelled:
            self._view.say("Interrupted")


def worse(one: ExitStatus, other: ExitStatus) -> ExitStatus:
    """Where several apply, the first of 2, 1, 3, 4."""
    order = (ExitStatus.USAGE, ExitStatus.FAILED, ExitStatus.LIMIT, ExitStatus.PERMISSION, ExitStatus.DONE)
    return min(one, other, key=order.index)


class PipedLines:
    """Lines from a pipe or a file: each is run to its end before the next is read."""

    def __iter__(self) -> Iterator[str]:
        while line := self._next():
            yield line.decode("utf-8", "replace")

    def _next(self) -> bytes:
        try:
            return sys.stdin.buffer.readline()
        except OSError:  # open for writing only, say: nothing can come
            return b""

    def ask(self, question: str) -> str:
        return ""

    def interrupts_to(self, news: NewsQueue) -> AbstractContextManager[object]:
        return nullcontext()  # a signal to a program in a pipe means the program


class TypedLines:
    """Lines typed at the prompt. Ctrl-C clears a half-typed line; at an empty prompt the second in a row leaves."""

    def __init__(self, read: Callable[[str], str], half_typed: Callable[[], str], say: Callable[[str], None]) -> None:
        self._read = read
        self._half_typed = half_typed
        self._say = say
        self._typed = ""
        """What stood at the prompt when a question came in between."""

    def __iter__(self) -> Iterator[str]:
        pressed_at = -LEAVE_WITHIN_SECONDS
        hint = ""
        while True:
            try:
                if hint:
                    self._say(hint)
                hint = ""
                typed, self._typed = self._typed, ""
                line = self._read(typed)
            except EOFError:
                return
            except QuestionCame:
                self._typed = self._half_typed()
                yield ""  # an empty line does nothing but bring the questions up
            except KeyboardInterrupt:
                if self._half_typed():
                    continue
                if time.monotonic() - pressed_at < LEAVE_WITHIN_SECONDS:
                    return
                pressed_at = time.monotonic()
                hint = "Ctrl-C again leaves."
            else:
                yield line

    def ask(self, question: str) -> str:
        # What was typed before the question stood there cannot be meant as its answer.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
        ours = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return ask_plainly(question)
        finally:
            signal.signal(signal.SIGINT, ours)

    @contextmanager
    def interrupts_to(self, news: NewsQueue) -> Iterator[None]:
        # A handler that only leaves a note: an exception could strike anywhere, also where it would leave a lock held.
        before = signal.signal(signal.SIGINT, lambda number, frame: news.put(Interrupt()))
        try:
            yield
        finally:
            signal.signal(signal.SIGINT, before)


def ask_plainly(question: str) -> str:
    """A question between two prompts. Ctrl-C is left to the caller; the end of input means no."""
    try:
        return input(question)
    except EOFError:
        return ""


def ask_trust(directory: Path, offers: tuple[str, ...]) -> bool:
    """Whether to use what a directory brings along; asked once, before anything of it is used."""
    print(f"{directory} brings along:", *(f"  - {neutralise(offer)}" for offer in offers), sep="\n")
    try:
        return ask_plainly("Trust it? Without, teamcli goes on and leaves these unused. [y/N] ").strip().lower() in (
            "y",
            "yes",
        )
    except KeyboardInterrupt:
        return False


def run_piped(session: Session, first_task: str) -> int:
    """The REPL with stdin not a terminal: plain output, nobody to ask, an exit code that says how the tasks went."""
    view = View(sys.stdout, session)
    session.events.subscribe(view)
    repl = Repl(session, view, NewsQueue())
    with signals_raise(SIGINT, SIGTERM, SIGHUP):
        try:
            repl.run(PipedLines(), first_task)
            if not repl.has_left:
                in_thread(lambda: session.team.wait_until_quiet(session.cancel), "quiet").result()
        except SignalReceived as e:
            return e.exit_code
    return repl.status


def run_terminal(session: Session, first_task: str, news: NewsQueue) -> int:
    """The REPL at a terminal. Leaving it is no failure, whatever became of the tasks."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.formatted_text import ANSI
    from prompt_toolkit.history import FileHistory
    from prompt_toolkit.patch_stdout import StdoutProxy

    view = View(sys.stdout, session)
    session.events.subscribe(view)
    history = session.state.root / "history"
    os.close(open_private(history, os.O_WRONLY | os.O_CREAT))
    prompt: PromptSession[str] = PromptSession(history=FileHistory(str(history)))
    in_thread(session.warm_up, "warm-up")
    shown = ANSI(view.paint("team >> ", CYAN))

    def read(typed: str) -> str:
        # The team goes on while the user types: what it says appears above the prompt, in whole lines.
        with StdoutProxy(raw=True, sleep_between_writes=0.02) as above:
            view.write_to(cast(TextIO, above), whole_lines=True)
            try:
                return prompt.prompt(shown, default=typed, pre_run=leave_for_waiting_question)
            finally:
                view.write_to(sys.stdout, whole_lines=False)

    def leave_prompt() -> None:
        if prompt.app.is_running:
            prompt.app.exit(exception=QuestionCame())

    def leave_for_waiting_question() -> None:
        if news.has_question:
            prompt.app.loop.call_soon(leave_prompt) if prompt.app.loop else None

    def question_came() -> None:
        if prompt.app.loop is not None and prompt.app.is_running:
            prompt.app.loop.call_soon_threadsafe(leave_prompt)

    news.on_question = question_came

    view.banner()
    with signals_raise(SIGTERM, SIGHUP):
        try:
            lines = TypedLines(read, lambda: prompt.default_buffer.text, view.say)
            Repl(session, view, news).run(lines, first_task)
        except SignalReceived as e:
            return e.exit_code
    view.farewell()
    return ExitStatus.DONE
