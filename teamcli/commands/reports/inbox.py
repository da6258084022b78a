"""An inbox as a table and as JSON: every message, read or unread. Nothing here consumes messages."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from teamcli.agent.transcript_sessions import read_marks
from teamcli.commands.reports.log import format_timestamp, short_timestamp
from teamcli.commands.reports.team import age
from teamcli.storage.files import Json
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import Message, MessageType, shown_sender
from teamcli.text.counting import counted
from teamcli.text.escaping import escape_controls, one_line
from teamcli.text.table import Cell, Column, Table

if TYPE_CHECKING:
    from teamcli.session.session import Session

TEXT_LIMIT = 160
COLUMNS = (
    Column("#", "dim", right=True),
    Column("READ"),
    Column("WHEN", "dim", may_go=True),
    Column("AGO", "dim", right=True),
    Column("FROM", "name"),
    Column("TYPE", may_go=True),
    Column("TEXT", shrinks=True),
)


class Mail(NamedTuple):
    message: Message
    is_read: bool
    number: int
    """Counted from the oldest, which is 1."""

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


def look_into(mailbox: Mailbox) -> list[Mail]:
    """The messages in an inbox, each once, as its reader gets them.

    Raises: StateError
    """
    found: dict[str, Mail] = {}
    for message, is_read in mailbox.peek():
        # A repeated line (same id) is delivered once, so it is listed once.
        found.setdefault(message.read_as, Mail(message, is_read, len(found) + 1))
    return list(found.values())


def inbox_of(session: Session, name: str) -> list[Mail]:
    """The messages to the lead or a teammate of a running session.

    Raises: UnknownTeammate, StateError
    """
    team = session.team
    name = team.roster.exact_name(name)
    if agent := team.agents.get(name):
        mailbox = agent.mailbox
    elif session.team_host is not None:
        mailbox = Mailbox(team.outbox.bus, name, session.team_host.marks_of(name))
    else:  # shut down: its transcript knows how far it had read
        mailbox = Mailbox(team.outbox.bus, name, read_marks(session.state.transcripts / f"{name}.jsonl"))
    return look_into(mailbox)


def count_unread(mails: list[Mail]) -> int:
    return sum(not mail.is_read for mail in mails)


def mail_table(name: str, mails: list[Mail], now: float, last: int | None = None) -> Table:
    """The messages to `name`, the newest at the end; at most the `last` ones."""
    if not mails:
        return Table(f"No messages for {name}.", (), ())
    shown = mails if last is None else mails[-last:]
    left_out = len(mails) - len(shown)
    hidden = counted(left_out, "earlier one is", "earlier ones are")
    notes = (f"{hidden} not shown. To see all: teamcli inbox {name}",) if left_out else ()
    senders = dict.fromkeys(shown_sender(mail.message) for mail in mails if not mail.is_read)
    whose = f" from {one_line(', '.join(senders), 60)}" if senders else ""
    title = f"{counted(len(mails), 'message')} for {name}, {count_unread(mails)} unread{whose}:"
    return Table(title, COLUMNS, tuple(_row(mail, now) for mail in shown), notes)


def whole_text(mail: Mail) -> str:
    """One message in full."""
    message = mail.message
    head = f"{_sender(message)} → {message.to} ({message.type}, {'read' if mail.is_read else 'UNREAD'})"
    lines = [head, f"{format_timestamp(message.timestamp)}  {message.id}", "", message.content]
    return escape_controls("\n".join(lines))


def _row(mail: Mail, now: float) -> tuple[str | Cell, ...]:
    message = mail.message
    return (
        str(mail.number),
        Cell("read", "dim") if mail.is_read else Cell("UNREAD", "warn"),
        short_timestamp(message.timestamp, now),
        age(now - message.timestamp),
        one_line(_sender(message), 56),
        Cell(message.type, "bad" if message.type == MessageType.ERROR else ""),
        one_line(message.content, TEXT_LIMIT),
    )


def _sender(message: Message) -> str:
    return f"outside, claims to be {message.sender}" if message.is_foreign else message.sender
