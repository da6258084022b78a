"""What a model writes as a tool's input: a named tuple with fields of a few types, which also make up its schema.

Only the core of pydantic checks it. Loading all of pydantic takes four times as long, more than everything else that a
program's first call needs, and would only add the reading of annotations, of which we have few.
"""

from __future__ import annotations

from collections.abc import Callable
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from pydantic_core import PydanticCustomError, SchemaValidator, ValidationError

InputT = TypeVar("InputT")
Check = Callable[[Any], Any]
Schema = dict[str, Any]

_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_CORE_TYPES = {str: "str", int: "int", float: "float", bool: "bool"}


class Between(NamedTuple):
    """The bounds of a number."""

    least: int
    most: int | None = None


class Field(NamedTuple):
    """From `Annotated`: a text describes it to the model, a function wraps the check (like `WrapValidator`)."""

    name: str
    kind: Any
    is_required: bool
    default: Any
    description: str
    bounds: Between | None
    wrap: Callable[[Any, Check], Any] | None

    @classmethod
    def of(cls, name: str, hint: Any, defaults: dict[str, Any]) -> Field:
        kind, *notes = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        description = next((note for note in notes if isinstance(note, str)), "")
        bounds = next((note for note in notes if isinstance(note, Between)), None)
        wrap = next((note for note in notes if callable(note)), None)
        return cls(name, kind, name not in defaults, defaults.get(name), description, bounds, wrap)

    def json_schema(self) -> Schema:
        """With its keys sorted: it is part of a prefix that never changes."""
        least, most = self.bounds or (None, None)
        more = {"description": self.description or None, "minimum": least, "maximum": most}
        default = {"default": self.default} if self.default else {}  # an empty one says nothing that a model misses
        given = {key: value for key, value in more.items() if value is not None}
        return dict(sorted({**_json_schema(self.kind), **default, **given}.items()))

    def core_schema(self) -> Schema:
        least, most = self.bounds or (None, None)
        bounds = {key: value for key, value in (("ge", least), ("le", most)) if value is not None}
        checked = {**_core_schema(self.kind), **bounds}
        if self.wrap:
            function = {"type": "no-info", "function": self.wrap}
            checked = {"type": "function-wrap", "function": function, "schema": checked}
        return {"type": "typed-dict-field", "schema": checked, "required": self.is_required}


def fields_of(kind: type[Any]) -> list[Field]:
    hints = get_type_hints(kind, include_extras=True)
    return [Field.of(name, hint, kind._field_defaults) for name, hint in hints.items()]


def input_schema(fields: list[Field]) -> Schema:
    """As JSON schema, for the model."""
    required = [field.name for field in fields if field.is_required]
    return {
        "additionalProperties": False,
        "properties": {field.name: field.json_schema() for field in fields},
        **({"required": required} if required else {}),
        "type": "object",
    }


def checker(fields: list[Field]) -> SchemaValidator:
    known = {field.name: field.core_schema() for field in fields}
    return SchemaValidator({"type": "typed-dict", "fields": known, "extra_behavior": "forbid"})


def read_input(kind: type[InputT], check: SchemaValidator, raw: object) -> InputT:
    """Raises: ValidationError"""
    return kind(**check.validate_python(without_nulls(raw)))


def without_nulls(raw: Any) -> Any:
    """Models write null for fields they leave out."""
    return {name: value for name, value in raw.items() if value is not None} if isinstance(raw, dict) else raw


def explain(error: ValidationError) -> str:
    """Name each invalid field: `timeout_seconds: Input should be less than or equal to 600`."""
    problems = []
    for problem in error.errors(include_url=False, include_context=False):
        where = ".".join(str(part) for part in problem["loc"])
        problems.append(f"{where}: {problem['msg']}" if where else problem["msg"])
    return "; ".join(problems)


def _refuse_blank(raw: Any, check: Check) -> Any:
    text = check(raw)
    if not text.strip():
        raise PydanticCustomError("blank", "must not be empty")
    return text


Words = Annotated[str, _refuse_blank]
"""Text that is not blank. Checked here and not in the schema, where each limit costs tokens in every request."""


def _json_schema(kind: Any) -> Schema:
    of, inner = get_origin(kind), get_args(kind)
    if of is Literal:
        return {"enum": list(inner), "type": "string"}
    if of is tuple:
        return {"items": _json_schema(inner[0]), "type": "array"}
    if of in (Union, UnionType):
        return _json_schema(inner[0])  # the others are accepted too, but some chat templates do not support `anyOf`
    return {"type": _JSON_TYPES[kind]}


def _core_schema(kind: Any) -> Schema:
    of, inner = get_origin(kind), get_args(kind)
    if of is Literal:
        return {"type": "literal", "expected": list(inner)}
    if of is tuple:
        items = {"type": "list", "items_schema": _core_schema(inner[0])}
        return {"type": "function-after", "function": {"type": "no-info", "function": tuple}, "schema": items}
    if of in (Union, UnionType):
        choices = [_core_schema(each) for each in inner if each is not NoneType]  # null means: left out
        return {"type": "union", "choices": choices} if len(choices) > 1 else choices[0]
    return {"type": _CORE_TYPES[kind]}
