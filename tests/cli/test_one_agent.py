"""Contract §4 for one agent, seen at the API: what is sent to the model, whatever it answers and whatever fails."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.fake_api import (
    answer,
    cut_after,
    error_event,
    malformed_event,
    other_block,
    said_by_user,
    text,
    thinking,
    tool,
    tool_json,
    tool_results,
)
from tests.support.program import Program, Ran

BYPASS = ("--permission-mode", "bypassPermissions")


def run(program: Program, script: Any, *arguments: str) -> tuple[Ran, list[dict[str, Any]]]:
    with program.against(script) as api:
        ran = program.run("-p", "the task", *BYPASS, *arguments)
    api.assert_prefix_stable()
    return ran, api.requests


def results(request: dict[str, Any]) -> list[str]:
    return [str(block["content"]) for block in tool_results(request)]


class TestStopReasons:
    def test_text_that_was_cut_is_continued_and_joined(self, program: Program) -> None:
        ran, requests = run(program, [answer(text("one, two, "), stop_reason="max_tokens"), text("three")])
        assert (ran.code, ran.out) == (0, "one, two, three\n")
        assert "cut off" in ran.err
        assert "cut off" in said_by_user(requests[1])

    def test_a_cut_call_gets_an_error_and_a_whole_one_next_to_it_runs(self, program: Program) -> None:
        cut = answer(
            tool("bash", command="echo whole"), tool_json("bash", '{"command": "rm -r'), stop_reason="max_tokens"
        )
        ran, requests = run(program, [cut, text("done")])
        assert (ran.code, results(requests[1])[0]) == (0, "whole")
        assert "cut off" in results(requests[1])[1]
        assert tool_results(requests[1])[1]["is_error"]

    def test_the_last_call_of_a_cut_answer_is_not_run_although_it_reads_well(self, program: Program) -> None:
        cut = answer(tool("write_file", path="half.txt", content="half of it"), stop_reason="max_tokens")
        ran, requests = run(program, [cut, text("done")])
        assert ran.code == 0
        assert "cut off" in results(requests[1])[0]
        assert tool_results(requests[1])[0]["is_error"]
        assert not (program.directory / "half.txt").exists()

    def test_an_answer_that_is_always_cut_ends(self, program: Program) -> None:
        ran, requests = run(program, lambda request, n: answer(text("more "), stop_reason="max_tokens"))
        assert ran.code == 1
        assert len(requests) == 11
        assert "still cut off after 10 continuations" in ran.err

    def test_a_paused_answer_is_continued(self, program: Program) -> None:
        ran, requests = run(program, [answer(text("wait"), stop_reason="pause_turn"), text("done")])
        assert (ran.code, len(requests)) == (0, 2)
        assert requests[1]["messages"][-1]["role"] == "user"

    def test_a_full_context_is_reported(self, program: Program) -> None:
        ran, _ = run(program, [answer(text("half"), stop_reason="model_context_window_exceeded")])
        assert ran.code == 1
        assert "context" in ran.err

    @pytest.mark.parametrize("reason", ["refusal", "model_context_window_exceeded"])
    def test_calls_of_an_answer_that_ended_badly_are_closed(self, program: Program, reason: str) -> None:
        with program.against([answer(tool("bash", command="touch ran"), stop_reason=reason), text("ok")]) as api:
            assert program.run("-p", "x", *BYPASS).code == 1
            assert program.run("-p", "--continue", "and now?").out == "ok\n"
        assert reason in str(tool_results(api.requests[1])[0]["content"])
        assert not (program.directory / "ran").exists()

    def test_an_unknown_reason_is_reported_and_ends_the_turn(self, program: Program) -> None:
        ran, _ = run(program, [answer(text("hm"), stop_reason="novelty")])
        assert (ran.code, ran.out) == (0, "hm\n")
        assert "novelty" in ran.err

    def test_an_empty_answer_is_reported_and_not_kept(self, program: Program) -> None:
        with program.against([answer(), text("ok")]) as api:
            ran = program.run("-p", "first")
            assert (ran.code, ran.out) == (0, "")
            assert "empty answer" in ran.err
            assert program.run("-p", "--continue", "second").out == "ok\n"
        assert [message["role"] for message in api.requests[1]["messages"]] == ["user"]


class TestToolCalls:
    def test_every_kind_of_bad_call_gets_its_own_error_result(self, program: Program) -> None:
        calls = answer(
            tool("no_such_tool", x=1),
            tool("bash"),
            tool("bash", command="true", timeout_seconds="soon"),
            tool("bash", command="true", cwd="/"),
            tool("read_file", path="missing.txt"),
            tool("bash", command="echo fine"),
        )
        ran, requests = run(program, [calls, text("done")])
        told = results(requests[1])
        assert ran.code == 0
        assert "no_such_tool" in told[0]
        assert "bash" in told[0]
        assert "command" in told[1]
        assert "timeout_seconds" in told[2]
        assert "cwd" in told[3]
        assert "missing.txt" in told[4]
        assert told[5] == "fine"
        assert [bool(block.get("is_error")) for block in tool_results(requests[1])] == [True] * 5 + [False]

    def test_commands_of_one_answer_run_at_the_same_time(self, program: Program) -> None:
        meet = "touch {0}; for i in $(seq 600); do [ -e {1} ] && exit 0; sleep 0.05; done; exit 1"
        both = answer(tool("bash", command=meet.format("a", "b")), tool("bash", command=meet.format("b", "a")))
        _, requests = run(program, [both, text("done")])
        assert results(requests[1]) == ["(no output)", "(no output)"]

    def test_results_come_in_call_order_whatever_ends_first(self, program: Program) -> None:
        calls = [
            tool("bash", command=f"until [ -e go{n + 1} ] || [ {n} = 3 ]; do sleep 0.01; done; touch go{n}; echo {n}")
            for n in range(4)
        ]
        _, requests = run(program, [answer(*calls), text("done")])
        assert results(requests[1]) == ["0", "1", "2", "3"]

    def test_calls_that_conflict_keep_their_order(self, program: Program) -> None:
        calls = answer(
            tool("bash", command="sleep 0.3; echo one > a.txt"),
            tool("read_file", path="a.txt"),
            tool("edit_file", path="a.txt", old_text="one", new_text="two"),
            tool("bash", command="cat a.txt"),
            tool("read_file", path="a.txt"),
        )
        _, requests = run(program, [calls, text("done")])
        told = results(requests[1])
        assert "one" in told[1]
        assert told[3] == "two"
        assert "two" in told[4]

    def test_arguments_that_are_not_a_json_object_are_an_error_result(self, program: Program) -> None:
        ran, requests = run(program, [answer(tool_json("bash", '["ls"]')), text("done")])
        assert ran.code == 0
        assert tool_results(requests[1])[0]["is_error"]


class TestStreams:
    def test_thinking_goes_back_unchanged(self, program: Program) -> None:
        ran, requests = run(program, [answer(thinking("let me see"), tool("bash", command="true")), text("done")])
        sent = requests[1]["messages"][1]["content"][0]
        assert ran.code == 0
        assert sent["type"] == "thinking"
        assert sent["signature"]

    def test_blocks_of_a_kind_we_do_not_know_go_back_unchanged(self, program: Program) -> None:
        block = {"type": "server_thing", "data": {"x": [1, 2]}}
        _, requests = run(program, [answer(other_block(block), tool("bash", command="true")), text("done")])
        assert block in requests[1]["messages"][1]["content"]

    @pytest.mark.parametrize("fault", [cut_after(3), malformed_event(), error_event("overloaded_error")])
    def test_a_broken_stream_is_tried_again_and_leaves_no_trace(self, program: Program, fault: Any) -> None:
        ran, requests = run(
            program, [answer(text("half a"), tool("bash", command="touch twice"), fault), text("whole")]
        )
        assert (ran.code, ran.out) == (0, "whole\n")
        assert "Retrying in" in ran.err
        assert requests[0] == requests[1]
        assert not (program.directory / "twice").exists()


class TestContext:
    def test_the_prefix_is_small_and_never_changes(self, program: Program) -> None:
        ran, requests = run(program, [tool("bash", command="date +%N")] * 3 + [text("done")])
        import json

        size = len(json.dumps(requests[0]["system"])) + len(json.dumps(requests[0]["tools"]))
        assert ran.code == 0
        assert size <= 12_500
        assert all(request["system"] == requests[0]["system"] for request in requests)
        assert all(request["tools"] == requests[0]["tools"] for request in requests)

    def test_instructions_of_project_and_user_are_read(self, program: Program) -> None:
        (program.directory / "AGENTS.md").write_text("Use tabs.")
        (program.directory / "CLAUDE.md").write_text("@AGENTS.md\n")
        (program.home / ".teamcli").mkdir()
        (program.home / ".teamcli" / "AGENTS.md").write_text("Be terse.")
        _, requests = run(program, [text("ok")])
        system = requests[0]["system"][0]["text"]
        assert system.count("Use tabs.") == 1
        assert "Be terse." in system

    def test_facts_about_the_environment_come_with_the_first_message_only(self, program: Program) -> None:
        (program.directory / ".git").mkdir()
        (program.directory / ".git" / "HEAD").write_text("ref: refs/heads/topic/x\n")
        _, requests = run(program, [tool("bash", command="true"), text("ok")])
        first = said_by_user(requests[0])
        assert str(program.directory) in first
        assert "topic/x" in first
        assert str(requests[1]["messages"][2:]).count("topic/x") == 0
        assert "topic/x" not in str(requests[0]["system"])

    def test_text_can_be_appended_to_the_system_prompt(self, program: Program) -> None:
        _, requests = run(program, [text("ok")], "--append-system-prompt", "Speak like a pirate.")
        assert requests[0]["system"][0]["text"].endswith("Speak like a pirate.")

    def test_caching_can_be_turned_off(self, program: Program) -> None:
        _, requests = run(program, [text("ok")])
        assert "cache_control" in requests[0]
        program.settings(prompt_caching=False)
        _, requests = run(program, [text("ok")])
        assert "cache_control" not in str(requests[0])


@pytest.mark.parametrize("client", ["direct", "sdk"])
def test_both_clients_do_the_work(program: Program, client: str) -> None:
    ran, requests = run(program, [tool("bash", command="echo hi"), text("done")], "--client", client)
    assert (ran.code, ran.out, results(requests[1])) == (0, "done\n", ["hi"])
