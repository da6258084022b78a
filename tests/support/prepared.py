"""A directory and a home that are prepared once and restored for each test."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from tests.support.program import MakeProgram, Program


class Prepared:
    """The paths stay the same, because trust is bound to a path."""

    def __init__(self, base: Path, prepare: Callable[[Program], object], make_program: MakeProgram = Program) -> None:
        self._make_program = make_program
        self._places = base / "work", base / "home"
        self._kept = base / "kept"
        for place in self._places:
            place.mkdir()
        prepare(make_program(*self._places))
        for place in self._places:
            shutil.copytree(place, self._kept / place.name)

    def program(self) -> Program:
        for place in self._places:
            shutil.rmtree(place)
            shutil.copytree(self._kept / place.name, place)
        return self._make_program(*self._places)
