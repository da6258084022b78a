"""Opens an address in the user's browser."""

from __future__ import annotations

import os
import shlex
import subprocess
import threading
from collections.abc import Mapping
from pathlib import Path

from teamcli.exec.programs import Programs

_OPENERS = ("xdg-open", "wslview", "open")


def open_in_browser(address: str, programs: Programs, environment: Mapping[str, str]) -> bool:
    """Returns at once; false if nothing can open it. What runs is a program that agents cannot replace.

    `environment` is what that program sees. Its `BROWSER` may name it, with `%s` in place of the address.
    """
    command = _command(programs, environment.get("BROWSER", "").split(os.pathsep)[0])
    if not command or not address.startswith(("https://", "http://")):
        return False
    words = [word.replace("%s", address) for word in command]
    try:
        process = subprocess.Popen(
            words if "%s" in " ".join(command) else [*words, address],
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,  # the terminal is ours
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return False
    threading.Thread(target=process.wait, name="browser", daemon=True).start()
    return True


def _command(programs: Programs, wanted: str) -> list[str]:
    """Empty if there is none."""
    try:
        words = shlex.split(wanted)
    except ValueError:
        words = []
    if not words:
        return [found for name in _OPENERS if (found := programs.find(name))][:1]
    program = Path(words[0])
    found = str(program) if program.is_absolute() and programs.is_out_of_reach(program) else programs.find(words[0])
    return [found, *words[1:]] if found else []
