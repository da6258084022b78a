"""The team file from the outside: `teamcli up`, a plain start, trust, and `/team save`."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from teamcli.app.team_file import load_team_file
from teamcli.config.project import inspect_project
from teamcli.config.team_file import TeamFile
from teamcli.errors import ConfigError
from teamcli.workspace.bounds import Workspace
from tests.support.answers import result_text, said_by_user, tool_results
from tests.support.fake_api import FakeAPI, text, tool
from tests.support.program import Program
from tests.support.running import Running
from tests.support.team_script import After, TeamScript
from tests.support.waiting import wait_until

BYPASS = ("--permission-mode", "bypassPermissions")
SHOP = """\
name = "shop"

[[member]]
name = "alice"
role = "coder"
tools = ["bash", "read_file"]
cwd = "backend"
prompt = "Never use tabs."
"""


def write(program: Program, content: str = SHOP) -> None:
    (program.directory / "backend").mkdir(exist_ok=True)
    (program.directory / ".team").mkdir(exist_ok=True)
    (program.directory / ".team/team.toml").write_text(content)


def members(program: Program) -> dict[str, dict[str, Any]]:
    path = program.directory / ".team/config.json"
    return {member["name"]: member for member in json.loads(path.read_text())["members"]} if path.exists() else {}


def system_of(request: dict[str, Any]) -> str:
    return "".join(block["text"] for block in request["system"])


class TestUp:
    def test_members_join_idle_without_a_model_call(self, program: Program) -> None:
        write(program)
        with program.against([]) as api:
            ran = program.run("up", "--trust")
            assert api.connections == 0
        assert (ran.code, ran.out, ran.err) == (0, "alice: joined\n", "")
        assert members(program)["alice"]["status"] == "idle"
        shown = json.loads(program.run("team", "--json").out)
        assert shown["team_name"] == "shop"
        assert program.run("up").out == "alice: unchanged\n"

    def test_a_member_that_has_just_joined_gets_a_line_that_another_program_appends(self, program: Program) -> None:
        write(program)
        program.run("up", "--trust")
        with (program.directory / ".team/inbox/alice.jsonl").open("a") as inbox:
            inbox.write('{"type":"message","from":"me","content":"run echo good morning"}\n')
        assert "good morning" in program.run(*BYPASS, stdin="/wait\n").out

    def test_a_file_without_members_is_named(self, program: Program) -> None:
        write(program, 'name = "shop"\n')
        assert program.run("up", "--trust").out == ".team/team.toml has no members\n"

    def test_without_trust_it_does_nothing(self, program: Program) -> None:
        write(program)
        ran = program.run("up")
        assert (ran.code, ran.out) == (2, "")
        assert "teamcli up --trust" in ran.err
        assert members(program) == {}

    def test_without_a_file_it_says_how_to_get_one(self, program: Program) -> None:
        ran = program.run("up")
        assert ran.code == 2
        assert "[[member]]" in ran.err
        assert "/team save" in ran.err
        assert ran.err.count("\n") == 1

    def test_a_mistake_starts_nothing(self, program: Program) -> None:
        write(program, f'{SHOP}\n[[member]]\nname = "bob"\nrole = "tester"\nplan = "yes"\n')
        for arguments in (["up", "--trust"], ["-p", "list"], []):
            ran = program.run(*arguments, stdin="")
            assert ran.code == 2
            assert ran.err.splitlines()[-1].startswith("teamcli: .team/team.toml, line 13: plan must be true or false")
            assert members(program) == {}

    def test_next_to_a_running_teamcli_it_names_the_process(self, program: Program) -> None:
        write(program)
        with Running(program) as repl:
            repl.type("list")
            repl.wait_for("No teammates")
            ran = program.run("up", "--trust")
            assert ran.code == 2
            assert f"process {repl.process.pid}" in ran.err

    def test_a_member_that_was_shut_down_returns_only_with_up(self, program: Program) -> None:
        write(program)
        program.run("up", "--trust")
        script = TeamScript(
            lead=[tool("send_message", to="alice", content="an old secret"), text("a"), text("b")],
            alice=[text("noted")],
        )
        with program.against(script):
            program.run("-p", "x", *BYPASS)
            assert "shut down now" in program.run(stdin="/shutdown alice\n").out
            assert program.run(stdin="").code == 0
            assert members(program)["alice"]["status"] == "shutdown"
            assert program.run("up").out == "alice: brought back\n"
        assert (members(program)["alice"]["status"], members(program)["alice"]["incarnation"]) == ("idle", 2)
        again = TeamScript(
            lead=[tool("send_message", to="alice", content="hello"), text("a"), text("b")], alice=[text("hi")]
        )
        with program.against(again):
            program.run("-p", "x", *BYPASS)
        assert "an old secret" not in str(again.requests["alice"])


class TestStart:
    def test_a_member_works_as_the_file_says_when_mail_or_a_spawn_brings_work(self, program: Program) -> None:
        write(program)
        spawn = tool("spawn_teammate", name="alice", role="coder", prompt="and again")
        script = TeamScript(
            lead=[tool("send_message", to="alice", content="go"), text("a"), spawn, text("b"), text("c")],
            alice=[tool("bash", command="basename $PWD"), After(2, text("done")), text("done again")],
        )
        with program.against(script):
            ran = program.run("-p", "x", "--trust", *BYPASS)
        assert "Joined from .team/team.toml: alice." in ran.err
        assert "Team: shop\n  alice (coder): idle" in said_by_user(script.requests["lead"][0])
        by_mail, result, by_spawn = script.requests["alice"]
        assert "Never use tabs." in system_of(by_mail)
        assert result_text(tool_results(result)[0]).strip() == "backend"
        assert "write_file" not in [each["name"] for each in by_mail["tools"]]
        assert by_spawn["system"] == by_mail["system"]
        assert by_spawn["tools"] == by_mail["tools"]

    def test_a_member_that_claims_takes_a_task_before_it_has_had_any_work(self, program: Program) -> None:
        write(program, f"{SHOP}claims = true\n")
        script = TeamScript(
            lead=[tool("task_create", subject="count the stars"), text("a"), text("b")],
            alice=[tool("task_update", id=1, status="completed"), text("done")],
        )
        with program.against(script):
            assert program.run("-p", "x", "--trust", *BYPASS).code == 0
        assert "count the stars" in said_by_user(script.requests["alice"][0])
        task = json.loads((program.directory / ".team/tasks/1.json").read_text())
        assert (task["status"], task["owner"]) == ("completed", "alice")

    def test_without_trust_the_file_is_not_used_and_the_run_says_so(self, program: Program) -> None:
        write(program)
        ran = program.run("-p", "list")
        assert ran.code == 0
        assert "not trusted (--trust): members in .team/team.toml, new" in ran.err
        assert "No teammates" in ran.out

    def test_a_changed_file_is_not_used_before_the_user_agrees(self, program: Program) -> None:
        write(program)
        program.run("up", "--trust")
        write(program, SHOP.replace("Never", "Always"))
        assert "members in .team/team.toml, changed" in program.run("-p", "list").err
        assert members(program)["alice"]["prompt"] == "Never use tabs."

    def test_open_work_ends_as_it_began_and_the_next_one_follows_the_changed_file(self, program: Program) -> None:
        write(program)
        program.run("up", "--trust")
        first = TeamScript(
            lead=[tool("send_message", to="alice", content="go"), text("a")],
            alice=[tool("bash", command="touch began; sleep 100")],
        )
        with program.against(first):
            process = program.start("-p", "x", *BYPASS)
            wait_until(lambda: (program.directory / "backend/began").exists())
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
        write(program, SHOP.replace("Never", "Always"))
        assert program.run("up", "--trust").out == "alice: takes the new prompt with its next piece of work\n"
        second = TeamScript(
            lead=[text("a"), tool("send_message", to="alice", content="more"), text("b"), text("c")],
            alice=[After(1, text("done")), text("done again")],
        )
        with program.against(second):
            program.run("-p", "x", "--continue", *BYPASS)
        before, after = map(system_of, second.requests["alice"])
        assert "Never use tabs." in before
        assert "Always use tabs." in after
        assert members(program)["alice"]["prompt"] == "Always use tabs."

    def test_a_budget_without_a_known_price_is_refused_with_its_line(self, program: Program) -> None:
        write(program, f'{SHOP}model = "nobody-knows"\nbudget_usd = 1.5\n')
        with FakeAPI([]) as api:
            program.url = api.url
            ran = program.run("-p", "x", "--trust")
        assert ran.code == 2
        assert ".team/team.toml, line 9: model: no price is known for nobody-knows" in ran.err
        assert members(program) == {}

    def test_no_team_leaves_the_file_alone(self, program: Program) -> None:
        write(program, "nonsense")
        assert program.run("-p", "run true", "--no-team", "--trust").code != 2


class TestRules:
    def load(self, program: Program, *lines: str) -> TeamFile | None:
        write(program, "\n".join(['[[member]]\nrole = "coder"', *lines]))
        project = inspect_project(program.directory, program.home / ".teamcli").trust()
        return load_team_file(project, Workspace(program.directory))

    @pytest.mark.parametrize(
        ("lines", "problem"),
        [
            (['name = "al ice"'], "line 3: name: 'al ice' is not a name"),
            (['name = "lead"'], "line 3: name: 'lead' is reserved"),
            (['name = "sa-1"'], "line 3: name: 'sa-1' is the name of a sub-agent"),
            (['name = "a"', 'tools = ["bsh"]'], "line 4: tools: a teammate has no tool 'bsh' (there are: bash, "),
            (['name = "a"', 'tools = ["spawn_teammate"]'], "line 4: tools: a teammate has no tool"),
            (['name = "a"', "claims = true", 'tools = ["grep"]'], "line 4: claims: its tools cannot change anything"),
            (['name = "a"', 'cwd = ".."'], "line 4: cwd: Path escapes workspace"),
            (['name = "a"', 'cwd = "out"'], "line 4: cwd: Path escapes workspace"),
            (['name = "a"', 'cwd = "/etc"'], "line 4: cwd: Path escapes workspace"),
            (['name = "a"', 'cwd = "nowhere"'], "line 4: cwd: 'nowhere' is not a directory"),
            (['name = "a"', 'cwd = ".team"'], "line 4: cwd: .team is teamcli's own state"),
        ],
    )
    def test_what_no_member_can_have_is_refused_with_its_line(
        self, program: Program, lines: list[str], problem: str
    ) -> None:
        (program.directory / "out").symlink_to("/etc")
        with pytest.raises(ConfigError) as raised:
            self.load(program, *lines)
        assert str(raised.value).startswith(f".team/team.toml, {problem}")

    @pytest.mark.parametrize("tools", ["tools: read_file, grep", "disallowedTools: bash, write_file, edit_file"])
    def test_a_member_whose_role_can_change_nothing_may_not_claim(self, program: Program, tools: str) -> None:
        (program.directory / ".team/agents").mkdir(parents=True)
        (program.directory / ".team/agents/coder.md").write_text(f"---\nname: coder\n{tools}\n---\nLook.\n")
        with pytest.raises(ConfigError, match="line 4: claims: its tools cannot change anything"):
            self.load(program, 'name = "a"', "claims = true")

    def test_a_member_that_can_change_something_may_claim(self, program: Program) -> None:
        file = self.load(program, 'name = "a"', "claims = true", 'tools = ["grep", "edit_file"]', 'cwd = "backend"')
        assert file
        assert file.members[0].claims


class TestSave:
    def test_the_saved_team_is_the_team_of_a_fresh_clone(self, program: Program, tmp_path: Path) -> None:
        (program.directory / "backend").mkdir()
        spawn = tool("spawn_teammate", name="bob", role='the "careful" one', prompt="x", tools=["bash"], plan=True)
        with program.against(TeamScript(lead=[spawn, text("a"), text("b")], bob=[text("ok")])):
            program.run("-p", "x", *BYPASS)
            ran = program.run(stdin="/budget bob 20 calls\n/team save\n/team save\n")
        assert "Saved 1 member to .team/team.toml." in ran.out
        assert "says this already" in ran.out
        assert "not trusted" not in program.run(stdin="").err
        clone = Program(tmp_path / "clone", program.home)
        (clone.directory / ".team").mkdir(parents=True)
        saved = (program.directory / ".team/team.toml").read_bytes()
        (clone.directory / ".team/team.toml").write_bytes(saved)
        assert clone.run("up", "--trust").out == "bob: joined\n"
        terms = ("role", "tools", "plan", "model", "cwd", "prompt", "worktree", "claims")
        ours, theirs = members(program)["bob"], members(clone)["bob"]
        assert [theirs[term] for term in terms] == [ours[term] for term in terms]

    def test_it_needs_a_team_and_a_verb_that_exists(self, program: Program) -> None:
        assert "nothing to save" in program.run("--no-team", stdin="/team save\n").out
        assert "/team save [--force]" in program.run(stdin="/team load\n").out


def test_a_team_file_in_git_does_not_make_the_team_foreign(program: Program) -> None:
    write(program)
    subprocess.run(["git", "init", "-q"], cwd=program.directory, check=True)
    subprocess.run(["git", "add", "-f", ".team/team.toml"], cwd=program.directory, check=True)
    program.run("up", "--trust")
    ran = program.run("-p", "list")
    assert "not trusted" not in ran.err
    assert "alice (coder): idle" in ran.out
