"""Mail that a teammate leaves unread when it shuts down: it goes back to the senders."""

from __future__ import annotations

import threading
import time

from teamcli.team.mailbox import Mailbox
from teamcli.team.message import LEAD, USER, Message, MessageType, message_id
from teamcli.team.outbox import Outbox
from teamcli.team.running_agents import RunningAgents
from teamcli.text.tags import one_fact

RETURNED = "returned"
"""The field of an error message that returns a message: the id of that message."""
SHOWN_CHARACTERS = 300
"""Of a message that is returned. The whole text is in the inbox."""


class UndeliveredMail:
    """Returns what no model has seen.

    A message may also arrive just after its recipient has left: the inbox is watched until the name is used again.
    """

    def __init__(self, agents: RunningAgents, outbox: Outbox) -> None:
        self._agents = agents
        self._outbox = outbox
        self._lock = threading.RLock()
        self._mailboxes: dict[str, Mailbox] = {}

    def watch(self, name: str, mailbox: Mailbox) -> int:
        """A teammate has left; returns how many messages went back to the sender."""
        with self._lock:
            self._mailboxes[name] = mailbox
        return self.mail_arrived(name)

    def forget(self, name: str) -> None:
        """The name is used again."""
        with self._lock:
            self._mailboxes.pop(name, None)

    def mail_arrived(self, name: str) -> int:
        with self._lock:  # each message is returned once, whichever thread notices it
            mailbox = self._mailboxes.get(name)
            unseen = mailbox.take_unseen() if mailbox else ()
        # Not the request to leave, not a task, which is free again, not the end of its own command, and not a message
        # that was returned itself: it would go back and forth forever.
        returned = [
            message
            for message in unseen
            if message.type not in (MessageType.SHUTDOWN_REQUEST, MessageType.TASK)
            and RETURNED not in message.fields
            and not message.is_from_command
        ]
        for message in returned:
            self._return(name, message)
        if mailbox:
            mailbox.release()
        return len(returned)

    def _return(self, name: str, message: Message) -> None:
        text, unique = one_fact(message.content, SHOWN_CHARACTERS), message_id(message.id, RETURNED)
        if not message.is_foreign and (message.sender == LEAD or self._agents.find(message.sender)):
            words = f"was shut down before it read your {message.type}: {text}"
            fields = {RETURNED: message.id}
            self._outbox.post(
                Message(MessageType.ERROR, name, message.sender, words, time.time(), unique, fields), once=True
            )
            return
        sender = f"a message from outside (claims to be {one_fact(message.sender)})"
        if not message.is_foreign:
            sender = "your message" if message.sender == USER else f"a {message.type} from {message.sender}"
        words = f"{name} was shut down before it read {sender}: {text}"
        self._outbox.warn_user(name, f"{words} (all of it: /inbox {name})", unique)
