"""Messages within the team: who can be written to, and what tools and the user write and read."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from teamcli.agent.tool import ToolOutput
from teamcli.errors import LimitReached, UnknownRecipient
from teamcli.team.message import LEAD, USER, Message, MessageType, find_name, message_id, new_id
from teamcli.team.outbox import Outbox
from teamcli.team.piece_of_work import in_a_sentence
from teamcli.team.quiescence import as_output
from teamcli.team.roster import Roster
from teamcli.team.running_agents import RunningAgents
from teamcli.tools.base.context import SpawnRequest


class TeamMail:
    def __init__(self, roster: Roster, agents: RunningAgents, outbox: Outbox) -> None:
        self._roster = roster
        self._agents = agents
        self._outbox = outbox

    def names(self) -> list[str]:
        """The teammates that can be written to."""
        return [name for name in self._roster.names(active_only=True) if not self._agents.is_left_out(name)]

    def recipient(self, sender: str, name: str) -> str:
        """The exact name of an agent that can be written to.

        Raises: UnknownRecipient, listing the names there are
        """
        names = [*([LEAD] if sender != LEAD else []), *(each for each in self.names() if each != sender)]
        if found := find_name(name, names):
            return found
        there_are = ", ".join(names) or "nobody"
        if name.casefold() == USER:
            raise UnknownRecipient(
                f"to: '{name}' is not a recipient: the user reads your text; you can write to: {there_are}"
            )
        raise UnknownRecipient(f"to: there is no active teammate '{name}'; you can write to: {there_are}")

    def send(self, agent: str, to: str | tuple[str, ...], content: str, summary: str, key: str) -> str:
        if isinstance(to, str):
            return f"Sent message to {self._send_to(agent, self.recipient(agent, to), content, summary, key)}"
        delivered: dict[str, None] = {}
        unknown = []
        for each in to:
            try:
                name = self.recipient(agent, each)
            except UnknownRecipient:
                unknown.append(each)
                continue
            if name not in delivered:
                delivered[self._send_to(agent, name, content, summary, key)] = None
        return f"delivered to [{', '.join(delivered)}]; unknown: [{', '.join(unknown)}]"

    def _send_to(self, agent: str, name: str, content: str, summary: str, key: str) -> str:
        fields = {"summary": summary} if summary else {}
        unique = message_id(agent, key, name)
        self._outbox.post(Message(MessageType.MESSAGE, agent, name, content, time.time(), unique, fields))
        return name

    def broadcast(self, agent: str, content: str, key: str) -> str:
        names = [member.name for member in self._roster.members() if member.is_active and member.name != agent]
        for name in names:
            unique = message_id(agent, key, name)
            self._outbox.post(Message(MessageType.BROADCAST, agent, name, content, time.time(), unique))
        return f"Broadcast to {len(names)} teammates"

    def read_inbox(self, agent: str) -> ToolOutput:
        thread = self._agents.get(agent)
        assert thread is not None  # it is the one that asks
        thread.mailbox.late.flush()
        return as_output(thread.mailbox.take()) or ToolOutput("(no new messages)")

    def say(self, name: str, text: str) -> str:
        """A message from the user; it also ends a pause."""
        recipient = self.recipient(USER, name)
        self._outbox.post(Message(MessageType.MESSAGE, USER, recipient, text, time.time(), new_id()))
        teammate = self._agents.find(recipient)
        if teammate and (why := teammate.limit_reached()):
            return f"Sent message to {recipient}, where it waits: {stays_paused(recipient, why)}"
        return f"Sent message to {recipient}"

    def send_work(self, request: SpawnRequest, fields: Mapping[str, Any]) -> None:
        """To a member on another host, which begins when it reads this."""
        sender = USER if request.by_user else LEAD
        content, now = request.prompt, time.time()
        self._outbox.post(Message(MessageType.MESSAGE, sender, request.name, content, now, new_id(), fields))


def stays_paused(name: str, why: LimitReached) -> str:
    return f"'{name}' stays paused: {in_a_sentence(why)}; /budget shows the limits, and raises them"
