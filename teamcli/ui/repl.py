"""The REPL: a line is a task, a command or a quit word. The same loop serves a terminal and a pipe."""

from __future__ import annotations

import queue
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM
from typing import Protocol

from teamcli.agent.approval import Consent, Question, Reply
from teamcli.agent.events import TurnEnded
from teamcli.commands.base import Leave
from teamcli.commands.catalog import run_command
from teamcli.errors import Cancelled, TeamcliError, ToolError
from teamcli.options import ExitStatus
from teamcli.plain import neutralise
from teamcli.session import LEAD, Session
from teamcli.ui.headless import exit_status
from teamcli.ui.signals import SignalReceived, in_thread, signals_raise
from teamcli.ui.view import CYAN, View

ALWAYS_ASKED = "Allowed this once: a rule of yours asks every time."
LEAVE_WITHIN_SECONDS = 2.0
QUIT_WORDS = ("q", "exit", "quit")
SHELL_TIMEOUT_SECONDS = 600


class Lines(Protocol):
    """Where the user's lines come from."""

    def __iter__(self) -> Iterator[str]: ...

    def ask(self, question: str) -> str:
        """One more line, in answer to `question`; empty at the end of input."""
        ...


class Repl:
    """Takes lines in the main thread; each turn runs in a thread of its own, so that it can be watched and ended."""

    def __init__(self, session: Session, view: View, questions: queue.Queue[Question | None]) -> None:
        self._session = session
        self._view = view
        self._questions = questions
        self.status = ExitStatus.DONE
        """What a script should know of how the tasks went; the worst of them."""

    def run(self, lines: Lines, first_task: str = "") -> None:
        """Serve lines until the user leaves or they end."""
        if first_task:
            self._task(first_task, lines)
        for line in lines:
            text = line.strip()
            try:
                if text in QUIT_WORDS:
                    return
                self._serve(text, lines)
            except Leave:
                return
            except KeyboardInterrupt:  # too late for the turn that it was meant for
                self._view.say("")
            except TeamcliError as e:
                self._view.say(f"teamcli: {neutralise(str(e))}")

    def _serve(self, text: str, lines: Lines) -> None:
        if not text:
            return
        if text.startswith("/"):
            self._view.say(neutralise(run_command(self._session, text)))
        elif text.startswith("!"):
            self._shell(text[1:].strip())
        else:
            self._task(text, lines)

    def _task(self, text: str, lines: Lines) -> None:
        turn = in_thread(lambda: self._session.submit(text), LEAD)
        turn.add_done_callback(lambda _: self._questions.put(None))
        ended = self._watch(turn, lines)
        self._view.end_turn(ended)
        self.status = worse(self.status, exit_status(self._session, ended))

    def _watch(self, turn: Future[TurnEnded], lines: Lines) -> TurnEnded:
        """Bring questions before the user while the turn runs; Ctrl-C ends the turn, never the program."""
        while True:
            try:
                question = self._questions.get()
                if question is None:
                    return turn.result()
                if question.is_open:
                    question.answer(self._ask(question, lines))
            except KeyboardInterrupt:
                self._session.interrupt()

    def _ask(self, question: Question, lines: Lines) -> Reply:
        self._view.show_question(question)
        answer = lines.ask("Allow? [y]es once, [a]lways, [n]o, or say what to do instead: ").strip()
        match answer.lower():
            case "y" | "yes":
                return Reply(Consent.ONCE)
            case "a" | "always":
                self._view.say(f"From now on allowed: {question.rule}" if question.rule else ALWAYS_ASKED)
                return Reply(Consent.ALWAYS)
            case "" | "n" | "no":
                return Reply(Consent.NO)
            case _:
                return Reply(Consent.NO, answer)

    def _shell(self, command: str) -> None:
        """`!command`: the user's own, so nothing is asked."""
        scope = self._session.cancel.child()
        job = in_thread(lambda: self._session.run_shell(command, scope, self._view.progress), "shell")
        while True:
            try:
                if ending := job.result():
                    self._view.say(ending)
                return
            except KeyboardInterrupt:
                scope.cancel("interrupted by the user")
            except (Cancelled, ToolError) as e:
                self._view.say("Interrupted" if isinstance(e, Cancelled) else str(e))
                return


def worse(one: ExitStatus, other: ExitStatus) -> ExitStatus:
    """Where several apply, the first of 2, 1, 3, 4."""
    order = (ExitStatus.USAGE, ExitStatus.FAILED, ExitStatus.LIMIT, ExitStatus.PERMISSION, ExitStatus.DONE)
    return min(one, other, key=order.index)


class PipedLines:
    """Lines from a pipe or a file: each is run to its end before the next is read."""

    def __iter__(self) -> Iterator[str]:
        for line in sys.stdin.buffer:
            yield line.decode("utf-8", "replace")

    def ask(self, question: str) -> str:
        return ""


class TypedLines:
    """Lines typed at the prompt. Ctrl-C clears a half-typed line; at an empty prompt the second in a row leaves."""

    def __init__(self, read: Callable[[], str], half_typed: Callable[[], str], say: Callable[[str], None]) -> None:
        self._read = read
        self._half_typed = half_typed
        self._say = say

    def __iter__(self) -> Iterator[str]:
        pressed_at = -LEAVE_WITHIN_SECONDS
        hint = ""
        while True:
            try:
                if hint:
                    self._say(hint)
                hint = ""
                line = self._read()
            except EOFError:
                return
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
        return ask_plainly(question)


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
    repl = Repl(session, view, queue.Queue())
    with signals_raise(SIGINT, SIGTERM, SIGHUP):
        try:
            repl.run(PipedLines(), first_task)
        except SignalReceived as e:
            return e.exit_code
    return repl.status


def run_terminal(session: Session, first_task: str, questions: queue.Queue[Question | None]) -> int:
    """The REPL at a terminal. Leaving it is no failure, whatever became of the tasks."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.formatted_text import ANSI
    from prompt_toolkit.history import FileHistory

    view = View(sys.stdout, session)
    session.events.subscribe(view)
    prompt: PromptSession[str] = PromptSession(history=FileHistory(str(session.team.root / "history")))
    shown = ANSI(view.paint("team >> ", CYAN))
    view.banner()
    with signals_raise(SIGTERM, SIGHUP):
        try:
            lines = TypedLines(lambda: prompt.prompt(shown), lambda: prompt.default_buffer.text, view.say)
            Repl(session, view, questions).run(lines, first_task)
        except SignalReceived as e:
            return e.exit_code
    view.farewell()
    return ExitStatus.DONE
