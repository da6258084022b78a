"""`--json-schema`: the lead gives its answer in a form that a schema describes, with a tool that only it has."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any

from teamcli.agent.hooks import NO_RESULT, STOP, HookEvent, HookResult
from teamcli.agent.tool import Harmless, ToolOutput
from teamcli.cancel import CancelScope
from teamcli.errors import ConfigError, ToolError
from teamcli.hooks.matching import matcher_of
from teamcli.hooks.runner import RegisteredHook
from teamcli.llm.types import ToolSpec
from teamcli.tools.base.json_schema import problem_in
from teamcli.tools.base.schema_tool import SchemaTool

NAME = "StructuredOutput"
DESCRIPTION = "Give your final answer in this form. Call it exactly once, as your last call, when the task is done."
NOT_GIVEN = f"Give your final answer with {NAME} now."


class StructuredOutput:
    def __init__(self, text: str) -> None:
        """Raises: ConfigError."""
        try:
            self._schema = json.loads(text)
        except (ValueError, RecursionError) as e:
            raise ConfigError(f"--json-schema: it is not valid JSON: {e}") from e
        if not isinstance(self._schema, dict) or self._schema.get("type", "object") != "object":
            raise ConfigError("--json-schema: it must describe an object")
        self._lock = threading.Lock()
        self._given: Mapping[str, Any] | None = None

    @property
    def tool(self) -> SchemaTool:
        schema = {"type": "object", **{name: value for name, value in self._schema.items() if name != "$schema"}}
        return SchemaTool(ToolSpec(NAME, DESCRIPTION, schema), Harmless(), self._take)

    @property
    def hook(self) -> RegisteredHook:
        """Sends the lead back until it has given its answer."""
        return RegisteredHook(STOP, matcher_of(STOP, ""), "--json-schema", self._check)

    def collect(self) -> Mapping[str, Any] | None:
        """What the lead has given since the last call; None if nothing."""
        with self._lock:
            given, self._given = self._given, None
        return given

    def _take(self, given: Mapping[str, Any], cancel: CancelScope) -> ToolOutput:
        """Raises: ToolError."""
        if problem := problem_in(given, self._schema):
            raise ToolError(f"{problem}; correct it and call {NAME} again")
        with self._lock:
            self._given = given
        return ToolOutput("Structured output provided successfully")

    def _check(self, event: HookEvent, cancel: CancelScope) -> HookResult:
        with self._lock:
            return HookResult(NOT_GIVEN) if self._given is None else NO_RESULT
