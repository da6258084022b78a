"""A model of the host program's own."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from teamcli import CancelScope, ModelError, Outcome, Reply, Request, Usage, events
from teamcli.errors import Cancelled
from teamcli.llm.types import OnEvent, TextDelta
from tests.sdk.conftest import Open
from tests.sdk.models import Model, call, said, scripted, who_asks

CALL = call("bash", command="ls")


def raising(error: BaseException) -> Model:
    def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        if len(model.requests) == 1:
            raise error
        return said("well again")

    model = Model(say)
    return model


def returning(value: Any) -> Model:
    model = Model(lambda *_: value if len(model.requests) == 1 else said("well again"))
    return model


class TestWhatGoesWrong:
    @pytest.mark.parametrize(
        ("model", "words"),
        [
            (raising(KeyError("oops")), "Model failed: KeyError: 'oops'"),
            (raising(SystemExit(1)), "Model failed: SystemExit: 1"),
            (raising(Cancelled("by itself")), "Model failed: Cancelled: by itself"),
            (raising(ModelError("the quota is used up")), "the quota is used up"),
            (returning("text"), "stream must return a teamcli.Reply, not str"),
            (returning(Reply(("text",), "end_turn", Usage())), "must be a dictionary"),  # type: ignore[arg-type]
            (returning(Reply(({"type": "tool_use", "name": "bash"},), "tool_use", Usage())), "has no id"),
            (returning(Reply((CALL, CALL), "tool_use", Usage())), "have the same id"),
            (returning(Reply((), "end_turn", None)), "teamcli.Usage"),  # type: ignore[arg-type]
        ],
    )
    def test_a_model_error_is_a_failed_turn_and_the_session_continues(
        self, opened: Open, model: Model, words: str
    ) -> None:
        session = opened(llm=model)
        happened = list(session.submit("go"))
        assert happened[-1].outcome is Outcome.FAILED
        assert words in str(happened[-1].error)
        assert isinstance(happened[-1].error, ModelError)
        assert any(isinstance(event, events.Notice) and words in event.text for event in happened)
        assert session.run("again").text == "well again"

    def test_a_teammates_failure_reaches_the_lead(self, opened: Open) -> None:
        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            if who_asks(request) == "alice":
                raise ValueError("no words")
            spawned = call("spawn_teammate", name="alice", role="coder", prompt="go")
            return said("", spawned) if len(model.requests) == 1 else said("I see")

        model = Model(say)
        session = opened(llm=model)
        assert session.run("go").is_done
        assert "ValueError: no words" in session.team[0].error
        assert "ValueError: no words" in str(model.requests[-1].messages)

    def test_a_model_that_ignores_cancellation_is_abandoned_and_the_next_call_waits_for_it(self, opened: Open) -> None:
        began, end, together = threading.Event(), threading.Event(), []

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            if len(model.requests) == 1:
                on_event(TextDelta("half of it"))
                began.set()
                end.wait(60)
                on_event(TextDelta("too late"))
            together.append(len(model.requests))
            return said("the whole of it")

        model = Model(say)
        session = opened(llm=model)
        heard: list[Any] = []
        session.subscribe(heard.append, events.TextArrived)
        listening = session.submit("go")
        assert began.wait(30)
        assert session.interrupt()
        happened = list(listening)
        assert happened[-1].outcome is Outcome.INTERRUPTED
        again = session.submit("again")
        assert not session.wait(0.05)
        end.set()
        assert list(again)[-1].text == "the whole of it"
        assert together == [1, 2]
        assert [event.text for event in heard] == ["half of it"]
        assert "half of it" in str(model.requests[1].messages)
        assert "too late" not in str(model.requests[1].messages)


class TestWhose:
    def test_an_instance_serves_all_agents_one_call_at_a_time_and_is_not_closed(self, opened: Open) -> None:
        inside: list[str] = []
        most: list[int] = []
        model = scripted(
            lead=[said("", *(call("agent", prompt="go", subagent_type="general") for _ in range(4))), "over"]
        )
        say = model._say

        def one_by_one(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            inside.append(who_asks(request))
            most.append(len(inside))
            cancel.wait(0.01)
            inside.pop()
            return say(request, on_event, cancel)

        model._say = one_by_one
        session = opened(llm=model)
        session.run("go")
        session.close()
        assert max(most) == 1
        assert len(model.requests) == 6
        assert not model.is_closed

    def test_a_factory_makes_one_for_each_agent_which_the_session_closes(self, opened: Open) -> None:
        made: list[Model] = []
        met = threading.Barrier(2)

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            if who_asks(request) != "lead":
                met.wait(30)  # both are inside at the same time
                return said("done")
            helpers = [call("agent", prompt="go", subagent_type="general") for _ in range(2)]
            return said("", *helpers) if len(made) == 1 else said("over")

        def make() -> Model:
            made.append(Model(say))
            return made[-1]

        session = opened(llm=make)
        assert session.run("go").text == "over"
        session.close()
        assert len(made) == 3
        assert all(model.is_closed for model in made)

    def test_the_models_name_is_in_the_requests(self, opened: Open) -> None:
        for given, name in (({}, "own"), ({"model": "mine"}, "mine")):
            model = scripted(lead=["hi"])
            session = opened(llm=model, **given)
            session.run("go")
            session.close()
            assert model.requests[0].preamble.model == session.model == name
            assert session.cost_usd is None
            assert session.notes == ()
