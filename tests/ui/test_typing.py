"""Typing at the prompt: while agents work, over several lines, with history, an editor and other modes."""

from __future__ import annotations

import json
import stat

import pytest

from teamcli.ui.terminal.repl import queued_lines
from tests.support.fake_api import answer, said_by_user, stall_after, text, tool, tool_results
from tests.support.program import Program
from tests.support.screen import Screen
from tests.support.waiting import wait_until

PROMPT = "team >>"
ALT_ENTER, UP, SHIFT_TAB, ESCAPE = "\x1b\r", "\x1b[A", "\x1b[Z", "\x1b"


def wait_for_only_the_bar_below(screen: Screen) -> None:
    """Until the last rows of the screen are the prompt, on one row, and the two of the status bar."""

    def is_so() -> bool:
        return len(screen.text.splitlines()) > 2 and screen.text.splitlines()[-3].startswith(PROMPT)

    screen._wait_until(is_so, "a prompt with only the status bar below it")


def stalled(words: str = "half an answer") -> object:
    return answer(text(words, pieces=2), stall_after(4))


def test_a_line_typed_while_the_lead_works_is_queued_and_steers_at_the_next_tool_boundary(program: Program) -> None:
    script = [answer(tool("bash", command="true"), stall_after(2)), text("as you like")]
    with program.against(script) as api, Screen(program, "--permission-mode", "bypassPermissions") as screen:
        screen.wait_for(PROMPT)
        screen.type("work\r")
        api.wait_for_stall()
        screen.type("use tabs\r")
        screen.wait_for("queued: use tabs")
        api.release()
        screen.wait_for("as you like")
        assert "queued" not in screen.text
        assert f"{PROMPT} use tabs" in screen.text
    assert "use tabs" in said_by_user(api.requests[1])


def test_up_takes_a_queued_line_back(program: Program) -> None:
    with program.against([stalled(), text("x")]) as api, Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("work\r")
        api.wait_for_stall()
        screen.type("a mistake\r")
        screen.wait_for("queued: a mistake")
        screen.type(UP)
        screen.wait_for(f"{PROMPT} a mistake")
        assert "queued" not in screen.text
        screen.type("\x15")
        api.release()
        screen.wait_for("○ lead")
    assert len(api.requests) == 1


def test_an_interruption_brings_queued_lines_back_to_the_prompt(program: Program) -> None:
    with program.against([stalled()]) as api, Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("work\r")
        api.wait_for_stall()
        screen.type("and then this\r")
        screen.wait_for("queued: and then this")
        screen.type(ESCAPE)
        screen.wait_for("Interrupted")
        screen.wait_for(f"{PROMPT} and then this")
    assert len(api.requests) == 1


def test_a_typed_line_ends_the_leads_wait_for_messages(program: Program) -> None:
    with (
        program.against([tool("wait_for_message", timeout_seconds=600), text("at once")]) as api,
        Screen(program) as screen,
    ):
        screen.wait_for(PROMPT)
        screen.type("work\r")
        screen.wait_for("● lead wait for message")
        screen.type("hello\r")
        screen.wait_for("at once")
    assert said_by_user(api.requests[1]).endswith("hello")
    assert tool_results(api.requests[1])[-1]["content"] == "(the user has written to you)"


def test_the_end_of_a_streamed_answer_is_above_the_prompt_and_half_typed_text_stays(program: Program) -> None:
    with (
        program.against([answer(text("first block\n\nthe growing end", pieces=2), stall_after(4)), text("x")]) as api,
        Screen(program) as screen,
    ):
        screen.wait_for(PROMPT)
        screen.type("work\r")
        api.wait_for_stall()
        screen.type("half typed")
        screen.wait_for("first block")
        screen.wait_for(f"{PROMPT} half typed")
        assert screen.text.index("first block") < screen.text.index("half typed")
        api.release()
        screen.wait_for_all("growing end", "○ lead", f"{PROMPT} half typed")
        screen.type(" on")  # forces one more drawing
        screen.wait_for(f"{PROMPT} half typed on")
        assert screen.text.count("growing end") == 1


def test_several_lines_and_a_long_paste_arrive_whole(program: Program) -> None:
    pasted = "\n".join(f"pasted line {number}" for number in range(200))
    with program.against([text("one"), text("two")]) as api, Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type(f"first\nsecond{ALT_ENTER}third\r")
        screen.wait_for("one")
        screen.type(f"look at \x1b[200~{pasted}\x1b[201~")
        screen.wait_for("look at [pasted 200 lines, 1]")
        screen.type(" please\r")
        screen.wait_for("two")
    assert "first\nsecond\nthird" in said_by_user(api.requests[0])
    assert f"look at {pasted} please" in said_by_user(api.requests[1])


def test_up_after_a_long_paste_brings_back_its_mark_also_in_the_next_session(program: Program) -> None:
    pasted = "\n".join(f"pasted line {number}" for number in range(300))
    with program.against([text("one"), text("two"), text("three")]) as api:
        with Screen(program, columns=60) as screen:
            screen.wait_for("default")
            screen.type(f"look at \x1b[200~{pasted}\x1b[201~ please\r")
            screen.wait_for("one")
            screen.type(UP)
            screen.wait_for(f"{PROMPT} look at [pasted 300 lines, 1] please")
            wait_for_only_the_bar_below(screen)
            screen.type("\r")
            screen.wait_for("two")
            screen.type("q\r")
            screen.wait_for_end()
        with Screen(program, columns=60) as screen:
            screen.wait_for(PROMPT)
            screen.type(UP)
            screen.wait_for(f"{PROMPT} q")
            screen.type(UP)
            screen.wait_for(f"{PROMPT} look at [pasted 300 lines, earlier 1] please")
            screen.type("\r")
            screen.wait_for("three")
    assert [f"look at {pasted} please" in said_by_user(request) for request in api.requests] == [True, True, True]


def test_a_queued_paste_comes_back_as_its_mark(program: Program) -> None:
    with program.against([stalled(), text("x")]) as api, Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("work\r")
        api.wait_for_stall()
        screen.type("see \x1b[200~" + "line\n" * 50 + "\x1b[201~\r")
        screen.wait_for("queued: see")
        screen.type(UP)
        screen.wait_for(f"{PROMPT} see [pasted 50 lines, 1]")
        api.release()


def test_history_lasts_in_the_project_and_can_be_searched(program: Program) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("read needle.txt\r")
        screen.wait_for("needle.txt", 2)
        screen.type("list\r")
        screen.wait_for("list", 2)
        screen.type("q\r")
        screen.wait_for_end()
    history = program.directory / ".team/history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("\x12need")
        screen.wait_for("read needle.txt")


def test_an_editor_can_be_used_for_a_line(program: Program) -> None:
    editor = program.directory / "editor.sh"
    editor.write_text("#!/bin/sh\nprintf 'written elsewhere' > \"$1\"\n")
    editor.chmod(0o755)
    program.variables["EDITOR"] = str(editor)
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("\x18\x05")
        screen.wait_for(f"{PROMPT} written elsewhere")


def test_a_setting_turns_vi_mode_on(program: Program) -> None:
    settings = program.home / ".teamcli/settings.json"
    settings.parent.mkdir()
    settings.write_text(json.dumps({"vi_mode": True}))
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("wrong word")
        screen.wait_for("wrong word")
        screen.type(ESCAPE)
        screen.type("0dwi")
        screen.wait_for(f"{PROMPT} word")


def test_shift_tab_cycles_through_the_modes_and_they_apply_at_once(program: Program) -> None:
    with program.against([tool("write_file", path="a.txt", content="x"), text("written")]), Screen(program) as screen:
        screen.wait_for("default")
        screen.type(SHIFT_TAB)
        screen.wait_for("acceptEdits")
        screen.type(SHIFT_TAB)
        screen.wait_for("· plan")
        screen.type(SHIFT_TAB)
        screen.wait_for("· default")
        screen.type(SHIFT_TAB + "go\r")
        screen.wait_for("written")
    assert (program.directory / "a.txt").exists()


def test_folded_output_can_be_expanded(program: Program) -> None:
    with (
        program.against([tool("bash", command="seq 3 1000 3000"), text("counted")]),
        Screen(program, "--permission-mode", "bypassPermissions") as screen,
    ):
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for("counted")
        assert "3 lines" in screen.text
        assert "2003" not in screen.text
        screen.type("\x0f")
        screen.wait_for("2003")


@pytest.mark.parametrize("keys", ["\x03", ESCAPE])
def test_a_shell_command_shows_its_output_and_can_be_ended(program: Program, keys: str) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("!echo from the shell; printf unfinished; touch started; sleep 60\r")
        wait_until(lambda: (program.directory / "started").exists())
        screen.wait_for("\nfrom the shell")
        screen.wait_for("\nunfinished")
        screen.wait_for("Esc: interrupt")
        screen.type(keys)
        screen.wait_for("Interrupted")
        assert screen.text.index("\nunfinished") < screen.text.index("Interrupted")
        screen.type("/cost\r")
        screen.wait_for("COST")


def test_all_output_of_a_shell_command_is_shown(program: Program) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("!seq 1 9000\r")
        screen.wait_for("\n9000\n")
        screen.type("!head -c 30000 /dev/zero | tr '\\0' x\r")
        screen.wait_for("xxx")
        screen.wait_for(PROMPT)
    assert all(f"\n{number}\r" in screen.raw for number in range(2, 9000))
    assert "left out" not in screen.raw


def test_a_line_typed_before_the_prompt_appears_is_served(program: Program) -> None:
    program = Program(program.directory, program.home)  # a new Python, for which there is time to type
    with Screen(program) as screen:
        screen.type("/cost\r")
        screen.wait_for("COST")


def test_a_line_that_a_program_writes_with_a_newline_is_served(program: Program) -> None:
    """As pexpect's `sendline` does."""
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("/cost\n")
        screen.wait_for("COST")
        screen.type("!echo a; echo b\n/team\n")
        screen.wait_for("\na\nb\n")
        screen.wait_for("NAME")


def test_ctrl_j_alone_starts_a_new_line(program: Program) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("!echo one")
        screen.wait_for("team >> !echo one")
        screen.type("\n")
        screen.type("echo two")
        screen.wait_for("\n        echo two")
        screen.type("\r")
        screen.wait_for("\none\ntwo\n")


def test_lines_of_two_shell_commands_are_not_mixed(program: Program) -> None:
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("!printf one-; until [ -e go ]; do sleep 0.02; done; echo half\r")
        screen.wait_for("\none-\n")
        screen.type("!echo two; touch go\r")
        screen.wait_for("\none-half\n")
        screen.wait_for("\ntwo\n")


def test_only_the_newest_queued_lines_are_shown() -> None:
    texts = [f"line {number}" for number in range(9)]
    lines = ["".join(text for text, _ in line) for line in queued_lines([*texts, "long " * 30], 60)]
    assert lines[:2] == ["  8 more queued", "  queued: line 8"]
    assert lines[2].endswith("…  (Up takes it back)")
    assert len(lines[2]) <= 60
    assert queued_lines([], 60) == []


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_enter_takes_the_only_completion_even_before_the_menu_appears(program: Program, columns: int) -> None:
    (program.directory / "main_entry.py").write_text("x\n")
    with program.against([text("read it")]) as api, Screen(program, columns=columns) as screen:
        screen.wait_for(PROMPT)
        screen.type("explain @mainent\r")
        screen.wait_for(f"{PROMPT} explain @main_entry.py")
        assert not api.requests
        screen.type("\r")
        screen.wait_for("read it")
        screen.type("/mo\r")
        screen.wait_for("choose >>")
    assert "explain @main_entry.py" in said_by_user(api.requests[0])


def test_enter_sends_a_line_as_it_is_if_the_user_has_restored_it(program: Program) -> None:
    (program.directory / "property_list.py").touch()
    with program.against([text("a decorator")]) as api, Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("explain @property\r")
        screen.wait_for(f"{PROMPT} explain @property_list.py")
        screen.type("\x1f")  # Ctrl-_ undoes it
        screen.wait_for(f"{PROMPT} explain @property\n")
        screen.type("\r")
        screen.wait_for("a decorator")
    assert "explain @property" in said_by_user(api.requests[0]).splitlines()


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_an_unknown_word_after_an_at_sign_is_mentioned_before_the_line_is_sent(program: Program, columns: int) -> None:
    with program.against([text("which file?")]) as api, Screen(program, columns=columns) as screen:
        screen.wait_for("default")
        screen.type("look at @nothing.py and @../up")
        screen.wait_for("@nothing.py, @../up: no such file or teammate")
        assert "default" in screen.text or columns == 60
        screen.type("\r")
        screen.wait_for("which file?")
        assert "no such file" not in screen.text
    assert len(api.requests) == 1


@pytest.mark.parametrize("lines", [12, 40])
def test_the_menu_and_long_text_leave_no_blank_rows_behind(program: Program, lines: int) -> None:
    with Screen(program, lines=lines) as screen:
        screen.wait_for("default")
        screen.type("!seq 9\r")
        screen.wait_for("\n9\n")
        screen.type("/")
        screen.wait_for("/send NAME TEXT")
        screen.type("\x15")
        wait_for_only_the_bar_below(screen)
        screen.type("\x1b[200~" + "long\n" * 8 + "last\x1b[201~")
        screen.wait_for("last")
        screen.type("\x03")
        wait_for_only_the_bar_below(screen)
