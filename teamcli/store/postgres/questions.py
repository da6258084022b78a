"""Questions of members on other hosts, and of their MCP servers: asked there, answered at the lead's prompt.

A question is a row. The host that deletes it says how it ended: the host that asked, because it takes the answer, or
the lead's host, because the other one has died or no longer asks. So each question is answered once or withdrawn, and
the lead's host knows which.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from psycopg import Cursor

from teamcli.agent.permission_question import NOBODY_TO_ASK, Answer, Ask, Consent, Question, nobody_to_ask
from teamcli.agent.tool import Display
from teamcli.cancel import CancelScope
from teamcli.errors import CallRefused, Cancelled, LeaseLost, TeamcliError
from teamcli.mcp.server import Ask as AskForServer
from teamcli.mcp.server import Elicitation, ElicitationAnswer, decline
from teamcli.store.postgres.leases import Host
from teamcli.store.postgres.team_rows import Team, lease_lost
from teamcli.store.row_limits import LARGEST_ROW, LARGEST_SIGNATURE, bounded
from teamcli.text.escaping import one_line
from teamcli.text.redaction import redact_value

_SHOWN_CHARACTERS = 60
SERVER_QUESTION = "server_question"
"""Marks the question of an MCP server."""
_NOBODY = ""
"""The host of a question that is no longer asked."""
_ANOTHER_ANSWER = "another answer came first; if that one does not count, the question comes up again"
_ASKS = """exists (
    select 1 from host h
    where h.team = q.team and h.name = q.host and h.epoch = q.host_epoch and h.expires_at > clock_timestamp()
)"""
"""Whether the host of a question is alive. One that was only frozen asks again."""
_OPEN = f"""
    select id, left(host, 100), host_epoch,
        case when not id = any(%(shown)s) then {bounded("doc")} end, {bounded("sig", LARGEST_SIGNATURE)}
    from question where team = %(team)s
"""
# A process that was replaced asks nothing, nor one that runs on after another host has taken its member.
_INSERT = """
    with here as (
        select from host where team = %(team)s and name = %(host)s and epoch = %(epoch)s for share
    ), held as (
        select from lease where team = %(team)s and name = %(agent)s and epoch = %(agent_epoch)s for share
    ), may as (
        select from here where %(agent_epoch)s::bigint is null or exists (select from held)
    ), asked as (
        insert into question (team, id, host, host_epoch, doc, sig)
        select %(team)s, %(id)s, %(host)s, %(epoch)s, %(doc)s, %(sig)s from may on conflict do nothing
    )
    select exists (select from may)
"""
logger = logging.getLogger(__name__)


@dataclass(eq=False)
class _Sent:
    agent: str
    """Empty if that is not known."""
    doc: str
    take: Callable[[str], None]
    """Gets the answer, as it is in the row."""
    give_up: Callable[[], None]
    """Nobody can be asked."""
    wait_until_closed: Callable[[], object]
    id: str = ""
    """Of its row. Asked again, it has another one: who was shown the earlier one must notice."""


class SentQuestions:
    """On a worker: sends questions to the lead's host, and brings the answers back."""

    def __init__(self, team: Team, host: Host) -> None:
        self._team = team
        self._host = host
        self._open: dict[str, _Sent] = {}
        self._lock = threading.Lock()
        """Around each look at the rows together with what follows from it."""

    def ask(self, question: Question) -> None:
        """Raises: CallRefused, if the question is too large for a row"""

        rules = {redact_value(rule): rule for rule in question.broader}  # as the person sees them, and as they are

        def take(answer: str) -> None:
            given = _read_answer(answer)
            question.answer(given._replace(rules=tuple(rules.get(rule, rule) for rule in given.rules)))

        doc = _question_doc(question, self._host.name)
        if len(doc) >= LARGEST_ROW:
            raise CallRefused(
                f"nobody can be asked about this call: a person would have to see {len(doc):,} bytes of it, and a"
                f" question to another host can have {LARGEST_ROW:,}; do it in smaller steps",
                reason=NOBODY_TO_ASK,
            )
        self._send(_Sent(question.agent, doc, take, partial(nobody_to_ask, question), question.wait_until_closed))

    def ask_server_question(self, question: Elicitation, cancel: CancelScope) -> ElicitationAnswer:
        """Raises: Cancelled"""
        answers: list[ElicitationAnswer] = []
        is_closed = threading.Event()

        def close(answer: ElicitationAnswer) -> None:
            answers.append(answer)
            is_closed.set()

        def take(answer: str) -> None:
            close(ElicitationAnswer(**json.loads(answer)))

        def give_up() -> None:
            close(decline(question, cancel))

        named = question._replace(server=f"{question.server} on {self._host.name}", schema=dict(question.schema))
        doc = json.dumps({SERVER_QUESTION: redact_value(named._asdict())})
        if len(doc) >= LARGEST_ROW:
            logger.warning("a question of the MCP server %s is declined: it is too large to be shown", question.server)
            return decline(question, cancel)
        self._send(_Sent("", doc, take, give_up, is_closed.wait))
        with cancel.on_cancel(is_closed.set):
            is_closed.wait()
        if not answers:
            raise Cancelled(cancel.reason)
        return answers[0]

    def _send(self, question: _Sent) -> None:
        threading.Thread(target=self._keep, args=(question,), name="question of this host", daemon=True).start()

    def changed(self, id: str) -> None:
        """The lead may have answered this question, or any."""
        with self._lock:
            wanted = [id] if id in self._open else list(self._open) if not id else []
            if wanted:
                self._take_answers(wanted)
            if wanted and not id:
                self._ask_again(wanted)

    def _take_answers(self, ids: list[str]) -> None:
        rows = self._team.database.fetch(
            "delete from question where team = %(team)s and id = any(%(ids)s) and answer is not null"
            f" returning id, {bounded('answer')}, {bounded('answer_sig', LARGEST_SIGNATURE)}",
            {"team": self._team.id, "ids": ids},
        )
        for id, answer, signature in rows:
            # An answer that nobody of this team has signed does not count: the question is asked again.
            is_ours = answer is not None and self._team.is_signed(signature or "", "answer", id, answer)
            if is_ours and (question := self._open.pop(id, None)):
                question.take(answer)
            self._team.database.notify(self._team.topic(f"question/{id}"))

    def _ask_again(self, ids: Iterable[str]) -> None:
        """What the lead's host has withdrawn because this one seemed to be dead; what a stranger has answered; or what
        was answered in a commit that this host does not know of."""
        rows = self._team.database.fetch(
            "select id from question where team = %(team)s and host = %(host)s and host_epoch = %(epoch)s", self._values
        )
        for id in {id for id in ids if id in self._open} - {str(id) for (id,) in rows}:
            question = self._open.pop(id)
            try:
                self._insert(question)
            except LeaseLost as e:
                logger.warning("the question %s is not asked again: %s", question.id, e)
                question.give_up()

    def _keep(self, question: _Sent) -> None:
        """Insert the row, and give it up when the question is closed here without an answer from there."""
        try:
            with self._lock:
                self._insert(question)
        except TeamcliError as e:
            logger.warning("the question %s could not be asked: %s", question.id, e)
            if not self._team.database.is_closing:
                question.give_up()  # or its member would wait forever
        try:
            question.wait_until_closed()
            with self._lock:
                if self._open.pop(question.id, None) is not None:
                    self._withdraw(question.id)
        except TeamcliError as e:  # the database is away and this process ends: the lead withdraws the question
            logger.warning("the question %s was not withdrawn: %s", question.id, e)

    def _insert(self, question: _Sent) -> None:
        """Under an id that no question had before: one that the lead's host knows is not shown again.

        Raises: LeaseLost, StateError
        """
        id = question.id = secrets.token_hex(8)
        self._open[id] = question
        doc, values, agent = question.doc, self._values, question.agent
        signature = self._team.sign(*_signed(id, values["host"], values["epoch"], doc))
        row = {**values, "id": id, "doc": doc, "sig": signature}
        about = {"agent": agent, "agent_epoch": self._host.epoch_of(agent)}
        ((may_ask,),) = self._team.database.fetch(_INSERT, {**row, **about}, self._team.topic(f"question/{id}"))
        if not may_ask:
            raise lease_lost(agent or self._host.name)

    def _withdraw(self, id: str) -> None:
        """An answer may be on its way: the lead's host deletes the row, and says so."""
        self._team.database.fetch(
            "update question set host = %(nobody)s where team = %(team)s and id = %(id)s returning 1",
            {"team": self._team.id, "id": id, "nobody": _NOBODY},
            self._team.topic(f"question/{id}"),
        )

    @property
    def _values(self) -> dict[str, Any]:
        return {"team": self._team.id, "host": self._host.name, "epoch": self._host.epoch}


@dataclass(eq=False)
class _ShownQuestion:
    """A question of another host, at the prompt."""

    subject: str
    """Whose question it is, and what it is about."""
    agent: str
    """Empty if that is not known."""
    withdraw: Callable[[], None]
    is_closed: threading.Event = field(default_factory=threading.Event)
    why_withdrawn: str = ""
    """Why the person's answer does not count; empty if it was taken."""

    def close(self, withdrawn_from: str | None) -> None:
        """`withdrawn_from` is the host that can no longer take an answer; None if it has taken one."""
        self.why_withdrawn = "" if withdrawn_from is None else _why(withdrawn_from, self.agent)
        self.withdraw()
        self.is_closed.set()


class ReceivedQuestions:
    """On the lead's host: shows the questions of other hosts at the prompt, and sends the answers."""

    def __init__(self, team: Team, ask: Ask, ask_for_server: AskForServer, report: Callable[[str], None]) -> None:
        """`report` gets a sentence for each question that is withdrawn."""
        self._team = team
        self._ask = ask
        self._ask_for_server = ask_for_server
        self._report = report
        self._open: dict[str, _ShownQuestion] = {}
        self._lock = threading.Lock()

    def changed(self, id: str = "") -> None:
        """A question was asked, answered or withdrawn; or a host may have died."""
        with self._lock:
            withdrawn: dict[str, str] = {}
            rows = self._team.database.run(partial(self._look, withdrawn))
            for gone in self._open.keys() - rows.keys():
                self._open.pop(gone).close(withdrawn.get(gone))
            for new in rows.keys() - self._open.keys():
                self._show(new, rows[new])

    def _look(self, withdrawn: dict[str, str], cursor: Cursor[Any]) -> dict[str, str]:
        """The open questions, with what is new of them. The hosts of those that were withdrawn just now are added to
        `withdrawn`: if the answer to the commit is lost, the second attempt does not find them again."""
        values = {"team": self._team.id, "shown": list(self._open)}
        cursor.execute(
            f"delete from question q where team = %(team)s and not {_ASKS} returning id, left(host, 100)".encode(),
            values,
        )
        withdrawn.update((str(id), str(host)) for id, host in cursor)
        cursor.execute(_OPEN.encode(), values)
        found = cursor.fetchall()
        # If it is of a living host, and somebody has changed it, that host asks again.
        forged = [id for id, *row in found if id not in self._open and not self._is_question(id, *row)]
        if forged:
            cursor.execute("delete from question where team = %s and id = any(%s)", (self._team.id, forged))
        return {str(id): doc or "" for id, _, _, doc, _ in found if id not in forged}

    def _is_question(self, id: str, host: str, epoch: int, doc: str | None, sig: str | None) -> bool:
        return doc is not None and self._team.is_signed(sig or "", *_signed(id, host, epoch, doc))

    def _show(self, id: str, doc: str) -> None:
        if (asked := json.loads(doc).get(SERVER_QUESTION)) is not None:
            elicitation, scope = Elicitation(**asked), CancelScope()
            about = one_line(elicitation.message, _SHOWN_CHARACTERS)
            subject = f"The question of MCP server {elicitation.server} ({about})"
            shown = _ShownQuestion(subject, "", partial(scope.cancel, "withdrawn"))
            self._wait(id, shown, partial(self._server_answer, elicitation, scope))
            return
        question = _read_question(doc)
        subject = f"{question.agent}'s question ({one_line(question.display.title, _SHOWN_CHARACTERS)})"
        shown = _ShownQuestion(subject, question.agent, partial(question.answer, Answer(Consent.CHANGED)))
        self._wait(id, shown, partial(_given_answer, question))
        self._ask(question)

    def _wait(self, id: str, shown: _ShownQuestion, answer: Callable[[], str | None]) -> None:
        self._open[id] = shown
        threading.Thread(target=self._forward, args=(id, shown, answer), name=f"question {id}", daemon=True).start()

    def _server_answer(self, question: Elicitation, scope: CancelScope) -> str | None:
        try:
            given = self._ask_for_server(question, scope)
        except Cancelled:
            return None
        return json.dumps({"action": given.action, "content": dict(given.content)})

    def _forward(self, id: str, shown: _ShownQuestion, wait_for_answer: Callable[[], str | None]) -> None:
        """Until the question is closed: only then is it known whether the answer was taken."""
        answer = wait_for_answer()
        try:
            is_sent = answer is not None and self._send(id, answer)
        except TeamcliError as e:
            self._show_again(id, shown, e)
            return
        shown.is_closed.wait()
        if shown.why_withdrawn or not is_sent:
            unused = ", and your answer was not used" if answer is not None else ""
            self._report(f"{shown.subject} is withdrawn{unused}: {shown.why_withdrawn or _ANOTHER_ANSWER}.")

    def _show_again(self, id: str, shown: _ShownQuestion, error: TeamcliError) -> None:
        """At the next look, unless the question has ended meanwhile."""
        logger.warning("the answer to the question %s was not sent: %s", id, error)
        with self._lock:
            is_open = self._open.get(id) is shown
            if is_open:
                del self._open[id]
        if is_open and not self._team.database.is_closing:
            self._report(f"{shown.subject} is asked again, because your answer could not be sent: {error}.")

    def _send(self, id: str, answer: str) -> bool:
        """Whether the question waits for it."""
        rows = self._team.database.fetch(
            "update question set answer = %(answer)s, answer_sig = %(sig)s"
            " where team = %(team)s and id = %(id)s and (answer is null or answer_sig = %(sig)s) returning 1",
            {"team": self._team.id, "id": id, "answer": answer, "sig": self._team.sign("answer", id, answer)},
            self._team.topic(f"question/{id}"),
        )
        return bool(rows)


def _signed(id: str, host: str, epoch: int, doc: str) -> tuple[str | int, ...]:
    """What the signature of a question covers. It is for one process: what an earlier one has asked cannot be asked
    again in its name."""
    return "question", id, host, epoch, doc


def _why(host: str, agent: str) -> str:
    if host == _NOBODY:
        return "the call was stopped, or a rule decides it now"
    return f"its host '{host}' is gone; another one continues {agent or 'its member'}, who may ask again"


def _given_answer(question: Question) -> str | None:
    """Wait for it; None if it was withdrawn."""
    given = question.wait_until_closed()
    if given is None or given.consent is Consent.CHANGED:
        return None
    return json.dumps({"consent": str(given.consent), "feedback": given.feedback, "rules": list(given.rules)})


def _question_doc(question: Question, host: str) -> str:
    names = ("agent", "tool", "rule", "advice", "broader", "asked_at")
    fields = {name: getattr(question, name) for name in names} | {"host": host}
    return json.dumps(redact_value({**fields, "display": question.display._asdict()}))


def _read_question(doc: str) -> Question:
    """It is signed by a host of this team."""
    fields: dict[str, Any] = json.loads(doc)
    display, broader = Display(**fields.pop("display")), tuple(fields.pop("broader"))
    return Question(display=display, broader=broader, **fields)


def _read_answer(text: str) -> Answer:
    fields = json.loads(text)
    return Answer(Consent(fields["consent"]), fields["feedback"], tuple(fields["rules"]))
