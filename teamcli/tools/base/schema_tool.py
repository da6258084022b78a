"""Tools whose input is described by a JSON schema from outside, and checked by the program that runs them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from teamcli.agent.tool import Access, Display, PreparedCall, Progress, ToolOutput
from teamcli.cancel import CancelScope
from teamcli.errors import ToolError
from teamcli.llm.types import ToolSpec
from teamcli.text.escaping import one_line
from teamcli.tools.base.context import AgentContext

_TITLE_LENGTH = 100


class SchemaTool(NamedTuple):
    spec: ToolSpec
    access: Access
    call: Callable[[Mapping[str, Any], CancelScope], ToolOutput]
    """Raises: ToolError, Cancelled."""

    @property
    def name(self) -> str:
        return self.spec.name

    def bind(self, context: AgentContext) -> SchemaTool:
        """The same for all agents."""
        return self

    def prepare(self, raw: object) -> PreparedCall:
        """Raises: ToolError."""
        if not isinstance(raw, dict):
            raise ToolError("the input must be an object")
        whole = f"{self.name} {json.dumps(raw, ensure_ascii=False)}"
        title = one_line(whole, _TITLE_LENGTH)

        def run(cancel: CancelScope, progress: Progress, call_id: str = "", key: str = "") -> ToolOutput:
            return self.call(raw, cancel)

        return PreparedCall(Display(title, text="" if title == whole else whole), self.access, run, raw)
