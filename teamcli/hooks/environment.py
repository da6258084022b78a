"""How a hook's command is started: its variables, and the paths that its text names."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from typing import NamedTuple

from teamcli.config.settings import HookCommand

PROJECT_DIR, PLUGIN_ROOT, PLUGIN_DATA = "CLAUDE_PROJECT_DIR", "CLAUDE_PLUGIN_ROOT", "CLAUDE_PLUGIN_DATA"
_SUBSTITUTED = (PROJECT_DIR, PLUGIN_ROOT, PLUGIN_DATA)
_PLAIN_PATH = re.compile(r"[\w./@+,=-]+")


class HookContext(NamedTuple):
    """What a hook finds when it starts."""

    project: str
    session: str = ""
    file: str = ""
    """The file that a call is about."""
    env_file: str = ""
    """Where a hook may write lines that run before each command."""
    plugin: str = ""
    """The folder of the plugin that the hook comes with."""
    plugin_data: str = ""
    """Where a plugin may keep files."""

    def variables(self, is_claudes: bool) -> Mapping[str, str]:
        """Scripts that were written for Claude Code read these, some of them undocumented."""
        found = {
            PROJECT_DIR: self.project,
            "CLAUDE_CODE_SESSION_ID": self.session,
            "CLAUDE_SESSION_ID": self.session,
            "CLAUDE_TOOL_FILE_PATH": self.file,
            "CLAUDE_TOOL_INPUT_FILE_PATH": self.file,
            "CLAUDE_ENV_FILE": self.env_file,
            PLUGIN_ROOT: self.plugin,
            PLUGIN_DATA: self.plugin_data,
            "CLAUDE_PID": str(os.getpid()),
            # Claude Code itself refuses to start inside a session of its own, as this says.
            "CLAUDECODE": "1" if is_claudes else "",
        }
        return {name: value for name, value in found.items() if value}


def shell_text(hook: HookCommand, start: HookContext, is_claudes: bool) -> str:
    """The command for the shell. With `args` it is a program, and the shell interprets nothing."""
    variables = start.variables(is_claudes)
    exports = " ".join(f"{name}={shlex.quote(value)}" for name, value in variables.items())
    arguments = hook.raw.get("args")
    if isinstance(arguments, list):
        words = (_substituted(str(word), variables, is_quoted=True) for word in (hook.command, *arguments))
        return f"export {exports}\nexec {shlex.join(words)}"
    return f"export {exports}\n{_substituted(hook.command, variables, is_quoted=False)}"


def _substituted(text: str, variables: Mapping[str, str], is_quoted: bool) -> str:
    """`${CLAUDE_PROJECT_DIR}` and so on, even in single quotes. A path that the shell would read otherwise is left to
    the shell."""
    for name in _SUBSTITUTED:
        value = variables.get(name, "")
        if value and (is_quoted or _PLAIN_PATH.fullmatch(value)):
            text = text.replace(f"${{{name}}}", value)
    return text
