"""The naive loop: what anyone writes first with the anthropic package: no transcript, no permissions, tools in turn.

Usage: python -m bench.naive [--stream] PROMPT
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anthropic import Anthropic

client = Anthropic()


def tool(name: str, description: str, **fields: str) -> dict[str, Any]:
    properties = {field: {"type": kind} for field, kind in fields.items()}
    schema = {"type": "object", "properties": properties, "required": list(fields)}
    return {"name": name, "description": description, "input_schema": schema}


SYSTEM = f"You are a coding agent at {Path.cwd()}. Use tools to solve the task. Act, do not explain."
TOOLS = [
    tool("bash", "Run a shell command.", command="string"),
    tool("read_file", "Read a file.", path="string"),
    tool("write_file", "Write content to a file.", path="string", content="string"),
    tool("edit_file", "Replace text in a file.", path="string", old_text="string", new_text="string"),
]


def run_bash(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, timeout=120, check=False)
    return (done.stdout + done.stderr).strip()[:50000] or "(no output)"


def read_file(path: str) -> str:
    return Path(path).read_text()[:50000]


def write_file(path: str, content: str) -> str:
    return f"Wrote {Path(path).write_text(content)} characters"


def edit_file(path: str, old_text: str, new_text: str) -> str:
    Path(path).write_text(Path(path).read_text().replace(old_text, new_text, 1))
    return f"Edited {path}"


HANDLERS: dict[str, Callable[..., str]] = {
    "bash": run_bash,
    "read_file": read_file,
    "write_file": write_file,
    "edit_file": edit_file,
}


def ask(messages: list[Any], streaming: bool) -> Any:
    request: dict[str, Any] = {
        "model": os.environ["MODEL_ID"],
        "max_tokens": 8000,
        "system": SYSTEM,
        "tools": TOOLS,
        "messages": messages,
    }
    if not streaming:
        return client.messages.create(**request)
    with client.messages.stream(**request) as stream:
        for _ in stream.text_stream:
            pass
        return stream.get_final_message()


def main(prompt: str, streaming: bool) -> None:
    messages: list[Any] = [{"role": "user", "content": prompt}]
    while True:
        response = ask(messages, streaming)
        messages.append({"role": "assistant", "content": response.content})
        if response.stop_reason != "tool_use":
            break
        results = []
        for block in response.content:
            if block.type == "tool_use":
                output = HANDLERS[block.name](**block.input)
                results.append({"type": "tool_result", "tool_use_id": block.id, "content": output})
        messages.append({"role": "user", "content": results})
    print("".join(block.text for block in response.content if block.type == "text"))


if __name__ == "__main__":
    main(sys.argv[-1], "--stream" in sys.argv)
