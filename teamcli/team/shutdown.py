"""The shutdown protocol: asking a teammate to leave the team, its answer, and the mail that it leaves unread.

An idle teammate leaves at once. The model of a working one answers; if its turn ends normally without an answer, that
counts as approval. The user's word always counts: asked twice, a teammate is stopped.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from teamcli.agent.events import Emit, Notice, Severity
from teamcli.cancel import CancelScope
from teamcli.errors import TeamError
from teamcli.team.mailbox import Mailbox
from teamcli.team.message import LEAD, USER, Message, MessageType, message_id
from teamcli.team.requests import Kind, Request, State
from teamcli.team.roster import Member, Roster, Status
from teamcli.team.teammate import Teammate
from teamcli.text.tags import one_fact

SILENT = "It ended its turn without an answer, which counts as approval."
STOPPING_SECONDS = 1.5
"""How long the user's command waits for the end of a turn that it has stopped."""
RETURNED = "returned"
"""The field of an error that returns a message: the id of that message."""
SHOWN_CHARACTERS = 300
"""Of a message that is returned; all of it is in the inbox."""


class Team(Protocol):
    """What the protocol needs of the team."""

    def teammate(self, name: str) -> Teammate | None: ...

    def post(self, message: Message) -> None: ...

    def remove(self, name: str) -> int:
        """Shut it down now, with no turn running; how many unread messages were returned."""
        ...


class Shutdowns:
    """Asks, answers, and watches over deadlines."""

    def __init__(self, roster: Roster, team: Team, emit: Emit, cancel: CancelScope) -> None:
        self._roster = roster
        self._team = team
        self._emit = emit
        self._cancel = cancel
        self._watching: set[threading.Thread] = set()

    def ask(self, asker: str, member: Member, reason: str) -> str:
        """Raises: TeamError, StateError."""
        name = member.name
        if member.status is Status.SHUTDOWN:
            return f"'{name}' is shut down already"
        teammate = self._team.teammate(name)
        if teammate is None or teammate.leave_if_idle():
            return self._left_at_once(name)
        request = self._open(asker, member, reason)
        if request is None:
            return self._stop(teammate)
        text, fields = reason or "Please shut down.", {"request_id": request.id}
        self._post(MessageType.SHUTDOWN_REQUEST, asker, name, text, message_id(request.id), fields)
        self.watch(request)
        if teammate.leave_if_idle():  # its turn has ended meanwhile, and did not see the request
            return self._left_at_once(name)
        again = f"; /shutdown {name} again stops it" if asker == USER else ""
        return f"Asked '{name}' to shut down ({request.id}); it is working and answers when it can{again}"

    def answer(self, name: str, request_id: str, approve: bool, reason: str) -> str:
        """Raises: TeamError, StateError."""
        request = self._roster.requests.answer(request_id, name, approve, reason, self._roster.get(name).incarnation)
        if request.asker == LEAD:
            text = reason or ("Shutting down." if approve else "Not now.")
            fields = {"request_id": request.id, "approve": approve, "reason": reason}
            self._post(MessageType.SHUTDOWN_RESPONSE, name, LEAD, text, message_id(request.id, "answer"), fields)
        elif not approve:
            why = f": {one_fact(reason, SHOWN_CHARACTERS)}" if reason else ""
            self._emit(
                Notice(name, f"{name} refuses to shut down{why}; /shutdown {name} again stops it.", Severity.WARNING)
            )
        if approve and (teammate := self._team.teammate(name)):
            teammate.leave()
        return "You are shut down after this." if approve else "Your refusal is sent. Continue."

    def turn_ended(self, teammate: Teammate) -> None:
        """A turn has ended normally: a request that its model has not answered counts as approved."""
        for request in self._roster.requests.standing(teammate.name, Kind.SHUTDOWN):
            try:
                self.answer(teammate.name, request.id, True, SILENT)
            except TeamError:  # it has lapsed or was overtaken meanwhile
                continue

    def restore(self) -> None:
        """At the start: carry out what was approved before a crash, and watch over what is still open."""
        for request in self._roster.requests.all():
            is_approved = request.kind is Kind.SHUTDOWN and request.state is State.APPROVED
            if is_approved and (teammate := self._asked(request)):
                teammate.leave()
        self._lapse()
        for request in self._roster.requests.standing(kind=Kind.SHUTDOWN):
            self.watch(request)

    def watch(self, request: Request) -> None:
        """Let it lapse when its time is up."""
        thread = threading.Thread(target=self._lapse_later, args=(request,), name=f"deadline {request.id}", daemon=True)
        self._watching.add(thread)
        thread.start()

    def join(self, deadline: float) -> None:
        """Wait for all threads, once their scope is cancelled."""
        for thread in tuple(self._watching):
            thread.join(max(0.0, deadline - time.monotonic()))

    def _open(self, asker: str, member: Member, reason: str) -> Request | None:
        """None if the user repeats a request."""
        requests = self._roster.requests
        if asker != USER:
            return requests.open_shutdown(member.name, member.incarnation, asker, reason)
        overtaken = [each for each in requests.standing(member.name, Kind.SHUTDOWN) if each.asker == LEAD]
        request = requests.insist(member.name, member.incarnation, reason)
        for each in overtaken:
            text = f"the user has asked {member.name} to shut down; your request ({each.id}) is void"
            unique, fields = message_id(each.id, "void"), {"by_user": True}
            self._post(MessageType.ERROR, member.name, LEAD, text, unique, fields)
        return request

    def _left_at_once(self, name: str) -> str:
        return f"'{name}' was idle and is shut down now{_unread(self._team.remove(name))}"

    def _stop(self, teammate: Teammate) -> str:
        teammate.leave()
        teammate.join(STOPPING_SECONDS)
        return f"Stopped '{teammate.name}'; it is shut down"

    def _asked(self, request: Request) -> Teammate | None:
        """The teammate that was asked, if it is still there in the same incarnation."""
        teammate = self._team.teammate(request.teammate)
        return teammate if teammate and teammate.member.incarnation == request.incarnation else None

    def _lapse_later(self, request: Request) -> None:
        if not self._cancel.wait(self._roster.requests.seconds_left(request)):
            self._lapse()
        self._watching.discard(threading.current_thread())

    def _lapse(self) -> None:
        """Nobody answered in time: the lead hears of it; what the user asked for is done."""
        if self._cancel.cancelled:
            return
        for lapsed in self._roster.requests.expire():
            name, by_user = lapsed.teammate, lapsed.asker == USER
            text = f"{name} did not answer the request to shut down ({lapsed.id}); it has lapsed"
            if by_user:
                text = f"{name} did not answer the user's request to shut down ({lapsed.id}); it was stopped"
            fields = {"by_user": True} if by_user else {}
            self._post(MessageType.ERROR, name, LEAD, text, message_id(lapsed.id, "lapsed"), fields)
            if by_user and (teammate := self._asked(lapsed)):
                teammate.leave()

    def _post(self, kind: MessageType, sender: str, to: str, text: str, id: str, fields: Mapping[str, object]) -> None:
        self._team.post(Message(kind, sender, to, text, time.time(), id, fields))


class LeftMail:
    """Returns the mail of teammates that have left: what no model has seen goes back to its sender.

    A message may also arrive a moment after its recipient has left: its inbox is watched until the name is used again.
    """

    def __init__(self, post: Callable[[Message], None], emit: Emit, can_read: Callable[[str], bool]) -> None:
        """`can_read` says whether an agent of that name is there to read what is returned."""
        self._post = post
        self._emit = emit
        self._can_read = can_read
        self._lock = threading.RLock()
        self._mailboxes: dict[str, Mailbox] = {}

    def watch(self, name: str, mailbox: Mailbox) -> int:
        """`name` has left; how many messages were returned."""
        with self._lock:
            self._mailboxes[name] = mailbox
        return self.mail_came(name)

    def forget(self, name: str) -> None:
        """The name is used again."""
        with self._lock:
            self._mailboxes.pop(name, None)

    def mail_came(self, name: str) -> int:
        with self._lock:  # each message is returned once, whichever thread notices it
            mailbox = self._mailboxes.get(name)
            unseen = mailbox.take_unseen() if mailbox else ()
        returned = [message for message in unseen if _is_returned(message)]
        for message in returned:
            self._return(name, message)
        if mailbox:
            mailbox.release()
        return len(returned)

    def _return(self, name: str, message: Message) -> None:
        text = one_fact(message.content, SHOWN_CHARACTERS)
        if not message.is_foreign and self._can_read(message.sender):
            words = f"was shut down before it read your {message.type}: {text}"
            unique, fields = message_id(message.id, RETURNED), {RETURNED: message.id}
            self._post(Message(MessageType.ERROR, name, message.sender, words, time.time(), unique, fields))
            return
        sender = f"a message from outside (claims to be {one_fact(message.sender)})"
        if not message.is_foreign:
            sender = "your message" if message.sender == USER else f"a {message.type} from {message.sender}"
        words = f"{name} was shut down before it read {sender}: {text}"
        self._emit(Notice(name, f"{words} (all of it: /inbox {name})", Severity.WARNING))


def _is_returned(message: Message) -> bool:
    """Not the request to leave, and not what was returned once."""
    return message.type is not MessageType.SHUTDOWN_REQUEST and RETURNED not in message.fields


def _unread(returned: int) -> str:
    if not returned:
        return ""
    return f"; {returned} unread {'message' if returned == 1 else 'messages'} went back to the sender"
