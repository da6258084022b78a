"""`mcpServers` in the front matter of a role: names of configured servers, or definitions of servers of its own."""

from __future__ import annotations

from teamcli.config.nested_fields import read_nested
from teamcli.storage.files import Json

FIELD = "mcpServers"


def read_role_servers(text: str) -> tuple[tuple[str, ...], Json]:
    """The names of configured servers, and the definitions of others by name.

    Raises: ValueError
    """
    value = read_nested(text, FIELD)
    names: list[str] = []
    own: Json = {}
    for each in value if isinstance(value, list) else [value]:
        if isinstance(each, str):
            names += [name.strip() for name in each.split(",") if name.strip()]
        elif isinstance(each, dict):
            names += [name for name, entry in each.items() if entry in ("", None)]
            own |= {name: entry for name, entry in each.items() if entry not in ("", None)}
        else:
            raise ValueError(f"{FIELD}: expected names of servers, or names with their definitions")
    return tuple(names), own
