"""Sends the team's messages: on the bus, and as an event that UIs and the timeline show."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from teamcli.agent.events import Emit, MailSent, Notice, Severity
from teamcli.team.message import LEAD, Message, MessageType
from teamcli.team.message_bus import MessageBus


class Outbox:
    def __init__(self, bus: MessageBus, emit: Emit, has_user: bool = True) -> None:
        """`has_user`: the user of the team sees what this process emits."""
        self.bus = bus
        self._emit = emit
        self._has_user = has_user
        self._is_repeating = False

    def post(self, message: Message, once: bool = False) -> None:
        """With `once`, a message that is in the recipient's inbox already is not sent again.

        Raises: TeamError, StateError
        """
        send = self.bus.send_once if once or self._is_repeating else self.bus.send
        if send(message):
            self._emit(MailSent(message.sender, message.to, message.type, message.content, dict(message.fields)))

    def show(self, message: Message) -> None:
        """A message that another host has sent, and recorded."""
        fields = dict(message.fields)
        self._emit(MailSent(message.sender, message.to, message.type, message.content, fields, is_outside=True))

    def warn(self, agent: str, text: str) -> None:
        """Show a warning to the user of this process."""
        self._emit(Notice(agent, text, Severity.WARNING))

    def warn_user(self, agent: str, text: str, id: str) -> None:
        """The same, wherever the user is. `id` is that of the message if it has to travel to another host.

        Raises: TeamError, StateError
        """
        if self._has_user:
            self.warn(agent, text)
        else:  # by_user: shown, and read by the lead with its next turn
            self.post(Message(MessageType.ERROR, agent, LEAD, text, time.time(), id, {"by_user": True}), once=True)

    @contextmanager
    def repeating(self) -> Iterator[None]:
        """Calls that a crash interrupted are repeated inside the block: send only what did not arrive."""
        self._is_repeating = True
        try:
            yield
        finally:
            self._is_repeating = False
