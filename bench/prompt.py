"""The live prompt: how soon it appears, how soon a key is echoed while a team of eight streams, and how soon the menu
of files appears in a large workspace."""

from __future__ import annotations

import os
import select
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import pexpect

from bench.client_run import REPOSITORY, client_environment, fresh_directory
from tests.support.fake_api_process import FakeAPIProcess

Row = tuple[str, float, float, float, str, str]
"""The arguments of a `Figure`."""

PROMPT = b"team >> "
TEAMMATES = 8
PROMISED_KEY_MS = 20.0
SECONDS_BETWEEN_KEYS = 0.03
FILES = 20_000
ROLES, SKILLS = 300, 200
PROMISED_MENU_MS = 300.0
FIRST_KEY = 0x4E00
"""Each key is a different character that occurs nowhere else, so that its echo is unambiguous."""
WHERE_IS_THE_CURSOR = b"\x1b[6n"


def rows(is_quick: bool = False) -> list[Row]:
    starts, keys = (3, 60) if is_quick else (11, 400)
    ours, bare = measure_ready(starts)
    many, none = measure_many_files(starts)
    latencies = measure_keys(keys)
    cold, warm = measure_menu(starts)
    menu = f"@ menu on {FILES:,} files"
    return [
        ("prompt ready", ours, bare, 10.0, "ms", "python -c pass"),
        (f"prompt ready, {ROLES} roles and {SKILLS} skills", many, none, 1.3, "ms", "with none"),
        (f"key to echo, {TEAMMATES} teammates stream, p99", latencies, PROMISED_KEY_MS, 1.0, "ms", "the promise"),
        (f"{menu}, first", cold, PROMISED_MENU_MS, 1.0, "ms", "the promise"),
        (f"{menu}, again", warm, PROMISED_MENU_MS, 1.0, "ms", "the promise"),
    ]


def measure_ready(repetitions: int) -> tuple[float, float]:
    """From starting the process to the prompt on its terminal; the same for a python that only prints a word."""
    ours, bare = [], []
    with fresh_directory() as directory:
        for _ in range(repetitions):
            ours.append(time_to_prompt(directory))
            bare.append(_time_to(b"x", ["-c", "print('x')"], directory))
    return median(ours) * 1000, median(bare) * 1000


def measure_many_files(repetitions: int) -> tuple[float, float]:
    """From starting the process to the prompt, in a project with many roles and skills, and in one with none."""
    many, none = [], []
    with fresh_directory() as directory, fresh_directory() as empty:
        _write_many(directory / ".claude")
        for _ in range(repetitions):
            many.append(_time_to(PROMPT, ["-m", "teamcli", "--offline", "--trust"], directory))
            none.append(_time_to(PROMPT, ["-m", "teamcli", "--offline", "--trust"], empty))
    return median(many) * 1000, median(none) * 1000


def _write_many(folder: Path) -> None:
    roles = [(f"agents/group-{number % 10}/role-{number}.md", f"role-{number}") for number in range(ROLES)]
    skills = [(f"skills/skill-{number}/SKILL.md", f"skill-{number}") for number in range(SKILLS)]
    for name, label in (*roles, *skills):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        front = f"name: {label}\ndescription: Knows {label}. Use PROACTIVELY when {label} comes up.\nmodel: sonnet"
        path.write_text(f"---\n{front}\n---\n" + "Work with care, and check what you did.\n" * 100)


def time_to_prompt(directory: Path) -> float:
    return _time_to(PROMPT, ["-m", "teamcli", "--offline"], directory)


def measure_keys(keys: int) -> float:
    """The 99th percentile of the time from a key to its echo, in ms."""
    with streaming_team() as terminal:
        return p99_of_keys(terminal, keys)


def p99_of_keys(terminal: Any, keys: int) -> float:
    latencies = [_type(terminal, chr(FIRST_KEY + number)) for number in range(keys)]
    return quantiles(latencies, n=100)[98] * 1000


@contextmanager
def streaming_team() -> Iterator[Any]:
    """The terminal of a session in which eight teammates stream all the time."""
    with fresh_directory() as directory, FakeAPIProcess(_script(), directory / "api.jsonl", keep_bodies=0) as api:
        env = client_environment(directory, api.url)
        with _terminal(["-m", "teamcli", "--permission-mode", "bypassPermissions"], directory, env) as terminal:
            read_until(terminal, PROMPT)
            terminal.send("go\r")
            read_until(terminal, b"everybody is hired")
            yield terminal
            streaming = len(api.requests()) - sum(entry["event"] == "answered" for entry in api.log())
            os.kill(terminal.pid, 9)
    if streaming < TEAMMATES:
        raise RuntimeError(f"only {streaming} teammates were streaming while it was measured")


def measure_menu(repetitions: int) -> tuple[float, float]:
    """From `@` to a file on the screen, in ms: the first time in a program, and once more."""
    cold, warm = [], []
    with fresh_directory() as directory:
        work = directory / "work"
        (work / ".gitignore").write_text("*.pyc\nbuild/\n/dist\n")
        for number in range(FILES):
            path = work / f"package{number % 20}" / f"part{number % 400}" / f"module{number}.py"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        env = {"PATH": os.environ["PATH"], "HOME": str(directory)}
        for _ in range(repetitions):
            with _terminal(["-m", "teamcli", "--offline"], directory, env) as terminal:
                read_until(terminal, b"/help")
                cold.append(_time_to_menu(terminal))
                warm.append(_time_to_menu(terminal))
    return median(cold) * 1000, median(warm) * 1000


def _time_to_menu(terminal: Any) -> float:
    started = time.monotonic()
    terminal.send("@")
    read_until(terminal, b"package")
    took = time.monotonic() - started
    while select.select([terminal.child_fd], [], [], 0.2)[0]:  # until the menu is complete
        _read(terminal, 0.0)
    terminal.send("\x15")
    while select.select([terminal.child_fd], [], [], 0.2)[0]:
        _read(terminal, 0.0)
    return took


def _script() -> dict[str, Any]:
    # With names of this length, the wide characters that are typed to one fill each row of the terminal exactly.
    # Otherwise prompt_toolkit needs one more of them before it adds a row.
    hire = [
        {"tool": "spawn_teammate", "input": {"name": f"worker-{n}", "role": "writer", "prompt": "stream on"}}
        for n in range(TEAMMATES)
    ]
    words = "A sentence that goes on and on, with `code` and **more**.\n\n" * 2000
    stream = {"answer": [{"text": words, "pieces": 8000}, {"drip": 0.02}]}
    return {"rules": [["stream on", stream], ["Spawned", "everybody is hired"], ["go", {"answer": hire}]]}


def _type(terminal: Any, key: str) -> float:
    """Type one key after a short pause in which streamed output is read; returns how long its echo took."""
    rest = time.monotonic() + SECONDS_BETWEEN_KEYS
    while (left := rest - time.monotonic()) > 0:
        _read(terminal, left)
    typed = time.monotonic()
    terminal.send(key)
    read_until(terminal, key.encode())
    return time.monotonic() - typed


@contextmanager
def _terminal(arguments: list[str], directory: Path, env: dict[str, str]) -> Iterator[Any]:
    env = {**env, "TERM": "xterm-256color", "LANG": "C.UTF-8", "PYTHONPATH": str(REPOSITORY)}
    terminal = pexpect.spawn(sys.executable, arguments, cwd=str(directory / "work"), env=env, dimensions=(40, 120))
    terminal.delaybeforesend = None
    terminal.seen = b""
    try:
        yield terminal
    finally:
        terminal.close(force=True)


def _time_to(sign: bytes, arguments: list[str], directory: Path) -> float:
    started = time.monotonic()
    env = {"PATH": os.environ["PATH"], "HOME": str(directory)}
    with _terminal(arguments, directory, env) as terminal:
        read_until(terminal, sign)
        return time.monotonic() - started


def read_until(terminal: Any, sign: bytes, seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    start = len(terminal.seen)
    while sign not in terminal.seen[max(0, start - len(sign)) :]:
        if time.monotonic() > end:
            raise RuntimeError(f"{sign!r} did not appear: {terminal.seen[-2000:]!r}")
        _read(terminal, 0.1)


def _read(terminal: Any, timeout: float) -> None:
    if not select.select([terminal.child_fd], [], [], timeout)[0]:
        return
    data = os.read(terminal.child_fd, 65_536)
    terminal.seen += data
    for _ in range(data.count(WHERE_IS_THE_CURSOR)):
        terminal.send("\x1b[1;1R")
