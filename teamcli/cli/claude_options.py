"""The options that are here for people and programs used to Claude Code."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from teamcli.claude_code.flags import SPELLINGS, WITHOUT_EFFECT, existing_tools
from teamcli.errors import UsageError

SOURCES = ("user", "project", "local")
STREAM = "stream-json"
_EFFORTS = ("low", "medium", "high", "xhigh", "max")


def add_claude_options(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("as in Claude Code")
    add = group.add_argument
    several = partial(add, action="append", default=[])
    add("--system-prompt", metavar="TEXT", help="replace how the system prompt begins")
    add("--system-prompt-file", metavar="FILE", help="the same, from a file")
    add("--append-system-prompt-file", metavar="FILE", help="append a file to the system prompt")
    several("--tools", default=None, metavar="NAMES", help="the built-in tools that exist: 'Bash,Read', '' for none")
    add("--effort", choices=_EFFORTS, default="", help="how much the model may think")
    add("--thinking", choices=("adaptive", "enabled", "disabled"), default="", help="whether the model thinks first")
    add("--max-thinking-tokens", type=int, metavar="N", help="with thinking enabled: how many tokens it may take")
    add("--fallback-model", dest="fallback_models", default="", metavar="IDS", help="if the model is overloaded")
    add("--settings", default="", metavar="FILE|JSON", help="settings that win over all files")
    add("--setting-sources", metavar="LIST", help="whose configuration counts: user,project,local")
    add("--session-id", default="", metavar="ID", help="the id of the new session")
    add("--fork-session", action="store_true", help="with --resume or --continue: as a new session")
    add("--no-session-persistence", action="store_true", help="keep nothing, as --no-team does")
    add("--agents", default="", metavar="JSON", help="more roles: {NAME: {description, prompt, tools, model}}")
    add("--agent", default="", metavar="NAME", help="the role that the lead works in")
    add("--json-schema", default="", metavar="JSON", help="with -p: give the answer in this form")
    add("--input-format", choices=("text", STREAM), default="text", help="stream-json: be driven by another program")
    add("--include-partial-messages", action="store_true", help="with stream-json: also text as it arrives")
    add("--replay-user-messages", action="store_true", help="with stream-json input: repeat each user message")
    add(
        "--permission-prompt-tool",
        default="",
        metavar="NAME",
        help="who answers permission questions: mcp__SERVER__TOOL",
    )
    several("--plugin-dir", dest="plugin_dirs", type=Path, metavar="DIR", help="load the plugin in DIR")
    add("--bare", action="store_true", help="no hooks, skills, commands, roles, plugins, MCP servers or instructions")


def read_claude_options(given: dict[str, Any]) -> None:
    """Turn what was parsed into fields of Options.

    Raises: UsageError
    """
    if file := given.pop("system_prompt_file"):
        given["system_prompt"] = _text_of(file, "--system-prompt-file")
    if file := given.pop("append_system_prompt_file"):
        appended = (given["append_system_prompt"], _text_of(file, "--append-system-prompt-file"))
        given["append_system_prompt"] = "\n\n".join(filter(None, appended))
    given["tools"] = None if given["tools"] is None else existing_tools(given["tools"])
    given["fallback_models"] = tuple(filter(None, (name.strip() for name in given["fallback_models"].split(","))))
    given["setting_sources"] = _sources(given["setting_sources"])
    given["no_team"] |= given.pop("no_session_persistence")
    if given["fork_session"] and not (given["continue_last"] or given["resume"]):
        raise UsageError("--fork-session requires --continue or --resume ID (try teamcli --help)")
    if given["permission_prompt_tool"] == "stdio" and given["input_format"] != STREAM:
        given["without_effect"] += ("--permission-prompt-tool",)
    if given["input_format"] == STREAM:
        if given["output_format"] != STREAM:
            raise UsageError("--input-format stream-json requires --output-format stream-json (try teamcli --help)")
        if given["prompt"]:
            raise UsageError("--input-format stream-json takes the prompt from standard input, not as an argument")
        given["headless"] = True


def _text_of(file: str, option: str) -> str:
    try:
        return Path(file).expanduser().read_text("utf-8", "replace")
    except (OSError, RuntimeError) as e:
        raise UsageError(f"{option}: {file} cannot be read: {getattr(e, 'strerror', None) or e}") from e


def _sources(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if unknown := next((name for name in names if name not in SOURCES), ""):
        raise UsageError(f"--setting-sources: '{unknown}' is not one of {', '.join(SOURCES)}")
    return names


def unknown_option(unknown: Sequence[str], parser: argparse.ArgumentParser) -> str:
    """What to say about words that are not options, with the nearest option to the first of them."""
    import difflib  # late: only a mistake needs it

    known = [*(name for action in parser._actions for name in action.option_strings), *SPELLINGS, *WITHOUT_EFFECT]
    near = difflib.get_close_matches(unknown[0].partition("=")[0], known, 1)
    hint = f"; did you mean {near[0]}?" if near else " (try teamcli --help)"
    return f"unrecognized arguments: {' '.join(unknown)}{hint}"
