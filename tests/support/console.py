"""Follows a Markdown page as a reader would: every console block is typed as printed, and must show what is printed.

In a block, `$` begins a shell command and `team >>` or `allow? >>` a line for a running teamcli; the lines below it are
what appears. `…` stands for anything, numbers may differ, and more may appear than is printed, such as notices. The
blocks below one `##` heading are one sitting: they share a shell, and a terminal that one block opens stays open for
the next.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

from tests.support.program import PATIENCE_SECONDS, Program
from tests.support.screen import Screen
from tests.support.waiting import wait_until

BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
TYPED = re.compile(r"^(\$|team >>|allow\? >>) ?(.*)$")
REPL = re.compile(r"^(?:\.venv/bin/)?teamcli(?: (?:--?\w[\w-]*|acceptEdits|\"[^\"]*\"|\S+,\S+))*$|^make run\b")
SUBCOMMAND = re.compile(
    r"teamcli (?:-p|team|inbox|send|log|watch|tasks|doctor|demo|sessions|--version|--help)\b|ARGS=\"?doctor"
)
FOLLOWS = re.compile(r" -[fF]\b|\bteamcli watch\b(?!.*--tmux)|\bworker\b")
END = "[end of the command]"


class Step(NamedTuple):
    """A line that the reader types, and what the page shows below it."""

    prompt: str
    line: str
    shown: tuple[str, ...]

    @property
    def opens_repl(self) -> bool:
        command = self.line.partition("  #")[0].strip()
        return self.prompt == "$" and bool(REPL.match(command)) and not SUBCOMMAND.search(command)


def sittings(page: str) -> Iterator[list[Step]]:
    """The steps below each `##` heading that has console blocks."""
    for section in re.split(r"^## ", page, flags=re.MULTILINE):
        if steps := [step for block in BLOCK.findall(section) for step in steps_of(block)]:
            yield steps


def steps_of(block: str) -> Iterator[Step]:
    lines = block.splitlines()
    starts = [number for number, line in enumerate(lines) if TYPED.match(line)]
    assert starts[:1] == [0], f"a console block begins with something to type:\n{block}"
    for start, end in zip(starts, [*starts[1:], len(lines)], strict=True):
        typed = TYPED.match(lines[start])
        assert typed
        yield Step(typed[1], typed[2], tuple(lines[start + 1 : end]))


def pattern_of(line: str) -> re.Pattern[str]:
    """What matches `line` as it is printed: `…` is anything, a number any number, and white space may be wider."""
    pieces = [
        r"[\d.,]*\d" if re.match(r"\d", piece) else re.escape(piece) for piece in re.split(r"(\d[\d.,]*\d|\d)", line)
    ]
    loose = re.sub(r"(\\ |\\\t)+", r"\\s+", "".join(pieces).strip())
    return re.compile(loose.replace("…", ".*"))


class Shell:
    """One bash for a sitting: variables that are exported stay."""

    def __init__(self, program: Program) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc"],
            cwd=program.directory,
            env=program.env(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        self._lines.extend(iter(self._process.stdout.readline, ""))

    def run(self, command: str) -> tuple[int, list[str]]:
        """Run `command` to its end; returns its exit code and what it printed."""
        begin = len(self._lines)
        # The exit code is handed on, because the next command may be `echo $?`.
        self._send(f"{{ {command}\n}} < /dev/null\ncode=$?; echo; echo '{END}' $code; (exit $code)\n")
        wait_until(lambda: any(line.startswith(END) for line in self._lines[begin:]), PATIENCE_SECONDS)
        *shown, last = self._lines[begin:]
        return int(last.removeprefix(END)), [line.rstrip("\n") for line in shown if line.strip()]

    def _send(self, text: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(text)
        self._process.stdin.flush()

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        assert self._process.stdout
        self._process.stdout.close()


class Follower:
    """A command that does not end by itself, such as `tail -f`: it runs until the sitting is over."""

    def __init__(self, program: Program, step: Step) -> None:
        self._step = step
        self._process = subprocess.Popen(
            ["bash", "-c", f"exec {step.line}"],
            cwd=program.directory,
            env=program.env(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._shown = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._shown += line

    def wait_for_what_is_shown(self) -> None:
        for line in self._step.shown:
            self._wait_for(pattern_of(line))
        assert self._process.poll() is None, f"$ {self._step.line}\n{self._shown}"

    def _wait_for(self, pattern: re.Pattern[str]) -> None:
        with suppress(AssertionError):
            wait_until(lambda: pattern.search(self._shown))
        assert pattern.search(self._shown), f"{pattern.pattern} did not appear:\n$ {self._step.line}\n{self._shown}"

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(PATIENCE_SECONDS)
        self._reader.join(PATIENCE_SECONDS)
        assert self._process.stdout
        self._process.stdout.close()


class Reader:
    """`with Reader(program) as reader: reader.follow(steps)`."""

    def __init__(self, program: Program, columns: int = 80) -> None:
        self._program = replace(program, variables=dict(program.variables))
        self._columns = columns
        self._shell = Shell(self._program)
        self._screen: Screen | None = None
        self._followers: list[Follower] = []

    def __enter__(self) -> Reader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                for follower in self._followers:
                    follower.wait_for_what_is_shown()
        finally:
            for follower in self._followers:
                follower.close()
            self._shell.close()
            self.leave_repl()

    def follow(self, steps: list[Step]) -> None:
        for number, step in enumerate(steps):
            asks_for_code = steps[number + 1 : number + 2] and steps[number + 1].line == "echo $?"
            if step.prompt != "$":
                self._type(step)
            elif step.opens_repl:
                self._open_repl(step)
            elif FOLLOWS.search(step.line):
                self._followers.append(Follower(self._program, step))
                if " worker " in step.line:  # what follows needs it
                    self._followers[-1].wait_for_what_is_shown()
            else:
                self._run(step, may_fail=bool(asks_for_code))

    def _run(self, step: Step, may_fail: bool) -> None:
        code, lines = self._shell.run(step.line)
        shown = "\n".join(lines)
        assert may_fail or code == 0, f"$ {step.line}\n{shown}\n[exit code {code}]"
        if exported := re.match(r"export (\w+)=(\S+)", step.line):
            name, value = exported.groups()
            value = value.strip('"').replace("$PWD", str(self._program.directory))
            self._program.variables[name] = value.replace("$PATH", self._program.env()["PATH"])
        if step.shown:
            in_order = r"[\s\S]*".join(pattern_of(line).pattern for line in step.shown)
            assert re.search(in_order, shown), f"$ {step.line}\n{shown}"

    def _open_repl(self, step: Step) -> None:
        self.leave_repl()
        words = shlex.split(step.line, comments=True)
        self._screen = Screen(self._program, command=words, columns=self._columns, lines=100)
        self._screen.wait_for("team >>")
        self._expect(step)

    def leave_repl(self) -> None:
        if self._screen:
            self._screen.type("\x15q\r")
            self._screen.wait_for_end()
            self._screen.__exit__(None, None, None)
            self._screen = None

    def _type(self, step: Step) -> None:
        if self._screen is None:
            self._open_repl(Step("$", "teamcli", ()))
        assert self._screen
        self._screen.wait_for(step.prompt)
        self._screen.type(step.line + "\r")
        self._expect(step)

    def _expect(self, step: Step) -> None:
        assert self._screen
        for line in step.shown:
            self._screen.wait_for_match(pattern_of(line))


def on_path(directory: Path, url: str) -> Path:
    """A `teamcli` for PATH. With a key and no address, it talks to the fake API at `url` instead of the real one."""
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / "teamcli"
    path.write_text(
        "#!/bin/sh\n"
        f'[ -z "$ANTHROPIC_API_KEY" ] || export ANTHROPIC_BASE_URL="${{ANTHROPIC_BASE_URL:-{url}}}"\n'
        f'exec {shlex.join(Program(directory, directory).command([]))} "$@"\n'
    )
    path.chmod(0o755)
    return path


def in_path(program: Program, directory: Path) -> None:
    program.variables["PATH"] = f"{directory}{os.pathsep}{program.env()['PATH']}"
