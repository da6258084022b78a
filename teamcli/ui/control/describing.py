"""What the program that drives teamcli may know about a session, in Claude Code's shapes."""

from __future__ import annotations

from collections.abc import Sequence

from teamcli.agent.context_window import used_tokens
from teamcli.claude_code import stream_messages as shapes
from teamcli.commands.catalog import all_commands
from teamcli.config.custom_commands import LONGEST_DESCRIPTION
from teamcli.config.descriptions import shortened
from teamcli.llm.estimate import guess_tokens
from teamcli.session.session import Session
from teamcli.storage.files import Json

_STATES = {"ready": "connected", "failed": "failed", "needs_login": "needs-auth"}
"""By our word; any other is a server that has not been needed yet."""


def capabilities(session: Session) -> Json:
    """For the reply to the first request."""
    whole = {each.name: each.description for each in session.catalog.custom_commands.find().commands}
    commands = [
        {"name": each.name, "description": whole.get(each.name, each.help), "argumentHint": each.usage}
        for each in all_commands(session)
    ]
    models = [{"value": name, "displayName": name, "description": ""} for name in session.catalog.models]
    agents = [
        {"name": each.name, "description": shortened(each.description, LONGEST_DESCRIPTION)}
        | ({"model": each.model} if each.model else {})
        for each in session.catalog.roles
    ]
    styles = {"output_style": "default", "available_output_styles": ["default"]}
    more = {"account": {}, "hook_on_failure_supported": True}
    return {"commands": commands, "models": models, "agents": agents, **styles, **more}


def init_message(session: Session, own_servers: Sequence[str]) -> Json:
    return {
        "type": "system",
        "subtype": "init",
        "session_id": session.id,
        "uuid": shapes.new_id(),
        "cwd": str(session.workspace.root),
        "model": session.model,
        "tools": shapes.tool_names(tool.name for tool in session.lead.agent.preamble.tools),
        "mcp_servers": servers(session, own_servers),
        "permissionMode": str(session.live_policy.policy.mode),
        "slash_commands": [each.name for each in all_commands(session)],
        "agents": [each.name for each in session.catalog.roles],
        "skills": [skill.name for skill in session.catalog.skills],
        "plugins": [{"name": name, "path": str(path)} for name, path in session.catalog.plugins.items()],
        "output_style": "default",
        "apiKeySource": "none",
        "claude_code_version": shapes.VERSION,
    }


def servers(session: Session, own: Sequence[str]) -> list[Json]:
    """The servers inside the other program, and those that teamcli reaches."""
    found = session.mcp.servers.values() if session.mcp else ()
    states = {each.name: _STATES.get(each.status.state, "pending") if each.is_enabled else "disabled" for each in found}
    return [{"name": name, "status": status} for name, status in {**states, **dict.fromkeys(own, "connected")}.items()]


def context_usage(session: Session) -> Json:
    agent = session.lead.agent
    model, total = agent.preamble.model, used_tokens(agent)
    limit = agent.context.limit(model)
    fixed = min(total, guess_tokens(len(agent.preamble.encoded)))
    parts = {"System prompt and tools": fixed, "Messages": total - fixed, "Free space": max(0, limit - total)}
    return {
        "categories": [{"name": name, "tokens": tokens, "color": "inactive"} for name, tokens in parts.items()],
        "totalTokens": total,
        "maxTokens": limit,
        "rawMaxTokens": limit,
        "percentage": round(100 * total / limit, 1),
        "model": model,
        "isAutoCompactEnabled": True,
        "autoCompactThreshold": int(agent.context.share * limit),
        "memoryFiles": [],
        "mcpTools": [],
        "agents": [],
        "gridRows": [],
    }
