"""Compaction from the outside: what is sent to the model, what stays on disk, what a restart finds."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.fake_api import (
    FakeAPI,
    answer,
    said_by_user,
    stall_after,
    stall_before_headers,
    status,
    text,
    tool,
    tool_results,
)
from tests.support.program import Program
from tests.support.running import Running
from tests.support.screen import Screen
from tests.support.team_script import After, TeamScript

BYPASS = ("--permission-mode", "bypassPermissions")
STORY = "once upon a time " * 200
PAGE = "x" * 99 + "\n"
TOO_LONG = status(400, message="prompt is too long: 210000 tokens > 200000 maximum")


@pytest.fixture
def small(program: Program) -> Program:
    program.settings(context_tokens=100_000, retries=0)
    return program


def full(*parts: Any) -> Any:
    """An answer after which the context is nearly full."""
    return answer(*parts, usage={"input_tokens": 90_000})


def whole(request: dict[str, Any]) -> str:
    return json.dumps(request["messages"])


def is_for_a_summary(request: dict[str, Any]) -> bool:
    return "will be replaced by a summary" in said_by_user(request)


def compactions(program: Program, name: str = "lead") -> list[dict[str, Any]]:
    return [row for row in program.lines(f".team/transcripts/{name}.jsonl") if row["kind"] == "compaction"]


def test_old_results_are_shortened_first_and_nothing_is_asked(small: Program) -> None:
    for n in range(12):
        (small.directory / f"{n}.txt").write_text(PAGE * 300 if n < 4 else "small")
    reads = full(*(tool("read_file", path=f"{n}.txt") for n in range(12)))
    with FakeAPI([reads, text("done")]) as api:
        small.url = api.url
        ran = small.run("-p", "read", *BYPASS)
    assert ran.code == 0
    assert ran.out == "done\n"
    assert "Context compacted: " in ran.err
    told = [str(block["content"]) for block in tool_results(api.requests[1])]
    assert all("left out to save room" in text and len(text) < 500 for text in told[:4])
    assert all("small" in text for text in told[4:])
    assert sum(len(str(row.get("content"))) > 100_000 for row in small.transcript()) == 1  # whole, on disk


def test_a_full_context_is_summarized_before_the_next_call(small: Program) -> None:
    with FakeAPI([text("a"), full(text("b")), text("SO FAR"), text("c"), text("d")]) as api:
        small.url = api.url
        out = small.run(stdin=f"first {STORY}\nsecond\nthird\n").out
        again = small.run("-p", "--continue", "fourth")
    assert "Context compacted: 90k → " in out
    assert "SO FAR" not in out
    assert again.out == "d\n"
    asked, after, later = api.requests[2:]
    assert is_for_a_summary(asked)
    assert asked["tools"] == api.requests[1]["tools"]
    assert asked["messages"][:4] == [*api.requests[1]["messages"], {"role": "assistant", "content": [_text("b")]}]
    (only,) = after["messages"]
    assert "SO FAR" in whole(after)
    assert only["content"][-1] == _text("third")
    assert "first" not in whole(after)
    assert "second" not in whole(after)
    assert str(small.directory) in whole(after)
    assert later["messages"][:1] == after["messages"]
    assert after["system"] == asked["system"]
    assert STORY.strip() in str(small.transcript())
    assert len(compactions(small)) == 1
    (event,) = [entry for entry in small.lines(".team/events.jsonl") if entry["event"] == "compacted"]
    assert event["tokens_before"] > 90_000 > event["tokens_after"]
    assert event["summarised"]
    assert "context compacted: " in small.run("log").out


def test_results_that_alone_are_too_much_are_shortened_though_they_are_new(small: Program) -> None:
    for n in range(12):
        (small.directory / f"{n}.txt").write_text(PAGE * 300)
    with FakeAPI([answer(*(tool("read_file", path=f"{n}.txt") for n in range(12))), text("done")]) as api:
        small.url = api.url
        assert small.run("-p", "read", *BYPASS).out == "done\n"
    assert all("left out to save room" in str(block["content"]) for block in tool_results(api.requests[1]))


def test_a_step_that_the_model_has_not_read_yet_stays_whole(small: Program) -> None:
    (small.directory / "a.txt").write_text(PAGE * 300)
    (small.directory / "b.txt").write_text(PAGE * 700)
    script = [tool("read_file", path="a.txt"), tool("read_file", path="b.txt"), text("SO FAR"), text("done")]
    script[1] = answer(script[1], usage={"input_tokens": 70_000})
    with FakeAPI(script) as api:
        small.url = api.url
        assert small.run("-p", "read", *BYPASS).out == "done\n"
    (result,) = tool_results(api.requests[3])
    assert len(str(result["content"])) > 45_000
    assert "a.txt" not in whole(api.requests[3])


def _text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


def test_a_summary_counts_as_a_model_call(small: Program) -> None:
    with FakeAPI([full(text("a")), text("SO FAR")]) as api:
        small.url = api.url
        small.run("-p", STORY)
        ran = small.run("-p", "--continue", "b", "--max-turns", "1", "--output-format", "json")
    assert ran.code == 3
    assert ran.json["num_turns"] == 1
    assert len(compactions(small)) == 1


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_program_killed_before_or_after_the_compaction_line_continues(small: Program, moment: str) -> None:
    stalled = answer(stall_before_headers())
    answers = [stalled, text("SO FAR")] if moment == "before" else [text("SO FAR"), stalled]
    with FakeAPI([full(text("a")), *answers, text("end")]) as api:
        small.url = api.url
        small.run("-p", f"first {STORY}")
        process = small.start("-p", "--continue", "second")
        api.wait_for_stall()
        process.kill()
        process.communicate(timeout=60)
        assert small.run("-p", "--continue", "third").out == "end\n"
    last = api.requests[-1]
    assert "SO FAR" in whole(last)
    assert "first" not in whole(last)
    assert len(compactions(small)) == 1
    assert [block["text"] for block in last["messages"][0]["content"]][-2:] == ["second", "third"]


class TestByHand:
    def test_compact_asks_with_the_words_of_the_user(self, program: Program) -> None:
        with program.against([text("a"), text("b"), text("it was BLUE"), text("c")]) as api:
            out = program.run(stdin=f"one {STORY}\ntwo\n/compact the colour of things\nthree\n").out
        assert "keep above all: the colour of things" in said_by_user(api.requests[2])
        assert "Context compacted: " in out
        assert "BLUE" not in out
        said = [message["content"] for message in api.requests[3]["messages"]]
        assert "BLUE" in str(said[0])
        assert said[0][-1] == _text("two")
        assert said[1:] == [[_text("b")], [_text("three")]]

    def test_with_nothing_to_compact_it_says_so(self, program: Program) -> None:
        with program.against([text("a")]):
            out = program.run(stdin="/compact\none\n/compact words\n").out
        assert out.count("There is nothing to compact") == 2

    def test_it_is_refused_while_the_lead_works(self, program: Program) -> None:
        hire = tool("spawn_teammate", name="bob", role="reviewer", prompt="x")
        script = TeamScript(
            lead=[hire, text("hired"), answer(text("never"), stall_after(2))], bob=[After(2, text("done"))]
        )
        with program.against(script) as api, Running(program) as repl:
            repl.type("go")
            api.wait_for_stall()
            repl.type("/compact words")
            repl.wait_for("the lead is working")

    def test_at_a_terminal_it_holds_the_lead_and_ctrl_c_ends_it(self, program: Program) -> None:
        with program.against([text("a"), text("b"), answer(text("SO"), stall_after(3)), text("c")]) as api:
            program.run("-p", f"one {STORY}")
            program.run("-p", "--continue", "two")
            with Screen(program, "--continue") as screen:
                screen.wait_for("team >>")
                screen.type("/compact words\r")
                api.wait_for_stall()
                screen.type("/clear\r")
                screen.wait_for("is being compacted")
                screen.type("\x03")
                screen.wait_for("Interrupted")
                screen.type("three\r")
                api.wait_for_answers(3)
        assert api.requests[3]["messages"][:3] == api.requests[1]["messages"]
        assert compactions(program) == []

    def test_a_failure_is_reported_and_changes_nothing(self, small: Program) -> None:
        with FakeAPI([text("a"), text("b"), status(500), text("c")]) as api:
            small.url = api.url
            out = small.run(stdin=f"one {STORY}\ntwo\n/compact\nthree\n").out
        assert "teamcli: " in out
        assert "(500)" in out
        assert "Context compacted" not in out
        assert api.requests[3]["messages"][:3] == api.requests[1]["messages"]
        assert compactions(small) == []

    def test_the_embedded_model_shortens_or_says_that_it_cannot(self, program: Program) -> None:
        (program.directory / "big.txt").write_text("word " * 2_000)
        lines = ["/compact", *["read big.txt"] * 10, "/compact", "/compact"]
        out = program.run(stdin="\n".join(lines)).out
        assert out.count("the embedded model writes no summaries") == 2
        assert out.count("Context compacted: ") == 1
        (row,) = compactions(program)
        assert len(row["shortened"]) == 2
        assert not row["opening"]


class TestTooLong:
    def test_what_the_endpoint_calls_too_long_is_compacted_and_asked_again(self, small: Program) -> None:
        with FakeAPI([text("a"), TOO_LONG, text("SO FAR"), text("b")]) as api:
            small.url = api.url
            ran = small.run(stdin=f"one {STORY}\ntwo\n")
        assert ran.code == 0
        assert "Context compacted" in ran.out
        assert ran.out.endswith("b\n")
        asked, after = api.requests[2:]
        assert is_for_a_summary(asked)
        assert "tools" not in asked
        assert len(asked["messages"]) == 1
        assert "SO FAR" in whole(after)
        assert after["messages"][0]["content"][-1] == _text("two")

    def test_it_is_compacted_only_once(self, small: Program) -> None:
        with FakeAPI([text("a"), TOO_LONG, text("SO FAR"), TOO_LONG]) as api:
            small.url = api.url
            ran = small.run(stdin=f"one {STORY}\ntwo\n")
        assert ran.code == 1
        assert "too long" in ran.out

    def test_an_answer_that_fills_the_context_continues(self, small: Program) -> None:
        cut_off = answer(text("one, "), stop_reason="model_context_window_exceeded")
        with FakeAPI([text("a"), cut_off, text("SO FAR"), text("two")]) as api:
            small.url = api.url
            small.run("-p", f"first {STORY}")
            ran = small.run("-p", "--continue", "count")
        assert (ran.code, ran.out) == (0, "one, two\n")
        assert [m["role"] for m in api.requests[3]["messages"]] == ["user", "assistant", "user"]

    def test_a_failed_summary_is_reported_and_the_work_continues(self, small: Program) -> None:
        with FakeAPI([full(text("a")), status(500), full(text("b")), full(text("c"))]) as api:
            small.url = api.url
            out = small.run(stdin=f"one {STORY}\ntwo\nthree\n").out
        assert out.count("could not be compacted") == 1  # and is not tried at every step
        assert STORY.strip() in whole(api.requests[3])
        assert compactions(small) == []


def test_without_a_summary_old_results_are_still_shortened(program: Program) -> None:
    program.settings(context_tokens=20_000, retries=0)
    (program.directory / "page.txt").write_text(PAGE * 60)
    steps = 26

    def model(request: dict[str, Any], n: int) -> Any:
        if is_for_a_summary(request):
            return answer()
        done = sum(not is_for_a_summary(earlier) for earlier in api.requests)
        more = tool("read_file", path="page.txt") if done < steps else text("done")
        return answer(more, usage={"input_tokens": len(whole(request)) // 4})

    with program.against(model) as api:
        ran = program.run("-p", "read it again and again", *BYPASS)
    assert (ran.code, ran.out) == (0, "done\n")
    assert "could not be summarized" in ran.err
    assert compactions(program)
    assert len(api.requests) < 1.5 * steps


def test_a_call_in_place_of_a_summary_is_not_run_and_the_conversation_is_sent_as_text(small: Program) -> None:
    call = tool("bash", command="touch ran")
    with FakeAPI([full(text("a")), call, text("SO FAR"), text("b")]) as api:
        small.url = api.url
        small.run(*BYPASS, stdin=f"one {STORY}\ntwo\n")
    assert "tools" not in api.requests[2]
    assert "assistant: a" in whole(api.requests[2])
    assert "SO FAR" in whole(api.requests[3])
    assert not (small.directory / "ran").exists()


def test_a_teammate_still_knows_who_it_is(small: Program) -> None:
    (small.directory / "story.txt").write_text(STORY)
    script = TeamScript(
        lead=[tool("spawn_teammate", name="alice", role="coder", prompt="count the words"), text("hired"), text("end")],
        alice=[
            tool("read_file", path="story.txt"),
            full(tool("read_file", path="story.txt")),
            text("SO FAR"),
            text("800 words"),
        ],
    )
    with FakeAPI(script) as api:
        small.url = api.url
        ran = small.run("-p", "go", *BYPASS)
    assert ran.code == 0
    assert "alice: Context compacted: " in ran.err
    after = script.requests["alice"][3]
    assert after["system"][0]["text"].startswith("You are alice, coder")
    assert [message["role"] for message in after["messages"]] == ["user", "assistant", "user"]
    opening = json.dumps(after["messages"][0])
    for told in ("SO FAR", "You are alice, coder", "alice (coder): working", "count the words"):
        assert told in opening, told
    assert "800 words" in whole(script.requests["lead"][-1])


def test_mail_that_was_read_stays_read_and_open_requests_are_listed(small: Program) -> None:
    hire = tool("spawn_teammate", name="alice", role="coder", prompt="plan it", plan=True)

    def lead(request: dict[str, Any], n: int) -> Any:
        """What it says to alice's plan and to her result; both may come at once."""
        words = said_by_user(request)
        if n == 0:
            return hire
        said = {"and?": "hm", "on": "fresh"}
        return text("SO FAR") if is_for_a_summary(request) else text(said.get(words.split("\n")[0], f"a plan {STORY}"))

    script = TeamScript(
        lead=lead,
        alice=[tool("submit_plan", plan="step by step"), text("I wait")],
    )
    with FakeAPI(script) as api:
        small.url = api.url
        small.run(*BYPASS, stdin="go\n/wait\nand?\n/compact all\n")
        positions = [row["marks"]["inbox"] for row in small.transcript() if "inbox" in row.get("marks", {})]
        assert small.run("-p", "--continue", "on", *BYPASS).out == "fresh\n"
    opening = json.dumps(script.requests["lead"][-1]["messages"][0])
    assert "You are the lead" in opening
    assert "a plan of alice waits for a review" in opening
    assert "step by step" not in opening
    assert positions
    assert not any("inbox" in row.get("marks", {}) for row in small.transcript()[-3:])


def test_a_long_turn_in_a_small_context_keeps_working(program: Program) -> None:
    """Each request fits, the task is never lost, and the API, which is strict, refuses none."""
    window = 16_000
    program.settings(context_tokens=window, durable=False)
    steps = 0

    def script(request: dict[str, Any], n: int) -> Any:
        nonlocal steps
        tokens = len(json.dumps(request)) // 4
        assert tokens < window
        assert "the long task" in whole(request)
        if is_for_a_summary(request):
            return answer(text(f"done so far: {steps} steps"), usage={"input_tokens": tokens})
        steps += 1
        step = tool("bash", command="seq 900") if steps < 60 else text("all done")
        return answer(step, usage={"input_tokens": tokens})

    with program.against(script):
        ran = program.run("-p", "the long task", *BYPASS)
    assert (ran.code, ran.out) == (0, "all done\n")
    assert len(compactions(program)) >= 3
    assert any(row["opening"] for row in compactions(program))


def test_an_invalid_share_or_size_is_reported(program: Program) -> None:
    for values in ({"compact_at": 0}, {"compact_at": 80}, {"context_tokens": 0}):
        program.settings(**values)
        ran = program.run("-p", "x")
        assert ran.code == 2
        assert next(iter(values)) in ran.err


def test_a_fork_still_knows_its_job(small: Program) -> None:
    """It begins with results for the calls that its parent was making, which are no words to repeat."""
    step = full(tool("bash", command="echo three ants"))
    script = TeamScript(
        lead=[tool("bash", command=f"echo {STORY}"), tool("agent", prompt="count the ants"), text("end")],
        **{"sa-1": [step, text("SO FAR"), text("seven ants")]},
    )
    with FakeAPI(script) as api:
        small.url = api.url
        ran = small.run("-p", "go", *BYPASS)
    assert ran.code == 0, ran.err
    asked, after = script.requests["sa-1"][1:]
    assert is_for_a_summary(asked)
    opening = after["messages"][0]["content"]
    assert "SO FAR" in opening[0]["text"]
    assert "You are sa-1" in opening[1]["text"]
    assert opening[2:] == [_text("count the ants")]
