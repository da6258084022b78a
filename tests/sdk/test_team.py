"""The team through the library: what a person can do at the prompt, a program can do with a `Session`."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from teamcli import (
    CancelScope,
    Mail,
    Member,
    MessageType,
    Outcome,
    PlanRequest,
    Reply,
    Request,
    Session,
    TeamcliError,
    TeamError,
    UsageError,
    events,
)
from teamcli.llm.types import OnEvent, TextDelta
from tests.sdk.conftest import Open
from tests.sdk.models import Gate, Model, call, results, said, scripted, who_asks
from tests.support.waiting import DEADLINE_SECONDS, wait_until

BYPASS = {"permission_mode": "bypassPermissions"}


def requests_of(model: Model, name: str) -> list[Request]:
    return [request for request in model.requests if who_asks(request) == name]


def gated(gate: Gate, *names: str) -> Callable[[], Model]:
    """Models that wait at the gate, for these agents; the others say `done`."""

    def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        return gate.wait(request, on_event, cancel) if who_asks(request) in names else said("done")

    return lambda: Model(say)


class TestSpawn:
    def test_a_team_in_files_has_no_other_host(self, opened: Open) -> None:
        session = opened(llm=scripted(alice=["never"]))
        with pytest.raises(TeamError, match="there is no host 'box'"):
            session.spawn("alice", "coder", "say so", host="box")

    def test_a_team_in_files_has_no_name(self, opened: Open) -> None:
        with pytest.raises(UsageError, match="is for a team in a database"):
            opened(llm=scripted(), team="shop")

    def test_spawn_starts_a_teammate_on_the_given_terms(self, opened: Open, place: Path) -> None:
        model = scripted(alice=["I am done."])
        session = opened(llm=model)
        member = session.spawn("alice", "coder", "say so", model="other", tools=["read_file", "grep"])
        assert isinstance(member, Member)
        assert (member.name, member.role, member.model, member.tools) == (
            "alice",
            "coder",
            "other",
            ("read_file", "grep"),
        )
        assert session.wait(DEADLINE_SECONDS)
        (asked,) = requests_of(model, "alice")
        assert asked.preamble.model == "other"
        assert "say so" in str(asked.messages)
        offered = {tool.name for tool in asked.preamble.tools}
        assert {"read_file", "grep"} <= offered
        assert not offered & {"bash", "write_file", "glob"}
        assert session.team[0].status == "idle"

    def test_the_result_is_in_the_leads_inbox_and_does_not_wake_it(self, opened: Open) -> None:
        model = scripted(lead=["hello", "I see"], alice=["first", "second"])
        session = opened(llm=model)
        session.run("hello")
        for task in ("one", "two"):
            session.spawn("alice", "coder", task)
            assert session.wait(DEADLINE_SECONDS)
        assert len(requests_of(model, "lead")) == 1
        assert [(mail.message.type, mail.message.content) for mail in session.inbox()] == [
            (MessageType.RESULT, "first"),
            (MessageType.RESULT, "second"),
        ]
        session.run("and?")
        assert "second" in str(requests_of(model, "lead")[-1].messages)

    def test_spawn_gives_an_idle_teammate_its_next_task_with_its_memory(self, opened: Open) -> None:
        model = scripted(alice=["first", "second"])
        session = opened(llm=model)
        session.spawn("alice", "coder", "one")
        assert session.wait(DEADLINE_SECONDS)
        assert session.spawn("alice", "tester", "two").role == "tester"
        assert session.wait(DEADLINE_SECONDS)
        assert all(word in str(requests_of(model, "alice")[-1].messages) for word in ("one", "first", "two"))

    @pytest.mark.parametrize(
        ("arguments", "error", "words"),
        [
            (("lead", "coder", "x"), TeamError, "'lead' is reserved"),
            (("../x", "coder", "x"), TeamError, "is not a name"),
            (("alice", " ", "x"), UsageError, "role: must not be empty"),
            (("alice", "coder", ""), UsageError, "prompt: must not be empty"),
            (("alice", "coder", 5), UsageError, "prompt: Input should be a valid string"),
            (("bob", "coder", "x"), TeamError, "'bob' is currently working"),
            (("Bob", "coder", "x"), TeamError, "differs from 'bob' only in case"),
        ],
    )
    def test_spawn_is_refused_like_the_tool_and_the_command(
        self, opened: Open, place: Path, arguments: tuple[Any, ...], error: type[TeamcliError], words: str
    ) -> None:
        gate = Gate()
        session = opened(llm=gated(gate, "bob"))
        session.spawn("bob", "coder", "wait")
        assert gate.reached.wait(DEADLINE_SECONDS)
        with pytest.raises(error, match=words):
            session.spawn(*arguments)
        assert [member.name for member in session.team] == ["bob"]
        assert sorted(path.name for path in (place / ".team" / "inbox").glob("*.jsonl")) in ([], ["bob.jsonl"])
        gate.open()

    def test_an_unknown_tool_lists_the_tools_there_are(self, opened: Open) -> None:
        with pytest.raises(TeamError, match=r"no tool 'fly' \(there are: bash, read_file"):
            opened(offline=True).spawn("alice", "coder", "x", tools=["fly"])

    def test_spawn_needs_a_team_and_an_open_session(self, opened: Open) -> None:
        alone = opened(offline=True, team=False)
        with pytest.raises(UsageError, match="open it without team=False"):
            alone.spawn("alice", "coder", "x")
        alone.close()
        for use in (lambda: alone.spawn("alice", "coder", "x"), lambda: alone.stop("alice"), alone.inbox):
            with pytest.raises(UsageError, match="the session is closed"):
                use()


class TestSteering:
    def test_stop_interrupts_and_resume_continues(self, opened: Open) -> None:
        gate = Gate()
        session = opened(llm=gated(gate, "alice"))
        session.spawn("alice", "coder", "wait")
        assert gate.reached.wait(DEADLINE_SECONDS)
        assert session.stop("alice")
        assert session.wait(DEADLINE_SECONDS)
        assert (session.team[0].status, session.team[0].interrupted) == ("idle", True)
        assert not session.stop("alice")
        gate.open()
        assert session.resume("alice").name == "alice"
        assert session.wait(DEADLINE_SECONDS)
        assert session.inbox()[-1].message.content == "the whole of it"

    def test_stop_ends_the_lead_and_sub_agents_too(self, opened: Open) -> None:
        gate = Gate()
        session = opened(llm=gated(gate, "lead", "sa-1"))
        assert not session.stop("lead")
        listening = session.submit("go")
        assert gate.reached.wait(DEADLINE_SECONDS)
        assert session.stop("Lead")
        assert list(listening)[-1].outcome is Outcome.INTERRUPTED
        started = session.agents.run("wait", subagent_type="general", background=True)
        assert session.stop(started.id)
        assert session.agents.wait(started.id, DEADLINE_SECONDS).state == "cancelled"

    def test_messages_from_others_do_not_wake_a_paused_teammate(self, opened: Open) -> None:
        write = said("", call("send_message", to="alice", content="and?"))
        model = scripted(lead=[write, "written"], alice=["first", "second"])
        session = opened(llm=model)
        session.spawn("alice", "coder", "one")
        assert session.wait(DEADLINE_SECONDS)
        assert session.pause("alice").paused
        session.run("write to alice")
        assert len(requests_of(model, "alice")) == 1
        assert [mail.is_read for mail in session.inbox("alice")] == [False]
        assert not session.resume("alice").paused
        assert session.wait(DEADLINE_SECONDS)
        assert len(requests_of(model, "alice")) == 2

    def test_shutdown_ends_an_idle_one_at_once_and_asks_a_working_one(self, opened: Open) -> None:
        gate = Gate()

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            if who_asks(request) != "bob":
                return said("done")
            if len(request.messages) == 1:
                gate.wait(request, on_event, cancel)
                return said("", call("list"))
            asked = str(request.messages[-1].content[-1].get("text", ""))
            id = asked.split('request_id="')[1].split('"')[0]
            return said("", call("shutdown_response", request_id=id, approve=True))

        session = opened(llm=lambda: Model(say))
        session.spawn("alice", "coder", "one")
        assert session.wait(DEADLINE_SECONDS)
        assert session.shutdown("alice").status == "shutdown"
        session.spawn("bob", "coder", "wait")
        assert gate.reached.wait(DEADLINE_SECONDS)
        assert session.shutdown("bob", "enough for today").status == "working"
        gate.open()
        wait_until(lambda: session.team[1].status == "shutdown")
        request = next(mail.message for mail in session.inbox("bob") if mail.message.type == "shutdown_request")
        assert (request.sender, request.content) == ("user", "enough for today")

    @pytest.mark.parametrize("verb", ["stop", "pause", "resume", "shutdown", "inbox"])
    def test_an_unknown_name_is_an_error_that_lists_those_there_are(self, opened: Open, verb: str) -> None:
        session = opened(llm=scripted(alice=["done"]))
        session.spawn("alice", "coder", "one")
        with pytest.raises(TeamError, match="there is no teammate 'ghost'; there are: alice"):
            getattr(session, verb)("ghost")


class TestInbox:
    def test_inbox_returns_all_messages_and_consumes_none(self, opened: Open, place: Path) -> None:
        model = scripted(lead=["hello", "I see"], alice=["done"])
        session = opened(llm=model)
        session.run("hello")
        session.spawn("alice", "coder", "one")
        assert session.wait(DEADLINE_SECONDS)
        with (place / ".team" / "inbox" / "lead.jsonl").open("a") as inbox:
            inbox.write('{"type":"message","from":"ci","content":"red"}\n')
        for _ in range(2):
            result, foreign = session.inbox()
            assert isinstance(result, Mail)
            assert (result.number, result.is_read) == (1, False)
            assert (result.message.sender, result.message.to, result.message.content) == ("alice", "lead", "done")
            assert (foreign.message.sender, foreign.message.is_foreign, foreign.message.content) == ("ci", True, "red")
        session.run("and?")
        assert "red" in str(model.requests[-1].messages)
        assert [mail.is_read for mail in session.inbox()] == [True, True]

    def test_the_inbox_of_a_shut_down_teammate_is_still_there(self, opened: Open) -> None:
        session = opened(llm=scripted(alice=["done", "done again"]))
        session.spawn("alice", "coder", "one")
        session.wait(DEADLINE_SECONDS)
        session.send("alice", "and now?")
        session.wait(DEADLINE_SECONDS)
        session.shutdown("alice")
        assert [(mail.message.content, mail.is_read) for mail in session.inbox("Alice")] == [("and now?", True)]


class TestPlans:
    def test_before_an_approval_no_tool_that_changes_anything_runs_even_in_bypass(
        self, opened: Open, place: Path
    ) -> None:
        made: list[str] = []

        def own_tool() -> str:
            """A function of the program's may touch anything."""
            made.append("made")
            return "done"

        (place / "there.txt").write_text("as it was")
        calls = [
            call("bash", command="touch made"),
            call("bash", command="touch made", background=True),
            call("write_file", path="made", content="x"),
            call("edit_file", path="there.txt", old_text="was", new_text="is"),
            call("own_tool"),
            call("agent", prompt="touch it", subagent_type="general"),
        ]
        model = scripted(alice=[said("", *calls), "refused"], **{"sa-1": [said("", *calls[:5]), "refused"]})
        session = opened(llm=model, tools=[own_tool], **BYPASS)
        session.spawn("alice", "coder", "go", plan=True)
        assert session.wait(DEADLINE_SECONDS)
        for name, count in (("alice", 6), ("sa-1", 5)):
            said_to_it = results(requests_of(model, name)[1])
            assert len(said_to_it) == count
            assert all("refused until a plan" in each for each in said_to_it[:5]), name
        assert made == []
        assert (place / "there.txt").read_text() == "as it was"
        assert sorted(path.name for path in place.iterdir()) == [".team", "there.txt"]

    def test_plans_are_listed_and_answered(self, opened: Open, place: Path) -> None:
        write = said("", call("write_file", path="a.txt", content="x"))
        plans = [said("", call("submit_plan", plan=f"plan {number}")) for number in (1, 2)]
        model = scripted(alice=[write, plans[0], "waiting", plans[1], "waiting", write, "written"])
        session = opened(llm=model, **BYPASS)
        assert session.spawn("alice", "coder", "write it", plan=True).plan
        assert session.plans == ()
        assert session.wait(DEADLINE_SECONDS)
        assert "refused until a plan" in results(requests_of(model, "alice")[1])[0]
        (plan,) = session.plans
        assert isinstance(plan, PlanRequest)
        assert (plan.teammate, plan.text) == ("alice", "plan 1")
        session.reject(plan.id, "shorter")
        assert session.wait(DEADLINE_SECONDS)
        assert "shorter" in str(requests_of(model, "alice")[3].messages[-1])
        (second,) = session.plans
        session.approve(second.id, "good")
        assert session.wait(DEADLINE_SECONDS)
        assert session.plans == ()
        assert (place / "a.txt").read_text() == "x"
        with pytest.raises(TeamError, match=f"{second.id} was already approved by user"):
            session.reject(second.id)
        with pytest.raises(TeamError, match="there is no request 'req-1'; none is open"):
            session.approve("req-1")


class TestFromAnyThread:
    def test_a_listener_may_spawn_while_another_thread_does(self, opened: Open) -> None:
        """An agent that tells of its own hiring holds a lock that hiring needs."""
        hearing, hiring = threading.Event(), threading.Event()
        made: list[Model] = []

        def make() -> Model:
            made.append(Model(lambda *_: said("done")))
            if len(made) == 3:  # the model of carol, who is being hired
                hiring.set()
                assert hearing.wait(DEADLINE_SECONDS)
            return made[-1]

        def hire(event: events.TurnEnded) -> None:
            if event.agent == "alice":
                hearing.set()
                assert hiring.wait(DEADLINE_SECONDS)
                hired.append(session.spawn("bob", "coder", "two"))

        hired: list[Member] = []
        session = opened(llm=make)
        session.subscribe(hire, events.TurnEnded)
        session.spawn("alice", "coder", "one")
        other = threading.Thread(target=session.spawn, args=("carol", "coder", "three"), daemon=True)
        other.start()
        other.join(DEADLINE_SECONDS)
        assert not other.is_alive()
        wait_until(lambda: hired)
        assert session.wait(DEADLINE_SECONDS)
        assert sorted(member.name for member in session.team) == ["alice", "bob", "carol"]

    def test_a_listener_may_do_everything(self, opened: Open) -> None:
        def act(event: events.TurnEnded) -> None:
            if event.agent != "alice":
                return
            done.append(session.wait(DEADLINE_SECONDS))
            session.spawn("bob", "coder", "two")
            session.send("bob", "three")
            session.pause("alice")
            done.append(session.agents.run("four", subagent_type="general").result)
            done.append(session.run("five").text)
            done.append(session.shutdown("alice").status)
            acted.set()

        done: list[Any] = []
        acted = threading.Event()
        session = opened(llm=lambda: Model(lambda *_: said("done")))
        session.subscribe(act, events.TurnEnded)
        session.spawn("alice", "coder", "one")
        assert acted.wait(DEADLINE_SECONDS)
        assert done == [True, "done", "done", "shutdown"]

    def test_a_tool_may_spawn_and_stop(self, opened: Open) -> None:
        def hire() -> str:
            """Hire somebody."""
            session.spawn("bob", "coder", "two")
            wait_until(lambda: gate.reached.is_set())
            return f"{session.stop('bob')} {session.pause('bob').paused} {session.plans}"

        gate = Gate()

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            if who_asks(request) == "bob":
                return gate.wait(request, on_event, cancel)
            return said("", call("hire")) if len(request.messages) == 1 else said(results(request)[0])

        session = opened(llm=lambda: Model(say), tools=[hire], **BYPASS)
        assert session.run("go").text == "True True ()"

    def test_many_threads_at_once_lose_nothing(self, opened: Open) -> None:
        def work(number: int) -> None:
            name = f"mate{number}"
            session.spawn(name, "coder", "one")
            session.send(name, "two")
            session.pause(name)
            session.resume(name)
            session.inbox(name)

        heard: list[str] = []
        session = opened(llm=lambda: Model(lambda *_: said("done")))
        session.subscribe(lambda event: heard.append(session.team[0].name), events.StatusChanged)
        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_SECONDS)
        assert not any(thread.is_alive() for thread in threads)
        assert session.wait(DEADLINE_SECONDS)
        assert len(session.team) == 8
        assert heard
        assert all(mail.is_read for number in range(8) for mail in session.inbox(f"mate{number}"))


class TestListeners:
    def test_listeners_have_received_everything_when_a_run_ends_and_block_no_one(self, opened: Open) -> None:
        let_go, stuck = threading.Event(), threading.Event()

        def get_stuck(event: events.TurnStarted) -> None:
            stuck.set()
            let_go.wait(DEADLINE_SECONDS)

        session = opened(llm=scripted(lead=["one", "two"]))
        heard: list[str] = []
        stop = session.subscribe(lambda event: heard.append(event.text), events.TurnEnded)
        session.run("go")
        assert heard == ["one"]
        stop()
        session.subscribe(get_stuck, events.TurnStarted)
        assert session.run("again").text == "two"
        assert stuck.is_set()
        let_go.set()
        assert heard == ["one"]

    def test_a_removed_listener_receives_nothing_more(self, opened: Open) -> None:
        def once(event: events.TextArrived) -> None:
            heard.append(event.text)
            stop()

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            for number in range(5):
                on_event(TextDelta(str(number)))
            return said("01234")

        heard: list[str] = []
        session = opened(llm=Model(say))
        stop = session.subscribe(once, events.TextArrived)
        session.run("go")
        assert heard == ["0"]


def test_an_exception_in_a_listener_does_not_affect_the_session(opened: Open) -> None:
    def leave(event: events.TurnStarted) -> None:
        raise SystemExit(3)

    session: Session = opened(llm=scripted(lead=["one", "two"]))
    heard: list[str] = []
    session.subscribe(leave, events.TurnStarted)
    session.subscribe(lambda event: heard.append(event.text), events.TurnEnded)
    assert [session.run("go").text, session.run("again").text] == heard == ["one", "two"]
