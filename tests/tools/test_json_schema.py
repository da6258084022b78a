"""Checking values against JSON schemas."""

from __future__ import annotations

from typing import Any

import pytest

from teamcli.tools.base.json_schema import problem_in

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1},
        "age": {"type": "integer", "minimum": 0},
        "mood": {"enum": ["good", "bad"]},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 2},
        "next": {"$ref": "#"},
        "id": {"anyOf": [{"type": "string", "pattern": "^x"}, {"type": "null"}]},
    },
    "required": ["name"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "value",
    [
        {"name": "Ann"},
        {"name": "Ann", "age": 3, "mood": "good", "tags": ["a"], "id": None},
        {"name": "Ann", "age": 3.0, "id": "x1", "next": {"name": "Bob"}},
    ],
)
def test_a_value_fits(value: Any) -> None:
    assert problem_in(value, PERSON) == ""


@pytest.mark.parametrize(
    "value, problem",
    [
        ([], "the value must be of type object"),
        ({}, "name is missing"),
        ({"name": ""}, "the length of name must be at least 1"),
        ({"name": "Ann", "age": True}, "age must be of type integer"),
        ({"name": "Ann", "age": -1}, "age must be at least 0"),
        ({"name": "Ann", "age": 1.5}, "age must be of type integer"),
        ({"name": "Ann", "mood": "so"}, 'mood must be one of ["good", "bad"]'),
        ({"name": "Ann", "tags": ["a", 1]}, "tags[1] must be of type string"),
        ({"name": "Ann", "tags": ["a", "b", "c"]}, "the number of items of tags must be at most 2"),
        ({"name": "Ann", "next": {"name": 1}}, "next.name must be of type string"),
        ({"name": "Ann", "id": "y"}, "id must match ^x"),
        ({"name": "Ann", "shoe": 1}, "shoe is not a known field"),
    ],
)
def test_the_first_problem_is_named_with_its_place(value: Any, problem: str) -> None:
    assert problem_in(value, PERSON) == problem


@pytest.mark.parametrize("schema", [True, {}, {"type": "wild"}, {"$ref": "#/nowhere"}, {"pattern": "(?<x>"}])
def test_what_is_not_understood_is_not_checked(schema: Any) -> None:
    assert problem_in("x", schema) == ""
