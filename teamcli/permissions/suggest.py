"""A broader rule to offer next to the exact one: the words that a command begins with, or the directory of a file.

Only for what is known to be tame. The user sees the rule before it is saved, but most people take what is offered, so
nothing is offered for programs that run others, delete, move, send data, or take code as an argument.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from teamcli.permissions.rules import Form, Rule
from teamcli.permissions.shell.forms import never_covered
from teamcli.permissions.shell.scanner import names
from teamcli.permissions.shell.strict import Command

_READERS = names(
    "ls cat head tail wc nl tac grep egrep fgrep rg fd fdfind find file stat du df pwd which whereis type "
    "basename dirname realpath readlink diff cmp comm cut tr column jq date cal uname whoami id hostname ps "
    "md5sum sha1sum sha256sum cksum strings hexdump od"
)
_CHECKERS = names(
    "pytest mypy ruff black isort flake8 pylint pyright bandit tox nox tsc eslint prettier jest vitest mocha "
    "rspec rubocop phpunit golangci-lint gofmt clippy shellcheck hadolint yamllint markdownlint ctest"
)
_SUBCOMMANDS = {
    "git": names(
        "status diff log show blame grep ls-files ls-tree rev-parse rev-list describe shortlog cat-file merge-base "
        "name-rev diff-tree for-each-ref show-ref whatchanged add commit"
    ),
    "cargo": names("build check test clippy fmt doc tree metadata bench"),
    "go": names("build test vet list doc fmt version"),
    "npm": names("test ls"),
    "pnpm": names("test ls"),
    "yarn": names("test list"),
    "pip": names("list show freeze check"),
    "pip3": names("list show freeze check"),
    "docker": names("ps images logs inspect version info"),
    "kubectl": names("get describe logs version explain"),
    "gradle": names("test check build"),
    "mvn": names("test verify compile package"),
    "dotnet": names("build test"),
    "swift": names("build test"),
    "mix": names("test format"),
}
_MODULES = names("pytest mypy ruff black isort flake8 pylint unittest")
_PYTHON = re.compile(r"python(3(\.\d+)?)?")
_PLAIN_WORD = re.compile(r"[\w./+@:-]+", re.ASCII)
_PLAIN_DIRECTORY = re.compile(r"[\w@+][\w.@+ -]*(/[\w@+][\w.@+ -]*)*")


def rules_for_commands(tool: str, commands: Sequence[Command]) -> tuple[Rule, ...]:
    """A rule for all commands that begin like each of these; nothing if one of them is not known to be tame.

    An exact rule for that one would be no remedy: `sh` alone in a rule runs whatever is piped into it.
    """
    starts = [_start(command.words) for command in commands]
    return tuple(dict.fromkeys(Rule(tool, Form.PREFIX, start) for start in starts)) if all(starts) else ()


def rule_for_directory(tool: str, path: Path, workspace_root: Path) -> Rule | None:
    """The rule for everything below the directory of a file in the workspace. Hidden ones often make programs run."""
    if not path.parent.is_relative_to(workspace_root):
        return None
    directory = path.parent.relative_to(workspace_root).as_posix()
    return Rule(tool, Form.PATTERN, f"{directory}/**") if _PLAIN_DIRECTORY.fullmatch(directory) else None


def _start(words: Sequence[str]) -> str:
    start = words[: 0 if never_covered(words) else _tame_words(words)]
    return " ".join(start) if all(map(_PLAIN_WORD.fullmatch, start)) else ""


def _tame_words(words: Sequence[str]) -> int:
    """How many words say what the command does; 0 if it is not known to be tame."""
    name = words[0].rsplit("/", 1)[-1]
    if name in _READERS or name in _CHECKERS:
        return 1
    following = words[1] if len(words) > 1 else ""
    if following in _SUBCOMMANDS.get(name, ()):
        return 2
    is_module = _PYTHON.fullmatch(name) and following == "-m" and len(words) > 2 and words[2] in _MODULES
    is_script = name in ("npm", "pnpm", "yarn") and following == "run" and len(words) > 2
    return 3 if is_module or is_script else 0
