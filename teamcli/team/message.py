"""Messages between agents: the message, the names of agents, and the frame in which a model reads it."""

from __future__ import annotations

import hashlib
import re
import secrets
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from teamcli.errors import TeamError

LEAD, USER = "lead", "user"
RESERVED = (LEAD, USER, "team", "all")
WAITED = "waited"
"""Marks a message that the user sent while no team was running."""

OWN_ID = "msg_"
"""The prefix of our ids. A foreign line must not use it."""
COMMAND = "bash:"
"""How the sender of a report about a background command begins. No agent can have such a name."""
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,31}")
_SUBAGENT_ID = re.compile(r"sa-[0-9]+")
_ATTRIBUTE_NAME = re.compile(r"[a-z][a-z_]*")
_ID_BYTES = 12


class MessageType(StrEnum):
    MESSAGE = "message"
    BROADCAST = "broadcast"
    SHUTDOWN_REQUEST = "shutdown_request"
    SHUTDOWN_RESPONSE = "shutdown_response"
    PLAN_APPROVAL_REQUEST = "plan_approval_request"
    PLAN_APPROVAL_RESPONSE = "plan_approval_response"
    RESULT = "result"
    ERROR = "error"
    TASK = "task"


class Message(NamedTuple):
    type: MessageType
    sender: str
    to: str
    content: str
    timestamp: float
    """Seconds since the epoch."""
    id: str
    fields: Mapping[str, Any] = MappingProxyType({})
    """Further fields of its type: `request_id`, `approve`, `feedback`, `reason`, `summary`, …"""
    is_foreign: bool = False
    """Whether it came from another program, so that `sender` is only a claim."""
    key: str = ""
    """What identifies a repeat, if the id alone does not."""

    @property
    def is_from_command(self) -> bool:
        """Whether it reports the end of a background command."""
        return self.sender.startswith(COMMAND) and not self.is_foreign

    @property
    def read_as(self) -> str:
        """What a reader remembers. Another message with the same value is a repeat."""
        return self.key or self.id


def shown_sender(message: Message) -> str:
    """Who sent it, for a person. The name in a foreign line is only a claim."""
    return "outside" if message.is_foreign else message.sender


def is_address(name: str) -> bool:
    """Whether an inbox may have that name."""
    return name == LEAD or (_NAME.fullmatch(name) is not None and name.lower() not in RESERVED)


def check_name(name: str) -> None:
    """Raises: TeamError, with the reason why no teammate can have that name."""
    if not _NAME.fullmatch(name):
        raise TeamError(f"{name!r} is not a name: use a letter, then at most 31 letters, digits, '_' or '-'")
    if name.lower() in RESERVED:
        raise TeamError(f"{name!r} is reserved ({', '.join(RESERVED)} are); choose another name")
    if is_subagent(name):
        raise TeamError(f"{name!r} is the name of a sub-agent; choose another name")


NameT = TypeVar("NameT", bound=str)


def find_name(wanted: str, names: Iterable[NameT]) -> NameT | None:
    """The one of `names` that equals `wanted` regardless of case, as it is spelled there."""
    folded = wanted.casefold()
    return next((name for name in names if name.casefold() == folded), None)


def is_subagent(name: str) -> bool:
    """Whether this is the name of a sub-agent; no other agent can have such a name."""
    return _SUBAGENT_ID.fullmatch(name.lower()) is not None


def message_id(*parts: str) -> str:
    """The same id for the same parts, so that a repeat is recognized."""
    joined = "".join(f"{len(part)}:{part}" for part in parts)
    return OWN_ID + hashlib.blake2b(joined.encode("utf-8", "replace"), digest_size=_ID_BYTES).hexdigest()


def new_id() -> str:
    """A random id for something that happens once, such as a line that the user types."""
    return OWN_ID + secrets.token_hex(_ID_BYTES)


def frame(message: Message) -> str:
    """The message as a model reads it. Nothing in its text can close the frame or look like another one."""
    attributes = {
        "from": "outside" if message.is_foreign else message.sender,
        "claims": message.sender if message.is_foreign else None,
        "type": message.type.value,
        "id": message.id,
        "time": _time(message.timestamp),
        **{name: value for name, value in message.fields.items() if _ATTRIBUTE_NAME.fullmatch(name)},
    }
    shown = "".join(f' {name}="{_escape(_text(value))}"' for name, value in attributes.items() if value is not None)
    return f"<message{shown}>{_escape(message.content)}</message>"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _time(timestamp: float) -> str:
    from datetime import UTC, datetime  # late: the first request has no mail to wait for it

    try:
        return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (ValueError, OverflowError, OSError):  # a foreign line may contain any number
        return "unknown"


def _escape(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
