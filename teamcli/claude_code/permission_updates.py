"""Claude Code's updates of permissions: what a question offers besides yes and no, and what a program answers."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from teamcli.claude_code.flags import mode_of
from teamcli.claude_code.names import their_tool

Json = dict[str, Any]
_RULE = r"([\w-]+)(?:\((.*)\))?"
_COVERED_BY_EDIT = ("write_file", "edit_file")
_BEHAVIORS = ("allow", "ask", "deny")
_MODES_OF_HOOKS = ("default", "acceptEdits", "plan")
"""No hook can choose to ask nothing at all; there, only the command line can."""


class RuleUpdate(NamedTuple):
    behavior: str
    """`allow`, `ask` or `deny`."""
    rule: str
    is_saved: bool
    """Whether it outlasts the session."""


def suggestions(tool: str, rules: Sequence[str]) -> list[Json]:
    """What to offer for a call of ours that these rules of ours would allow."""
    added = [each for rule in rules if (each := _in_theirs(rule))]
    rest: Json = {"behavior": "allow", "destination": "localSettings"}
    found: list[Json] = [{"type": "addRules", "rules": added, **rest}] if added else []
    if tool in _COVERED_BY_EDIT:
        found.insert(0, {"type": "setMode", "mode": "acceptEdits", "destination": "session"})
    return found


def _in_theirs(rule: str) -> Json | None:
    found = re.fullmatch(_RULE, rule, re.DOTALL)
    if found is None:
        return None
    name, content = found.groups()
    named = {"toolName": "Edit" if name in _COVERED_BY_EDIT else their_tool(name)}
    return named if content is None else {**named, "ruleContent": _plain(content)}


def _plain(content: str) -> str:
    """Theirs have no quotes around a whole command."""
    return str(json.loads(content[1:])) if content.startswith('="') else content


def rule_updates(updates: Any) -> list[RuleUpdate]:
    """The rules that a program wants to add."""
    return [
        RuleUpdate(str(each["behavior"]), _text(rule), each.get("destination") != "session")
        for each in _objects(updates)
        if each.get("type") == "addRules" and each.get("behavior") in _BEHAVIORS
        for rule in _objects(each.get("rules"))
        if rule.get("toolName")
    ]


def new_mode(updates: Any) -> str:
    """The permission mode that a program wants to switch to; empty if it wants none."""
    modes = _modes(updates)
    return modes[-1] if modes else ""


def _modes(updates: Any) -> list[str]:
    return [str(each.get("mode", "")) for each in _objects(updates) if each.get("type") == "setMode"]


def read_updates(raw: Any) -> tuple[tuple[str, ...], str]:
    """What a hook may change: the rules that it adds to allow calls, and the mode that it chooses; empty for none."""
    modes = [mode for mode in map(mode_of, _modes(raw)) if mode in _MODES_OF_HOOKS]
    rules = tuple(update.rule for update in rule_updates(raw) if update.behavior == "allow")
    return rules, modes[-1] if modes else ""


def _text(rule: Mapping[str, Any]) -> str:
    content = rule.get("ruleContent")
    return f"{rule['toolName']}({content})" if content else str(rule["toolName"])


def _objects(value: Any) -> Iterable[Mapping[str, Any]]:
    return [each for each in value if isinstance(each, Mapping)] if isinstance(value, list) else []
