"""The floor: the least an agent in Python can do: http.client, subprocess, and a transcript.

Every message is on the disk, with an fsync, before the next step: one for the prompt, then two a turn, as many as
teamcli does. It waits for each; teamcli lets the second one run while the request travels.

Usage: python -m bench.floor PROMPT
"""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

Json = dict[str, Any]

TOOLS = [
    {
        "name": "bash",
        "description": "Run a shell command.",
        "input_schema": {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
    }
]


def main(prompt: str) -> None:
    endpoint = urlsplit(os.environ["ANTHROPIC_BASE_URL"])
    connection = http.client.HTTPConnection(endpoint.hostname or "", endpoint.port)
    transcript = os.open("floor.jsonl", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    messages: list[Json] = [{"role": "user", "content": prompt}]
    append(transcript, messages[-1])
    while True:
        content = ask(connection, messages)
        messages.append({"role": "assistant", "content": content})
        append(transcript, messages[-1])
        results = [run(block) for block in content if block["type"] == "tool_use"]
        if not results:
            break
        messages.append({"role": "user", "content": results})
        append(transcript, messages[-1])
    print("".join(block.get("text", "") for block in content))


def ask(connection: http.client.HTTPConnection, messages: list[Json]) -> list[Json]:
    body = {"model": os.environ["MODEL_ID"], "max_tokens": 8000, "stream": True, "tools": TOOLS, "messages": messages}
    headers = {
        "authorization": f"Bearer {os.environ['ANTHROPIC_API_KEY']}",
        "anthropic-version": "2026-10-21",
        "content-type": "application/json",
    }
    connection.request("POST", "/v1/messages", json.dumps(body), headers)
    response = connection.getresponse()
    if response.status != http.HTTPStatus.OK:
        sys.exit(response.read().decode())
    return collect(response)


def collect(response: http.client.HTTPResponse) -> list[Json]:
    content: list[Json] = []
    for event in events(response):
        if event["type"] == "content_block_start":
            content.append({**event["content_block"], "json": ""})
        elif event["type"] == "content_block_delta":
            delta, block = event["delta"], content[-1]
            block["json"] += delta.get("partial_json", "")
            if "text" in delta:
                block["text"] += delta["text"]
    for block in content:
        unparsed = block.pop("json")
        if block["type"] == "tool_use":
            block["input"] = json.loads(unparsed or "{}")
    return content


def events(response: http.client.HTTPResponse) -> Iterator[Json]:
    for line in response:
        if line.startswith(b"data: "):
            yield json.loads(line[6:])


def run(call: Json) -> Json:
    done = subprocess.run(call["input"]["command"], shell=True, capture_output=True, text=True, check=False)
    output = done.stdout + done.stderr
    return {"type": "tool_result", "tool_use_id": call["id"], "content": output or "(no output)"}


def append(transcript: int, message: Json) -> None:
    os.write(transcript, json.dumps(message).encode() + b"\n")
    os.fsync(transcript)


if __name__ == "__main__":
    main(sys.argv[1])
