"""Whether a value fits a JSON schema: the keywords that people use to describe data. Others are not checked."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

_TYPES: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}
_DEEPEST = 100
Json = dict[str, Any]


def problem_in(value: Any, schema: Any, root: Any = None, at: str = "", depth: int = 0) -> str:
    """The first thing that is wrong with a value, with its place; empty if it fits."""
    if not isinstance(schema, Mapping) or depth > _DEEPEST:
        return ""
    root = schema if root is None else root
    if isinstance(ref := schema.get("$ref"), str):
        return problem_in(value, _resolved(ref, root), root, at, depth + 1)
    return next((found for found in _problems(value, schema, root, at, depth + 1) if found), "")


def _resolved(ref: str, root: Any) -> Any:
    for part in ref.removeprefix("#").strip("/").split("/") if ref != "#" else ():
        root = root.get(part) if isinstance(root, Mapping) else None
    return root


def _problems(value: Any, schema: Mapping[str, Any], root: Any, at: str, depth: int) -> Iterator[str]:
    named = at or "the value"
    yield _type_problem(value, schema.get("type"), named)
    if "enum" in schema and value not in schema["enum"]:
        yield f"{named} must be one of {json.dumps(schema['enum'])}"
    if "const" in schema and value != schema["const"]:
        yield f"{named} must be {json.dumps(schema['const'])}"
    for each in schema.get("allOf", ()):
        yield problem_in(value, each, root, at, depth)
    for kind in ("anyOf", "oneOf"):
        found = [problem_in(value, each, root, at, depth) for each in schema.get(kind, ())]
        yield found[0] if found and all(found) else ""
    if isinstance(value, dict):
        yield from _object_problems(value, schema, root, at, depth)
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield problem_in(each, schema.get("items"), root, f"{at}[{number}]", depth)
        yield from _bounds(len(value), schema, "minItems", "maxItems", f"the number of items of {named}")
    elif isinstance(value, str):
        yield from _bounds(len(value), schema, "minLength", "maxLength", f"the length of {named}")
        yield _pattern_problem(value, schema.get("pattern"), named)
    elif isinstance(value, int | float):
        yield from _bounds(value, schema, "minimum", "maximum", named)


def _type_problem(value: Any, wanted: Any, named: str) -> str:
    kinds = [wanted] if isinstance(wanted, str) else wanted if isinstance(wanted, list) else []
    known = [kind for kind in kinds if kind in _TYPES]
    if not known or any(_is_a(value, kind) for kind in known):
        return ""
    return f"{named} must be of type {' or '.join(known)}"


def _is_a(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    is_whole = kind == "integer" and isinstance(value, float) and value.is_integer()
    return isinstance(value, _TYPES[kind]) or is_whole


def _object_problems(value: Json, schema: Mapping[str, Any], root: Any, at: str, depth: int) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            yield f"{at + '.' if at else ''}{name} is missing"
    for name, each in value.items():
        place = f"{at}.{name}" if at else str(name)
        if name in properties:
            yield problem_in(each, properties[name], root, place, depth)
        elif schema.get("additionalProperties") is False:
            yield f"{place} is not a known field"
        else:
            yield problem_in(each, schema.get("additionalProperties"), root, place, depth)


def _bounds(size: float, schema: Mapping[str, Any], least: str, most: str, named: str) -> Iterator[str]:
    if isinstance(bound := schema.get(least), int | float) and size < bound:
        yield f"{named} must be at least {bound}"
    if isinstance(bound := schema.get(most), int | float) and size > bound:
        yield f"{named} must be at most {bound}"


def _pattern_problem(value: str, pattern: Any, named: str) -> str:
    try:
        fits = not isinstance(pattern, str) or re.search(pattern, value) is not None
    except re.error:  # JavaScript knows some that Python does not
        return ""
    return "" if fits else f"{named} must match {pattern}"
