"""Messages and lines for the tests of the bus."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import Any

from teamcli.team.message import Message, MessageType, message_id

KEY = b"the key of the user who runs it."
SOAK = bool(os.environ.get("TEAMCLI_SOAK"))
_numbers = count()


def letter(content: str = "hi", to: str = "alice", sender: str = "lead", id: str = "", **fields: Any) -> Message:
    own_id = id or message_id(sender, f"call {next(_numbers)}", to)
    return Message(MessageType.MESSAGE, sender, to, content, 1_800_000_000.5, own_id, fields)


def outside(content: str = "hi", **row: Any) -> bytes:
    return json.dumps({"type": "message", "from": "me", "content": content} | row).encode() + b"\n"


def append(path: Path, data: bytes) -> None:
    """As a shell does it: one write, no lock."""
    path.parent.mkdir(exist_ok=True)
    fd = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        assert os.write(fd, data) == len(data)
    finally:
        os.close(fd)


def contents(messages: Iterable[Message]) -> list[str]:
    return [message.content for message in messages]
