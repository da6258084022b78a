"""`teamcli demo`: a team of two in a small git repository, step by step, on the embedded model.

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
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from teamcli.app.build import open_session
from teamcli.app.command_hosts import plain_host
from teamcli.config.environment import STORE
from teamcli.config.options import Options
from teamcli.config.project import inspect_project
from teamcli.config.settings import Settings
from teamcli.config.trust import home_dir
from teamcli.errors import ConfigError, GitError
from teamcli.exec.programs import Programs
from teamcli.store.location import find_store
from teamcli.ui.piped import PipedRepl
from teamcli.ui.render.plain_view import PlainView
from teamcli.ui.render.terminal_view import TerminalView
from teamcli.ui.signals import SignalReceived, signals_raise
from teamcli.worktrees.git import Git

INTRODUCTION = """\
This demo shows a lead and two teammates at work. It needs no API key: a small
embedded model follows simple commands literally. Threads, inboxes, tools, git
and files are real.

Everything happens in {directory}
To watch, open a second terminal and try any of these:

  cd {directory}{enter_files}
  tail -F .team/inbox/bob.jsonl   # bob's messages, as they arrive (the file
                                  # is created with the first one)
  cat .team/config.json           # the teammates and their status
  {teamcli} tasks                   # the task board
  {teamcli} log -f                  # what everyone does, as it happens
"""
ENDING = """\
That was the team. Everything is in plain files, and stays there:

  cd {directory}{enter_files}
  cat .team/config.json              # the teammates
  cat .team/tasks/1.json             # a task of the board
  cat .team/inbox/lead.jsonl         # the lead's inbox, one message per line
  cat .team/transcripts/bob.jsonl    # everything bob saw and did
  {teamcli} log                        # the timeline
  {teamcli} --offline --continue       # to keep playing

To remove it:  rm -r {directory}
"""
ENTER_FILES = f"""
  export {STORE}=           # here teamcli uses files, not your database"""
"""For those who have configured a store."""


class DemoStep(NamedTuple):
    why: str
    """Broken into lines that fit any terminal."""
    lines: tuple[str, ...]


STEPS = (
    DemoStep(
        "You talk to the lead, and it hires teammates. Each of these two works in its\n"
        "own checkout of the repository. /wait waits until everyone is idle.",
        (
            "spawn alice as coder in a worktree: read welcome.txt",
            "spawn bob as coder in a worktree: read welcome.txt",
            "/wait",
        ),
    ),
    DemoStep(
        "Both have reported to the lead, and are idle. They cost nothing now, and\nremember everything.",
        ("/team",),
    ),
    DemoStep(
        "The team shares a task board. A task reaches its owner as a message, and wakes\n"
        "it. (A teammate that is hired with `claims` takes free tasks by itself.)",
        (
            "/tasks add write prices.txt: apples 3",
            "/tasks assign 1 alice",
            "/tasks add write stock.txt: apples 40",
            "/tasks assign 2 bob",
            "/wait",
            "/tasks",
        ),
    ),
    DemoStep(
        "A task is a file, and so is everything else. The work itself is in the\n"
        "checkouts: the main directory has not changed.",
        ("!cat .team/tasks/1.json", "!ls", "/diff alice"),
    ),
    DemoStep(
        "Merging brings the work back: what is uncommitted is committed, your branch is\n"
        "merged into the teammate's, your checks run there, and only then your branch\n"
        "moves. A conflict or a failed check would leave it as it is.",
        ("/merge alice", "/merge bob", "!git log --oneline --graph", "!ls"),
    ),
    DemoStep(
        "Teammates also write to each other, without the lead. An inbox is a file with\n"
        "one message per line; `tail -F` has shown this one in your second terminal.",
        ("/send alice tell bob: read stock.txt", "/wait", "!tail -n 1 .team/inbox/bob.jsonl"),
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
        "The timeline: every message, task, tool call and status change, with its time.",
        ("/log 12",),
    ),
    DemoStep(
        "They are idle, so they shut down at once. Their work is merged, so their\n"
        "checkouts are removed. Inboxes and transcripts stay.",
        ("/shutdown alice", "/shutdown bob", "/team"),
    ),
)


def run_demo() -> int:
    """Returns the exit code.

    Raises: ConfigError, if there is no git; UsageError, if the URL of a store is not valid
    """
    enter_files = ENTER_FILES if find_store(None, os.environ, home_dir()) else ""
    os.environ[STORE] = ""  # what it shows are files
    directory = Path(tempfile.mkdtemp(prefix="teamcli-demo-")).resolve()
    _make_repository(directory)
    teamcli = "teamcli" if shutil.which("teamcli") else f"{shlex.quote(sys.executable)} -m teamcli"
    words = {"directory": shlex.quote(str(directory)), "teamcli": teamcli, "enter_files": enter_files}
    print(INTRODUCTION.format(**words), flush=True)
    with signals_raise(signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        try:
            code = _play(directory)
        except SignalReceived as e:
            code = e.exit_code
    print("\n" * sys.stdout.isatty() + ENDING.format(**words), flush=True)
    return code


def _make_repository(directory: Path) -> None:
    (directory / "welcome.txt").write_text("Welcome to the team.\n", encoding="utf-8")
    with closing(plain_host(Settings(), Programs())) as host:
        git = Git(host, directory)
        try:
            git.run("init", "--quiet", "--initial-branch=main")
            git.run("add", ".")
            git.run("-c", "user.name=demo", "-c", "user.email=demo@example.com", "commit", "--quiet", "-m", "Begin")
        except GitError as e:
            shutil.rmtree(directory)
            raise ConfigError(f"the demo works in a git repository, which cannot be made: {e}") from e


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
