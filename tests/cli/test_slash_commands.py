"""Slash commands about the session and its reports, over a pipe."""

from __future__ import annotations

import json
import subprocess

from teamcli.commands.base import Choice, Diff, Expand, Option, Prompt, Verbosity, plain
from teamcli.commands.catalog import COMMANDS
from teamcli.commands.help import help_table
from teamcli.commands.reports.log import timeline_table
from teamcli.llm.pricing import built_in_prices
from tests.support.fake_api import answer, stall_after, text, tool
from tests.support.program import Program
from tests.support.running import Running
from tests.support.team_script import After, TeamScript

BYPASS = ("--permission-mode", "bypassPermissions")


def test_every_output_has_a_plain_form() -> None:
    choice = Choice("Which?", (Option("a", "the first", is_current=True), Option("long", "")), lambda value: value)
    assert plain(choice) == "Which?\n* a     the first\n  long"
    assert plain(Diff("+a\n", "Changed:")) == "Changed:\n+a"
    assert plain(Prompt("do it\x1b")) == "do it␛"
    assert "/expand" in plain(Expand(1))
    assert "/verbose" in plain(Verbosity(None))


class TestHelp:
    def test_it_lists_commands_in_groups_with_keys_and_examples(self, program: Program) -> None:
        out = program.run(stdin="/help\n/?\n").out
        half = out[: len(out) // 2]
        assert out == half * 2
        places = [half.index(f"\n{group}\n") for group in ("Talk", "Team", "Session", "Reports", "Keys")]
        assert places == sorted(places)
        for taught in ("@NAME TEXT", "!COMMAND", "Ctrl-R", "Shift-Tab", "Examples", ".team/inbox/NAME.jsonl"):
            assert taught in half, taught
        *rows, _, _ = half.splitlines()[1:]
        assert [row for row in rows if len(row) > 80] == []

    def test_nothing_is_cut_off_on_a_narrow_terminal(self) -> None:
        assert "…" not in help_table(COMMANDS, ()).to_text(60)

    def test_it_shows_the_details_of_one_command(self, program: Program) -> None:
        out = program.run(stdin="/help inbox\n/help /quit\n/help tema\n").out
        assert "/inbox [NAME] [N]\nShow messages" in out
        assert "This consumes nothing" in out
        assert "Also: /exit, /q" in out
        assert "did you mean /team?" in out
        assert "Talk" not in out


class TestChoices:
    def test_a_choice_is_a_plain_list_that_marks_the_current_value(self, program: Program) -> None:
        with program.against([]):
            program.settings(prices={"test-model": {"input": 1, "output": 2}, "own": {"input": 1, "output": 2}})
            ran = program.run(stdin="/model\n/permissions\n/permissions ACCEPTEDITS\n/permissions\n/sessions\n")
        for shown in (
            "* test-model",
            "\n  own\n",
            "  claude-opus-5-5    $4 in, $20 out per million tokens",
            "* default            asks before commands and file changes",
            "Mode: acceptEdits",
            "* acceptEdits        asks before commands\n",
            "No sessions here yet.",
        ):
            assert shown in ran.out, shown

    def test_the_embedded_model_is_the_only_one_without_a_key(self, program: Program) -> None:
        out = program.run(stdin="/model\n/model other\n").out
        assert "Model: embedded." in out
        assert "no other without a key" in out.splitlines()[1]

    def test_wrong_arguments_are_named_in_the_error(self, program: Program) -> None:
        lines = ("/expand 0", "/expand x", "/verbose maybe", "/diff carol", "/inbox 1", "/sessions x", "/permissions p")
        told = program.run(stdin="\n".join(lines)).out.splitlines()
        assert len(told) == len(lines)
        for line, shown in zip(lines, told, strict=True):
            assert shown.startswith("teamcli: "), line
            assert line.split()[1] in shown, line


class TestSessions:
    def test_another_session_is_resumed_in_the_same_repl(self, program: Program) -> None:
        with program.against([text("a"), text("b"), text("c")]) as api:
            program.run(stdin="first\n")
            (row, *_) = program.transcript()
            ran = program.run(stdin=f"second\n/sessions\n/sessions {row['id'][:-1]}\nthird\n/sessions\n")
        said = [str(message["content"]) for message in api.requests[2]["messages"]]
        assert len(said) == 3
        assert "first" in said[0]
        assert "third" in said[2]
        assert f"This is session {row['id']} now, with 2 messages." in ran.out
        marked = [line.split()[1] for line in ran.out.splitlines() if line.startswith("* ")]
        assert len(marked) == 2
        assert marked[0] != row["id"] == marked[1]

    def test_a_resumed_session_knows_its_files_and_mail_is_not_delivered_twice(self, program: Program) -> None:
        (program.directory / "a.txt").write_text("one")
        with Running(program, *BYPASS) as repl:
            repl.type("read a.txt then spawn bob as reviewer: list")
            repl.type("/wait")
            repl.wait_for("Everyone is idle")
            (session, *_) = [row["id"] for row in program.transcript() if row["kind"] == "session"]
            repl.type("/clear")
            repl.type("write a.txt: two")
            repl.wait_for("you have not read its present content")
            repl.type(f"/sessions {session}")
            repl.type("write a.txt: three")
            repl.wait_for("Wrote 5 bytes")
            repl.type("/inbox")
            repl.wait_for("1 message for lead, 0 unread")
        assert sum("<message" in str(row) for row in program.transcript()) == 1

    def test_no_session_is_resumed_while_the_lead_works(self, program: Program) -> None:
        hire = tool("spawn_teammate", name="bob", role="reviewer", prompt="x")
        script = TeamScript(
            lead=[hire, text("hired"), answer(text("never"), stall_after(2))], bob=[After(2, text("done"))]
        )
        with program.against(script) as api, Running(program) as repl:
            repl.type("go")
            api.wait_for_stall()
            (session, *_) = [row["id"] for row in program.transcript() if row["kind"] == "session"]
            repl.type("/clear")
            repl.type(f"/sessions {session}")
            repl.wait_for("the lead is working", times=2)


class TestCost:
    def test_the_cost_is_listed_agent_by_agent(self, program: Program) -> None:
        hire = tool("spawn_teammate", name="bob", role="reviewer", prompt="x", model="claude-haiku-4-5")
        script = TeamScript(lead=[hire, text("hired"), text("seen")], bob=[After(2, text("done"))])
        with program.against(script):
            out = program.run(stdin="go\n/wait\n/cost\n").out
        table = out[out.index("AGENT ") :].splitlines()
        assert table[0].split() == ["AGENT", "MODEL", "CALLS", "TOKENS", "IN", "CACHED", "OUT", "COST"]
        lead, bob, total = (line.split() for line in table[1:4])
        assert lead[:3] == ["lead", "test-model", "3"]
        assert lead[-1] == "unknown"
        assert bob[:3] == ["bob", "claude-haiku-4-5", "1"]
        assert bob[-1].startswith("$")
        assert total[:2] == ["total", "4"]
        assert total[-1] == "unknown"
        assert table[4].startswith("No price is known for test-model, so only tokens count")
        assert table[5] == f"The built-in prices are of {built_in_prices().date}."


class TestDiff:
    def test_it_shows_who_changed_what_and_what_changed_otherwise(self, program: Program) -> None:
        subprocess.run(["git", "init", "--quiet", program.directory], check=True)
        (program.directory / "a.txt").write_text("one\n")
        lines = (
            "read a.txt then write a.txt: two",
            "spawn bob as coder: read a.txt then write a.txt: three then write n.txt: new",
            "/wait",
            "run touch 'by command'",
            "/diff",
            "/diff BOB",
        )
        out = program.run(*BYPASS, stdin="\n".join(lines)).out
        whole = out[out.index("Changed since") : out.rindex("Changed since")]
        assert "a.txt: lead, bob (+1 -1)\n--- a/a.txt\n+++ b/a.txt\n@@ -1,1 +1,1 @@\n-one\n+three\n" in whole
        assert "n.txt: bob (new)" in whole
        assert "two" not in whole
        assert whole.endswith("now or earlier:\nby command\n")
        assert "n.txt: bob" in out[out.rindex("Changed since") :]
        assert not out.endswith("by command\n")

    def test_it_starts_no_program_that_the_repository_names(self, program: Program) -> None:
        def git(*arguments: str) -> None:
            subprocess.run(["git", "-C", program.directory, *arguments], check=True)

        git("init", "--quiet")
        git("config", "user.email", "a@b.c")
        git("config", "user.name", "a")
        (program.directory / "a.txt").write_text("one\n")
        (program.directory / "b.txt").write_text("one\n")
        (program.directory / ".gitattributes").write_text("a.txt filter=sly\nb.txt filter=a=b\n")
        git("add", ".")
        git("commit", "--quiet", "-m", "x")
        mark = program.directory / ".git" / "was-run"
        for name in ("filter.sly.clean", "filter.a=b.process", "core.fsmonitor"):
            git("config", name, f"touch '{mark}'; cat")
        git("config", "filter.sly.required", "true")
        for name in ("a.txt", "b.txt"):
            (program.directory / name).write_text("two\n")
        out = program.run(stdin="run true\n/diff\n").out
        assert "a.txt" in out, out
        assert "b.txt" in out, out
        assert not mark.exists()

    def test_without_a_change_it_says_so(self, program: Program) -> None:
        out = program.run(stdin="/diff\n/diff lead\n").out
        assert out.splitlines() == [
            "No agent has changed a file since teamcli was started.",
            "lead has changed no file since teamcli was started.",
        ]


def test_a_call_is_one_row_of_the_timeline() -> None:
    def tool_row(event: str, id: str, ts: float, **more: object) -> dict[str, object]:
        return {"event": event, "ts": ts, "agent": "bob", "tool": "bash", "id": id, **more}

    rows = [
        tool_row("tool_started", "1", 1.0, title="$ first"),
        tool_row("tool_started", "2", 2.0, title="$ second"),
        tool_row("tool_finished", "2", 3.0, is_error=True, seconds=1.0),
        {"event": "notice", "ts": 4.0, "agent": "lead", "text": "between"},
        tool_row("tool_finished", "1", 5.0, is_error=False, seconds=4.0),
    ]

    def told(last: int) -> list[str]:
        return [str(line).split(maxsplit=2)[-1] for line in timeline_table(rows, last, 0).to_text().splitlines()[1:]]

    assert told(9) == ["✓ bash: $ first (4.0 s)", "✗ bash: $ second (1.0 s)", "between"]
    assert told(2) == ["between", "✓ bash: $ first (4.0 s)"]


def test_agents_says_that_no_sub_agents_are_running(program: Program) -> None:
    assert program.run(stdin="/agents\n").out == "No sub-agents are running.\n"


def test_a_message_can_be_shown_in_full(program: Program) -> None:
    inbox = program.directory / ".team/inbox"
    with Running(program) as repl:
        repl.type("/team")
        repl.wait_for("lead")
        content = f"{'long ' * 50}\nsecond line\x1b[2J"
        line = {"type": "message", "from": "a shell", "content": content, "timestamp": -1e308}
        inbox.mkdir(exist_ok=True)
        (inbox / "lead.jsonl").write_text(json.dumps(line) + "\n")
        repl.type("/inbox")
        repl.wait_for("UNREAD")
        assert "second line" not in repl.out
        repl.type("/inbox 1")
        repl.wait_for("\nsecond line")
        repl.type("/inbox lead 2")
        repl.wait_for("no message 2 for lead: it has 1")
        repl.type("/inbox lead x")
        repl.wait_for("'x' is not a number")
        repl.type("/team")
        repl.wait_for("NAME", times=2)
        assert "\x1b" not in repl.out
