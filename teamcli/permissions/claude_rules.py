"""Permission rules in Claude Code's form, such as `Bash(npm run *)`, `Read(./.env)` or `mcp__github`, as rules of ours.

What one means depends on whether it allows: a rule that allows must not allow more than is certain, and a rule that
asks or denies must apply to everything that it would apply to there.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from teamcli.claude_code.names import MCP, our_tools
from teamcli.claude_code.tool_inputs import has_field
from teamcli.permissions.command_rules import commands_of, prefix_words, why_not_covering
from teamcli.permissions.form import Form

ALLOW, DENY = "allow", "deny"
_SERVER = re.compile(r"mcp__[^*]+?__.+")
_FIELD = re.compile(r"([\w-]+):(.+)", re.DOTALL)
_NOT_A_FIELD = ("command", "file_path", "path", "url")
_GENERAL = "general-purpose"
_READING = ("Glob", "Grep")


class Meaning(NamedTuple):
    tool: str
    form: Form
    pattern: str = ""


def read_claude_rule(name: str, content: str | None, kind: str) -> list[Meaning]:
    """What a rule means here. `content` is what the parentheses hold.

    Raises: ValueError, if Claude Code has no such form
    """
    if "*" in name or name.startswith(MCP):
        return [_by_name(name, content, kind)]
    tools = our_tools(name)
    if content is None or (content == "*" and name not in _PATHS):
        return [Meaning(tool, Form.ANY) for tool in tools] or [Meaning(name, Form.NEVER)]
    if not content:
        raise ValueError(f"the parentheses are empty; write {name} alone for every call")
    if tools and _is_field(tools[0], content):
        return [_field(tool, content, kind) for tool in tools]
    if read := _PATHS.get(name):
        return read(_glob(content, kind), kind)
    if read := _OTHERS.get(name):
        return read(content, kind)
    return [Meaning(name, Form.NEVER, content)]


def why_unused(tool: str, form: Form, pattern: str, kind: str) -> str:
    """Why a rule that was read here has no effect; empty if it has one."""
    if form is Form.NEVER and our_tools(tool):
        return f"Claude Code matches no path with {tool}; write {'Read' if tool in _READING else 'Edit'}(…)"
    if form is Form.NEVER:
        return f"there is no {tool} here"
    return why_not_covering(form, pattern) if tool == "bash" and kind == ALLOW else ""


def _by_name(name: str, content: str | None, kind: str) -> Meaning:
    """One server, one of its tools, or all tools with such a name."""
    if "*" in name and kind == ALLOW and not _SERVER.fullmatch(name):
        raise ValueError("a pattern for names of tools can only ask or deny")
    if content:
        return _field(name, content, kind)
    is_server = name.startswith(MCP) and "__" not in name.removeprefix(MCP) and "*" not in name
    return Meaning(f"{name}__*" if is_server else name, Form.ANY)


def _is_field(tool: str, content: str) -> bool:
    found = _FIELD.fullmatch(content)
    return found is not None and found[2] != "*" and found[1] not in _NOT_A_FIELD and has_field(tool, found[1])


def _field(tool: str, content: str, kind: str) -> Meaning:
    if kind == ALLOW:
        raise ValueError("a rule about a field can only ask or deny")
    if not _FIELD.fullmatch(content):
        raise ValueError("expected a field and its value, as in Bash(run_in_background:true)")
    return Meaning(tool, Form.FIELD, content)


def _commands(content: str, kind: str) -> list[Meaning]:
    prefix = next((content.removesuffix(end) for end in (":*", " *") if content.endswith(end)), None)
    if prefix is None:
        return [_one_command(content, kind)]
    prefix = prefix.strip()
    if not prefix:
        raise ValueError("the pattern names no command; write Bash alone for every command")
    if "*" not in prefix and prefix_words(prefix):
        return [Meaning("bash", Form.PREFIX, prefix)]
    return [Meaning("bash", Form.WILDCARD, f"{prefix} *")]


def _one_command(content: str, kind: str) -> Meaning:
    if kind == ALLOW:
        # There, `:*` is plain text if it is not at the end.
        is_wildcard = "*" in content and ":*" not in content
        return Meaning("bash", Form.WILDCARD if is_wildcard else Form.PATTERN, content)
    is_plain = "*" not in content and bool(commands_of(content))
    return Meaning("bash", Form.PATTERN if is_plain else Form.WILDCARD, content)


def _reading(glob: str, kind: str) -> list[Meaning]:
    if kind == ALLOW:
        return [Meaning(tool, Form.PATTERN, glob) for tool in ("read_file", "grep", "glob")]
    changing = [Meaning("write_file", Form.PATTERN, glob)] if kind == DENY else []
    return [Meaning("read_file", Form.PATTERN, glob), Meaning("bash", Form.READS, glob), *changing]


def _changing(glob: str, kind: str) -> list[Meaning]:
    # To ask and to deny, a rule for one of the tools applies to all that change files.
    tools = ("edit_file", "write_file", "read_file") if kind == ALLOW else ("write_file",)
    return [Meaning(tool, Form.PATTERN, glob) for tool in tools]


def _glob(content: str, kind: str) -> str:
    """A path pattern in the form of our rules, which start at the workspace."""
    if content.startswith("!") or "\0" in content:
        raise ValueError("expected a path, or a pattern as in .gitignore")
    if content.startswith("//"):
        return posixpath.normpath(f"/{content.lstrip('/')}")
    if content.startswith("/"):  # the directory that the rule belongs to
        return f"./{_without_parents(content.lstrip('/')) or '**'}"
    if content.startswith("~"):
        return content
    path = _without_parents(re.sub(r"^(\./+)+", "", content))
    if path in ("", "."):
        return "./**"
    if path.startswith("../") or path == "..":
        return f"{path}/" if path == ".." else path
    is_anywhere = "/" not in path.rstrip("/")
    if kind == ALLOW:
        return f"./{path}" if is_anywhere and content.startswith("./") else path
    return path if is_anywhere else f"**/{path}"


def _without_parents(path: str) -> str:
    return posixpath.normpath(path) if ".." in path.split("/") else path


def _agents(content: str, kind: str) -> list[Meaning]:
    # A call that names no kind of agent gets the general one.
    kinds = (content, "general", "") if content == _GENERAL else (content,)
    return [Meaning(tool, Form.FIELD, f"subagent_type:{each}") for tool in our_tools("Agent") for each in kinds]


_Read = Callable[[str, str], list[Meaning]]
_PATHS: Mapping[str, _Read] = {"Read": _reading, "Edit": _changing}
_OTHERS: Mapping[str, _Read] = {"Bash": _commands, "Agent": _agents, "Task": _agents}
