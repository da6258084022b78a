"""Tools that are typed functions of the host program.

The signature is the schema, and the first paragraph of the docstring is the description. An exception is an error
result. A cancelled call is abandoned.
"""

from __future__ import annotations

import asyncio
import inspect
import re
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from copy import deepcopy
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, ClassVar, NamedTuple, Self, get_args, get_origin, get_type_hints, overload

from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.errors import PydanticUserError
from pydantic_core import PydanticSerializationError, to_json

from teamcli.agent.tool import Calls, Display, Harmless, Progress, ToolOutput
from teamcli.cancel import CancelScope, run_abandonable
from teamcli.claude_code.names import OUR_TOOLS
from teamcli.errors import ConfigError, TeamcliError, ToolError
from teamcli.llm.types import ToolSpec
from teamcli.sdk import langchain_tool
from teamcli.sdk.langchain_tool import is_langchain_tool
from teamcli.text.escaping import one_line
from teamcli.tools.base.context import AgentContext, CallContext
from teamcli.tools.base.tool import Tool
from teamcli.tools.base.tool_input import without_nulls
from teamcli.tools.catalog import ALL_TOOLS

Function = Callable[..., Any]
Invoke = Callable[["FunctionInput", AgentContext, CallContext], Any]
"""Calls the function with what the model wrote."""

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_TITLE_LENGTH = 100
_FIELD = "given_{}"
"""Fields are renamed, so that a parameter may be called `json` or `copy` like the methods of a pydantic model."""


class FunctionInput(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    @classmethod
    def of(cls, raw: object) -> Self:
        """Parse what the model wrote. Raises: ValidationError."""
        return cls.model_validate(without_nulls(raw))


class LangChainInput(FunctionInput):
    """Accepts anything: a LangChain tool checks its own input."""

    model_config = ConfigDict(extra="allow", frozen=True)
    json_schema: ClassVar[dict[str, Any]]

    @classmethod
    def of(cls, raw: object) -> Self:
        # Models write null for what they leave out. For a required field, null is a value.
        required = cls.json_schema.get("required", ())
        kept = {key: raw[key] for key in required if key in raw} if isinstance(raw, dict) else {}
        return cls.model_validate({**without_nulls(raw), **kept} if isinstance(raw, dict) else raw)

    @classmethod
    def model_json_schema(cls, *args: Any, **kwargs: Any) -> dict[str, Any]:
        return deepcopy(cls.json_schema)


class FunctionTool(Tool[FunctionInput]):
    """A tool whose input may have any type that pydantic knows."""

    @cached_property
    def spec(self) -> ToolSpec:
        schema = _without_titles(self.input.model_json_schema())
        description = schema.pop("description", "")
        return ToolSpec(self.name, description, schema)

    def read(self, raw: object) -> FunctionInput:
        return self.input.of(raw)


class ToolContext(NamedTuple):
    """Passed to a function in a parameter of this type, which the model does not see."""

    agent: str
    """The caller: `lead`, a teammate's name, or a sub-agent's id."""
    directory: Path
    cancel: CancelScope
    """Cancelled when the result is no longer wanted."""
    progress: Progress
    """Shows text while the call runs."""
    call_id: str


@overload
def tool(function: Function, *, name: str = "", description: str = "", harmless: bool = False) -> FunctionTool: ...


@overload
def tool(*, name: str = "", description: str = "", harmless: bool = False) -> Callable[[Function], FunctionTool]: ...


def tool(
    function: Function | None = None, *, name: str = "", description: str = "", harmless: bool = False
) -> FunctionTool | Callable[[Function], FunctionTool]:
    """Make a tool from a function or a LangChain tool. Without one, return a decorator.

    A `harmless` tool changes nothing: its calls need no permission, and `plan` mode allows them.

    Raises: ConfigError
    """
    if function is None:
        return lambda function: _tool(function, name, description, harmless)
    return _tool(function, name, description, harmless)


def _tool(function: Function, name: str, description: str, harmless: bool) -> FunctionTool:
    is_langchain = is_langchain_tool(function)
    name = name or getattr(function, "name" if is_langchain else "__name__", "")
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"tool {name!r}: use letters, digits, '_' and '-', a letter first; or set another name with name="
        )
    if not description:
        first_paragraph = " ".join((inspect.getdoc(function) or "").split("\n\n")[0].split())
        description = str(getattr(function, "description", "")) if is_langchain else first_paragraph
    if not description:
        raise ConfigError(f"tool {name}: it has no description; add a docstring, or description=")
    input, invoke = (_langchain_call if is_langchain else _function_call)(function, name, description)
    return FunctionTool(
        name,
        input,
        access=lambda args, context: Harmless() if harmless else Calls(name),
        run=lambda args, context, call: _run(lambda: invoke(args, context, call), name, context, call),
        show=lambda args, context: _show(name, args),
    )


def _langchain_call(tool: Any, name: str, description: str) -> tuple[type[FunctionInput], Invoke]:
    schema = {**langchain_tool.schema_of(tool), "description": description}
    input = type(name, (LangChainInput,), {"json_schema": schema, "__module__": __name__})
    return input, lambda args, context, call: langchain_tool.call(tool, args.model_dump(), call.call_id)


def _function_call(function: Function, name: str, description: str) -> tuple[type[FunctionInput], Invoke]:
    parameters = dict(_parameters(function, name))
    parameter = next((key for key, hint in parameters.items() if hint.annotation is ToolContext), "")
    input = _input_model(name, description, {key: hint for key, hint in parameters.items() if key != parameter})

    def invoke(args: FunctionInput, context: AgentContext, call: CallContext) -> Any:
        given = {str(info.alias): getattr(args, field) for field, info in input.model_fields.items()}
        if parameter:
            root = context.workspace.root
            given[parameter] = ToolContext(context.agent, root, call.cancel, call.progress, call.call_id)
        return function(**given)

    return input, invoke


def as_tools(functions: Any) -> tuple[FunctionTool, ...]:
    """Each as a tool. Their names must differ from each other and from those of the built-in tools.

    Raises: ConfigError
    """
    tools = tuple(each if isinstance(each, FunctionTool) else tool(each) for each in functions)
    taken = {entry.name for entry in ALL_TOOLS} | set(OUR_TOOLS)
    for each in tools:
        if each.name in taken:
            raise ConfigError(f"tool {each.name}: this name is taken; choose another one with tool(…, name=)")
        taken.add(each.name)
    return tools


def _parameters(function: Function, name: str) -> Iterator[tuple[str, inspect.Parameter]]:
    """Each parameter with its type. Raises: ConfigError."""
    try:
        hints = get_type_hints(
            function if inspect.isroutine(function) else type(function).__call__, include_extras=True
        )
    except (NameError, TypeError) as e:
        raise ConfigError(f"tool {name}: its types cannot be read ({e}); define them at the top of a module") from e
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise ConfigError(f"tool {name}: the parameter {parameter} cannot be passed by name; use plain parameters")
        if parameter.name not in hints:
            raise ConfigError(f"tool {name}: the parameter {parameter.name} has no type; annotate it")
        yield parameter.name, parameter.replace(annotation=hints[parameter.name])


def _input_model(name: str, description: str, parameters: dict[str, inspect.Parameter]) -> type[FunctionInput]:
    fields: dict[str, Any] = {_FIELD.format(key): _field(each) for key, each in parameters.items()}
    try:
        model = create_model(name, __base__=FunctionInput, __doc__=description, **fields)
        model.model_json_schema()  # for its errors: some types fail only here
    except (PydanticUserError, TypeError) as e:
        problem = str(e).split("\n")[0]
        raise ConfigError(f"tool {name}: a parameter has a type that JSON cannot express: {problem}") from e
    return model


def _field(parameter: inspect.Parameter) -> tuple[Any, Any]:
    annotation, words = _split_description(parameter.annotation)
    default = parameter.default
    if default is parameter.empty:
        default = None if NoneType in get_args(annotation) else ...
    described = Field(alias=parameter.name, description=words) if words else Field(alias=parameter.name)
    return Annotated[annotation, described], default


def _split_description(annotation: Any) -> tuple[Any, str]:
    """Split `Annotated[int, "how many"]` into the type and its description."""
    if get_origin(annotation) is not Annotated:
        return annotation, ""
    kind, *more = get_args(annotation)
    words = [each for each in more if isinstance(each, str)]
    for each in more:
        if not isinstance(each, str):
            kind = Annotated[kind, each]
    return kind, " ".join(words)


def _show(name: str, args: FunctionInput) -> Display:
    """All arguments, as the model wrote them."""
    given = args.model_dump_json(by_alias=True, exclude_unset=True)
    whole = f"{name} {given}"
    title = one_line(whole, _TITLE_LENGTH)
    return Display(title, text="" if title == whole else whole)


def _run(function: Callable[[], Any], name: str, context: AgentContext, call: CallContext) -> ToolOutput:
    def work() -> Any:
        result = function()
        return asyncio.run(_await(result, call.cancel)) if inspect.iscoroutine(result) else result

    try:
        result = run_abandonable(work, call.cancel, f"{context.agent}:{name}")
    except TeamcliError:  # a ToolError for the model to read, or the call was cancelled
        raise
    except BaseException as e:  # noqa: BLE001 - boundary: what a function raises, even `sys.exit`, is a result
        return ToolOutput(f"Error: {type(e).__name__}: {e}".removesuffix(": "), is_error=True)
    if result is None or isinstance(result, str):
        return ToolOutput(result or "")
    try:
        return ToolOutput(to_json(result).decode())
    except (PydanticSerializationError, ValueError) as e:
        raise ToolError(f"{name} returned a value that is not text and cannot be converted to JSON: {e}") from e


async def _await(coroutine: Coroutine[Any, Any, Any], cancel: CancelScope) -> Any:
    """Run in its own event loop, and cancel it with the call."""
    task, loop = asyncio.ensure_future(coroutine), asyncio.get_running_loop()

    def stop() -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(task.cancel)

    with cancel.on_cancel(stop):
        return await task


def _without_titles(schema: Any) -> Any:
    """Drop the `title` that pydantic adds to each field: tokens without information."""
    if isinstance(schema, list):
        return [_without_titles(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        key: {name: _without_titles(value) for name, value in item.items()}
        if key == "properties"
        else _without_titles(item)
        for key, item in schema.items()
        if not (key == "title" and isinstance(item, str))
    }
