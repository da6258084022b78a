"""The project files that hooks and unconfined servers run, outside the sandbox. Changing one of them always asks."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from teamcli.config.settings import HookGroup
from teamcli.permissions.shell.forms import RUNNERS

_INTERPRETER = re.compile(r"(python|pypy|node|deno|bun|ruby|perl|php|lua|tsx|ts-node|Rscript|source|\.)[\d.]*")
_PROJECT_DIR = re.compile(r"\$(CLAUDE_PROJECT_DIR\b|\{CLAUDE_PROJECT_DIR(:-[^}]*)?\})")
_PLUGIN_ROOT = re.compile(r"\$(CLAUDE_PLUGIN_ROOT\b|\{CLAUDE_PLUGIN_ROOT(:-[^}]*)?\})")
_SKIPPED = re.compile(r"[-+]|\d+\w?$|\w+=|run$|exec$")
"""What may come between an interpreter and its script: options, a number, a variable, a subcommand."""
_COMMAND_ENDS = re.compile(r"[;|&()<>{}!]+|if|then|else|elif|do|while|until|time")


def hook_files(
    groups: Mapping[str, Iterable[HookGroup]], root: Path, servers: Iterable[Mapping[str, Any]] = ()
) -> tuple[Path, ...]:
    """Resolved paths. A file that does not exist yet counts: the hook would run it as soon as it does.

    `servers` are MCP servers that run outside the sandbox, too.
    """
    commands = {
        (_command_line(hook.command, hook.raw), group.plugin)
        for each in groups.values()
        for group in each
        for hook in group.hooks
    }
    commands |= {(_command_line(str(server.get("command") or ""), server), "") for server in servers}
    found = {path for command, plugin in commands for path in _files_of(command, plugin, root)}
    return tuple(sorted(found))


def _command_line(command: str, raw: Mapping[str, Any]) -> str:
    arguments = raw.get("args")
    if not isinstance(arguments, list):
        return command
    # Not quoted: variables in them are replaced.
    return " ".join([command, *map(str, arguments)])


def _files_of(command: str, plugin: str, root: Path) -> Iterator[Path]:
    is_expected = True
    after_interpreter = False
    # Functions, because a backslash in a path must not count as one of the pattern.
    command = _PLUGIN_ROOT.sub(lambda found: plugin, command) if plugin else command
    command = _PROJECT_DIR.sub(lambda found: str(root), command)
    try:
        # A line break ends a command, but is a blank to shlex.
        words = list(shlex.shlex(command.replace("\n", ";"), posix=True, punctuation_chars=";|&()<>"))
    except ValueError:  # a quote is not closed
        words = command.split()
    for word in words:
        name = word.rsplit("/", 1)[-1]
        if _COMMAND_ENDS.fullmatch(word):
            is_expected, after_interpreter = True, False
        elif not is_expected or _SKIPPED.match(word):
            continue
        elif name in RUNNERS or _INTERPRETER.fullmatch(name):
            after_interpreter = True
        else:
            is_expected = False
            if after_interpreter or "/" in word:
                yield Path(root, word).resolve()
