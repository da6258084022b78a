"""Questions between hosts: each is answered once or withdrawn, and both sides know which."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from teamcli.agent.permission_question import Answer, Consent, Question
from teamcli.agent.tool import Display
from teamcli.cancel import CancelScope
from teamcli.errors import CallRefused
from teamcli.mcp.server import Elicitation, decline
from teamcli.text.redaction import register_secrets
from tests.store.conftest import HostMaker
from tests.support.postgres import expire
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from teamcli.store.postgres.leases import Host

YES = Answer(Consent.ONCE)


class Two:
    """The host of alice, and that of the lead."""

    def __init__(self, team: Any, host: Host) -> None:
        from teamcli.store.postgres.questions import ReceivedQuestions, SentQuestions

        self.team = team
        self.host = host
        self.shown: list[Question] = []
        self.said: list[str] = []
        self.sent = SentQuestions(team, host)
        self.leads: list[Any] = []
        self._start = lambda: ReceivedQuestions(team, self.shown.append, decline, self.said.append)
        self.start_lead()
        self.asked = Question("alice", "bash", Display("touch one", ""), "")

    def start_lead(self) -> None:
        """Again: it knows nothing of what an earlier one has shown."""
        self.leads.append(self._start())

    def ask(self) -> Question:
        """The question as the lead's host shows it."""
        self.sent.ask(self.asked)
        wait_until(lambda: self.look() and bool(self.shown))
        return self.shown[-1]

    def look(self) -> bool:
        self.leads[-1].changed()
        return True

    def answer(self, question: Question) -> None:
        question.answer(YES)
        wait_until(lambda: self.rows("answer is not null") == 1)

    def rows(self, where: str = "true") -> int:
        sql = f"select count(*) from question where team = %(team)s and {where}"
        return int(self.team.database.fetch(sql, {"team": self.team.id})[0][0])


@pytest.fixture
def two(team: Any, make_host: HostMaker) -> Iterator[Two]:
    two = Two(team, make_host("box"))
    yield two
    two.asked.answer(Answer(Consent.NO))  # or its threads would wait for ever

    def is_over() -> bool:
        for lead in two.leads:
            lead.changed()
        return not any(each.name.startswith("question ") for each in threading.enumerate())

    wait_until(is_over)


def test_an_answer_is_taken_once_and_then_the_question_is_gone(two: Two) -> None:
    shown = two.ask()
    assert shown.host == "box"
    two.answer(shown)
    two.sent.changed("")
    assert two.asked.wait_until_closed() == YES
    assert two.rows() == 0
    two.look()
    assert two.said == []


def test_an_answer_that_a_dead_host_cannot_take_is_reported_as_not_used(two: Two) -> None:
    shown = two.ask()
    two.answer(shown)
    expire(two.team, "box")
    two.look()
    wait_until(lambda: bool(two.said))
    assert two.said == [
        "alice's question (touch one) is withdrawn, and your answer was not used: its host 'box' is gone;"
        " another one continues alice, who may ask again."
    ]
    assert two.rows() == 0
    assert two.asked.is_open


def test_a_question_that_nobody_has_answered_is_withdrawn_with_its_host(two: Two) -> None:
    shown = two.ask()
    expire(two.team, "box")
    two.look()
    wait_until(lambda: bool(two.said))
    assert not shown.is_open
    assert two.said[0].startswith("alice's question (touch one) is withdrawn: its host 'box' is gone;")


def test_a_host_that_was_only_frozen_asks_again(two: Two) -> None:
    two.answer(two.ask())
    expire(two.team, "box")
    two.look()
    two.host.renew()
    two.sent.changed("")
    wait_until(lambda: two.look() and len(two.shown) == 2)
    two.answer(two.shown[1])
    two.sent.changed("")
    assert two.asked.wait_until_closed() == YES


def test_a_host_whose_member_runs_elsewhere_does_not_ask_for_it(two: Two, make_host: HostMaker) -> None:
    assert two.host.take("alice")
    other = make_host("other")
    expire(two.team, "box")
    assert other.take("alice")
    two.host.renew()
    two.sent.ask(two.asked)
    given = two.asked.wait_until_closed()
    assert given
    assert given.consent is Consent.NOBODY
    assert two.rows() == 0


def test_a_host_that_has_lost_its_member_meanwhile_does_not_ask_again(two: Two, make_host: HostMaker) -> None:
    assert two.host.take("alice")
    two.ask()
    expire(two.team, "box")
    two.look()  # which withdraws it
    assert make_host("other").take("alice")
    two.sent.changed("")
    given = two.asked.wait_until_closed()
    assert given
    assert given.consent is Consent.NOBODY
    assert two.rows() == 0


def test_a_process_that_was_replaced_does_not_ask(two: Two, make_host: HostMaker) -> None:
    expire(two.team, "box")
    make_host("box")
    two.sent.ask(two.asked)
    given = two.asked.wait_until_closed()
    assert given
    assert given.consent is Consent.NOBODY
    answer = two.sent.ask_server_question(Elicitation("files", "which one?"), CancelScope())
    assert answer.action == "decline"
    assert two.rows() == 0


def test_an_answer_that_comes_after_the_call_was_stopped_is_reported_as_not_used(two: Two) -> None:
    shown = two.ask()
    two.asked.answer(Answer(Consent.CHANGED))
    wait_until(lambda: two.rows("host = ''") == 1)
    shown.answer(YES)
    wait_until(lambda: two.rows("answer is not null") == 1)
    two.look()
    wait_until(lambda: bool(two.said))
    assert two.said == [
        "alice's question (touch one) is withdrawn, and your answer was not used:"
        " the call was stopped, or a rule decides it now."
    ]


def test_an_answer_that_nobody_of_the_team_has_signed_does_not_count(two: Two) -> None:
    two.ask()
    forged = "update question set answer = %(answer)s, answer_sig = '' where team = %(team)s returning 1"
    two.team.database.fetch(forged, {"team": two.team.id, "answer": '{"consent": "once", "feedback": "", "rules": []}'})
    two.sent.changed("")
    assert two.asked.is_open
    assert two.rows("answer is null") == 1


def test_an_answer_that_could_not_be_stored_is_reported_and_the_question_comes_up_again(two: Two) -> None:
    shown = two.ask()
    two.team.database.run(
        lambda cursor: cursor.execute("alter table question add constraint full_up check (answer is null)")
    )
    try:
        shown.answer(YES)
        wait_until(lambda: bool(two.said))
    finally:
        two.team.database.run(lambda cursor: cursor.execute("alter table question drop constraint full_up"))
    assert two.said[0].startswith(
        "alice's question (touch one) is asked again, because your answer could not be sent: the database refuses"
    )
    two.look()
    assert len(two.shown) == 2
    two.answer(two.shown[1])
    two.sent.changed("")
    assert two.asked.wait_until_closed() == YES


class Forgetful:
    """A database that loses the answer to the commit that takes an answer, so that it is repeated."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def fetch(self, query: str, *arguments: Any) -> Any:
        found = self._database.fetch(query, *arguments)
        return self._database.fetch(query, *arguments) if query.startswith("delete from question") else found


def test_an_answer_whose_taking_was_not_confirmed_is_asked_for_again(two: Two) -> None:
    two.answer(two.ask())
    two.sent._team = two.team._replace(database=Forgetful(two.team.database))
    two.sent.changed("")
    two.sent._team = two.team
    two.look()
    assert len(two.shown) == 2
    two.answer(two.shown[1])
    two.sent.changed("")
    assert two.asked.wait_until_closed() == YES
    two.look()
    assert two.said == []


class Unconfirmed:
    """A database that loses the answers to commits, so that each transaction is repeated."""

    def __init__(self, database: Any) -> None:
        self._database = database

    def __getattr__(self, name: str) -> Any:
        return getattr(self._database, name)

    def run(self, *arguments: Any) -> Any:
        self._database.run(*arguments)
        return self._database.run(*arguments)

    def fetch(self, *arguments: Any) -> Any:
        self._database.fetch(*arguments)
        return self._database.fetch(*arguments)


def test_a_withdrawal_whose_commit_was_not_confirmed_is_reported(two: Two) -> None:
    shown = two.ask()
    two.answer(shown)
    expire(two.team, "box")
    lead = two.leads[-1]
    lead._team = two.team._replace(database=Unconfirmed(two.team.database))
    two.look()
    lead._team = two.team
    wait_until(lambda: bool(two.said))
    assert "is withdrawn, and your answer was not used: its host 'box' is gone" in two.said[0]


def test_a_question_whose_commit_was_not_confirmed_is_asked_once(two: Two) -> None:
    two.sent._team = two.team._replace(database=Unconfirmed(two.team.database))
    two.ask()
    two.sent._team = two.team
    assert two.rows() == 1
    assert two.asked.is_open


def test_a_rule_with_a_secret_is_saved_as_it_is(two: Two) -> None:
    register_secrets(["hunter2hunter2"])
    rule = "bash(login hunter2hunter2 *)"
    two.asked = Question("alice", "bash", Display("login", ""), "", broader=(rule, "bash(ls *)"))
    shown = two.ask()
    assert "hunter2" not in str(shown.broader)
    shown.answer(Answer(Consent.ALWAYS, rules=shown.broader))
    wait_until(lambda: two.rows("answer is not null") == 1)
    two.sent.changed("")
    given = two.asked.wait_until_closed()
    assert given
    assert given.rules == (rule, "bash(ls *)")


# What someone without the key can do


def test_a_question_that_a_stranger_has_answered_before_the_person_is_asked_again(two: Two) -> None:
    shown = two.ask()
    forge = "update question set answer = 'x', answer_sig = 'y' where team = %(team)s returning 1"
    two.team.database.fetch(forge, {"team": two.team.id})
    shown.answer(YES)
    two.sent.changed("")
    two.look()
    assert len(two.shown) == 2
    wait_until(lambda: bool(two.said))
    assert two.said == [
        "alice's question (touch one) is withdrawn, and your answer was not used: another answer came first;"
        " if that one does not count, the question comes up again."
    ]
    two.answer(two.shown[1])
    two.sent.changed("")
    assert two.asked.wait_until_closed() == YES


def test_a_forged_question_is_not_shown_and_goes(two: Two) -> None:
    two.ask()
    two.team.database.run(
        lambda cursor: cursor.execute(
            "insert into question (team, id, host, host_epoch, doc, sig)"
            " select team, name, 'box', host_epoch, repeat('x', size), sig"
            " from question, (values ('small', 5), ('huge', 70000000)) as forged (name, size)"
        )
    )
    two.look()
    assert len(two.shown) == 1
    assert two.rows() == 1


@pytest.mark.parametrize(
    "act", ["delete from question", "update question set doc = '{}'", "update question set host = ''"]
)
def test_a_question_that_somebody_takes_away_or_changes_is_asked_again(two: Two, act: str) -> None:
    two.ask()
    two.team.database.run(lambda cursor: cursor.execute(act))
    two.start_lead()
    two.look()
    two.sent.changed("")
    wait_until(lambda: two.look() and len(two.shown) == 2)
    two.answer(two.shown[1])
    two.sent.changed("")
    assert two.asked.wait_until_closed() == YES


def test_an_old_answer_is_none_to_another_question(two: Two) -> None:
    two.answer(two.ask())
    ((answer, signature),) = two.team.database.fetch(
        "select answer, answer_sig from question where team = %(team)s", {"team": two.team.id}
    )
    two.sent.changed("")
    assert two.asked.wait_until_closed() == YES
    two.asked = Question("alice", "bash", Display("rm -rf", ""), "")
    two.sent.ask(two.asked)
    wait_until(lambda: two.rows() == 1)
    put_back = "update question set answer = %(answer)s, answer_sig = %(sig)s where team = %(team)s returning 1"
    two.team.database.fetch(put_back, {"team": two.team.id, "answer": answer, "sig": signature})
    two.sent.changed("")
    assert two.asked.is_open


def test_a_question_of_an_earlier_process_is_not_asked_again_in_the_name_of_a_later_one(
    two: Two, make_host: HostMaker
) -> None:
    two.ask()
    expire(two.team, "box")
    later = make_host("box")
    two.team.database.run(lambda cursor: cursor.execute("update question set host_epoch = %s", (later.epoch,)))
    two.start_lead()
    two.look()
    assert len(two.shown) == 1


# Long ones


def test_a_question_of_several_megabytes_is_shown_as_a_whole(two: Two) -> None:
    text = "x" * 5_000_000 + "the end"
    two.asked = Question("alice", "write_file", Display("Write a.txt", "", text), "")
    assert two.ask().display.text == text
    two.answer(two.shown[0])
    two.sent.changed("")
    assert two.asked.wait_until_closed() == YES


def test_a_question_that_is_too_large_for_a_row_is_refused_with_the_reason(two: Two) -> None:
    asked = Question("alice", "write_file", Display("Write a.txt", "", "x" * 64_000_000), "")
    with pytest.raises(CallRefused, match=r"a person would have to see 64,000,.* do it in smaller steps"):
        two.sent.ask(asked)
    assert two.rows() == 0


def test_a_question_that_the_database_refuses_is_answered_at_once(two: Two) -> None:
    two.team.database.run(lambda cursor: cursor.execute("alter table question add constraint full_up check (false)"))
    try:
        two.sent.ask(two.asked)
        given = two.asked.wait_until_closed()
        wait_until(lambda: not any(each.name.startswith("question ") for each in threading.enumerate()))
    finally:
        two.team.database.run(lambda cursor: cursor.execute("alter table question drop constraint full_up"))
    assert given
    assert given.consent is Consent.NOBODY
