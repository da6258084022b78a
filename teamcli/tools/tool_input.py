"""What a model writes as a tool's input: a named tuple of fields of a few types, from which its schema is made.

By hand: to load pydantic would take longer than all else that a first call needs. Read as leniently as pydantic does
(`"5"` is a number too), and refused in its words.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

InputT = TypeVar("InputT")

Check = Callable[[Any], Any]
"""Takes what the model wrote; returns what the field holds of it, or raises ValueError. May stand in `Annotated`."""

MAX_DIGITS = 4300
_LARGEST_FROM_FLOAT = 2.0**63
_WHOLE = re.compile(r"([+-]?\d+(?:_\d+)*)(?:\.0+)?", re.ASCII)
_TRUE = ("1", "on", "t", "true", "y", "yes")
_FALSE = ("0", "off", "f", "false", "n", "no")


class Between(NamedTuple):
    """The bounds of a number; may stand in `Annotated`."""

    least: int
    most: int | None = None

    def check(self, value: float) -> float:
        if self.most is not None and not value <= self.most:
            raise ValueError(f"Input should be less than or equal to {self.most}")
        if not value >= self.least:
            raise ValueError(f"Input should be greater than or equal to {self.least}")
        return value


class Field(NamedTuple):
    name: str
    check: Check
    schema: dict[str, Any]


def fields_of(kind: type[Any]) -> list[Field]:
    """Of a named tuple. A text in `Annotated` is what the model is told of the field."""
    defaults = kind._field_defaults
    return [_field(name, hint, defaults) for name, hint in get_type_hints(kind, include_extras=True).items()]


def read_input(kind: type[InputT], fields: list[Field], raw: object) -> InputT:
    """Raises: ValueError, which names each field at fault: `limit: Input should be a valid integer; …`"""
    if not isinstance(raw, dict):
        raise ValueError("Input should be a valid dictionary")
    given = {name: value for name, value in raw.items() if value is not None}  # null is for what models leave out
    values, problems = {}, []
    for field in fields:
        try:
            if field.name in given:
                values[field.name] = field.check(given.pop(field.name))
            elif "default" not in field.schema:
                problems.append(f"{field.name}: Field required")
        except _InList as e:
            problems += [f"{field.name}.{problem}" for problem in e.problems]
        except ValueError as e:
            problems.append(f"{field.name}: {e}")
    problems += [f"{name}: Extra inputs are not permitted" for name in given]
    if problems:
        raise ValueError("; ".join(problems))
    return kind(**values)


def input_schema(fields: list[Field]) -> dict[str, Any]:
    """As JSON schema, with its keys in order: it is part of a prefix that never changes."""
    required = [field.name for field in fields if "default" not in field.schema]
    return {
        "additionalProperties": False,
        "properties": {field.name: field.schema for field in fields},
        **({"required": required} if required else {}),
        "type": "object",
    }


def text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError("Input should be a valid string")
    return value


def words(value: Any) -> str:
    if not text(value).strip():
        raise ValueError("must not be empty")
    return str(value)


Words = Annotated[str, words]
"""Text that says something. Checked here and not in the schema, where each limit costs tokens in every request."""


def texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple):
        raise ValueError("Input should be a valid list")
    if wrong := [number for number, each in enumerate(value) if not isinstance(each, str)]:
        raise _InList([f"{number}: Input should be a valid string" for number in wrong])
    return tuple(value)


class _InList(ValueError):
    """What is wrong with items of a list, each with its place."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


def _whole(value: Any) -> int:
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return _whole_from_float(value)
    if not isinstance(value, str):
        raise ValueError("Input should be a valid integer")
    if not (found := _WHOLE.fullmatch(value.strip())):
        raise ValueError("Input should be a valid integer, unable to parse string as an integer")
    if len(found[1]) > MAX_DIGITS:
        raise ValueError("Unable to parse input string as an integer, exceeded maximum size")
    return int(found[1])


def _whole_from_float(value: float) -> int:
    if not math.isfinite(value):
        raise ValueError("Input should be a finite number")
    if not value.is_integer():
        raise ValueError("Input should be a valid integer, got a number with a fractional part")
    if abs(value) >= _LARGEST_FROM_FLOAT:
        raise ValueError("Unable to parse input string as an integer, exceeded maximum size")
    return int(value)


def _number(value: Any) -> float:
    try:
        if isinstance(value, int | float):
            return float(value)
        if isinstance(value, str) and value.isascii():
            return float(value)
    except OverflowError:
        raise ValueError("Input should be a valid number") from None
    except ValueError:
        pass
    hint = ", unable to parse string as a number" if isinstance(value, str) else ""
    raise ValueError(f"Input should be a valid number{hint}")


def _flag(value: Any) -> bool:
    try:
        word = value.lower() if isinstance(value, str) else str(_whole(value))
    except ValueError:
        raise ValueError("Input should be a valid boolean") from None
    if word not in (*_TRUE, *_FALSE):
        raise ValueError("Input should be a valid boolean, unable to interpret input")
    return word in _TRUE


_CHECKS: dict[Any, Check] = {str: text, int: _whole, float: _number, bool: _flag, tuple[str, ...]: texts}
_SCHEMAS: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    tuple[str, ...]: {"items": {"type": "string"}, "type": "array"},
}


def _field(name: str, hint: Any, defaults: dict[str, Any]) -> Field:
    kind, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    bounds = next((each for each in more if isinstance(each, Between)), None)
    said = next((each for each in more if isinstance(each, str)), "")
    own = next((each for each in more if callable(each)), None)
    schema = {
        **_schema(kind),
        **({"default": defaults[name]} if name in defaults else {}),
        **({"description": said} if said else {}),
        **({"minimum": bounds.least} if bounds else {}),
        **({"maximum": bounds.most} if bounds and bounds.most is not None else {}),
    }
    check = own or _check(kind)
    bounded = (lambda value: bounds.check(check(value))) if bounds else check
    return Field(name, bounded, dict(sorted(schema.items())))


def _check(kind: Any) -> Check:
    return _one_of(get_args(kind)) if get_origin(kind) is Literal else _CHECKS[kind]


def _one_of(choices: tuple[str, ...]) -> Check:
    *others, last = (repr(choice) for choice in choices)

    def check(value: Any) -> Any:
        if value not in choices:
            raise ValueError(f"Input should be {', '.join(others)} or {last}")
        return value

    return check


def _schema(kind: Any) -> dict[str, Any]:
    if get_origin(kind) is Literal:
        return {"enum": list(get_args(kind)), "type": "string"}
    return _SCHEMAS[kind] if kind in _SCHEMAS else {"anyOf": [_SCHEMAS[each] for each in get_args(kind)]}
