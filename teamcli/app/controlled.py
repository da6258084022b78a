"""Runs a session that another program drives, such as one that uses the SDK of Claude Code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from functools import partial

from teamcli.agent.permission_question import nobody_to_ask
from teamcli.app.build import open_session
from teamcli.app.choices import untrusted_notes
from teamcli.app.host_program import Embedding
from teamcli.app.prompt_tool import OpenedLater, approval_of
from teamcli.app.structured_output import StructuredOutput
from teamcli.cancel import CancelScope
from teamcli.config.options import ExitStatus, Options
from teamcli.config.project import Project
from teamcli.errors import ToolError
from teamcli.hooks.runner import RegisteredHook
from teamcli.storage.files import Json
from teamcli.tools.base.schema_tool import SchemaTool
from teamcli.ui.control.callbacks import hooks_of
from teamcli.ui.control.channel import ControlChannel
from teamcli.ui.control.describing import capabilities
from teamcli.ui.control.driver import Driven, Driver
from teamcli.ui.control.servers import ProgramServer, split_config


def run_controlled(options: Options, project: Project, print_notes: Callable[[list[str]], None]) -> int:
    """Returns the exit code.

    Raises: TeamcliError
    """
    channel = ControlChannel(sys.stdin.buffer, sys.stdout)
    channel.start()
    first = channel.next()
    if first is None:
        return ExitStatus.DONE
    initialize: Json = first.get("request", {})
    if first.get("type") == "user":
        channel.put_first(first)
    servers, others = split_config(options.mcp_config)
    if agents := initialize.get("agents"):
        options = options._replace(agents=json.dumps(agents))
    notes: list[str] = []
    hooks: list[RegisteredHook] = [*hooks_of(initialize, channel)]
    opened = OpenedLater()
    approval = approval_of(options, opened, partial(channel.request, "can_use_tool"))
    if approval:
        hooks.append(approval.hook)
    structured = StructuredOutput(options.json_schema) if options.json_schema else None
    if structured:
        hooks.append(structured.hook)
    embedding = Embedding(
        tools=_tools_of(servers, channel, notes),
        registered_hooks=tuple(hooks),
        lead_tools=(structured.tool,) if structured else (),
        owns_process=True,
    )
    ask = approval.ask if approval else nobody_to_ask
    session = opened.set(open_session(options._replace(mcp_config=others), project, ask, embedding))
    try:
        print_notes([*untrusted_notes(project), *session.record.notes, *notes])
        driven = Driven(
            servers,
            options.replay_user_messages,
            options.include_partial_messages,
            options.continue_last or bool(options.resume),
            structured.collect if structured else None,
        )
        driver = Driver(session, channel, driven)
        if initialize:
            channel.reply(first, capabilities(session))
        return driver.run()
    finally:
        session.close()


def _tools_of(servers: tuple[str, ...], channel: ControlChannel, notes: list[str]) -> tuple[SchemaTool, ...]:
    found: list[SchemaTool] = []
    for name in servers:
        try:
            found += ProgramServer(name, channel).tools(CancelScope())
        except ToolError as e:
            notes.append(f"The MCP server {name} of the program cannot be used: {e}.")
    return tuple(found)
