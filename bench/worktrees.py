"""What an isolated checkout costs: making one for a large repository, and a command in it.

Printed as one JSON object, in ms, each with what it is compared with; empty without a sandbox.

Usage: python -m bench.worktrees DIRECTORY [--quick]
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from statistics import median

from teamcli.exec.command_host import CommandHost
from teamcli.exec.sandbox.plan import SandboxSettings
from teamcli.exec.sandbox.sandbox import Sandbox
from teamcli.worktrees.checkouts import Checkouts
from teamcli.worktrees.git import Git

FILES, DIRECTORIES = 20_000, 200
MAKES, COMMANDS = 5, 300


def main(root: Path, is_quick: bool) -> None:
    settings = SandboxSettings((root,), Path.home())
    lead = _host(settings, {})
    if why := lead.why_unconfined():
        print(f"no sandbox: {why}", file=sys.stderr)
        print("{}")
        return
    make_repository(root)
    checkouts = Checkouts(
        Git(lead, root),
        root / ".team" / "worktrees",
        lambda path, variables: _host(settings._replace(roots=(path,), main=(root,)), variables),
    )
    # Alternating, so that a busy machine slows down both.
    makes = [
        (
            _took(partial(checkouts.prepare, f"m{number}")),
            _took(partial(git, root, "worktree", "add", "-q", f"../{number}")),
        )
        for number in range(2 if is_quick else MAKES)
    ]
    member = checkouts.hosts.of("m0")
    commands = [
        (_took(partial(run, member, checkouts.directory / "m0")), _took(partial(run, lead, root)))
        for _ in range(50 if is_quick else COMMANDS)
    ]
    print(json.dumps({"make": _medians(makes), "command": _medians(commands[5:])}))
    checkouts.hosts.close_all()
    lead.close()


def make_repository(root: Path) -> None:
    (root / ".team").mkdir(parents=True)
    for number in range(FILES):
        path = root / f"d{number % DIRECTORIES}" / f"{number}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"number = {number}\n" * 20)
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "Begin")


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-C", str(root), *arguments], check=True)


def run(host: CommandHost, directory: Path) -> None:
    host.start("true", directory).follow(lambda text: None, lambda text: None)


def _host(settings: SandboxSettings, variables: Mapping[str, str]) -> CommandHost:
    return CommandHost({**os.environ, **variables}, make_sandbox=partial(Sandbox, settings))


def _took(act: Callable[[], object]) -> float:
    started = time.monotonic()
    act()
    return (time.monotonic() - started) * 1000


def _medians(pairs: list[tuple[float, float]]) -> tuple[float, float]:
    return median(ours for ours, _ in pairs), median(theirs for _, theirs in pairs)


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve() / "project", "--quick" in sys.argv)
