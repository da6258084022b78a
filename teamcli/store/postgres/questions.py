"""Questions of members on other hosts, and of their MCP servers: asked there, answered at the lead's prompt.

A question is a row until it is closed where it was asked. The first answer counts. A question whose host has died is
withdrawn: whichever host continues the member asks again.
"""

from __future__ import annotations

import json
import logging
import secrets
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from teamcli.agent.permission_question import Answer, Ask, Consent, Question
from teamcli.agent.tool import Display
from teamcli.cancel import CancelScope
from teamcli.errors import Cancelled, TeamcliError
from teamcli.mcp.server import Ask as AskForServer
from teamcli.mcp.server import Elicitation, ElicitationAnswer
from teamcli.store.postgres.leases import Host
from teamcli.store.postgres.team_rows import Team
from teamcli.text.redaction import redact_value

_LONGEST = 2_000_000
SERVER_QUESTION = "server_question"
"""Marks the question of an MCP server."""
_OPEN = """
    select q.id, q.doc, q.sig from question q join host h on h.team = q.team and h.name = q.host
    where q.team = %(team)s and q.answer is null and length(q.doc) < %(longest)s
    and h.epoch = q.host_epoch and h.expires_at > clock_timestamp()
"""
logger = logging.getLogger(__name__)


class _Sent(NamedTuple):
    doc: str
    take: Callable[[str], None]
    """Gets the answer, as it is in the row."""
    wait_until_closed: Callable[[], object]


class SentQuestions:
    """On a worker: sends questions to the lead's host, and brings the answers back."""

    def __init__(self, team: Team, host: Host) -> None:
        self._team = team
        self._host = host
        self._open: dict[str, _Sent] = {}

    def ask(self, question: Question) -> None:
        def take(answer: str) -> None:
            question.answer(_read_answer(answer))

        self._send(_Sent(_question_doc(question), take, question.wait_until_closed))

    def ask_server_question(self, question: Elicitation, cancel: CancelScope) -> ElicitationAnswer:
        """Raises: Cancelled"""
        answers: list[ElicitationAnswer] = []
        is_closed = threading.Event()

        def take(answer: str) -> None:
            answers.append(ElicitationAnswer(**json.loads(answer)))
            is_closed.set()

        named = question._replace(server=f"{question.server} on {self._host.name}", schema=dict(question.schema))
        self._send(_Sent(json.dumps({SERVER_QUESTION: redact_value(named._asdict())}), take, is_closed.wait))
        with cancel.on_cancel(is_closed.set):
            is_closed.wait()
        if not answers:
            raise Cancelled(cancel.reason)
        return answers[0]

    def _send(self, question: _Sent) -> None:
        id = secrets.token_hex(8)
        self._open[id] = question
        threading.Thread(target=self._keep, args=(id, question), name=f"question {id}", daemon=True).start()

    def changed(self, id: str) -> None:
        """The lead may have answered this question, or any."""
        wanted = [id] if id in self._open else list(self._open) if not id else []
        if not wanted:
            return
        rows = self._team.database.fetch(
            "select id, answer, answer_sig from question"
            " where team = %(team)s and id = any(%(ids)s) and answer is not null",
            {"team": self._team.id, "ids": wanted},
        )
        for found, answer, signature in rows:
            question = self._open.get(found)
            if question is not None and self._team.is_signed(signature or "", "answer", found, answer):
                question.take(answer)

    def _keep(self, id: str, question: _Sent) -> None:
        """Insert the row, and delete it when the question is closed here, answered or not."""
        doc = question.doc
        values = {"team": self._team.id, "id": id, "host": self._host.name, "epoch": self._host.epoch, "doc": doc}
        topic = self._team.topic(f"question/{id}")
        try:
            self._team.database.fetch(
                "insert into question (team, id, host, host_epoch, doc, sig)"
                " values (%(team)s, %(id)s, %(host)s, %(epoch)s, %(doc)s, %(sig)s) on conflict do nothing returning 1",
                {**values, "sig": self._team.sign("question", id, doc)},
                topic,
            )
            question.wait_until_closed()
            del self._open[id]
            self._team.database.fetch(
                "delete from question where team = %(team)s and id = %(id)s returning 1", values, topic
            )
        except TeamcliError as e:  # the database is away and this process ends: the lead withdraws the question
            logger.warning("the question %s was not withdrawn: %s", id, e)


class ReceivedQuestions:
    """On the lead's host: shows the questions of other hosts at the prompt, and sends the answers."""

    def __init__(self, team: Team, ask: Ask, ask_for_server: AskForServer) -> None:
        self._team = team
        self._ask = ask
        self._ask_for_server = ask_for_server
        self._shown: dict[str, Callable[[], None]] = {}
        """What withdraws each question that is shown."""

    def changed(self, id: str = "") -> None:
        """A question was asked, answered or withdrawn; or a host may have died."""
        rows = self._team.database.fetch(_OPEN, {"team": self._team.id, "longest": _LONGEST})
        found = {str(id): str(doc) for id, doc, sig in rows if self._team.is_signed(str(sig), "question", id, doc)}
        for gone in self._shown.keys() - found.keys():
            self._shown.pop(gone)()
        for new in found.keys() - self._shown.keys():
            self._show(new, found[new])

    def _show(self, id: str, doc: str) -> None:
        if (asked := json.loads(doc).get(SERVER_QUESTION)) is not None:
            scope = CancelScope()
            self._shown[id] = partial(scope.cancel, "withdrawn")
            self._wait(id, partial(self._server_answer, Elicitation(**asked), scope))
            return
        question = _read_question(doc)
        self._shown[id] = partial(question.answer, Answer(Consent.CHANGED))
        self._wait(id, partial(_given_answer, question))
        self._ask(question)

    def _wait(self, id: str, answer: Callable[[], str | None]) -> None:
        threading.Thread(target=self._forward, args=(id, answer), name=f"question {id}", daemon=True).start()

    def _server_answer(self, question: Elicitation, scope: CancelScope) -> str | None:
        try:
            given = self._ask_for_server(question, scope)
        except Cancelled:
            return None
        return json.dumps({"action": given.action, "content": dict(given.content)})

    def _forward(self, id: str, wait_for_answer: Callable[[], str | None]) -> None:
        if (answer := wait_for_answer()) is None:
            return
        try:
            self._team.database.fetch(
                "update question set answer = %(answer)s, answer_sig = %(sig)s"
                " where team = %(team)s and id = %(id)s and answer is null returning 1",
                {"team": self._team.id, "id": id, "answer": answer, "sig": self._team.sign("answer", id, answer)},
                self._team.topic(f"question/{id}"),
            )
        except TeamcliError as e:
            logger.warning("the answer to the question %s was lost: %s", id, e)


def _given_answer(question: Question) -> str | None:
    """Wait for it; None if it was withdrawn."""
    given = question.wait_until_closed()
    if given is None or given.consent is Consent.CHANGED:
        return None
    return json.dumps({"consent": str(given.consent), "feedback": given.feedback, "rules": list(given.rules)})


def _question_doc(question: Question) -> str:
    names = ("agent", "tool", "rule", "advice", "broader", "asked_at")
    fields = {name: getattr(question, name) for name in names}
    return json.dumps(redact_value({**fields, "display": question.display._asdict()}))


def _read_question(doc: str) -> Question:
    """It is signed by a host of this team."""
    fields: dict[str, Any] = json.loads(doc)
    display, broader = Display(**fields.pop("display")), tuple(fields.pop("broader"))
    return Question(display=display, broader=broader, **fields)


def _read_answer(text: str) -> Answer:
    fields = json.loads(text)
    return Answer(Consent(fields["consent"]), fields["feedback"], tuple(fields["rules"]))
