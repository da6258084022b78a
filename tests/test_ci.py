"""What CI runs as an ordinary user, and without bwrap."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.program import ROOT


def listed(name: str) -> list[Path]:
    """The tests that a variable of the Makefile names."""
    show = f"show:\n\t@echo $({name})\n"
    line = ["make", "--no-print-directory", "-f", "Makefile", "-f", "-", "show"]
    done = subprocess.run(line, cwd=ROOT, input=show, capture_output=True, text=True, check=True)
    return [ROOT / text for text in done.stdout.split()]


@pytest.mark.parametrize("name", ["RIGHTS", "SANDBOX"])
def test_every_test_path_in_the_makefile_exists(name: str) -> None:
    paths = listed(name)
    assert paths
    assert all(path.exists() for path in paths)


def test_every_test_that_root_skips_runs_as_an_ordinary_user() -> None:
    about_rights = re.compile(r"\bgete?uid\(\)|as_an_ordinary_user\(\)")
    tests = [path for path in (ROOT / "tests").rglob("test_*.py") if about_rights.search(path.read_text())]
    places = listed("RIGHTS")
    missing = [str(path) for path in tests if not any(path.is_relative_to(place) for place in places)]
    assert not [path for path in missing if not path.endswith("test_ci.py")]


def test_ci_runs_the_tests_of_rights() -> None:
    assert "make rights" in (ROOT / ".ci/run").read_text()
    shown = subprocess.run(["make", "-n", "rights"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert ".ci/as_user" in shown
    assert "no_sandbox" in shown
