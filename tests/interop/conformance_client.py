"""What the MCP conformance suite runs: connect to the URL, list everything, call every tool.

Usage: conformance_client.py URL, with the variables that the suite sets.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from teamcli.cancel import CancelScope
from teamcli.errors import McpError
from teamcli.mcp.client import Client
from teamcli.mcp.elicitation import default_content
from teamcli.mcp.http import HttpTransport, NoAuthorizer
from teamcli.mcp.server import Answer, Question, ServerConfig

_SAMPLES = {"string": "x", "integer": 1, "number": 1.5, "boolean": True, "array": [], "object": {}}


def accept(question: Question, cancel: CancelScope) -> Answer:
    return Answer("accept", {"confirmed": True, **default_content(question.schema)})


def sample_arguments(schema: Any) -> dict[str, Any]:
    fields = schema.get("properties") or {}
    return {name: _SAMPLES.get(field.get("type"), "x") for name, field in fields.items() if isinstance(field, dict)}


def main() -> None:
    url = sys.argv[-1]
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    config = ServerConfig("conformance", url=url)
    client = Client(config, lambda receiver: HttpTransport(config, receiver, NoAuthorizer()), Path("/"), accept)
    cancel = CancelScope()
    try:
        tools = client.tools(cancel)
        wanted = context.get("toolCalls") or [
            {"name": tool.name, "arguments": sample_arguments(tool.input_schema)} for tool in tools
        ]
        for call in wanted:
            print(call["name"], client.call(call["name"], call["arguments"], cancel))
        for prompt in client.prompts(cancel):
            print(prompt, client.get_prompt(prompt.name, {each.name: "x" for each in prompt.arguments}, cancel))
        for resource in client.resources(cancel):
            print(resource, client.read_resource(resource.uri, cancel))
    except McpError as e:
        print(e, e.detail)
        sys.exit(1)
    finally:
        client.close()


if __name__ == "__main__":
    main()
