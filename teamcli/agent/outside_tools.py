"""Tools of other programs (MCP servers), which an agent is offered in part and finds otherwise by searching.

Which are offered is decided once per conversation and recorded in its transcript, so that the start of each request
stays the same, also after a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from teamcli.agent.tool import AnyTool
from teamcli.cancel import CancelScope
from teamcli.claude_code.names import MCP
from teamcli.errors import ToolError
from teamcli.llm.types import Block, ToolSpec
from teamcli.storage.files import Json

TOOL_SEARCH, CALL_TOOL = "tool_search", "call_tool"
OFFER = "tools"
"""The kind of the transcript line that records what is offered."""


class Outside(Protocol):
    """What an agent can reach of other programs."""

    def find(self, name: str) -> AnyTool | None:
        """The tool of that name, whether or not requests offer it."""

    def owns(self, word: str) -> bool:
        """Whether a mention (`@word`) names one of their resources."""

    def read(self, word: str, cancel: CancelScope) -> str:
        """The resource that a mention names.

        Raises: ToolError, Cancelled
        """


class NothingOutside:
    def find(self, name: str) -> AnyTool | None:
        return None

    def owns(self, word: str) -> bool:
        return False

    def read(self, word: str, cancel: CancelScope) -> str:
        raise ToolError(f"there is no {word}")


def meant_call(block: Block) -> Block:
    """A call through `call_tool` as a call of the tool that it names, so that rules, hooks and people see that one."""
    given = block.get("input")
    if block.get("name") != CALL_TOOL or not isinstance(given, dict):
        return block
    name, arguments = given.get("name"), given.get("input") or {}
    is_valid = isinstance(name, str) and name.startswith(MCP) and isinstance(arguments, dict)
    return {**block, "name": name, "input": arguments} if is_valid else block


def is_outside(name: str) -> bool:
    return name in (TOOL_SEARCH, CALL_TOOL) or name.startswith(MCP)


def offer_row(specs: Iterable[ToolSpec]) -> Json:
    return {"kind": OFFER, "offered": [spec.to_dict() for spec in specs]}


def read_offer(row: Json) -> tuple[ToolSpec, ...] | None:
    """None if the line is not one that `offer_row` made."""
    offered = row.get("offered")
    if not isinstance(offered, list) or not all(map(_is_spec, offered)):
        return None
    return tuple(ToolSpec(each["name"], each["description"], each["input_schema"]) for each in offered)


def without_outside(specs: Sequence[ToolSpec]) -> tuple[ToolSpec, ...]:
    return tuple(spec for spec in specs if not is_outside(spec.name))


def _is_spec(value: object) -> bool:
    if not isinstance(value, dict) or not isinstance(value.get("input_schema"), dict):
        return False
    name = value.get("name")
    return isinstance(name, str) and is_outside(name) and isinstance(value.get("description"), str)
