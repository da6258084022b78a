"""A denied program that only leaves a mark, and the real program with a model that tries to run it."""

from __future__ import annotations

from collections.abc import Iterable

from tests.support.fake_api import answer, text, tool, tool_results
from tests.support.program import Program, Ran

DENIED = "bash(zap:*),bash(git push:*)"


def make_marker(program: Program) -> None:
    """`zap`, and a `git` that is none: both only write down that they ran, in the workspace."""
    programs = program.directory / "bin"
    programs.mkdir(exist_ok=True)
    for name in ("zap", "git"):
        path = programs / name
        path.write_text(f'#!/bin/sh\necho "{name} $*" >> "{program.directory}/marks"\n')
        path.chmod(0o755)
    program.variables["PATH"] = f"{programs}:/usr/bin:/bin"


def marks(program: Program) -> list[str]:
    """What ran."""
    path = program.directory / "marks"
    return path.read_text().splitlines() if path.exists() else []


def attempt(program: Program, commands: Iterable[str], *flags: str) -> tuple[Ran, list[str]]:
    """Have a model make these calls of `bash`, one after the other; what each was answered."""
    script = [answer(*(tool("bash", command=command) for command in commands)), text("done")]
    with program.against(script) as api:
        ran = program.run("-p", "x", "--output-format", "json", *flags)
    return ran, [str(result["content"]) for result in tool_results(api.requests[1])]
