"""A program that uses the published SDK of Claude Code. Its own process: it does not share our environment.

`python agent_sdk_client.py SCENARIO CLI DIRECTORY ENVIRONMENT` prints what the SDK delivered, as JSON.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from claude_agent_sdk import (
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    StreamEvent,
    TextBlock,
    create_sdk_mcp_server,
    query,
    tool,
)

Seen = dict[str, Any]


def take(message: Any, seen: Seen) -> None:
    if isinstance(message, AssistantMessage):
        seen.setdefault("texts", []).extend(block.text for block in message.content if isinstance(block, TextBlock))
    elif isinstance(message, ResultMessage):
        seen.setdefault("results", []).append([message.subtype, message.is_error, message.result])
        seen["denials"] = message.permission_denials
    elif isinstance(message, StreamEvent):
        seen["events"] = seen.get("events", 0) + 1


async def one_query(options: ClaudeAgentOptions, seen: Seen) -> None:
    options.include_partial_messages = True
    async for message in query(prompt="hello", options=options):
        take(message, seen)


async def turns(options: ClaudeAgentOptions, seen: Seen) -> None:
    async with ClaudeSDKClient(options) as client:
        for text in ("one", "two", "three"):
            await client.query(text)
            async for message in client.receive_response():
                take(message, seen)


async def interrupt(options: ClaudeAgentOptions, seen: Seen) -> None:
    options.include_partial_messages = True
    async with ClaudeSDKClient(options) as client:
        await client.query("one")
        async for message in client.receive_response():
            take(message, seen)
            if isinstance(message, StreamEvent) and seen["events"] == 1:
                await client.interrupt()
        await client.query("two")
        async for message in client.receive_response():
            take(message, seen)


async def allow(options: ClaudeAgentOptions, seen: Seen) -> None:
    async def can_use_tool(name: str, given: Any, context: Any) -> PermissionResultAllow:
        seen["asked"] = [name, given, bool(context.tool_use_id)]
        return PermissionResultAllow()

    options.can_use_tool = can_use_tool
    await one_query(options, seen)


async def always(options: ClaudeAgentOptions, seen: Seen) -> None:
    async def can_use_tool(name: str, given: Any, context: Any) -> PermissionResultAllow:
        seen["asked"] = seen.get("asked", 0) + 1
        seen["offered"] = [each.to_dict() for each in context.suggestions]
        return PermissionResultAllow(updated_permissions=context.suggestions)

    options.can_use_tool = can_use_tool
    await one_query(options, seen)


async def overview(options: ClaudeAgentOptions, seen: Seen) -> None:
    async with ClaudeSDKClient(options) as client:
        await client.query("go")
        async for message in client.receive_response():
            take(message, seen)
        seen["usage"] = dict(await client.get_context_usage())
        seen["servers"] = dict(await client.get_mcp_status())
        seen["info"] = await client.get_server_info()


async def deny(options: ClaudeAgentOptions, seen: Seen) -> None:
    async def can_use_tool(name: str, given: Any, context: Any) -> PermissionResultDeny:
        return PermissionResultDeny(message="not on a Friday")

    options.can_use_tool = can_use_tool
    await one_query(options, seen)


async def hook(options: ClaudeAgentOptions, seen: Seen) -> None:
    async def guard(given: Any, tool_use_id: Any, context: Any) -> dict[str, Any]:
        seen["hooked"] = [given["tool_name"], given["tool_input"]["command"]]
        decision = {"permissionDecision": "deny", "permissionDecisionReason": "never touch"}
        return {"hookSpecificOutput": {"hookEventName": "PreToolUse", **decision}}

    options.permission_mode = "bypassPermissions"
    options.hooks = {"PreToolUse": [HookMatcher(matcher="Bash", hooks=[guard])]}
    await one_query(options, seen)


async def own_tool(options: ClaudeAgentOptions, seen: Seen) -> None:
    @tool("add", "Adds two numbers", {"a": int, "b": int})
    async def add(given: Any) -> dict[str, Any]:
        return {"content": [{"type": "text", "text": f"the sum is {given['a'] + given['b']}"}]}

    options.mcp_servers = {"calc": create_sdk_mcp_server("calc", tools=[add])}
    options.allowed_tools = ["mcp__calc__add"]
    await one_query(options, seen)


async def changes(options: ClaudeAgentOptions, seen: Seen) -> None:
    async with ClaudeSDKClient(options) as client:
        await client.set_model("other-model")
        await client.set_permission_mode("bypassPermissions")
        await client.query("go")
        async for message in client.receive_response():
            take(message, seen)


async def failure(options: ClaudeAgentOptions, seen: Seen) -> None:
    options.max_turns = 1
    try:
        await one_query(options, seen)
    except Exception as e:  # noqa: BLE001 - which one it is, is the question
        seen["raised"] = type(e).__name__


SCENARIOS = {
    each.__name__: each
    for each in (one_query, turns, interrupt, allow, always, overview, deny, hook, own_tool, changes, failure)
}


def main() -> None:
    scenario, cli, directory, environment = sys.argv[1:]
    seen: Seen = {}
    options = ClaudeAgentOptions(cli_path=cli, cwd=directory, env=json.loads(environment))
    asyncio.run(SCENARIOS[scenario](options, seen))
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
