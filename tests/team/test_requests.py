"""The rules of the protocols: who may ask, who may answer, once, in time, in the incarnation that was asked."""

from __future__ import annotations

import json
import re
import threading

import pytest

from teamcli.errors import TeamError
from teamcli.team.requests import CLOSED_KEPT, SHUTDOWN_SECONDS, Kind, Request, Requests, State


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def requests(clock: Clock) -> Requests:
    return Requests(clock=clock, ticks=clock)


def test_a_shutdown_request_is_approved_by_the_teammate_it_addresses(requests: Requests) -> None:
    request = requests.open_shutdown("alice", 1, "lead", "done here")
    assert re.fullmatch(r"req-[0-9a-f]{8}", request.id)
    assert requests.all_open("ALICE", Kind.SHUTDOWN) == (request,)

    answered = requests.answer(request.id, "alice", True, "bye", incarnation=1)

    assert (answered.state, answered.answered_by, answered.feedback) == (State.APPROVED, "alice", "bye")
    assert requests.all_open() == ()
    assert requests.get(request.id) == answered


def test_a_shutdown_request_may_be_rejected(requests: Requests) -> None:
    request = requests.open_shutdown("alice", 1, "user")
    assert requests.answer(request.id, "alice", False, "not yet", incarnation=1).state is State.REJECTED


@pytest.mark.parametrize("asker", ["bob", "alice", "", "Lead", "team"])
def test_only_lead_and_user_may_ask_for_a_shutdown(requests: Requests, asker: str) -> None:
    with pytest.raises(TeamError, match="only the lead or the user"):
        requests.open_shutdown("alice", 1, asker)
    assert requests.all() == ()


@pytest.mark.parametrize("forger", ["bob", "lead", "user", ""])
def test_nobody_else_answers_a_shutdown_request(requests: Requests, forger: str) -> None:
    request = requests.open_shutdown("alice", 1, "lead")
    with pytest.raises(TeamError, match="is addressed to 'alice'"):
        requests.answer(request.id, forger, True, incarnation=1)
    assert requests.all_open() == (request,)


@pytest.mark.parametrize("incarnation", [1, 3, None])
def test_another_incarnation_does_not_answer_a_shutdown_request(requests: Requests, incarnation: int | None) -> None:
    request = requests.open_shutdown("alice", 2, "lead")
    with pytest.raises(TeamError, match="another incarnation"):
        requests.answer(request.id, "alice", True, incarnation=incarnation)
    assert requests.all_open() == (request,)


def test_a_second_shutdown_request_is_refused_while_one_is_open(requests: Requests) -> None:
    first = requests.open_shutdown("alice", 1, "lead")
    with pytest.raises(TeamError, match=f"already been asked to shut down .{first.id}"):
        requests.open_shutdown("alice", 1, "user")
    requests.open_shutdown("bob", 1, "user")
    requests.answer(first.id, "alice", False, incarnation=1)
    assert requests.open_shutdown("alice", 1, "user").id != first.id


@pytest.mark.parametrize("reviewer", ["lead", "user"])
@pytest.mark.parametrize(("approve", "state"), [(True, State.APPROVED), (False, State.REJECTED)])
def test_lead_or_user_reviews_a_plan(requests: Requests, reviewer: str, approve: bool, state: State) -> None:
    request = requests.open_plan("alice", 1, "1. look 2. fix")
    assert (request.asker, request.text, request.deadline) == ("alice", "1. look 2. fix", None)
    answered = requests.answer(request.id, reviewer, approve, "careful")
    assert (answered.state, answered.answered_by, answered.feedback) == (state, reviewer, "careful")


@pytest.mark.parametrize("forger", ["alice", "bob", "Lead", "USER", ""])
def test_no_teammate_reviews_a_plan_not_even_its_own(requests: Requests, forger: str) -> None:
    request = requests.open_plan("alice", 1, "plan")
    with pytest.raises(TeamError, match="only the lead or the user may review"):
        requests.answer(request.id, forger, True, incarnation=1)
    assert requests.all_open() == (request,)


def test_the_first_answer_counts_and_a_replay_is_answered_with_that(requests: Requests) -> None:
    plan = requests.open_plan("alice", 1, "plan")
    requests.answer(plan.id, "lead", False, "no")
    for reviewer in ("user", "lead"):
        with pytest.raises(TeamError, match="was already rejected by lead"):
            requests.answer(plan.id, reviewer, True)
    assert requests.get(plan.id).state is State.REJECTED

    shutdown = requests.open_shutdown("alice", 1, "lead")
    requests.answer(shutdown.id, "alice", True, incarnation=1)
    with pytest.raises(TeamError, match="was already approved by alice"):
        requests.answer(shutdown.id, "alice", True, incarnation=1)


def test_of_many_answers_at_once_exactly_one_counts(requests: Requests) -> None:
    plan = requests.open_plan("alice", 1, "plan")
    barrier = threading.Barrier(8)
    accepted: list[str] = []
    refused: list[str] = []

    def answer(number: int) -> None:
        barrier.wait(30)
        try:
            accepted.append(requests.answer(plan.id, "lead", True, str(number)).feedback)
        except TeamError as e:
            refused.append(str(e))

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert accepted == [requests.get(plan.id).feedback]
    assert len(refused) == 7


def test_a_new_plan_voids_the_one_that_waited(requests: Requests) -> None:
    other = requests.open_plan("bob", 1, "bob's")
    old = requests.open_plan("alice", 1, "old")
    new = requests.open_plan("Alice", 1, "new")
    assert requests.all_open(kind=Kind.PLAN) == (other, new)
    with pytest.raises(TeamError, match=r"void.*newer plan"):
        requests.answer(old.id, "lead", True)
    requests.answer(new.id, "lead", True)


def test_an_unknown_request_is_answered_with_those_that_stand(requests: Requests) -> None:
    with pytest.raises(TeamError, match=r"there is no request 'req-0'; none is open"):
        requests.answer("req-0", "lead", True)
    plan = requests.open_plan("alice", 1, "plan")
    with pytest.raises(TeamError, match=rf"open requests: {plan.id} \(plan, alice\)"):
        requests.get("req-0")


def test_a_shutdown_request_lapses_at_its_deadline_and_is_reported_once(requests: Requests, clock: Clock) -> None:
    request = requests.open_shutdown("alice", 1, "lead")
    plan = requests.open_plan("bob", 1, "plans never lapse")
    assert request.deadline == clock.now + SHUTDOWN_SECONDS
    assert requests.seconds_left(request) == SHUTDOWN_SECONDS
    clock.now += SHUTDOWN_SECONDS - 0.001
    assert requests.expire() == []
    clock.now += 0.001
    assert [lapsed.id for lapsed in requests.expire()] == [request.id]
    assert requests.expire() == []
    assert requests.get(request.id).state is State.LAPSED
    assert requests.all_open() == (plan,)
    with pytest.raises(TeamError, match="has lapsed"):
        requests.answer(request.id, "alice", True, incarnation=1)


def test_an_answer_after_the_deadline_is_refused_even_before_anyone_noticed(requests: Requests, clock: Clock) -> None:
    request = requests.open_shutdown("alice", 1, "lead")
    clock.now += SHUTDOWN_SECONDS
    with pytest.raises(TeamError, match="has lapsed"):
        requests.answer(request.id, "alice", True, incarnation=1)
    assert [lapsed.id for lapsed in requests.expire()] == [request.id]


def test_a_clock_that_is_set_back_or_forward_changes_no_deadline() -> None:
    wall, ticks = Clock(), Clock()
    requests = Requests(clock=wall, ticks=ticks)
    request = requests.open_shutdown("alice", 1, "lead")
    wall.now += 24 * 3600
    assert requests.expire() == []
    wall.now -= 48 * 3600
    ticks.now += SHUTDOWN_SECONDS
    assert [lapsed.id for lapsed in requests.expire()] == [request.id]


@pytest.mark.parametrize(("passed", "left"), [(-7200.0, SHUTDOWN_SECONDS), (20.0, 40.0), (7200.0, 0.0)])
def test_a_restart_waits_for_what_is_left_and_never_longer_than_the_full_time(passed: float, left: float) -> None:
    wall = Clock()
    opened = Requests(clock=wall, ticks=Clock()).open_shutdown("alice", 1, "lead")
    wall.now += passed
    restarted = Requests(clock=wall, ticks=Clock())
    restarted.load([opened])
    assert restarted.seconds_left(opened) == left


def test_the_user_overtakes_the_lead_and_a_repeat_is_known_as_one(requests: Requests) -> None:
    of_lead = requests.open_shutdown("alice", 1, "lead")
    of_user = requests.insist("alice", 1)
    assert of_user is not None
    assert requests.all_open() == (of_user,)
    assert requests.get(of_lead.id).state is State.VOID
    assert requests.insist("ALICE", 1) is None


def test_the_user_who_was_refused_repeats_the_request_but_a_new_incarnation_is_asked_first(requests: Requests) -> None:
    first = requests.insist("alice", 1)
    assert first is not None
    requests.answer(first.id, "alice", False, incarnation=1)
    assert requests.insist("alice", 1) is None
    assert requests.insist("alice", 2) is not None


def test_an_answer_just_in_time_counts(requests: Requests, clock: Clock) -> None:
    request = requests.open_shutdown("alice", 1, "lead")
    clock.now += SHUTDOWN_SECONDS - 0.001
    assert requests.answer(request.id, "alice", True, incarnation=1).state is State.APPROVED
    clock.now += 1
    assert requests.expire() == []


def test_void_closes_what_is_open_for_one_teammate_only(requests: Requests) -> None:
    shutdown = requests.open_shutdown("alice", 1, "lead")
    plan = requests.open_plan("alice", 1, "plan")
    other = requests.open_plan("bob", 1, "plan")
    assert {request.id for request in requests.void("ALICE")} == {shutdown.id, plan.id}
    assert requests.all_open() == (other,)
    for request, by in ((shutdown, "alice"), (plan, "lead")):
        with pytest.raises(TeamError, match="is void"):
            requests.answer(request.id, by, True, incarnation=1)


def test_the_last_closed_requests_are_remembered_and_open_ones_always(requests: Requests) -> None:
    first = requests.open_plan("carol", 1, "still open")
    ids = []
    for number in range(CLOSED_KEPT + 5):
        ids.append(requests.open_plan("alice", 1, str(number)).id)
        requests.answer(ids[-1], "lead", True)
    assert requests.all_open() == (first,)
    assert {request.id for request in requests.all()} == {first.id, *ids[5:]}


def test_a_request_survives_being_written_and_read_with_fields_of_others() -> None:
    request = Request("req-1", Kind.SHUTDOWN, "alice", 2, "lead", 5.0, 65.0, "why", unknown={"colour": ["red"]})
    assert Request.from_dict(json.loads(json.dumps(request.to_dict()))) == request
    assert request.to_dict()["colour"] == ["red"]


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"kind": "coup"}, "coup"),
        ({"state": "maybe"}, "maybe"),
        ({"incarnation": True}, "incarnation"),
        ({"deadline": "soon"}, "deadline"),
        ({"id": None}, "id"),
    ],
)
def test_a_request_that_makes_no_sense_is_not_read(change: dict[str, object], problem: str) -> None:
    raw = json.loads(json.dumps(Request("req-1", Kind.PLAN, "alice", 1, "alice", 5.0).to_dict()))
    assert Request.from_dict(raw).is_open
    with pytest.raises(ValueError, match=problem):
        Request.from_dict({**raw, **change})
    with pytest.raises(ValueError, match="asker is missing"):
        Request.from_dict({key: value for key, value in raw.items() if key != "asker"})
