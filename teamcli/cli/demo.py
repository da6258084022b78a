"""`teamcli demo`: a team of two at work in a scratch directory, step by step, on the embedded model.

Every step is a line typed at the real prompt; what is shown can be followed in the files with `cat` and `tail -F`.
"""

from __future__ import annotations

import os
import select
import shlex
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from teamcli.app.build import open_session
from teamcli.config.options import Options
from teamcli.config.project import inspect_project
from teamcli.ui.piped import PipedRepl
from teamcli.ui.render.plain_view import PlainView
from teamcli.ui.render.terminal_view import TerminalView
from teamcli.ui.signals import SignalReceived, signals_raise

INTRODUCTION = """\
This shows a lead and two teammates at work. No key is needed: a small
embedded model stands in for a real one and does literally what it is told.
Threads, inboxes, tools and files are the real ones.

Everything happens in {directory}
To follow it there, open a second terminal and try any of these:

  cd {directory}
  tail -F .team/inbox/bob.jsonl   # bob's mail, as it comes (the file comes
                                  # with the first message: it waits for it)
  cat .team/config.json           # who is in the team, and how each stands
  {teamcli} team                    # the same as a table
  {teamcli} log -f                  # what everybody does, as it happens
"""
ENDING = """\
That was the team. All of it is in plain files, and stays there:

  cd {directory}
  cat .team/config.json              # who is in the team
  cat .team/inbox/lead.jsonl         # the lead's mail, one message a line
  cat .team/transcripts/bob.jsonl    # all that bob saw and did
  {teamcli} log                        # the timeline
  {teamcli} --offline --continue       # to play on

To remove it:  rm -r {directory}
"""


class Step(NamedTuple):
    why: str
    """In lines that fit any terminal."""
    lines: tuple[str, ...]


STEPS = (
    Step(
        "You talk to the lead; it hires teammates. Here is the first, with something\n"
        "to read. /wait waits until nobody works any more.",
        ("spawn bob as reviewer: read welcome.txt", "/wait"),
    ),
    Step(
        "bob has done that, told the lead what came of it, and rests. He costs nothing\nnow, and remembers everything.",
        ("/team",),
    ),
    Step(
        "The second teammate writes a file and tells bob about it, without the lead in\n"
        "between. The message wakes bob; what each of them says at the end reaches the\n"
        "lead by itself.",
        (
            "spawn alice as coder: write notes.txt: hello from alice then tell bob: read notes.txt",
            "/wait",
        ),
    ),
    Step(
        "An inbox is a file with one message a line. This is what alice sent to bob,\n"
        "and what `tail -F` has shown in your second terminal:",
        ("!cat .team/inbox/bob.jsonl",),
    ),
    Step(
        "Any program may append a line, and the teammate acts on it; it is told that\nthe line came from outside.",
        (
            """!echo '{"type":"message","from":"a shell","content":"read welcome.txt"}' >> .team/inbox/alice.jsonl""",
            "/wait",
            "/inbox alice",
        ),
    ),
    Step(
        "You can write to a teammate as well, here or with `teamcli send` from another\n"
        "terminal. The answer is shown to you; the lead reads it with its next turn.",
        ("/send bob read notes.txt", "/wait"),
    ),
    Step(
        "What has come back to the lead. UNREAD are the answers to the shell and to\n"
        "you. Looking at an inbox takes nothing out of it.",
        ("/inbox",),
    ),
    Step(
        "The timeline: every message, tool call and change of status, with its time.",
        ("/log 12",),
    ),
    Step(
        "They are idle, so they leave at once. Their files stay.",
        ("/shutdown alice", "/shutdown bob", "/team"),
    ),
)


def run_demo() -> int:
    """Returns the exit code."""
    directory = Path(tempfile.mkdtemp(prefix="teamcli-demo-")).resolve()
    (directory / "welcome.txt").write_text("Welcome to the team, bob.\n", encoding="utf-8")
    words = {"directory": shlex.quote(str(directory)), "teamcli": _how_to_call()}
    print(INTRODUCTION.format(**words), flush=True)
    with signals_raise(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        try:
            code = _play(directory)
        except SignalReceived as e:
            code = e.exit_code
    print("\n" * sys.stdout.isatty() + ENDING.format(**words), flush=True)
    return code


def _play(directory: Path) -> int:
    options = Options(offline=True, permission_mode="acceptEdits")
    session = open_session(options, inspect_project(directory))
    try:
        view = TerminalView(sys.stdout) if sys.stdout.isatty() else PlainView(sys.stdout)
        session.events.subscribe(view)
        session.start()
        repl = PipedRepl(session, view)
        repl.run(Guide(view))
        return repl.status
    finally:
        session.close()


class Guide:
    """Types the lines of all steps, each after a word about it; at a terminal at the reader's pace."""

    def __init__(self, view: PlainView) -> None:
        self._view = view
        self._has_reader = sys.stdin.isatty() and sys.stdout.isatty()

    def __iter__(self) -> Iterator[str]:
        for number, step in enumerate(STEPS, start=1):
            self._view.begin(f"--- {number} of {len(STEPS)} ---", step.why)
            if not self._may_go_on():
                return
            for line in step.lines:
                self._view.typed(line)
                yield line
            self._view.say("")

    def _may_go_on(self) -> bool:
        if not self._has_reader:
            return True
        if _read_line("    Enter goes on, Ctrl-D ends: "):
            return True
        self._view.say("")
        return False


def _read_line(prompt: str) -> str:
    """A line of the reader's, empty at the end; what the handler of a signal raises is raised however that falls.

    `input` would sleep on where Ctrl-C comes between the prompt and the reading.
    """
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)
    before = signal.set_wakeup_fd(theirs)
    try:
        print(prompt, end="", flush=True)
        select.select([sys.stdin, ours], [], [])
    finally:
        signal.set_wakeup_fd(before)
        os.close(ours)
        os.close(theirs)
    return sys.stdin.readline()


def _how_to_call() -> str:
    return "teamcli" if shutil.which("teamcli") else f"{shlex.quote(sys.executable)} -m teamcli"
