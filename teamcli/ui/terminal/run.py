"""Running the REPL at a terminal, from the question about trust to the farewell."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from signal import SIGHUP, SIGTERM
from typing import TextIO, cast

from teamcli.config.options import ExitStatus
from teamcli.session.session import Session
from teamcli.text.escaping import one_line
from teamcli.ui.render.style import TerminalStyle
from teamcli.ui.signals import SignalReceived, signals_raise
from teamcli.ui.terminal.banner import banner, farewell
from teamcli.ui.terminal.plain_prompt import AroundThePrompt, is_dumb
from teamcli.ui.terminal.prompt_output import AbovePrompt
from teamcli.ui.terminal.questions import QuestionQueue
from teamcli.ui.terminal.repl import Terminal


def ask_trust(directory: Path, offers: Iterable[str]) -> bool:
    """Ask before using any configuration of this directory. `offers` lists it, and must be safe to print."""
    print(f"{one_line(str(directory), 400)} brings something that you have not agreed to:", *offers, sep="\n")
    try:
        answer = input("Trust this directory? If not, these are ignored. [y/N] ")
    except (EOFError, KeyboardInterrupt):
        return False
    return answer.strip().lower() in ("y", "yes")


def run_terminal(session: Session, first_task: str, questions: QuestionQueue) -> int:
    """Start the session and serve the user. Leaving is a success, whatever the outcome of the tasks."""
    print(banner(session, TerminalStyle.of(sys.stdout)), end="", flush=True)
    with signals_raise(SIGTERM, SIGHUP, insists=True):
        try:
            with _above_the_prompt() as page:
                terminal = Terminal(session, questions, page)
                terminal.run(first_task)
        except SignalReceived as e:
            return e.exit_code
    print(farewell(session, TerminalStyle.of(sys.stdout), terminal.unfinished))
    return ExitStatus.DONE


@contextmanager
def _above_the_prompt() -> Iterator[AbovePrompt | AroundThePrompt]:
    """Everything printed inside the block, also by libraries, appears above the prompt in whole lines."""
    if is_dumb():
        yield AroundThePrompt(sys.stdout)
        return
    with AbovePrompt() as page, redirect_stdout(cast(TextIO, page)), redirect_stderr(cast(TextIO, page)):
        yield page
