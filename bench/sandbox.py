"""What the sandbox costs, in ms, for each command and once for the first: printed as one JSON object, empty without it.

Usage: python -m bench.sandbox DIRECTORY
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from statistics import median

from teamcli.exec.command_host import CommandHost
from teamcli.exec.sandbox.plan import SandboxSettings
from teamcli.exec.sandbox.sandbox import Sandbox

TIMES = 100
STARTS = 5


def main(directory: Path) -> None:
    wanted = SandboxSettings((directory,), Path.home())
    confined, plain = CommandHost(os.environ, make_sandbox=partial(Sandbox, wanted)), CommandHost(os.environ)
    if why := confined.why_unconfined():
        print(f"no sandbox: {why}", file=sys.stderr)
        print("{}")
        return
    pairs = [(time_command(confined, directory), time_command(plain, directory)) for _ in range(TIMES)]
    confined.close()
    plain.close()
    starts = [(time_first(directory, partial(Sandbox, wanted)), time_first(directory, None)) for _ in range(STARTS)]
    found = {"a command": pairs[1:], "the first command of a program": starts}
    print(json.dumps({name: median(inside - outside for inside, outside in each) for name, each in found.items()}))


def time_first(directory: Path, make_sandbox: partial[Sandbox] | None) -> float:
    host = CommandHost(os.environ, make_sandbox=make_sandbox)
    took = time_command(host, directory)
    host.close()
    return took


def time_command(host: CommandHost, directory: Path) -> float:
    started = time.monotonic()
    host.start("true", directory).follow(lambda text: None, lambda text: None)
    return (time.monotonic() - started) * 1000


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
