"""What of a project's settings counts: `ask` and `deny` rules at once, everything else once the user has agreed to it.

A file is taken apart into single settings, so that agreeing to one says nothing about another. Hooks are agreed to as a
whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from teamcli.config.settings import BudgetSettings, LimitSettings, PermissionSettings, Settings, SubAgentSettings
from teamcli.storage.files import Json

RESTRICTING = ("ask", "deny")
_PARTS: Mapping[str, Collection[str] | None] = {
    "permissions": PermissionSettings._fields,
    "limits": LimitSettings._fields,
    "subagents": SubAgentSettings._fields,
    "budgets": BudgetSettings._fields,
    "prices": None,
}
"""Objects whose entries are settings of their own, with the names that mean something. Others are one setting."""
_LISTS = (("permissions", "allow"), ("hidden_variables",), ("sandbox_writable",), ("sandbox_closed",))
"""Lists that add up over the files: each element is a setting."""

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
    """What a file sets besides hooks and restrictions, permissions first. Keys that nobody knows do nothing."""
    known = [name for name in ("permissions", *Settings._fields) if name in raw and name != "hooks"]
    return [each for name in dict.fromkeys(known) for each in _parts_of(name, raw[name])]


def _parts_of(name: str, value: Any) -> Iterator[Setting]:
    if name not in _PARTS:
        yield from _elements((name,), value)
        return
    known = _PARTS[name]
    for key, item in value.items():
        if (known is None or key in known) and not (name == "permissions" and key in RESTRICTING):
            yield from _elements((name, key), item)


def _elements(path: tuple[str, ...], value: Any) -> Iterator[Setting]:
    yield from (Setting(path, each) for each in (dict.fromkeys(value) if path in _LISTS else (value,)))


def restrictions_of(raw: Json) -> Rules:
    permissions = raw.get("permissions") or {}
    return {kind: tuple(permissions.get(kind) or ()) for kind in RESTRICTING}


def lost_restrictions(raw: Json, remembered: Rules) -> list[tuple[str, str]]:
    """`(kind, rule)` of what applied before and is not in the file any longer."""
    present = restrictions_of(raw)
    return [(kind, rule) for kind in RESTRICTING for rule in remembered.get(kind, ()) if rule not in present[kind]]


def what_counts(raw: Json, agreed: Collection[str], remembered: Rules, may_hook: bool) -> Json:
    """The part of a file that counts."""
    counts: Json = {"permissions": {kind: list(rules) for kind, rules in restrictions_of(raw).items()}}
    for kind, rule in lost_restrictions(raw, remembered):
        counts["permissions"][kind].append(rule)
    for setting in settings_to_agree(raw):
        if setting.digest in agreed:
            _put(counts, setting)
    return {**counts, "hooks": raw["hooks"]} if may_hook and "hooks" in raw else counts


def _put(into: Json, setting: Setting) -> None:
    *above, last = setting.path
    for name in above:
        into = into.setdefault(name, {})
    if setting.path in _LISTS:
        into.setdefault(last, []).append(setting.value)
    else:
        into[last] = setting.value


def hooks_in(raw: Json) -> Json:
    """What a settings file would run by itself, by event; empty if it runs nothing."""
    return {event: groups for event, groups in (raw.get("hooks") or {}).items() if groups}


def hooked_commands(hooks: Json) -> list[str]:
    """The commands of hooks as they are in a file that was checked."""
    return [str(hook["command"]) for groups in hooks.values() for group in groups for hook in group["hooks"]]


def hooks_digest(*files: Json) -> str:
    """The same as long as no hook of these files is added, changed or removed; empty without any."""
    text = json.dumps(files, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest() if any(files) else ""
