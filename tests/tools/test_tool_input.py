"""What a model writes as a tool's input is read, and refused, as pydantic does it: models know its ways."""

from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, create_model

from teamcli.tools.base import Tool
from teamcli.tools.catalog import ALL_TOOLS
from teamcli.tools.tool_input import Between, words

TOOLS: dict[str, Tool[Any]] = {entry.name: entry.load() for entry in ALL_TOOLS}
OWN = {"send_message": ("to",)}
"""Fields with a rule of their own, see test_team_tools."""

NUMBERS = (
    st.integers(-(2**63), 2**63 - 1)
    | st.floats()
    | st.floats(-1e20, 1e20).map(float.__round__).map(float)
    | st.integers(-2, 700)
)
SPELLINGS = "true TRUE Yes no 1 0 5 -5 +5 5.0 5. 5.5 1_000 1__0 _1 ٥ 1e3 nan inf content files"
WORDS = st.sampled_from(SPELLINGS.split())
TEXTS = (st.text(max_size=8) | WORDS | WORDS.map(" {} ".format) | NUMBERS.map(str)).filter(
    lambda text: "_" not in text or text == text.strip()  # pydantic reads ` 1_0` as a whole number, not as any other
)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | TEXTS | st.just("9" * 4301),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=2),
    max_leaves=4,
)


def not_blank(text: str) -> str:
    if not text.strip():
        raise AssertionError("must not be empty")
    return text


def as_model(tool: Tool[Any]) -> type[BaseModel]:
    """The same fields for pydantic."""
    fields: dict[str, Any] = {}
    for name, hint in get_type_hints(tool.input, include_extras=True).items():
        kind, *more = get_args(hint) if get_origin(hint) is Annotated else (hint,)
        kind = list[str] if kind == tuple[str, ...] else kind
        for each in more:
            if isinstance(each, Between):
                kind = Annotated[kind, Field(ge=each.least, le=each.most)]
            elif each is words:
                kind = Annotated[kind, AfterValidator(not_blank)]
        fields[name] = (kind, tool.input._field_defaults.get(name, ...))
    return create_model(tool.name, __config__=ConfigDict(extra="forbid"), **fields)


MODELS = {name: as_model(tool) for name, tool in TOOLS.items()}


def read_by_pydantic(name: str, raw: dict[str, Any]) -> dict[str, Any] | str:
    try:
        return dict(MODELS[name].model_validate({key: value for key, value in raw.items() if value is not None}))
    except ValidationError as e:
        problems = ((".".join(map(str, each["loc"])), each["msg"]) for each in e.errors())
        return "; ".join(f"{where}: {said.removeprefix('Assertion failed, ')}" for where, said in problems)


def read_by_us(name: str, raw: dict[str, Any]) -> dict[str, Any] | str:
    try:
        values = TOOLS[name].read(raw)._asdict()
    except ValueError as e:
        return str(e)
    return {key: list(value) if isinstance(value, tuple) else value for key, value in values.items()}


@st.composite
def calls(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    name = draw(st.sampled_from(sorted(TOOLS)))
    known = [field for field in TOOLS[name].input._fields if field not in OWN.get(name, ())]
    fields = st.sampled_from([*known, "surplus"])
    raw = draw(st.dictionaries(fields, VALUES, max_size=4))
    return name, {field: "x" for field in OWN.get(name, ())} | raw


@given(calls())
@settings(max_examples=300, deadline=None)
def test_every_input_is_read_or_refused_as_pydantic_does_it(call: tuple[str, dict[str, Any]]) -> None:
    name, raw = call
    ours, theirs = read_by_us(name, raw), read_by_pydantic(name, raw)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("name", sorted(TOOLS))
@pytest.mark.parametrize("raw", [None, [], "text", 5])
def test_what_is_no_object_is_refused(name: str, raw: object) -> None:
    with pytest.raises(ValueError, match=r"^Input should be a valid dictionary$"):
        TOOLS[name].read(raw)


def test_no_tool_of_ours_loads_pydantic() -> None:
    code = "from teamcli.tools.catalog import *; [tool.load() for tool in ALL_TOOLS]; import sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "teamcli.tools.spawn_teammate" in run.stdout and "pydantic" not in run.stdout
