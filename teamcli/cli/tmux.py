"""`teamcli watch --tmux`: a pane for each teammate, in the window that the user is in."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from teamcli.cli.team import TeamSnapshot
from teamcli.config.options import ExitStatus
from teamcli.config.trust import home_dir
from teamcli.errors import ConfigError, UsageError
from teamcli.exec.programs import Programs
from teamcli.store.location import find_store

OUTSIDE = "--tmux opens panes in the tmux window that it runs in: start tmux, and run it there"
NOBODY = "No teammates yet. Ask the lead to hire some."
PROGRAM = Path(__file__).resolve().parent.parent.parent
"""The directory that has the package which runs now."""
_COMMAND_SECONDS = 10.0


def open_panes(name: str, is_verbose: bool, store: str | None) -> int:
    """Open the panes; returns the exit code.

    Raises: UsageError outside of tmux, ConfigError if tmux fails
    """
    if not os.environ.get("TMUX"):
        raise UsageError(OUTSIDE)
    if find_store(store, os.environ, home_dir()):  # a pane would need the URL, which other users could see
        raise UsageError("--tmux is for a team in files: open panes by hand, with teamcli watch NAME in each")
    team = TeamSnapshot.here()
    names = [team.watched(name)] if name else [member.name for member in team.team.members if member.is_active]
    if not names:
        print(NOBODY)
        return ExitStatus.DONE
    opened: list[str] = []
    pane = os.environ.get("TMUX_PANE", "")
    for each in names:
        if new := _open_pane(pane, each, _command(each, is_verbose)):
            opened.append(each)
            pane = new
    if left := [each for each in names if each not in opened]:
        print(f"No room for {', '.join(left)}: make the window larger, or open another one with teamcli watch NAME.")
    return ExitStatus.DONE if opened else ExitStatus.FAILED


def _open_pane(before: str, name: str, command: Sequence[str]) -> str:
    """The id of a new pane behind the pane `before`; empty if the window has no room for another one."""
    target = ["-t", before] if before else []
    made = _run("split-window", *target, "-d", "-P", "-F", "#{pane_id}", "-c", str(Path.cwd()), shlex.join(command))
    if made.returncode != 0:
        if "no space" in made.stderr:
            return ""
        raise ConfigError(f"tmux cannot open a pane: {made.stderr.strip() or made.returncode}")
    pane = made.stdout.strip()
    _tmux("select-pane", "-t", pane, "-T", name)
    _tmux("select-layout", "-t", pane, "tiled")  # after each pane, so that all have the same room and more of them fit
    return pane


def _command(name: str, is_verbose: bool) -> list[str]:
    """The same program on the same interpreter. Nothing is imported from the directory of the team (-P)."""
    start = f"import sys; sys.path.insert(0, {str(PROGRAM)!r}); from teamcli.__main__ import main; sys.exit(main())"
    return [sys.executable, "-P", "-c", start, "watch", *(["--verbose"] if is_verbose else []), "--", name]


def _tmux(*arguments: str) -> None:
    """Raises: ConfigError."""
    done = _run(*arguments)
    if done.returncode != 0:
        raise ConfigError(f"tmux {arguments[0]} failed: {done.stderr.strip() or done.returncode}")


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    # It runs outside the sandbox, so it must not be a program that an agent has written.
    program = Programs(writable=[Path.cwd().resolve()]).find("tmux")
    if program is None:
        raise ConfigError("tmux is missing, or it is in this directory, where agents can change it")
    try:
        return subprocess.run(
            [program, *arguments], capture_output=True, text=True, timeout=_COMMAND_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        raise ConfigError(f"tmux cannot be run: {e}") from e
