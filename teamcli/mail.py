"""An inbox for people and programs who only look: every message, read or not. Nothing here consumes."""

from __future__ import annotations

from typing import NamedTuple

from teamcli.files import Json
from teamcli.overview import table
from teamcli.plain import one_line
from teamcli.team.bus import MessageBus
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import Message
from teamcli.timeline import format_time

TEXT_LIMIT = 160


class Mail(NamedTuple):
    message: Message
    is_read: bool

    def to_json(self) -> Json:
        message = self.message
        return {
            **message.fields,
            "type": message.type,
            "from": message.sender,
            "to": message.to,
            "content": message.content,
            "timestamp": message.timestamp,
            "id": message.id,
            "foreign": message.is_foreign,
            "read": self.is_read,
        }


def look_into(bus: MessageBus, name: str, mailbox: Mailbox) -> list[Mail]:
    """What stands in the inbox of `name`; each message once, as its reader gets it.

    Raises: StateError
    """
    found: dict[str, Mail] = {}
    for entry in bus.peek(name):
        found.setdefault(entry.message.id, Mail(entry.message, mailbox.is_read(entry)))
    return list(found.values())


def count_unread(mails: list[Mail]) -> int:
    return sum(not mail.is_read for mail in mails)


def mail_text(name: str, mails: list[Mail]) -> str:
    if not mails:
        return f"No messages for {name}."
    count = "1 message" if len(mails) == 1 else f"{len(mails)} messages"
    return f"{count} for {name}, {count_unread(mails)} unread:\n{table([_row(mail) for mail in mails])}"


def _row(mail: Mail) -> tuple[str, ...]:
    message = mail.message
    sender = f"outside, claims to be {message.sender}" if message.is_foreign else message.sender
    return (
        "  read" if mail.is_read else "  UNREAD",
        format_time(message.timestamp),
        one_line(sender, 56),
        message.type,
        one_line(message.content, TEXT_LIMIT),
    )
