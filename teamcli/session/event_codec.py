"""Events as JSON objects, for other processes: `{"event": "TextArrived", "agent": "alice", "text": "…"}`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

from teamcli.agent import events
from teamcli.agent.events import Event
from teamcli.errors import TeamcliError
from teamcli.llm.types import Message, Usage
from teamcli.storage.files import Json

_BY_NAME: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}


def encode_event(event: Event) -> Json:
    return {"event": type(event).__name__, **_fields(event)}


def decode_event(value: object) -> Event | None:
    """None for what is not an event that this version knows. Fields that it does not know are left out."""
    kind = _BY_NAME.get(str(value.get("event"))) if isinstance(value, dict) else None
    if kind is None:
        return None
    try:
        event: Event = _read(kind, value)
    except (TypeError, ValueError):
        return None
    return event


def _fields(value: Any) -> Json:
    return {name: _plain(item) for name, item in zip(value._fields, value, strict=True)}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Message | Usage):
        return value.to_dict()
    if isinstance(value, Exception):
        return str(value)
    if hasattr(value, "_fields"):
        return _fields(value)
    if isinstance(value, tuple):
        return list(value)
    return dict(value) if isinstance(value, Mapping) else value


def _read(hint: Any, value: Any) -> Any:
    """Raises: TypeError, ValueError."""
    if get_origin(hint) is UnionType:
        options = get_args(hint)
        if value is None and NoneType in options:
            return None
        return _read(next(each for each in options if each is not NoneType), value)
    if get_origin(hint) is tuple:
        return tuple(_read(get_args(hint)[0], item) for item in _checked(list, value))
    if get_origin(hint) in (dict, Mapping):
        return _checked(dict, value)
    if hint is Message:
        return _message(_checked(dict, value))
    if hint is Usage:
        return Usage().at_least(_checked(dict, value))
    if hint is Exception:
        return TeamcliError(_checked(str, value))
    if hasattr(hint, "_fields"):
        given = _checked(dict, value)
        return hint(**{name: _read(kind, given[name]) for name, kind in _hints(hint).items() if name in given})
    if issubclass(hint, Enum):
        return hint(value)
    return float(_checked((int, float), value)) if hint is float else _checked(hint, value)


def _message(value: Json) -> Message:
    role, content = value.get("role"), value.get("content")
    if role not in ("user", "assistant") or not isinstance(content, list):
        raise ValueError("not a message")
    blocks = (block for block in content if isinstance(block, dict) and isinstance(block.get("type"), str))
    return Message(role, tuple(blocks))


def _checked(kind: Any, value: Any) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.40} is not of type {kind}")
    return value


@cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind, vars(events))
