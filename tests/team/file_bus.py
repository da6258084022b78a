"""What the tests of the file bus share; the fixtures are in conftest.py."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from teamcli.team.message_bus import FileBus, Position
from teamcli.team.message_line import LineCodec
from teamcli.team.signing import ensure_token, key_of
from tests.team.letters import KEY, contents

BEGINNING = Position()
MakeBus = Callable[..., FileBus]


def unread(bus: FileBus, position: Position = BEGINNING) -> list[str]:
    return contents(bus.unread("alice", position).messages)


def codec_of(inbox: Path) -> LineCodec:
    return LineCodec(key_of(ensure_token(inbox.parent), KEY))


def quarantined(inbox: Path) -> list[dict[str, object]]:
    path = inbox.with_name("alice.bad.jsonl")
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []
