"""A team that only notes what is asked of it, and an agent whose tools reach it through the real pipeline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from teamcli.agent.events import Event, ToolFinished
from teamcli.agent.pending_call import Results
from teamcli.agent.permission_question import Permissions
from teamcli.agent.tool import Progress, ToolOutput
from teamcli.agent.tool_calls import Toolset
from teamcli.cancel import CancelScope
from teamcli.errors import TeamError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.commands import Commands
from teamcli.llm.types import Block
from teamcli.permissions.decide import decide
from teamcli.permissions.policy import Mode, Policy
from teamcli.tools.base.context import AgentContext, SpawnRequest, TeamPort
from teamcli.tools.catalog import LazyTool, bind_tools
from teamcli.workspace.bounds import Workspace
from teamcli.workspace.known_files import KnownFiles, PathLocks


class FakeTeam:
    """Every method notes its call and returns `result`, or raises `refusal`."""

    def __init__(self, result: str = "done", refusal: TeamError | None = None) -> None:
        self.result = result
        self.refusal = refusal
        self.calls: list[tuple[Any, ...]] = []
        self.on_wait: Callable[[CancelScope], object] = lambda cancel: None

    @property
    def quiescence(self) -> FakeTeam:
        return self

    @property
    def mail(self) -> FakeTeam:
        return self

    @property
    def protocols(self) -> FakeTeam:
        return self

    @property
    def merging(self) -> FakeTeam:
        return self

    def preview(self, name: str) -> str:
        return f"team/{name} into main: 1 file\n  a.py"

    def merge(self, asker: str, name: str, message: str, cancel: CancelScope, progress: Progress) -> str:
        return self._note("merge", asker, name, message)

    def spawn(self, request: SpawnRequest, cancel: CancelScope | None = None) -> str:
        return self._note("spawn", request)

    def describe(self) -> str:
        return self._note("describe")

    def send(self, agent: str, to: str | tuple[str, ...], content: str, summary: str, key: str) -> str:
        return self._note("send", agent, to, content, summary, key)

    def broadcast(self, agent: str, content: str, key: str) -> str:
        return self._note("broadcast", agent, content, key)

    def read_inbox(self, agent: str) -> ToolOutput:
        return ToolOutput(self._note("read_inbox", agent), marks={"inbox": 7})

    def wait_for_message(self, agent: str, timeout_seconds: float, cancel: CancelScope) -> ToolOutput:
        content = self._note("wait_for_message", agent, timeout_seconds)
        self.on_wait(cancel)
        cancel.check()
        self.calls.append(("waited",))
        return ToolOutput(content, marks={"inbox": 8})

    def request_shutdown(self, asker: str, name: str, reason: str) -> str:
        return self._note("request_shutdown", asker, name, reason)

    def answer_shutdown(self, agent: str, request_id: str, approve: bool, reason: str) -> str:
        return self._note("answer_shutdown", agent, request_id, approve, reason)

    def submit_plan(self, agent: str, plan: str) -> str:
        return self._note("submit_plan", agent, plan)

    def review_plan(self, reviewer: str, request_id: str, approve: bool, feedback: str) -> str:
        return self._note("review_plan", reviewer, request_id, approve, feedback)

    def _note(self, *call: object) -> str:
        self.calls.append(call)
        if self.refusal:
            raise self.refusal
        return self.result


class TeamAgent:
    """Runs the calls of one answer; `call_1` is the id of the first of them."""

    def __init__(self, root: Path, tools: tuple[LazyTool, ...], team: TeamPort | None, name: str = "lead") -> None:
        context = AgentContext(Workspace(root), Commands(CommandHost({})), KnownFiles(PathLocks()), name, team)
        permissions = Permissions(
            lambda tool, access, given: decide(Policy(Mode.ACCEPT_EDITS), tool, access, root, given=given),
            ask=lambda question: None,
            remember=lambda rule: None,
        )
        self.cancel = CancelScope()
        self.finished: dict[str, threading.Event] = {}
        self.tools = bind_tools(tools, context)
        self._toolset = Toolset(name, self.tools, permissions, self._notice)

    def answer(self, *calls: tuple[str, Mapping[str, object]]) -> Results:
        blocks: list[Block] = [
            {"type": "tool_use", "id": f"call_{number}", "name": name, "input": given}
            for number, (name, given) in enumerate(calls, start=1)
        ]
        self.finished = {block["id"]: threading.Event() for block in blocks}
        return self._toolset.run(blocks, frozenset(), self.cancel)

    def call(self, tool: str, **given: object) -> Results:
        return self.answer((tool, given))

    def says(self, tool: str, **given: object) -> str:
        (block,) = self.call(tool, **given).blocks
        assert not block.get("is_error"), block["content"]
        return str(block["content"])

    def refuses(self, tool: str, **given: object) -> str:
        (block,) = self.call(tool, **given).blocks
        assert block.get("is_error"), block["content"]
        return str(block["content"])

    def _notice(self, event: Event) -> None:
        if isinstance(event, ToolFinished):
            self.finished[event.call_id].set()
