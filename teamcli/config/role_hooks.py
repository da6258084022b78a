"""`hooks` in the front matter of a role: they run for agents with that role only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from teamcli.claude_code.unused import Unused
from teamcli.config.claude_settings import read_hooks
from teamcli.config.nested_fields import read_nested
from teamcli.config.settings import HookCommand, HookGroup
from teamcli.storage.files import Json

if TYPE_CHECKING:
    from teamcli.config.roles import Role

FIELD = "hooks"
Groups = Mapping[str, tuple[HookGroup, ...]]
_MEANT: Mapping[str, tuple[str, ...]] = {"Stop": ("SubagentStop", "TeammateIdle")}
"""An agent with a role is a sub-agent or a teammate, so it ends with another event than the lead."""


def read_role_hooks(text: str, role: str, shown: str, unused: Unused) -> Groups:
    """The hooks in a role file with this text, by event. `unused` gathers what cannot be used."""
    try:
        raw = read_nested(text, FIELD)
    except ValueError as e:
        unused.add("role field", FIELD, f"in {shown}: {e}")
        return {}
    return role_hooks(raw, role, shown, unused)


def role_hooks(raw: Any, role: str, shown: str, unused: Unused) -> Groups:
    """The same for hooks that were read already."""
    found: dict[str, tuple[HookGroup, ...]] = {}
    for event, groups in read_hooks(raw, shown, unused).items():
        for meant in _MEANT.get(event, (event,)):
            found[meant] = (*found.get(meant, ()), *(_group(each, role) for each in groups))
    return found


def _group(group: Json, role: str) -> HookGroup:
    hooks = tuple(HookCommand(each["command"], each.get("timeout"), raw=each["raw"]) for each in group["hooks"])
    return HookGroup(hooks, group["matcher"], group["source"], role=role)


def with_role_hooks(hooks: Groups, roles: Iterable[Role]) -> Groups:
    """The hooks of the settings, followed by those of all roles."""
    together = dict(hooks)
    for role in roles:
        for event, groups in role.hooks.items():
            together[event] = (*together.get(event, ()), *groups)
    return together
