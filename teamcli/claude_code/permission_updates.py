"""`updatedPermissions` in the answer to a permission question: what else is allowed from now on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from teamcli.claude_code.flags import mode_of

_MODES = ("default", "acceptEdits", "plan")
"""No hook can choose to ask nothing at all; there, only the command line can."""


def read_updates(raw: Any) -> tuple[tuple[str, ...], str]:
    """The rules that it adds to allow calls, and the mode that it chooses; empty for none. The rest is left out: rules
    that ask or deny, rules that go, directories."""
    updates = [each for each in (raw if isinstance(raw, list) else []) if isinstance(each, Mapping)]
    rules = [rule for each in updates if each.get("type") == "addRules" for rule in _rules(each)]
    modes = [mode_of(str(each.get("mode"))) for each in updates if each.get("type") == "setMode"]
    return tuple(rules), next((mode for mode in reversed(modes) if mode in _MODES), "")


def _rules(update: Mapping[str, Any]) -> Iterator[str]:
    rules = update.get("rules")
    for rule in rules if isinstance(rules, list) and update.get("behavior") == "allow" else ():
        name = rule.get("toolName") if isinstance(rule, Mapping) else None
        if isinstance(name, str) and name:
            content = rule.get("ruleContent")
            yield f"{name}({content})" if content else name
