"""The screen turned to one member: what it shows, where typed lines go, and what the return shows."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import pytest

from tests.support.fake_api import answer, drip, stall_after, stall_before_headers, text, tool
from tests.support.program import Program
from tests.support.running import Running
from tests.support.screen import BEGIN_FRAME, END_FRAME, Screen
from tests.support.team_script import After, TeamScript
from tests.support.waiting import wait_until

PROMPT = "team >>"
SHIFT_UP, SHIFT_DOWN, ESC, CTRL_C, CTRL_T = "\x1b[1;2A", "\x1b[1;2B", "\x1b", "\x03", "\x14"
EVENTS_BEFORE_TEXT = 2
LEAD_STEPS = 40
LEAD_STEP = re.compile(r"lead step (\d{3})\b")
THINKS = answer("This text never arrives.", stall_before_headers())


def steps(who: str, count: int) -> str:
    return "".join(f"{who} step {number:03d} of its work\n\n" for number in range(count))


def hire(*names: str) -> Any:
    return answer(*(tool("spawn_teammate", name=name, role=f"{name}-role", prompt="x") for name in names))


def when(program: Program, name: str, reply: Any) -> Any:
    """An answer that comes once a file is there."""

    def wait(_: Any) -> Any:
        wait_until((program.directory / name).exists)
        return reply

    return wait


def inbox(program: Program, name: str) -> list[str]:
    path = program.directory / f".team/inbox/{name}.jsonl"
    return [json.loads(line)["content"] for line in path.read_text().splitlines()] if path.exists() else []


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_member_is_watched_while_another_asks_and_the_lead_streams(program: Program, columns: int) -> None:
    words = steps("lead", LEAD_STEPS) + "The end."
    script = TeamScript(
        lead=[
            hire("alice", "bob"),
            answer(text(words, pieces=300), stall_after(EVENTS_BEFORE_TEXT + 30)),
            *[lambda request: text("noted")] * 3,
        ],
        alice=[
            After(
                2, answer(text("I look first."), tool("send_message", to="bob", content="hello bob"))
            ),  # bob is there
            answer(text(steps("alice", 40), pieces=200), stall_after(EVENTS_BEFORE_TEXT + 20)),
            lambda request: text("faster"),
        ],
        bob=[when(program, "ask", tool("bash", command="touch made")), THINKS],
    )
    with program.against(script) as api, Screen(program, columns=columns, lines=30) as screen:
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for("lead step 003")
        api.wait_for_stall(2)
        screen.type("/watch alice\r")
        screen.wait_for_all("── alice · alice-role · working ─", "alice >>", "alice → bob: hello bob")
        screen.wait_for("alice◂ writing")
        screen.wait_for("alice step 003")
        (program.directory / "ask").touch()
        screen.wait_for_all("bob wants to use bash", "allow? >>")
        screen.type("y\r")
        screen.wait_for_all("Allowed bob once", "alice >>")
        screen.type("hurry up\r")
        screen.wait_for("alice >> hurry up")
        assert "lead step" not in screen.text.partition("── alice")[2]
        api.release()
        screen.wait_for_all("alice step 039", "faster")
        screen.type(ESC)
        screen.wait_for_all("The end.", PROMPT)
        shown = screen.text_with_scrollback
    assert (program.directory / "made").exists()
    assert "hurry up" in inbox(program, "alice")
    assert [int(number) for number in LEAD_STEP.findall(shown)] == list(range(LEAD_STEPS))
    assert shown.count("user → alice: hurry up") == 1  # in the lead's view; in hers it is the typed line


def test_shift_down_and_shift_up_go_through_the_members_and_half_typed_lines_stay_with_them(program: Program) -> None:
    script = TeamScript(
        lead=[hire("alice", "bob"), text("hired"), *[text("noted")] * 2],
        alice=[text("alice is ready")],
        bob=[text("bob is ready")],
    )
    with program.against(script), Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for_all("alice → lead result", "bob → lead result", "○ lead │ ○ alice │ ○ bob")
        screen.type("for the lead" + SHIFT_DOWN)
        screen.wait_for_all("── alice · alice-role · idle ─", "alice is ready", "○ alice◂")
        screen.wait_for("alice >>")
        screen.type("for alice" + SHIFT_DOWN)
        screen.wait_for_all("── bob · bob-role · idle ─", "bob >>", "Esc: back to the lead")
        screen.type(SHIFT_DOWN)
        screen.wait_for_all("── lead · ", f"{PROMPT} for the lead")
        screen.type(SHIFT_UP * 2)
        screen.wait_for("alice >> for alice")
        screen.type(CTRL_C * 2)  # the first clears the line
        screen.wait_for(f"{PROMPT} for the lead")
        screen.type("\x15/watch\r")
        screen.wait_for("This is the lead. /watch NAME or Shift-Down turns the screen to: alice, bob.")
        screen.type("/watch carol\r")
        screen.wait_for("there is nobody called 'carol' to watch (there are: lead, alice, bob)")


def test_commands_and_messages_to_others_work_while_a_member_is_watched(program: Program) -> None:
    script = TeamScript(
        lead=[hire("alice", "bob"), text("hired"), *[text("noted")] * 2],
        alice=[text("alice is ready"), text("alice has read it")],
        bob=[text("bob is ready"), text("bob has read it")],
    )
    with program.against(script), Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for_all("alice → lead result", "bob → lead result", "○ lead │ ○ alice │ ○ bob")
        screen.type(SHIFT_DOWN)
        screen.wait_for("alice >>")
        screen.type("!echo shell $((40 + 2))\r")
        screen.wait_for("shell 42")
        screen.type("@bob for bob\r")
        screen.wait_for("Sent message to bob")
        screen.type("for alice\nin two lines\r")
        screen.wait_for("alice has read it")
        screen.type("/watch lead\r")
        screen.wait_for_all("── lead", "bob has read it", PROMPT)
    assert inbox(program, "bob") == ["for bob"]
    assert inbox(program, "alice") == ["for alice\nin two lines"]


def test_what_is_typed_right_after_watch_goes_to_that_member_and_is_shown_once(program: Program) -> None:
    script = TeamScript(
        lead=[hire("alice"), text("hired"), *[text("noted")] * 2],
        alice=[text("alice is ready"), text("alice has read it")],
    )
    with program.against(script), Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for_all("alice → lead result", "○ lead │ ○ alice")
        screen.type("/watch alice\rfor alice\rhalf a li")
        screen.wait_for_all("alice has read it", "alice >> half a li")
        shown = screen.text
    assert inbox(program, "alice") == ["for alice"]
    assert shown.count("for alice") == 1
    assert "Sent message" not in shown


def test_a_line_to_a_member_with_a_long_name_is_visible_in_a_narrow_window(program: Program) -> None:
    script = TeamScript(lead=[hire("a" * 32), text("hired"), text("noted")], **{"a" * 32: [text("ready")]})
    with program.against(script), Screen(program, columns=20, lines=20) as screen:
        screen.wait_for(PROMPT)
        screen.type("go\r")
        screen.wait_for("lead +1")
        screen.type(SHIFT_DOWN)
        screen.wait_for("aaaaa… >>")
        screen.type("hello")
        screen.wait_for("aaaaa… >> hello")


def test_a_member_that_is_shut_down_is_named_and_its_past_can_be_watched(program: Program) -> None:
    script = TeamScript(
        lead=[hire("alice"), text("hired"), *[text("noted")] * 3],
        alice=[text("alice is ready")],
    )
    with program.against(script), Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type(f"{SHIFT_DOWN}go\r")
        screen.wait_for_all("There is nobody to watch yet.", "alice → lead result", "○ lead │ ○ alice")
        screen.type("/watch Alice\r")
        screen.wait_for_all("── alice · alice-role · idle", "alice >>")
        screen.type("/shutdown alice\r")
        screen.wait_for("alice was shut down. Esc returns to the lead.")
        screen.type("are you there?\r")
        screen.wait_for("teamcli: ")
        screen.type(ESC)
        screen.wait_for("── lead")
        screen.type("/watch al\t")  # completed
        screen.wait_for(f"{PROMPT} /watch alice")
        screen.type("\r")
        screen.wait_for("── alice · alice-role · shutdown")


def test_in_a_pipe_watch_names_the_command_for_another_terminal(program: Program) -> None:
    with Running(program) as repl:
        repl.type("/watch lead")
        repl.wait_for("In another terminal: teamcli watch lead")
        assert repl.leave() == 0


def test_a_dumb_terminal_names_the_command_for_another_terminal(program: Program) -> None:
    program.variables["TERM"] = "dumb"
    with Screen(program) as screen:
        screen.wait_for(PROMPT)
        screen.type("/watch lead\r")
        screen.wait_for("In another terminal: teamcli watch lead")


class TestStatusArea:
    NAMES = ("alice", "bob", "carol", "dave", "erin")

    def show(self, program: Program, columns: int, lines: int, expected: Sequence[str]) -> str:
        members: dict[str, Any] = {name: [THINKS] for name in self.NAMES}
        members["carol"] = [tool("bash", command="touch made")]
        script = TeamScript(lead=[hire(*self.NAMES), text("hired")], **members)
        with program.against(script), Screen(program, columns=columns, lines=lines) as screen:
            screen.wait_for(PROMPT)
            screen.type("/tasks add Build it\r")
            screen.wait_for("Build it", 2)
            screen.type("go\r")
            screen.wait_for("allow? >>")
            screen.wait_for_all(*expected)
            screen.type(CTRL_T)
            # A drawing may arrive in parts, so everything is waited for.
            screen.wait_for_all("Tasks: 1 pending", "carol wants to use bash", "allow? >>", *expected)
            return screen.text

    def test_five_busy_members_a_question_and_the_board_fit_at_80_by_24(self, program: Program) -> None:
        lines = [f"● {name:<5} thinking" for name in self.NAMES if name != "carol"]
        shown = self.show(program, 80, 24, [*lines, "▲ carol asks $ touch made"])
        assert all(line in shown for line in lines)
        assert shown.index("allow? >>") < shown.index("Tasks: 1 pending") < shown.index("● alice thinking")

    def test_on_a_tiny_terminal_all_share_a_line(self, program: Program) -> None:
        members: dict[str, Any] = {name: [THINKS] for name in self.NAMES}
        script = TeamScript(lead=[hire(*self.NAMES), text("hired")], **members)
        with program.against(script), Screen(program, columns=40, lines=10) as screen:
            screen.wait_for(PROMPT)
            screen.type("go\r")
            screen.wait_for_all("● alice │ ● bob │ ● carol", "busy)", PROMPT)

    def test_it_is_part_of_every_frame_while_lines_are_printed_above(self, program: Program) -> None:
        words = "".join(f"Paragraph {number}.\n\n" for number in range(30)) + "The end."
        with program.against([answer(text(words, pieces=60), drip(0.005))]), Screen(program, lines=24) as screen:
            screen.wait_for(PROMPT)
            screen.wait_for("○ lead")
            screen.type("go\r")
            screen.wait_for_all("The end.", "○ lead")
        frames = [frame.partition(END_FRAME)[0] for frame in screen.raw.split(BEGIN_FRAME)[1:]]
        assert frames
        assert [frame for frame in frames if " lead" not in frame and "mlead" not in frame] == []
