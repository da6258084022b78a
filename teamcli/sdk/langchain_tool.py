"""LangChain tools (`@tool`, `StructuredTool`, any `BaseTool`): the schema that the model sees, and how to call them.

This never loads LangChain by itself: a program with such a tool has loaded it already.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Coroutine
from typing import Any

from pydantic_core import ValidationError

from teamcli.errors import ToolError
from teamcli.tools.base.tool_input import explain

LangChainTool = Any
"""A `BaseTool`."""


def is_langchain_tool(value: object) -> bool:
    tools = sys.modules.get("langchain_core.tools.base")
    return tools is not None and isinstance(value, tools.BaseTool)


def schema_of(tool: LangChainTool) -> dict[str, Any]:
    """The schema of its input, without what LangChain injects."""
    from langchain_core.utils.function_calling import convert_to_openai_tool

    schema = convert_to_openai_tool(tool)["function"].get("parameters")
    return {"type": "object", "properties": {}, **(schema or {})}


def call(tool: LangChainTool, arguments: dict[str, Any], call_id: str) -> str | Coroutine[Any, Any, str]:
    """Call it as LangChain's own agents do, so that injected arguments are there.

    Raises: ToolError, for what the model can fix; anything else that the tool raises
    """
    made = {"type": "tool_call", "name": tool.name, "args": arguments, "id": call_id}
    # With only a coroutine, `invoke` would refuse.
    if getattr(tool, "coroutine", None) is not None and getattr(tool, "func", None) is None:
        return _call_async(tool, made)
    try:
        return _text_of(tool.invoke(made))
    except Exception as e:
        raise _explained(e, tool.name) from e


async def _call_async(tool: LangChainTool, made: dict[str, Any]) -> str:
    try:
        return _text_of(await tool.ainvoke(made))
    except Exception as e:
        raise _explained(e, tool.name) from e


def _explained(error: Exception, name: str) -> Exception:
    if isinstance(error, ValidationError):
        return ToolError(f"Invalid input for {name}: {explain(error)}")
    if any(base.__name__ == "ToolException" for base in type(error).__mro__):  # LangChain's equivalent of our ToolError
        return ToolError(str(error))
    return error


def _text_of(result: Any) -> str:
    """Raises: ToolError, for a result that says it is an error."""
    content = getattr(result, "content", result)
    parts = content if isinstance(content, list) else [content]
    text = "\n".join(map(_part, parts))
    if getattr(result, "status", "") == "error":
        raise ToolError(text)
    return text


def _part(part: Any) -> str:
    if isinstance(part, str):
        return part
    if isinstance(part, dict) and part.get("type") == "text":
        return str(part["text"])
    return json.dumps(part, ensure_ascii=False, default=str)
