"""What the MCP conformance suite runs: connect to the URL, list everything, call every tool.

Usage: conformance_client.py URL, with the variables that the suite sets.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from teamcli.cancel import CancelScope
from teamcli.errors import LoginNeeded, McpError
from teamcli.mcp.client import McpClient
from teamcli.mcp.http import HttpTransport
from teamcli.mcp.oauth import OAuthLogin
from teamcli.mcp.server import Elicitation, ElicitationAnswer, OAuthSettings, ServerConfig

_MOST_LOGINS = 3
_SAMPLES = {"string": "x", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def accept(question: Elicitation, cancel: CancelScope) -> ElicitationAnswer:
    properties = question.schema.get("properties") or {}
    defaults = {name: field["default"] for name, field in properties.items() if "default" in field}
    return ElicitationAnswer("accept", {"confirmed": True, **defaults})


def visit(address: str) -> None:
    """In place of a browser whose user agrees to everything."""
    import httpx2

    def follow() -> None:
        httpx2.get(address, follow_redirects=True)

    threading.Thread(target=follow, daemon=True).start()


def sample_arguments(schema: Any) -> dict[str, Any]:
    fields = schema.get("properties") or {}
    return {name: _SAMPLES.get(field.get("type"), "x") for name, field in fields.items() if isinstance(field, dict)}


def use(client: McpClient, calls: list[dict[str, Any]]) -> None:
    cancel = CancelScope()
    tools = client.tools(cancel)
    calls = calls or [{"name": tool.name, "arguments": sample_arguments(tool.input_schema)} for tool in tools]
    for call in calls:
        if "schema" in call["arguments"]:  # a tool that checks what has become of another one's schema
            call["arguments"]["schema"] = dict(tools[0].input_schema)
        print(call["name"], client.call(call["name"], call["arguments"], cancel))
    for prompt in client.prompts(cancel):
        print(prompt, client.get_prompt(prompt.name, {each.name: "x" for each in prompt.arguments}, cancel))
    for resource in client.resources(cancel):
        print(resource, client.read_resource(resource.uri, cancel))


def use_and_log_in(client: McpClient, login: OAuthLogin, calls: list[dict[str, Any]]) -> None:
    for tries_left in reversed(range(_MOST_LOGINS)):
        try:
            return use(client, calls)
        except LoginNeeded as e:
            if not tries_left:
                raise
            print(e, e.detail)
            login.login(visit, CancelScope())
    return None


def main() -> None:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    oauth = OAuthSettings(context.get("client_id", ""), context.get("client_secret", ""))
    config = ServerConfig("conformance", url=sys.argv[-1], oauth=oauth)
    with tempfile.TemporaryDirectory() as directory:
        login = OAuthLogin(config, Path(directory))
        client = McpClient(config, lambda receiver: HttpTransport(config, receiver, login), Path("/"), accept)
        try:
            use_and_log_in(client, login, context.get("toolCalls", []))
        except McpError as e:
            print(e, e.detail)
            sys.exit(1)
        finally:
            client.close()


if __name__ == "__main__":
    main()
