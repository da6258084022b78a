"""`teamcli` with stdin not a terminal: each line one task or command, run in order."""

from __future__ import annotations

import re
import signal
import subprocess

from teamcli.commands.catalog import COMMANDS
from teamcli.commands.elsewhere import INSTEAD
from tests.support.fake_api import answer, stall_after, text, tool, tool_results
from tests.support.program import Program
from tests.support.running import Running
from tests.support.team_script import After, TeamScript

BYPASS = ("--permission-mode", "bypassPermissions")


def test_lines_are_tasks_that_share_one_conversation(program: Program) -> None:
    with program.against([text("first"), tool("bash", command="echo out"), text("second")]) as api:
        ran = program.run(*BYPASS, stdin="one\n\ntwo\n")
    assert ran.code == 0
    assert ran.out.index("first") < ran.out.index("> bash: out") < ran.out.index("second")
    assert len(api.requests[1]["messages"]) == 3


def test_a_prompt_on_the_command_line_is_the_first_task(program: Program) -> None:
    with program.against([text("a"), text("b")]) as api:
        program.run("one", stdin="two\n")
    assert "one" in str(api.requests[0]["messages"])
    assert "two" in str(api.requests[1]["messages"][-1])


def test_quit_words_leave_at_once(program: Program) -> None:
    for word in ("q", "exit", "/quit"):
        with program.against([]):
            ran = program.run(stdin=f"{word}\nnever reached\n")
        assert (ran.code, ran.err) == (0, "")


def test_at_the_end_of_input_no_one_waits_for_a_message_that_cannot_come(program: Program) -> None:
    hire = tool("spawn_teammate", name="alice", role="coder", prompt="wait")
    wait = tool("wait_for_message", timeout_seconds=600)
    script = TeamScript(lead=[hire, text("hired"), text("end")], alice=[wait, After(2, text("alone"))])
    with program.against(script):
        ran = program.run(stdin="go\n")
    assert ran.code == 0
    assert "end" in ran.out
    assert "nobody is left" in str(tool_results(script.requests["alice"][1])[0]["content"])


def test_the_lead_does_not_wait_for_a_line_that_is_read_only_after_its_turn(program: Program) -> None:
    hire = tool("spawn_teammate", name="alice", role="coder", prompt="wait")
    wait = tool("wait_for_message", timeout_seconds=600)
    script = TeamScript(lead=[hire, wait, text("alone"), text("end")], alice=[wait, text("heard you")])
    with program.against(script), Running(program) as repl:
        repl.type("go")
        repl.wait_for("alone")
        assert len(script.requests["alice"]) == 1  # who can still be written to, by the next line
        repl.type("@alice go on")
        repl.wait_for("heard you")
        assert repl.leave() == 0
    assert "nobody is left" in str(tool_results(script.requests["lead"][2])[0]["content"])
    assert "go on" in str(tool_results(script.requests["alice"][1])[0]["content"])


def test_the_model_is_named(program: Program) -> None:
    assert "embedded model" in program.run(stdin="q\n").err


def test_commands_cost_no_model_call(program: Program) -> None:
    with program.against([]):
        ran = program.run(
            stdin="/help\n/cost\n/model\n/model other\n/permissions plan\n/sessions\n/clear\n!echo from the shell\n"
        )
    assert ran.code == 0
    for shown in (
        "/sessions",
        "0 model calls",
        "test-model",
        "Model: other",
        "Mode: plan",
        "new session",
        "from the shell",
    ):
        assert shown in ran.out, shown


def test_an_unknown_command_suggests_the_nearest(program: Program) -> None:
    ran = program.run(stdin="/modle\n/xyzzy\n/permissions yolo\n")
    assert "did you mean /model?" in ran.out
    assert "/help lists them" in ran.out
    assert "acceptEdits" in ran.out


def test_an_unknown_command_that_other_agents_have_says_what_to_do_instead(program: Program) -> None:
    ran = program.run(stdin="/undo\n/Login\n/re\n")
    assert "unknown command /undo: /diff shows what agents have changed, and git restores it" in ran.out
    assert "unknown command /Login: set ANTHROPIC_API_KEY" in ran.out
    assert "did you mean /resume or /reject?" in ran.out


def test_a_command_of_ones_own_comes_before_the_advice(program: Program) -> None:
    path = program.home / ".teamcli/commands/undo.md"
    path.parent.mkdir(parents=True)
    path.write_text("take it back")
    with program.against([text("taken back")]):
        assert "taken back" in program.run(stdin="/undo\n").out


def test_no_advice_is_for_a_command_that_exists() -> None:
    built_in = {name for each in COMMANDS for name in (each.name, *each.aliases)}
    assert not built_in & set(INSTEAD)


def test_every_command_in_an_advice_exists() -> None:
    built_in = {each.name for each in COMMANDS}
    named = {name for advice in INSTEAD.values() for name in re.findall(r"(?:^|\s)/(\w+)", advice)}
    assert named <= built_in


def test_context_shows_how_full_the_window_of_each_agent_is(program: Program) -> None:
    program.settings(context_tokens=1000)
    with program.against([answer(text("hi"), usage={"input_tokens": 300, "output_tokens": 50})]):
        ran = program.run(stdin="hello\n/context\n")
    assert re.search(r"lead +test-model +350 +1,000 +35%", ran.out)


def test_an_error_in_one_task_does_not_stop_the_next(program: Program) -> None:
    with program.against([answer(text("no"), stop_reason="refusal"), text("yes")]):
        ran = program.run(stdin="one\ntwo\n")
    assert ran.code == 1
    assert "yes" in ran.out


def test_no_one_is_asked_and_the_exit_code_says_so(program: Program) -> None:
    with program.against([tool("bash", command="touch made"), text("x")]):
        assert program.run(stdin="one\n").code == 4
    assert not (program.directory / "made").exists()


def test_commands_run_by_the_model_cannot_read_the_users_lines(program: Program) -> None:
    with program.against([tool("bash", command="cat"), text("a"), text("b")]) as api:
        program.run(*BYPASS, stdin="one\ntwo\n")
    assert "two" in str(api.requests[2]["messages"][-1])


def test_a_signal_ends_the_program_with_its_code(program: Program) -> None:
    with program.against([answer(text("x"), stall_after(3))]) as api:
        process = program.start(stdin=subprocess.PIPE)
        assert process.stdin is not None
        process.stdin.write(b"one\n")
        process.stdin.flush()
        api.wait_for_stall()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)
    assert process.returncode == 143


def test_clear_begins_a_new_conversation(program: Program) -> None:
    with program.against([text("a"), text("b")]) as api:
        program.run(stdin="one\n/clear\ntwo\n")
    assert len(api.requests[1]["messages"]) == 1
    assert "one" not in str(api.requests[1]["messages"])
