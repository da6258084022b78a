"""Which tools there are, and who has them. The order is part of the request's stable prefix."""

from __future__ import annotations

from typing import Protocol

from teamcli.agent.tool import AnyTool
from teamcli.tools.base import Toolbox
from teamcli.tools.bash import BASH
from teamcli.tools.bash_output import BASH_OUTPUT
from teamcli.tools.bash_stop import BASH_STOP
from teamcli.tools.edit_file import EDIT_FILE
from teamcli.tools.glob import GLOB
from teamcli.tools.grep import GREP
from teamcli.tools.read_file import READ_FILE
from teamcli.tools.write_file import WRITE_FILE


class Bindable(Protocol):
    """A tool whatever its input: what a tuple of them has in common."""

    @property
    def name(self) -> str: ...

    def bind(self, toolbox: Toolbox) -> AnyTool: ...


BASE_TOOLS: tuple[Bindable, ...] = (BASH, READ_FILE, WRITE_FILE, EDIT_FILE, GLOB, GREP, BASH_OUTPUT, BASH_STOP)


def bind_tools(tools: tuple[Bindable, ...], toolbox: Toolbox) -> dict[str, AnyTool]:
    return {tool.name: tool.bind(toolbox) for tool in tools}
