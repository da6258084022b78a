"""Fields of a front matter that have fields below them, such as `hooks`: lists and objects by indentation."""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from teamcli.config.front_matter import unquoted

_DEEPEST = 6
# Compiled at first use: few files have such fields.
_BLOCK_TEXT = r"[|>][-+]?"
_FLOW_ENTRY = r"""(?:"(?:[^"\\]|\\.)*"|'[^']*'|[^,"'])+"""


class _Line(NamedTuple):
    indent: int
    text: str


def read_nested(text: str, field: str) -> Any:
    """The value of a field in the front matter of a document; an empty list if it is not there.

    Raises: ValueError
    """
    try:
        return _value_in(text, field)
    except ValueError as e:
        raise ValueError(f"{field}: {e}") from e


def _value_in(text: str, field: str) -> Any:
    lines = text.split("\n")
    end = next((number for number, line in enumerate(lines) if number and line.rstrip() == "---"), 0)
    start = next((number for number, line in enumerate(lines[:end]) if line.startswith(f"{field}:")), None)
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
        raise ValueError("it is nested too deeply")
    first = lines[0]
    groups: list[list[_Line]] = []
    for line in lines:
        if line.indent < first.indent:
            raise ValueError(f"the indentation of {line.text!r:.60} does not fit")
        # A list may be indented as little as the field that it belongs to.
        if line.indent == first.indent and _is_item(line) == _is_item(first):
            groups.append([])
        groups[-1].append(line)
    if _is_item(first):
        return [_item(group, depth) for group in groups]
    if not _key(first.text):
        return _scalar(" ".join(line.text for line in lines))
    return dict(_pair(group, depth) for group in groups)


def _is_item(line: _Line) -> bool:
    return line.text.startswith("- ") or line.text == "-"


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
        raise ValueError(f"{head.text!r:.60} is not `key: value`")
    name, rest = found[1].strip("\"'"), found[2].strip()
    if re.fullmatch(_BLOCK_TEXT, rest):
        return name, _text_of(below, is_folded=rest.startswith(">"))
    if rest:
        return name, _scalar(" ".join([rest, *(line.text for line in below)]))
    return name, _block(below, depth + 1) if below else ""


def _text_of(lines: list[_Line], is_folded: bool) -> str:
    if is_folded:
        return " ".join(line.text for line in lines)
    width = min((line.indent for line in lines), default=0)
    return "\n".join(" " * (line.indent - width) + line.text for line in lines)


def _key(text: str) -> re.Match[str] | None:
    return re.fullmatch(r"""("[^"]+"|'[^']+'|[\w.@/-]+):(\s.*|)""", text)


def _scalar(text: str) -> Any:
    if text[:1] in "[{":
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            pass
    if text.startswith("{") and text.endswith("}"):
        pairs = (each.partition(":") for each in re.findall(_FLOW_ENTRY, text[1:-1]) if each.strip())
        return {name.strip(" \"'"): _scalar(value.strip()) for name, _, value in pairs}
    if text.startswith("[") and text.endswith("]"):
        return [_scalar(each.strip()) for each in text[1:-1].split(",") if each.strip()]
    if text[:1] in "\"'" and text[-1:] == text[:1] and len(text) > 1:
        return unquoted(text)
    text = re.sub(r"\s#.*", "", text)
    return {"true": True, "false": False}.get(text, int(text) if text.isdecimal() and len(text) < 12 else text)
