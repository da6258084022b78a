"""The steps of an agent as its watchers see them. A message is a step of the agent that sends or reads it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from teamcli.agent import events
from teamcli.agent.events import Event, MailSent
from teamcli.llm.types import Block
from teamcli.team.mailbox import IDS
from teamcli.team.message import COMMAND, LEAD, USER, MessageType
from teamcli.team.piece_of_work import WORK

OUTSIDE = "outside"
READING_CALLS = frozenset({"read_inbox", "wait_for_message"})
"""Calls that return messages."""
_FRAME = re.compile(r'<message((?: [a-z_]+="[^"<>]*")*)>([^<>]*)</message>')
_ATTRIBUTE = re.compile(r'([a-z_]+)="([^"]*)"')
_ESCAPED = (("&quot;", '"'), ("&gt;", ">"), ("&lt;", "<"), ("&amp;", "&"))
_BOOLEANS = {"true": True, "false": False}


def steps_of(event: Event, agent: str = "") -> Iterator[Event]:
    """What a watcher of `agent` sees of an event that the bus delivers; without a name, a watcher of everyone.

    A message to the agent is shown when it is read, so that messages from outside are, too. A watcher of everyone sees
    those of agents when they are sent.
    """
    if agent and event.agent != agent:
        return
    if isinstance(event, MailSent) and not agent and is_from_outside(event):
        return
    read: Sequence[MailSent] = ()
    if isinstance(event, events.Recorded) and event.message.role == "user":
        read = mail_in(event.agent, event.message.content, event.marks)
    elif isinstance(event, events.ToolFinished) and event.tool in READING_CALLS and not event.is_error:
        read = frames_in(event.agent, event.content)
    yield from (mail for mail in read if agent or is_from_outside(mail))
    yield event


def is_from_outside(mail: MailSent) -> bool:
    """Whether no agent has sent it."""
    return mail.agent in (USER, OUTSIDE) or mail.agent.startswith(COMMAND)


def mail_in(agent: str, content: Sequence[Block], marks: Mapping[str, Any]) -> list[MailSent]:
    """The messages that a recorded user message brings, a teammate's new piece of work among them."""
    texts = [text for block in content if isinstance(text := block.get("text"), str)]
    # Only the program writes marks: without this one, what looks like a message is someone's text.
    if marks.get(IDS):
        return [mail for text in texts for mail in frames_in(agent, text)]
    if WORK not in marks or agent == LEAD or not texts:
        return []
    if tasks := [mail for mail in frames_in(agent, texts[0]) if mail.type == MessageType.TASK]:
        return tasks
    work = marks[WORK]
    is_users = isinstance(work, dict) and work.get("by_user") is True
    return [MailSent(USER if is_users else LEAD, agent, MessageType.MESSAGE, texts[0], {})]


def frames_in(agent: str, text: str) -> list[MailSent]:
    """The messages in a text that the program has framed for `agent`."""
    return [_from_frame(agent, *found.groups()) for found in _FRAME.finditer(text)] if "<message " in text else []


def _from_frame(agent: str, attributes: str, content: str) -> MailSent:
    fields: dict[str, Any] = {name: _unescaped(value) for name, value in _ATTRIBUTE.findall(attributes)}
    sender, claims, type = fields.pop("from", ""), fields.pop("claims", ""), fields.pop("type", "")
    text = f"(claims to be {claims}) {_unescaped(content)}" if claims else _unescaped(content)
    more = {name: _BOOLEANS.get(value, value) for name, value in fields.items() if name not in ("id", "time")}
    return MailSent(sender, agent, type, text, more)


def _unescaped(text: str) -> str:
    for escaped, plain in _ESCAPED:
        text = text.replace(escaped, plain)
    return text
