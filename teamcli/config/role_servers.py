"""`mcpServers` in the front matter of a role: names of configured servers, or definitions of servers of its own.

It is the one field with nested values, so it is read here, from the lines of the front matter.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from teamcli.storage.files import Json

FIELD = "mcpServers"
_DEEPEST = 6


class _Line(NamedTuple):
    indent: int
    text: str


def read_role_servers(text: str) -> tuple[tuple[str, ...], Json]:
    """The names of configured servers, and the definitions of others by name.

    Raises: ValueError
    """
    value = _value_in(text)
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


def _value_in(text: str) -> Any:
    lines = text.split("\n")
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() == "---"), 0)
    start = next((number for number, line in enumerate(lines[:end]) if line.startswith(f"{FIELD}:")), None)
    if start is None:
        return []
    rest = lines[start].partition(":")[2].strip()
    if rest and not rest.startswith("#"):
        return _scalar(rest)
    below: list[_Line] = []
    for line in lines[start + 1 : end]:
        if line.strip() and not line.lstrip().startswith("#"):
            if line[0] not in " \t-":
                break
            below.append(_Line(len(line) - len(line.lstrip()), line.strip()))
    return _block(below, 0) if below else []


def _block(lines: list[_Line], depth: int) -> Any:
    """A list, an object, or one value, by indentation."""
    if depth > _DEEPEST:
        raise ValueError(f"{FIELD}: it is nested too deeply")
    first = lines[0]
    groups: list[list[_Line]] = []
    for line in lines:
        if line.indent < first.indent:
            raise ValueError(f"{FIELD}: the indentation of {line.text!r:.60} does not fit")
        if line.indent == first.indent:
            groups.append([])
        groups[-1].append(line)
    if first.text.startswith("- ") or first.text == "-":
        return [_item(group, depth) for group in groups]
    if not _key(first.text):
        return _scalar(" ".join(line.text for line in lines))
    return dict(_pair(group, depth) for group in groups)


def _item(group: list[_Line], depth: int) -> Any:
    head, *below = group
    inside = head.text[1:].strip()
    # The text after the dash is indented as far as what follows it.
    lines = [_Line(head.indent + 2, inside), *below] if inside else below
    return _block(lines, depth + 1) if lines else ""


def _pair(group: list[_Line], depth: int) -> tuple[str, Any]:
    head, *below = group
    found = _key(head.text)
    if found is None:
        raise ValueError(f"{FIELD}: {head.text!r:.60} is not `key: value`")
    name, rest = found[1].strip("\"'"), found[2].strip()
    if rest:
        return name, _scalar(rest)
    return name, _block(below, depth + 1) if below else ""


def _key(text: str) -> re.Match[str] | None:
    return re.fullmatch(r"""("[^"]+"|'[^']+'|[\w.@/-]+):(\s.*|)""", text)


def _scalar(text: str) -> Any:
    if text[:1] in "[{":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(each.strip()) for each in text[1:-1].split(",") if each.strip()]
    if text[:1] in "\"'" and text[-1:] == text[:1] and len(text) > 1:
        return text[1:-1]
    text = re.sub(r"\s#.*", "", text)
    return {"true": True, "false": False}.get(text, int(text) if text.isdecimal() and len(text) < 12 else text)
