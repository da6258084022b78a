"""What a model writes as a tool's input: read where it can be meant in one way only, else refused field by field."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any, Literal, NamedTuple

import pytest
from pydantic_core import ValidationError

from teamcli.tools.base.tool import Tool
from teamcli.tools.base.tool_input import Between, Words, checker, explain, fields_of, input_schema, read_input
from teamcli.tools.catalog import ALL_TOOLS


class OrderInput(NamedTuple):
    """Order something."""

    what: Words
    count: Annotated[int, Between(1, 9), "How many"] = 1
    price: Annotated[float, Between(0)] = 0.5
    is_gift: bool = False
    colour: Literal["red", "blue"] = "red"
    names: tuple[str, ...] = ()


FIELDS = fields_of(OrderInput)
CHECK = checker(FIELDS)


def read(**given: Any) -> OrderInput:
    return read_input(OrderInput, CHECK, given)


@pytest.mark.parametrize(
    ("given", "held"),
    [
        ({}, {}),
        ({"count": "5"}, {"count": 5}),
        ({"count": 5.0}, {"count": 5}),
        ({"price": 3}, {"price": 3.0}),
        ({"price": "0.25"}, {"price": 0.25}),
        ({"is_gift": "true"}, {"is_gift": True}),
        ({"is_gift": 0}, {"is_gift": False}),
        ({"colour": "blue"}, {"colour": "blue"}),
        ({"names": ["a", "b"]}, {"names": ("a", "b")}),
        ({"count": None, "names": None, "unheard_of": None}, {}),
    ],
    ids=str,
)
def test_unambiguous_input_is_accepted_and_null_means_absent(given: dict[str, Any], held: dict[str, Any]) -> None:
    assert repr(read(what="tea", **given)) == repr(OrderInput("tea")._replace(**held))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "what: Field required"),
        ({"what": None}, "what: Field required"),
        ({"what": 5}, "what: Input should be a valid string"),
        ({"what": " \n"}, "what: must not be empty"),
        ({"count": "many"}, "count: Input should be a valid integer, unable to parse string as an integer"),
        ({"count": 1.5}, "count: Input should be a valid integer, got a number with a fractional part"),
        ({"count": 10}, "count: Input should be less than or equal to 9"),
        ({"count": 0}, "count: Input should be greater than or equal to 1"),
        ({"price": float("nan")}, "price: Input should be greater than or equal to 0"),
        ({"is_gift": "perhaps"}, "is_gift: Input should be a valid boolean, unable to interpret input"),
        ({"colour": "green"}, "colour: Input should be 'red' or 'blue'"),
        ({"names": "a"}, "names: Input should be a valid list"),
        ({"names": ["a", 1]}, "names.1: Input should be a valid string"),
        ({"unheard_of": 1}, "unheard_of: Extra inputs are not permitted"),
        ({"count": "x y", "names": 1}, "unable to parse string as an integer; names: Input should be a valid list"),
    ],
    ids=str,
)
def test_a_refusal_names_each_invalid_field(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as refused:
        read(**(given if "what" in given or not given else {"what": "tea", **given}))
    assert explain(refused.value).endswith(said)


def test_the_schema_has_types_bounds_and_defaults_that_are_not_empty() -> None:
    assert input_schema(FIELDS) == {
        "additionalProperties": False,
        "properties": {
            "what": {"type": "string"},
            "count": {"default": 1, "description": "How many", "maximum": 9, "minimum": 1, "type": "integer"},
            "price": {"default": 0.5, "minimum": 0, "type": "number"},
            "is_gift": {"type": "boolean"},
            "colour": {"default": "red", "enum": ["red", "blue"], "type": "string"},
            "names": {"items": {"type": "string"}, "type": "array"},
        },
        "required": ["what"],
        "type": "object",
    }


@pytest.mark.parametrize("entry", ALL_TOOLS, ids=lambda entry: entry.name)
@pytest.mark.parametrize("raw", [None, [], "text", 5])
def test_what_is_not_an_object_is_refused(entry: Any, raw: object) -> None:
    loaded: Tool[Any] = entry.load()
    with pytest.raises(ValidationError) as refused:
        loaded.read(raw)
    assert explain(refused.value) == "Input should be a valid dictionary"


def test_no_tool_of_ours_loads_all_of_pydantic() -> None:
    code = "from teamcli.tools.catalog import *; [tool.load() for tool in ALL_TOOLS]; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = run.stdout.split()
    assert "teamcli.tools.spawn_teammate" in loaded
    assert "pydantic" not in loaded
