"""Sub-agents as the user configures and sees them: settings, directories, depth, what is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.answers import answer, result_text, said_by_user, tool_results
from tests.support.fake_api import text, tool
from tests.support.program import Program, Ran
from tests.support.screen import Screen
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until

BYPASS = ("--permission-mode", "bypassPermissions")
UNTIL_GO = "touch on; until [ -e go ]; do sleep 0.02; done"


def run(program: Program, script: TeamScript, *arguments: str) -> Ran:
    with program.against(script):
        ran = program.run("-p", "go", *BYPASS, *arguments)
    assert ran.code == 0, ran.err
    return ran


def fresh(prompt: str = "look", **more: Any) -> Any:
    return tool("agent", prompt=prompt, subagent_type="general", **more)


def results(request: dict[str, Any]) -> list[str]:
    return [result_text(block) for block in tool_results(request)]


def tools(request: dict[str, Any]) -> set[str]:
    return {each["name"] for each in request["tools"]}


def role(program: Program, **fields: str) -> None:
    directory = program.home / ".teamcli/agents"
    directory.mkdir(parents=True, exist_ok=True)
    front = "\n".join(f"{name}: {value}" for name, value in fields.items())
    (directory / "writer.md").write_text(f"---\nname: writer\n{front}\n---\nWrite well.\n")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_concurrent", -1),
        ("max_concurrent", 0),
        ("timeout_seconds", -0.5),
        ("turns", -1),
        ("depth", 0),
        ("depth", 4),
        ("show_output", "yes"),
    ],
)
def test_an_invalid_setting_is_named(program: Program, name: str, value: Any) -> None:
    program.settings(subagents={name: value})
    ran = program.run("-p", "x", "--offline")
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert f"subagents.{name}: should be " in ran.err


class TestWhatTheySay:
    def script(self, id: str = "sa-1") -> TeamScript:
        parts = [answer(text("I look\naround."), tool("bash", command="true")), text("found: 42")]
        return TeamScript(lead=[fresh(), text("end")], **{id: parts})

    def test_their_text_is_hidden_by_default(self, program: Program) -> None:
        ran = run(program, self.script())
        assert "look" not in ran.err
        assert "found: 42" not in ran.err
        program.settings(subagents={"show_output": True})
        ran = run(program, self.script("sa-2"))
        assert "  [sa-2] I look\n  [sa-2] around.\n" in ran.err
        assert "  [sa-2] found: 42\n" in ran.err
        assert ran.out == "end\n"

    def test_a_setting_shows_their_text_in_a_pipe(self, program: Program) -> None:
        program.settings(subagents={"show_output": True})
        with program.against(self.script()):
            assert "  [sa-1] I look\n  [sa-1] around.\n" in program.run(*BYPASS, stdin="go\n").out

    @pytest.mark.parametrize("is_on", [True, False])
    def test_a_setting_shows_their_text_at_the_terminal(self, program: Program, is_on: bool) -> None:
        program.settings(subagents={"show_output": is_on})
        with program.against(self.script()), Screen(program, *BYPASS) as screen:
            screen.wait_for("team >>")
            screen.type("go\r")
            screen.wait_for("\nend\n")
            assert ("sa-1 │ I look" in screen.text) == is_on
            screen.type("q\r")
            assert screen.wait_for_end() == 0


class TestWhereTheyWork:
    def test_a_role_names_their_directory_and_the_workspace_stays_the_bound(self, program: Program) -> None:
        (program.directory / "docs/deep").mkdir(parents=True)
        (program.directory / "docs/a.md").write_text("inside")
        (program.directory / "b.md").write_text("above")
        (program.home / ".teamcli/skills/style").mkdir(parents=True)
        (program.home / ".teamcli/skills/style/SKILL.md").write_text("Be brief.")
        role(program, cwd="docs")
        calls = answer(
            tool("bash", command="pwd"),
            tool("read_file", path="a.md"),
            tool("glob", pattern="*.md"),
            tool("grep", pattern="inside"),
            tool("write_file", path="new.md", content="x"),
            tool("read_file", path="../b.md"),
            tool("read_file", path="../../outside.md"),
            tool("read_file", path=str(program.home / ".teamcli/skills/style/SKILL.md")),
        )
        script = TeamScript(
            lead=[tool("agent", prompt="go", subagent_type="writer"), text("end")],
            **{"sa-1": [calls, tool("bash", command="cat new.md"), text("done")]},
        )
        run(program, script)
        first, second, third = script.requests["sa-1"]
        assert f"You work in {program.directory}/docs: your commands start there" in first["system"][0]["text"]
        assert f"- style: Be brief. ({program.home}/.teamcli/skills/style/SKILL.md)" in first["system"][0]["text"]
        pwd, inside, found, grepped, written, above, outside, style = results(second)
        assert pwd == f"{program.directory}/docs"
        assert "inside" in inside
        assert found == "a.md"
        assert grepped.startswith("a.md")
        assert written.startswith("Wrote 1 bytes to new.md")
        assert "above" in above
        assert "Path escapes workspace" in outside
        assert "Be brief." in style
        assert results(third) == ["x"]
        assert (program.directory / "docs/new.md").exists()

    @pytest.mark.parametrize(("cwd", "why"), [("nowhere", "is not a directory"), ("../..", "Path escapes workspace")])
    def test_an_invalid_directory_is_an_error_result(self, program: Program, cwd: str, why: str) -> None:
        role(program, cwd=cwd)
        script = TeamScript(lead=[tool("agent", prompt="go", subagent_type="writer"), text("end")])
        run(program, script)
        assert why in results(script.requests["lead"][1])[0]


class TestDepth:
    def test_a_setting_allows_deeper_ones_and_the_deepest_can_start_none(self, program: Program) -> None:
        program.settings(subagents={"depth": 2, "max_concurrent": 1})
        deeper = [answer(fresh("one"), fresh("two")), text("both")]
        script = TeamScript(
            lead=[fresh("top"), text("end")],
            **{"sa-1": deeper, "sa-2": lambda request, n: text("low"), "sa-3": lambda request, n: text("low")},
        )
        run(program, script)  # with one slot: an agent that waits for its sub-agent gives up its slot
        assert results(script.requests["lead"][1]) == ["both"]
        assert results(script.requests["sa-1"][1]) == ["low", "low"]
        assert "agent" in tools(script.requests["sa-1"][0])
        assert "agent_stop" not in tools(script.requests["sa-1"][0])
        assert "agent" not in tools(script.requests["sa-2"][0])
        first = program.lines(".team/transcripts/subagents/sa-2.jsonl")[0]
        assert first["parent"] == "sa-1"

    def test_a_copy_of_a_copy_is_refused_a_third_and_none_works_in_the_background(self, program: Program) -> None:
        program.settings(subagents={"depth": 2})
        copy = tool("agent", prompt="go on")
        script = TeamScript(
            lead=[copy, text("end")],
            **{
                "sa-1": [answer(copy, fresh(background=True)), text("second")],
                "sa-2": [copy, text("third")],
            },
        )
        run(program, script)
        nested, background = results(script.requests["sa-1"][1])
        assert nested == "third"
        assert background.startswith("Error: background: a sub-agent ends with its last text")
        assert "not for a sub-agent" in results(script.requests["sa-2"][1])[0]

    def test_the_plan_of_the_teammate_at_the_top_applies_to_all_below(self, program: Program) -> None:
        program.settings(subagents={"depth": 2})
        spawn = tool("spawn_teammate", name="bob", role="coder", prompt="do it", plan=True)
        write = tool("write_file", path="made", content="x")
        script = TeamScript(
            lead=lambda request, n: spawn if n == 0 else text("fine"),
            bob=[fresh(), text("done")],
            **{"sa-1": [fresh(), text("done")], "sa-2": [write, text("refused")]},
        )
        run(program, script)
        assert "until a plan" in results(script.requests["sa-2"][1])[0]
        assert not (program.directory / "made").exists()


def test_a_hook_sends_one_back_to_work_and_its_parent_gets_only_its_last_text(program: Program) -> None:
    wants_more = "test -e asked || { touch asked; cat > told.json; echo and the tests? >&2; exit 2; }"
    hooks = {"SubagentStop": [{"hooks": [{"type": "command", "command": wants_more}]}]}
    program.settings(hooks=hooks)
    script = TeamScript(lead=[fresh(), text("end")], **{"sa-1": [text("written"), text("tested")]})
    run(program, script)
    assert "SubagentStop hook says:\nand the tests?" in said_by_user(script.requests["sa-1"][1])
    assert results(script.requests["lead"][1]) == ["tested"]
    told = json.loads((program.directory / "told.json").read_text())
    assert (told["agent"], told["last_assistant_message"]) == ("sa-1", "written")
    assert told["transcript_path"] == str(program.directory / ".team/transcripts/subagents/sa-1.jsonl")
    assert Path(told["transcript_path"]).exists()


class TestAtTheTerminal:
    def test_tab_offers_running_sub_agents(self, program: Program) -> None:
        works = [tool("bash", command=UNTIL_GO), text("seen")]
        aside = fresh(background=True, description="dig deep")
        script = TeamScript(lead=[aside, text("waiting"), text("all told")], **{"sa-1": works})
        with program.against(script), Screen(program, *BYPASS, columns=100) as screen:
            screen.wait_for("team >>")
            screen.type("go\r")
            screen.wait_for("waiting")
            wait_until((program.directory / "on").exists)
            for typed in ("/stop sa", "/send sa", "/agents sa", "hear, @sa"):
                screen.type(typed)
                screen.wait_for("dig deep", 2)  # once is the call that started it
                screen.type("\t")
                screen.wait_for(f"{typed}-1")
                screen.type("\x15")
            (program.directory / "go").touch()
            screen.wait_for("all told")
            screen.type("/stop sa")
            screen.wait_for("/stop sa")
            screen.type("\t")
            screen.type("-1\r")
            screen.wait_for("sa-1 has ended already")

    def test_one_that_waits_for_permission_is_visible_everywhere_until_it_is_answered(self, program: Program) -> None:
        aside = fresh(background=True)
        script = TeamScript(
            lead=[aside, text("waiting"), text("all told")],
            **{"sa-1": [tool("bash", command="touch made"), text("seen")]},
        )
        line = "sa-1  sub-agent of lead: permission: bash: $ touch made"
        with program.against(script), Screen(program, columns=100) as screen:
            screen.wait_for("team >>")
            screen.type("go\r")
            screen.wait_for("sa-1 wants to use bash")
            screen.wait_for("allow? >>")
            assert line in program.run("team").out
            (waiting,) = program.run("team", "--json").json["subagents"]
            assert waiting == {"id": "sa-1", "parent": "lead", "waiting_for": "permission: bash: $ touch made"}
            screen.type("/team\r")
            screen.wait_for(line)
            screen.type("/agents\r")
            screen.wait_for("waiting for permission: bash: $ touch made")
            screen.type("y\r")
            screen.wait_for("all told")
            assert line not in program.run("team").out
            assert program.run("team", "--json").json["subagents"] == []
            screen.type("q\r")
            assert screen.wait_for_end() == 0
        assert (program.directory / "made").exists()
