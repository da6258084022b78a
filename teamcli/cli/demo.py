"""`teamcli demo`: a team of two in a scratch directory, step by step, on the embedded model.

Each step is typed at the real prompt, and can be followed in the files with `cat` and `tail -F`.
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
This demo shows a lead and two teammates at work. It needs no API key: a small
embedded model follows simple commands literally. Threads, inboxes, tools and
files are real.

Everything happens in {directory}
To watch, open a second terminal and try any of these:

  cd {directory}
  tail -F .team/inbox/bob.jsonl   # bob's messages, as they arrive (the file
                                  # is created with the first one)
  cat .team/config.json           # the teammates and their status
  {teamcli} team                    # the same as a table
  {teamcli} log -f                  # what everyone does, as it happens
"""
ENDING = """\
That was the team. Everything is in plain files, and stays there:

  cd {directory}
  cat .team/config.json              # the teammates
  cat .team/inbox/lead.jsonl         # the lead's inbox, one message per line
  cat .team/transcripts/bob.jsonl    # everything bob saw and did
  {teamcli} log                        # the timeline
  {teamcli} --offline --continue       # to keep playing

To remove it:  rm -r {directory}
"""


class DemoStep(NamedTuple):
    why: str
    """Broken into lines that fit any terminal."""
    lines: tuple[str, ...]


STEPS = (
    DemoStep(
        "You talk to the lead, and it hires teammates. Here is the first one, with\n"
        "something to read. /wait waits until everyone is idle.",
        ("spawn bob as reviewer: read welcome.txt", "/wait"),
    ),
    DemoStep(
        "bob has finished, reported to the lead, and is idle. He costs nothing now, and\nremembers everything.",
        ("/team",),
    ),
    DemoStep(
        "The second teammate writes a file and messages bob about it directly, without\n"
        "the lead. The message wakes bob. What each of them says at the end is\n"
        "reported to the lead automatically.",
        (
            "spawn alice as coder: write notes.txt: hello from alice then tell bob: read notes.txt",
            "/wait",
        ),
    ),
    DemoStep(
        "An inbox is a file with one message per line. This is what alice sent to bob,\n"
        "and what `tail -F` has shown in your second terminal:",
        ("!cat .team/inbox/bob.jsonl",),
    ),
    DemoStep(
        "Any program may append a line, and the teammate acts on it, knowing that the\nline came from outside.",
        (
            """!echo '{"type":"message","from":"a shell","content":"read welcome.txt"}' >> .team/inbox/alice.jsonl""",
            "/wait",
            "/inbox alice",
        ),
    ),
    DemoStep(
        "You can also message a teammate yourself, here or with `teamcli send` from\n"
        "another terminal. You see the answer; the lead reads it with its next turn.",
        ("/send bob read notes.txt", "/wait"),
    ),
    DemoStep(
        "The lead's inbox. UNREAD are the answers to the shell and to you. Looking at\nan inbox changes nothing.",
        ("/inbox",),
    ),
    DemoStep(
        "The timeline: every message, tool call and status change, with its time.",
        ("/log 12",),
    ),
    DemoStep(
        "They are idle, so they shut down at once. Their files stay.",
        ("/shutdown alice", "/shutdown bob", "/team"),
    ),
)


def run_demo() -> int:
    """Returns the exit code."""
    directory = Path(tempfile.mkdtemp(prefix="teamcli-demo-")).resolve()
    (directory / "welcome.txt").write_text("Welcome to the team, bob.\n", encoding="utf-8")
    teamcli = "teamcli" if shutil.which("teamcli") else f"{shlex.quote(sys.executable)} -m teamcli"
    words = {"directory": shlex.quote(str(directory)), "teamcli": teamcli}
    print(INTRODUCTION.format(**words), flush=True)
    with signals_raise(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        try:
            code = _play(directory)
        except SignalReceived as e:
            code = e.exit_code
    print("\n" * sys.stdout.isatty() + ENDING.format(**words), flush=True)
    return code


def _play(directory: Path) -> int:
    # Edits need no permission here, so that the demo runs without a person.
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
    """Types the lines of each step after explaining it; on a terminal, at the reader's pace."""

    def __init__(self, view: PlainView) -> None:
        self._view = view
        self._has_reader = sys.stdin.isatty() and sys.stdout.isatty()

    def __iter__(self) -> Iterator[str]:
        for number, step in enumerate(STEPS, start=1):
            self._view.begin(f"--- {number} of {len(STEPS)} ---", step.why)
            if self._has_reader and not _read_line("    Enter: continue, Ctrl-D: quit "):
                self._view.say("")
                return
            for line in step.lines:
                self._view.typed(line)
                yield line
            self._view.say("")


def _read_line(prompt: str) -> str:
    """Read a line; empty at the end of input. An exception from a signal handler is raised in any case.

    `input` would keep sleeping if Ctrl-C came between printing the prompt and reading.
    """
    ours, theirs = os.pipe()
    os.set_blocking(theirs, False)  # set_wakeup_fd requires it: a full pipe must not block the signal handler
    before = signal.set_wakeup_fd(theirs)
    try:
        print(prompt, end="", flush=True)
        select.select([sys.stdin, ours], [], [])
    finally:
        signal.set_wakeup_fd(before)
        os.close(ours)
        os.close(theirs)
    return sys.stdin.readline()
