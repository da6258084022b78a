"""Sub-agents that the host program starts: `session.agents.run`."""

from __future__ import annotations

import asyncio
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from teamcli import AgentEvent, CancelScope, EventKind, Reply, Request, Snapshot, State, TeamError, UsageError, tool
from teamcli.llm.types import OnEvent
from tests.sdk.conftest import Open
from tests.sdk.models import Gate, Model, call, results, said, scripted, who_asks
from tests.support.program import PATIENCE_SECONDS, ROOT
from tests.support.waiting import DEADLINE_SECONDS, wait_until

BYPASS = {"permission_mode": "bypassPermissions"}


def poke(where: str) -> str:
    """Poke something."""
    return f"poked {where}"


def done(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
    return said("done")


class TestRun:
    def test_run_waits_and_returns_the_final_state(self, opened: Open) -> None:
        model = scripted(**{"sa-1": [said("", call("poke", where="left")), "It is soft."]})
        session = opened(llm=model, tools=[tool(poke, harmless=True)])
        ends: list[Snapshot] = []
        session.agents.on_end(ends.append)
        ended = session.agents.run("poke it", description="a job", subagent_type="general")
        assert (ended.id, ended.parent, ended.name, ended.task) == ("sa-1", "lead", "a job", "poke it")
        assert (ended.state, ended.result, ended.is_background) == (State.COMPLETED, "It is soft.", False)
        assert ended.activity.tool_counts == (("poke", 1),)
        assert ends == [ended]
        assert session.inbox() == ()
        assert session.agents.snapshots() == (ended,)

    def test_a_sub_agent_has_the_tools_and_the_model_it_is_given(self, opened: Open) -> None:
        model = scripted()
        session = opened(llm=model, tools=[tool(poke, harmless=True)])
        ended = session.agents.run("look", subagent_type="general", tools=["grep", "poke"], model="small-1")
        assert ended.tools == ("grep", "poke")
        (asked,) = model.requests
        assert [each.name for each in asked.preamble.tools] == ["grep", "poke"]
        assert asked.preamble.model == "small-1"
        assert [block["text"] for block in asked.messages[0].content] == ["look"]

    def test_without_a_type_it_is_a_copy_of_the_lead(self, opened: Open) -> None:
        model = scripted(lead=["hello"], **{"sa-1": [said("", call("bash", command="ls")), "I remember."]})
        session = opened(llm=model, **BYPASS)
        session.run("the word is plum")
        assert session.agents.run("which word?", tools=["read_file"]).result == "I remember."
        assert "the word is plum" in str(model.requests[1].messages)
        assert model.requests[1].preamble == model.requests[0].preamble  # so that the model's cache holds
        assert "bash is not for a sub-agent: it has read_file" in results(model.requests[2])[0]

    def test_a_sub_agent_works_in_the_given_directory(self, opened: Open, place: Path) -> None:
        (place / "src").mkdir()
        model = scripted(**{"sa-1": [said("", call("bash", command="pwd")), "done"]})
        opened(llm=model, **BYPASS).agents.run("look", subagent_type="general", cwd="src")
        assert results(model.requests[1]) == [f"{place}/src"]

    def test_a_failure_is_in_the_snapshot(self, opened: Open) -> None:
        def broken(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            raise KeyError("oops")

        ended = opened(llm=Model(broken)).agents.run("x", subagent_type="general")
        assert ended.state is State.FAILED
        assert "KeyError: 'oops'" in ended.error

    @pytest.mark.parametrize(
        ("given", "error", "words"),
        [
            ({"prompt": " "}, UsageError, "prompt: must not be empty"),
            ({"prompt": 5}, UsageError, "prompt: Input should be a valid string"),
            ({"subagent_type": "pilot"}, TeamError, "there is no role 'pilot'; there are: coder, general"),
            ({"tools": ["fly"]}, TeamError, r"a sub-agent has no tool 'fly' \(there are: bash, read_file"),
            ({"cwd": "nowhere"}, TeamError, "cwd: nowhere"),
        ],
    )
    def test_a_mistake_is_explained_and_starts_nothing(
        self, opened: Open, given: dict[str, Any], error: type[Exception], words: str
    ) -> None:
        session = opened(llm=Model(done))
        with pytest.raises(error, match=words):
            session.agents.run(**{"prompt": "x", "subagent_type": "general", **given})
        assert session.agents.snapshots() == ()

    def test_starting_one_in_a_closed_session_is_an_error(self, opened: Open) -> None:
        session = opened(llm=Model(done))
        agents = session.agents
        session.close()
        with pytest.raises(UsageError, match="the session is closed"):
            agents.run("x")

    def test_closing_the_session_releases_waiting_threads(self, opened: Open) -> None:
        gate, ended = Gate(), list[Snapshot]()
        session = opened(llm=Model(gate.wait))
        waiting = threading.Thread(target=lambda: ended.append(session.agents.run("x", subagent_type="general")))
        waiting.start()
        assert gate.reached.wait(DEADLINE_SECONDS)
        session.close()
        waiting.join(DEADLINE_SECONDS)
        assert [each.state for each in ended] == [State.CANCELLED]


class TestBackground:
    def test_a_background_run_returns_at_once_and_the_session_waits_for_it(self, opened: Open) -> None:
        gate = Gate()
        session = opened(llm=lambda: Model(gate.wait))
        started = session.agents.run("x", subagent_type="general", background=True)
        assert started.is_background
        assert not started.state.is_final
        assert gate.reached.wait(DEADLINE_SECONDS)
        assert not session.wait(0.01)
        gate.open()
        assert session.wait(DEADLINE_SECONDS)
        assert session.agents.snapshot(started.id).result == "the whole of it"

    def test_the_lead_reads_the_report_with_its_next_turn_and_is_not_woken(self, opened: Open) -> None:
        model = scripted(lead=["hello", "I see"], **{"sa-1": ["found"]})
        session = opened(llm=model)
        session.run("hello")
        session.agents.run("look", subagent_type="general", background=True)
        assert session.wait(DEADLINE_SECONDS)
        assert [who_asks(request) for request in model.requests] == ["lead", "sa-1"]
        assert [(mail.message.sender, mail.message.content) for mail in session.inbox()] == [("sa-1", "found")]
        session.run("and?")
        assert "found" in str(model.requests[-1].messages)


class TestWaiting:
    def test_a_sub_agent_that_waits_for_others_lends_them_its_slot(self, opened: Open) -> None:
        """Else one that waits in a tool for another would keep the only slot that the other needs."""

        def delegate() -> str:
            """Have another do it."""
            started = session.agents.run("inner", subagent_type="general", background=True)
            waited = session.agents.wait(started.id).result
            return f"{waited} {session.agents.run('inner', subagent_type='general').result}"

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            if "outer" not in str(request.messages[0]):
                return said("inner done")
            return said("", call("delegate")) if len(request.messages) == 1 else said(results(request)[0])

        settings = {"subagents": {"max_concurrent": 1}}
        session = opened(llm=lambda: Model(say), tools=[delegate], settings=settings, **BYPASS)
        assert session.agents.run("outer", subagent_type="general").result == "inner done inner done"

    def test_a_function_cannot_wait_for_the_sub_agent_that_waits_for_it(self, opened: Open) -> None:
        def wait() -> str:
            """Wait for yourself."""
            with pytest.raises(UsageError, match="sa-1 waits for this function"):
                session.agents.wait("sa-1")
            return "refused"

        model = scripted(**{"sa-1": [said("", call("wait")), "over"]})
        session = opened(llm=model, tools=[wait], **BYPASS)
        session.agents.run("x", subagent_type="general")
        assert results(model.requests[1]) == ["refused"]

    def test_ctrl_c_cancels_it_and_the_session_continues(self, place: Path, clean_environment: Path) -> None:
        code = f"""
from teamcli import Session
with Session({str(place)!r}, offline=True, permission_mode="bypassPermissions") as session:
    session.agents.on_update(lambda it: print("runs", flush=True) if it.activity.current_tool else None)
    try:
        session.agents.run("run sleep 60", subagent_type="general")
    except KeyboardInterrupt:
        print(session.agents.wait("sa-1").state)
    print(session.agents.run("run echo hi", subagent_type="general").result)
"""
        command = [sys.executable, "-c", code]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
            assert process.stdout
            assert process.stdout.readline() == "runs\n"
            process.send_signal(signal.SIGINT)
            out, errors = process.communicate(timeout=PATIENCE_SECONDS)
        said = [line for line in out.splitlines() if line != "runs"]
        assert (said, errors, process.returncode) == (["cancelled", "run echo hi → hi"], "", 0)


class TestAsync:
    def test_several_run_concurrently_in_one_loop(self, opened: Open) -> None:
        met = threading.Barrier(3)

        def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
            met.wait(DEADLINE_SECONDS)
            return said(f"{who_asks(request)} done")

        async def main() -> list[str]:
            runs = [session.agents.run_async("x", subagent_type="general") for _ in range(3)]
            return sorted(each.result for each in await asyncio.gather(*runs))

        session = opened(llm=lambda: Model(say))
        assert asyncio.run(main()) == ["sa-1 done", "sa-2 done", "sa-3 done"]

    def test_cancelling_the_task_cancels_the_sub_agent(self, opened: Open) -> None:
        async def main() -> None:
            task = asyncio.create_task(session.agents.run_async("x", subagent_type="general"))
            while not gate.reached.is_set():
                await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        gate = Gate()
        session = opened(llm=lambda: Model(gate.wait))
        asyncio.run(main())
        assert session.agents.wait("sa-1", DEADLINE_SECONDS).state is State.CANCELLED

    def test_a_background_one_returns_at_once(self, opened: Open) -> None:
        session = opened(llm=lambda: Model(done))
        started = asyncio.run(session.agents.run_async("x", subagent_type="general", background=True))
        assert session.agents.wait(started.id, DEADLINE_SECONDS).result == "done"


MANAGER = """
    NewManager Spawn Run Wait WaitForSnapshot Get List Snapshot GetTaskOutput RunningCount SendToAgent Broadcast Cancel
    CancelAll Shutdown SetOnUpdate SetOnComplete Timeout AcquireSemaphore ReleaseSemaphore RootContext Events ShowOutput
    Complete Notify SetCancel UpdateActivity UpdateProgress IncrementToolCalls AppendEvent RecordEvent
"""
"""The functions of the sub-agent manager that this library has a counterpart for."""


def test_every_function_of_the_manager_has_its_row_in_the_docs() -> None:
    page = (ROOT / "docs/library.md").read_text(encoding="utf-8")
    section = page.split("### Coming from a sub-agent manager")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| (.+?) \|$", section, re.MULTILINE)
    named = {name for left, _ in rows for name in re.findall(r"`(\w+)", left)}
    assert named == set(MANAGER.split())


def test_every_function_of_the_manager_has_a_counterpart(opened: Open) -> None:
    gate, told, ends = Gate(), list[Snapshot](), list[str]()

    def say(request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        if len(request.messages) == 1:
            gate.wait(request, on_event, cancel)
            return said("I poke.", call("poke", where="left"))
        return said("done")

    limits = {"max_concurrent": 2, "timeout_seconds": 600}
    session = opened(llm=lambda: Model(say), tools=[tool(poke, harmless=True)], settings={"subagents": limits})
    agents = session.agents  # NewManager
    assert (agents.limits.max_concurrent, agents.limits.timeout_seconds) == (2, 600)  # Timeout
    agents.on_update(told.append)  # SetOnUpdate
    agents.on_end(lambda snapshot: ends.append(snapshot.id))  # SetOnComplete
    given = {"subagent_type": "general", "tools": ["poke"], "background": True}
    ids = [agents.run(f"job {number}", description=f"job {number}", **given).id for number in range(3)]  # Spawn, Run

    def states() -> list[State]:
        return [each.state for each in agents.snapshots()]  # List

    wait_until(lambda: states() == [State.RUNNING, State.RUNNING, State.PENDING])  # AcquireSemaphore, ReleaseSemaphore
    assert states().count(State.RUNNING) == 2  # RunningCount
    wait_until(lambda: agents.snapshot(ids[0]).activity.progress == "half of it")  # GetTaskOutput, UpdateProgress
    agents.send(ids[0], "hurry")  # SendToAgent
    assert agents.broadcast("all of you") == ids  # Broadcast
    assert agents.cancel(ids[1])
    assert agents.wait(ids[1], DEADLINE_SECONDS).state is State.CANCELLED  # Cancel
    assert agents.wait(ids[0], 0).state is State.RUNNING  # WaitForSnapshot
    gate.open()
    first = agents.wait(ids[0])  # Wait
    assert (first.state, first.result, first.activity.tool_calls) == (State.COMPLETED, "done", 1)  # Snapshot, Get
    wrote = first.activity.events  # Events
    kinds = [EventKind.TEXT, EventKind.TOOL_CALL, EventKind.TOOL_RESULT, EventKind.TEXT]
    assert [event.kind for event in wrote] == kinds
    assert all(isinstance(event, AgentEvent) for event in wrote)
    agents.wait(ids[2], DEADLINE_SECONDS)
    assert agents.cancel_all() == 0  # CancelAll
    session.close()  # Shutdown
    assert sorted(ends) == ids
    assert {each.id for each in told} == set(ids)
