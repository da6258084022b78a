"""Reads the objects in `config.json`: known fields by type; unknown fields are kept for the version that wrote them."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

TEXT = (str,)
FLAG = (bool,)
COUNT = (int,)
SECONDS = (int, float)
OBJECT = (dict,)
NOTHING = type(None)

NO_FIELDS: Mapping[str, Any] = MappingProxyType({})


def known_fields(raw: object, types: Mapping[str, tuple[type, ...]]) -> dict[str, Any]:
    """The fields of `raw` that are in `types`, and all others under `unknown`.

    Raises: ValueError, which names the field with the wrong type
    """
    if not isinstance(raw, dict):
        raise ValueError(f"{raw!r:.80} is not an object")
    for field, value in raw.items():
        if field in types and type(value) not in types[field]:  # exact types, since a bool is also an int
            raise ValueError(f"{field} cannot be {value!r:.80}")
    known = {field: value for field, value in raw.items() if field in types}
    unknown = {field: value for field, value in raw.items() if field not in types}
    return {**known, "unknown": unknown}
