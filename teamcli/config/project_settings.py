"""Which of a project's settings apply: `ask` and `deny` rules always, everything else once the user has agreed to it.

The user agrees to single settings, so that agreeing to one says nothing about another. Hooks are agreed to as a whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from teamcli.config.settings import (
    BudgetSettings,
    LimitSettings,
    PermissionSettings,
    Settings,
    SubAgentSettings,
    WorktreeSettings,
)
from teamcli.storage.files import Json

RESTRICTING = ("ask", "deny")
_PARTS: Mapping[str, Collection[str] | None] = {
    "permissions": PermissionSettings._fields,
    "limits": LimitSettings._fields,
    "subagents": SubAgentSettings._fields,
    "budgets": BudgetSettings._fields,
    "worktree": WorktreeSettings._fields,
    "prices": None,
    "env": None,
    "mcpServers": None,
}
"""Objects in which each entry is a separate setting, with the known names. Any other value is one setting."""
_LISTS = (
    ("permissions", "allow"),
    ("additional_directories",),
    ("hidden_variables",),
    ("sandbox_writable",),
    ("sandbox_closed",),
    ("disabled_mcp_servers",),
)
"""Lists that are joined over the files: each element is a separate setting."""

Rules = Mapping[str, tuple[str, ...]]
"""`ask` and `deny` rules."""


class Setting(NamedTuple):
    path: tuple[str, ...]
    value: Any

    @property
    def digest(self) -> str:
        return setting_digest(self.path, self.value)

    def __str__(self) -> str:
        value = self.value if isinstance(self.value, str) else json.dumps(self.value, ensure_ascii=False)
        return f"{'.'.join(self.path)}: {value}"


def setting_digest(path: tuple[str, ...], value: Any) -> str:
    return hashlib.sha256(json.dumps([path, value], sort_keys=True).encode()).hexdigest()


def settings_to_agree(raw: Json) -> list[Setting]:
    """What a file sets besides hooks and restrictions, permissions first. Unknown keys have no effect, nor has `store`:
    a repository must not decide where conversations are kept."""
    known = [name for name in ("permissions", *Settings._fields) if name in raw and name not in ("hooks", "store")]
    parts = [part for name in dict.fromkeys(known) for part in _parts_of(name, raw[name])]
    return [
        Setting(path, each) for path, value in parts for each in (dict.fromkeys(value) if path in _LISTS else (value,))
    ]


def _parts_of(name: str, value: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    if name not in _PARTS:
        yield (name,), value
        return
    known = _PARTS[name]
    for key, item in value.items():
        if (known is None or key in known) and not (name == "permissions" and key in RESTRICTING):
            yield (name, key), item


def restrictions_of(raw: Json) -> Rules:
    permissions = raw.get("permissions") or {}
    return {kind: tuple(permissions.get(kind) or ()) for kind in RESTRICTING}


def lost_restrictions(raw: Json, remembered: Rules) -> list[tuple[str, str]]:
    """`(kind, rule)` of each rule that applied before and is no longer in the file."""
    present = restrictions_of(raw)
    return [(kind, rule) for kind in RESTRICTING for rule in remembered.get(kind, ()) if rule not in present[kind]]


def applying(raw: Json, agreed: Collection[str], remembered: Rules, may_hook: bool) -> Json:
    """The part of a file that applies."""
    applies: Json = {"permissions": {kind: list(rules) for kind, rules in restrictions_of(raw).items()}}
    for kind, rule in lost_restrictions(raw, remembered):  # a pull must not loosen by removing a rule
        applies["permissions"][kind].append(rule)
    for setting in settings_to_agree(raw):
        if setting.digest not in agreed:
            continue
        *above, last = setting.path
        into = applies
        for name in above:
            into = into.setdefault(name, {})
        if setting.path in _LISTS:
            into.setdefault(last, []).append(setting.value)
        else:
            into[last] = setting.value
    return {**applies, "hooks": raw["hooks"]} if may_hook and "hooks" in raw else applies


def hooks_in(raw: Json) -> Json:
    """The hooks in a settings file, by event."""
    return {event: groups for event, groups in (raw.get("hooks") or {}).items() if groups}


def hooked_commands(hooks: Json) -> list[str]:
    """The commands of hooks in a file that was checked."""
    found = (hook for groups in hooks.values() for group in groups for hook in group["hooks"])
    return [" ".join([hook["command"], *map(str, _arguments(hook))]) for hook in found]


def _arguments(hook: Json) -> list[Any]:
    arguments = hook.get("raw", {}).get("args")
    return arguments if isinstance(arguments, list) else []


def hooks_digest(*files: Json) -> str:
    """Changes when a hook in these files is added, changed or removed; empty without hooks."""
    text = json.dumps(files, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest() if any(files) else ""
