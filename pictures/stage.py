"""Where the real program plays a scene: a home, a small project, and a model that answers as the scene needs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from pictures.shot import Fixed, Shot, take_shot
from tests.support.fake_api import FakeAPI, answer, text, tool
from tests.support.program import Program
from tests.support.screen import Screen
from tests.support.team_script import TeamScript, agent_of

DEADLINE_SECONDS = 30
COLUMNS, LINES = 92, 45
MODEL = "claude-opus-5-5"
MACHINE: Fixed = (r"· ((?:no )?sandbox) ·", ["sandbox"])
"""Whether a sandbox works differs from machine to machine."""
TIMES: tuple[Fixed, ...] = (
    (r"✓ (?!\$).*  (\d+\.\ds)(?: ·|\s*$)", ["0.1s"]),
    (r"[✓✗] \$ .*  (\d+\.\ds)(?: ·|\s*$)", ["2.4s"]),
)
"""The duration of a call differs from run to run, so the pictures show a fixed one."""


def bar_time(agent: str, shown: str) -> Fixed:
    """How long the status bar says that an agent has been busy."""
    return rf"[●▲] {agent}\b[^│]* (\d+s)(?: │| ·|\s*$)", [shown]


class Gate:
    """Holds back an answer of the model until the scene opens the gate."""

    def __init__(self) -> None:
        self._opened = threading.Event()

    def open(self) -> None:
        self._opened.set()

    def holds(self, answer: Any) -> Callable[[Any], Any]:
        def when_open(_: Any) -> Any:
            assert self._opened.wait(DEADLINE_SECONDS), "the scene never opened a gate"
            return answer

        return when_open


class Camera(Screen):
    def __init__(self, program: Program, *arguments: str, columns: int, lines: int) -> None:
        super().__init__(program, *arguments, columns=columns, lines=lines)
        self._size = columns, lines

    def shot(self, *fixed: Fixed, top: str = "teamcli") -> Shot:
        """The screen from the row that starts with `top`, once the program writes nothing more."""
        seen = -1
        while seen < len(self.raw):
            seen = len(self.raw)
            assert self._read(), f"the program ended:\n{self.text}"
        return take_shot(self.raw, *self._size).cropped(top).with_fixed((MACHINE, *TIMES, *fixed))


@contextmanager
def stage(*, files: dict[str, str], commands: dict[str, str] | None = None) -> Iterator[Program]:
    """`~/shop` with these files. `commands` are scripts on the PATH that replace real programs."""
    with TemporaryDirectory() as home:
        program = Program(Path(home, "shop"), Path(home), variables={"MODEL_ID": MODEL})
        for name, content in files.items():
            _write(program.directory / name, content)
        for name, script in (commands or {}).items():
            _write(Path(home, "bin", name), f"#!/bin/sh\n{script}\n")
            Path(home, "bin", name).chmod(0o755)
        program.variables["PATH"] = f"{home}/bin:{program.env()['PATH']}"
        yield program


def hire(program: Program, **roles: str) -> None:
    """Hire teammates in an earlier run."""

    def script(request: dict[str, Any], _: int) -> Any:
        if agent_of(request) != "lead":
            return text("Ready.")
        if len(request["messages"]) > 1:
            return text("They are here.")
        return answer(
            *(tool("spawn_teammate", name=name, role=role, prompt="Join the team.") for name, role in roles.items())
        )

    with FakeAPI(script) as api:
        program.url = api.url
        ran = program.run("-p", "hire them")
        assert ran.code == 0, ran.err


@contextmanager
def played(program: Program, script: TeamScript, *options: str) -> Iterator[Camera]:
    with FakeAPI(script) as api:
        program.url = api.url
        with Camera(program, *options, columns=COLUMNS, lines=LINES) as camera:
            camera.wait_for("team >>")
            yield camera


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
