"""Real bash, asked what it makes of lines that rules allow: which commands run with which words, and what is changed.

Programs are functions that write down their words. An unknown name is written down as well, so that a command which
nobody expected shows. After each line the state of the shell is compared with what it was before.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

BASH = Path("/bin/bash")
RECORDED = ("run", "show", "git", "sed", "find", "awk", "tar", "rg", "make", "echo", "true", "kill")
STATE = '"$PATH|$IFS|$-|$SHELLOPTS|$BASHOPTS|$PS4|${X-}|${Y-}|${ENV-}|${BASH_ENV-}|$#|$*"'

_DRIVER = f"""
log=$1 work=$2 lines=$3
unset X Y; set --; set -f; set +f
record() {{ builtin printf '%s\\0' C "$#" "${{@//$'\\n'/$'\\x02'}}" >> "$log"; }}
command_not_found_handle() {{ record unexpected "$@"; }}
{"; ".join(f'{name}() {{ record {name} "$@"; }}' for name in RECORDED)}
cat() {{ builtin mapfile -d '' -t text; builtin printf '%s' "${{text[@]}}"; }}
readonly log work
PATH=/nonexistent
while IFS= read -r -d '' line <&3; do
  builtin cd "$work" || exit
  before={STATE}
  {{ eval "$line"; }} < /dev/null > /dev/null 2>&1 3<&-
  [ "$before" = {STATE} ] && [ -z "${{BASH_ALIASES[*]}}" ] && builtin printf '%s\\0' S >> "$log"
  builtin trap -p >> "$log"
  builtin printf '%s\\0' '' E >> "$log"
done 3< "$lines"
"""


class Seen(NamedTuple):
    """What bash did with a line."""

    calls: tuple[tuple[str, ...], ...]
    kept_state: bool
    """The shell was afterwards what it was before."""


class Witness:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.work = directory / "work"
        self._log, self._lines, self._driver = (directory / name for name in ("log", "lines", "driver"))
        self._driver.write_text(_DRIVER)
        self._confined = self._confining()

    def _confining(self) -> list[str]:
        """An empty sandbox, if there is one: what runs here is what was allowed, but perhaps wrongly."""
        options = ["--ro-bind", "/", "/", "--bind", str(self.directory), str(self.directory), "--dev", "/dev"]
        command = ["bwrap", *options, "--proc", "/proc", "--unshare-all", "--die-with-parent"]
        has_bwrap = shutil.which("bwrap") is not None
        works = has_bwrap and subprocess.run([*command, "/bin/true"], capture_output=True).returncode == 0
        return command if works else []

    def prepare(self) -> None:
        shutil.rmtree(self.work, ignore_errors=True)
        (self.work / "sub").mkdir(parents=True)
        for name, shown in (("run.sh", "./run.sh"), ("evil.sh", "evil"), ("sub/run.sh", "evil")):
            script = self.work / name
            words = "\"${@//$'\\n'/$'\\x02'}\""  # as in `record`: bash writes line by line
            script.write_text(f"#!/bin/bash\nprintf '%s\\0' C $(($# + 1)) {shown} {words} >> {self._log}\n")
            script.chmod(0o755)

    def files(self) -> set[str]:
        return {str(path.relative_to(self.work)) for path in self.work.rglob("*") if path.is_file()}

    def watch(self, lines: Sequence[str]) -> tuple[list[Seen], set[str]]:
        """What each line did, and which files there are afterwards that were not there before."""
        self.prepare()
        before = self.files()
        self._log.write_bytes(b"")
        self._lines.write_bytes(b"".join(line.encode() + b"\0" for line in lines))
        arguments = [str(BASH), "--norc", str(self._driver), str(self._log), str(self.work), str(self._lines)]
        environment = {"LC_ALL": "C.UTF-8", "HOME": str(self.work), "PATH": "/nonexistent"}
        bwrap = [shutil.which("bwrap") or "", *self._confined[1:]] if self._confined else []
        # A shell cannot change signals that its parent ignores, and these are part of its state.
        subprocess.run(
            [*bwrap, *arguments],
            env=environment,
            check=True,
            timeout=600,
            cwd=self.directory,
            preexec_fn=lambda: [signal.signal(each, signal.SIG_DFL) for each in (signal.SIGINT, signal.SIGQUIT)],
        )
        return _parse(self._log.read_bytes()), self.files() - before


def _parse(log: bytes) -> list[Seen]:
    fields = iter(os.fsdecode(log).split("\0"))
    seen: list[Seen] = []
    calls: list[tuple[str, ...]] = []
    kept = False
    for field in fields:
        if field == "C":
            # bash writes line by line, and the commands of a pipe write at the same time
            calls.append(tuple(next(fields).replace("\x02", "\n") for _ in range(int(next(fields)))))
        elif field == "S":
            kept = True
        elif field == "E":
            seen.append(Seen(tuple(calls), kept))
            calls, kept = [], False
        elif field:
            kept = False  # what a trap printed
    return seen
