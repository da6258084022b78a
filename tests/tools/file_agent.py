"""An agent's file tools on a real directory, called as the pipeline calls them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from teamcli.agent.tool import PreparedCall, ToolOutput
from teamcli.cancel import CancelScope
from teamcli.errors import ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.commands import Commands
from teamcli.tools.base.context import AgentContext
from teamcli.tools.catalog import BASE_TOOLS, bind_tools
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.known_files import KnownFiles, PathLocks


class FileAgent:
    def __init__(
        self,
        root: Path,
        locks: PathLocks | None = None,
        seen: Mapping[str, str] | None = None,
        extra: tuple[Path, ...] = (),
    ) -> None:
        known_files = KnownFiles(locks or PathLocks(), seen)
        context = AgentContext(Workspace(root, extra), Commands(CommandHost({})), known_files)
        self.tools = bind_tools(BASE_TOOLS, context)
        self.cancel = CancelScope()

    def prepare(self, tool: str, **given: object) -> PreparedCall:
        return self.tools[tool].prepare(given)

    def call(self, tool: str, **given: object) -> ToolOutput:
        return self.prepare(tool, **given).run(self.cancel, lambda _: None)

    def says(self, tool: str, **given: object) -> str:
        return self.call(tool, **given).content

    def refuses(self, tool: str, **given: object) -> str:
        with pytest.raises(ToolError) as refusal:
            self.call(tool, **given)
        message = str(refusal.value)
        assert message
        assert "\n" not in message
        return message


@contextmanager
def as_an_ordinary_user() -> Iterator[None]:
    """Root may write anywhere, so that a test of refused rights must not be root."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)
