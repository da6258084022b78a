"""Reading a long text in the user's pager. The caller hands over the terminal."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Iterable
from pathlib import Path

from teamcli.errors import TeamcliError
from teamcli.exec.programs import Programs
from teamcli.text.redaction import holds_secret
from teamcli.ui.render.style import Line, TerminalStyle

LESS = ("less", "-R")
"""Passes colors through, and makes all other control characters visible; the text has none anyway."""


def read_in_pager(lines: Iterable[Line], style: TerminalStyle, programs: Programs) -> None:
    """Show the lines in `$PAGER`, or in `less`, and wait until the user leaves it.

    Raises: TeamcliError
    """
    program, *options = _command(programs)
    is_less = Path(program).name == LESS[0]
    style = style._replace(has_color=style.has_color and is_less)
    text = "".join(style.paint(line) + "\n" for line in lines)
    env = {name: value for name, value in os.environ.items() if not holds_secret(value)}
    try:
        # Through a pipe: neither the arguments nor a file show the text to anyone else.
        subprocess.run([program, *options, *(LESS[1:] if is_less else ())], input=text.encode(), env=env, check=False)
    except OSError as e:
        raise TeamcliError(f"the pager {program!r} cannot be started ({e.strerror or e}): set PAGER") from e


def _command(programs: Programs) -> list[str]:
    """Raises: TeamcliError"""
    try:
        name, *options = shlex.split(os.environ.get("PAGER", "")) or LESS
    except ValueError as e:
        raise TeamcliError(f"PAGER cannot be read ({e}): set it to a command such as less") from e
    # It runs outside the sandbox, so it must not be a program that an agent has written.
    found = name if "/" in name and programs.is_out_of_reach(Path(name).absolute()) else programs.find(name)
    if found is None:
        raise TeamcliError(f"the pager {name!r} is missing, or agents can change it: set PAGER to another one")
    return [found, *options]
