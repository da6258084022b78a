"""System calls of the program under test that fail, or in which it is killed.

The program starts as always, with this directory on its path: Python loads `sitecustomize.py` from there, which patches
the functions through which teamcli changes files. Nothing in teamcli knows of it.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.program import ROOT, Program


def with_fault(program: Program, fault: str) -> Program:
    """From now on `program` runs with this fault (see `tests/support/faults/injection.py`); empty: without any."""
    program.variables["PYTHONPATH"] = f"{Path(__file__).parent}:{ROOT}"
    program.variables["TEAMCLI_TEST_FAULT"] = fault
    return program
