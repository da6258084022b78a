from __future__ import annotations

import pytest

from tests.support.program import MakeProgram, Program


@pytest.fixture
def program(program: Program, forked: MakeProgram) -> Program:
    return forked(program.directory, program.home)
