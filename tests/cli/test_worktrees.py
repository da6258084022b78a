"""A teammate with its own checkout, from the outside: where it works, what the lead gets, and how it ends."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.redteam.conftest import need_sandbox
from tests.support.answers import answer, result_text, said_by_user, tool_results
from tests.support.fake_api import text, tool
from tests.support.program import MakeProgram, Program, Ran
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until
from tests.worktrees.conftest import git
from tests.worktrees.conftest import repository_to_copy as repository_to_copy

BYPASS = ("--permission-mode", "bypassPermissions")
SPAWN = tool("spawn_teammate", name="alice", role="coder", prompt="Go.", worktree=True)
COMMIT = tool("bash", command="echo new > new.py && git add -A && git commit -qm Work")


@pytest.fixture
def project(program: Program, repository_to_copy: Path) -> Program:
    """The program in a git repository, with a sandbox."""
    need_sandbox()
    return in_repository(program, repository_to_copy)


def in_repository(program: Program, repository: Path) -> Program:
    shutil.copytree(repository, program.directory, dirs_exist_ok=True, symlinks=True)
    return program


def checkout(program: Program) -> Path:
    return program.directory / ".team" / "worktrees" / "alice"


def run_team(program: Program, *work: Any, then: tuple[str, ...] = ()) -> tuple[Ran, TeamScript]:
    """The lead spawns alice in a worktree; alice does this work, and the lead reads its result."""
    script = TeamScript(lead=[SPAWN, text("Waiting."), text("Done.")], alice=[*work, text("I am done.")])
    with program.against(script):
        return program.run("-p", "x", *BYPASS, *then), script


@pytest.fixture(scope="module")
def worked(
    repository_to_copy: Path, tmp_path_factory: pytest.TempPathFactory, forked: MakeProgram
) -> tuple[Program, TeamScript]:
    """Alice has committed one file and left others; tests that only look share this."""
    need_sandbox()
    place = tmp_path_factory.mktemp("worked")
    (place / "home").mkdir()
    (place / "work").mkdir()
    program = in_repository(forked(place / "work", place / "home"), repository_to_copy)
    return program, run_team(program, COMMIT, tool("bash", command="echo more >> README.md; echo y > untracked"))[1]


class TestEverythingHappensThere:
    def test_tools_commands_and_searches_use_the_checkout(self, project: Program) -> None:
        calls = answer(
            tool("bash", "t1", command='pwd; echo "$TEAMCLI_WORKTREE"; echo x > by-bash'),
            tool("write_file", "t2", path="src/new.py", content="total = 1\n"),
        )
        looks = answer(
            tool("read_file", "t3", path="src/cart.py"),
            tool("glob", "t4", pattern="**/*.py"),
            tool("grep", "t5", pattern="total"),
            tool("read_file", "t6", path=str(project.directory / "README.md")),
        )
        _, script = run_team(project, calls, looks)
        first, second = (tool_results(request) for request in script.requests["alice"][1:3])
        path = checkout(project)
        assert result_text(first[0]) == f"{path}\n{path}"
        assert (path / "by-bash").exists()
        assert (path / "src" / "new.py").read_text() == "total = 1\n"
        assert not (project.directory / "by-bash").exists()
        assert not (project.directory / "src" / "new.py").exists()
        read, found, hits, outside = map(result_text, second)
        assert "total = 0" in read
        assert sorted(found.splitlines()) == ["src/cart.py", "src/new.py"]
        assert "src/cart.py" in hits
        assert "src/new.py" in hits
        assert "Path escapes workspace" in outside

    def test_the_main_directory_is_read_only_to_its_commands(self, project: Program) -> None:
        attack = f"echo x > {project.directory}/README.md; echo x > {project.directory}/.git/x; echo tried"
        _, script = run_team(project, tool("bash", command=attack))
        assert "Read-only file system" in result_text(tool_results(script.requests["alice"][1])[0])
        assert (project.directory / "README.md").read_text() == "# Shop\n"

    def test_hooks_get_the_checkout_as_their_directory(self, project: Program) -> None:
        told = project.home / "told"
        group = {"matcher": "bash", "hooks": [{"type": "command", "command": f"cat > {told}; pwd >> {told}"}]}
        project.settings(hooks={"PreToolUse": [group]})
        run_team(project, tool("bash", command="true"))
        payload, directory = told.read_text().rsplit("\n", 2)[0].rsplit("}", 1)
        assert json.loads(payload + "}")["cwd"] == str(checkout(project))
        assert directory == str(checkout(project))

    def test_its_sub_agents_work_there_too(self, project: Program) -> None:
        script = TeamScript(
            lead=[SPAWN, text("Waiting."), text("Done.")],
            alice=[tool("agent", prompt="Look.", subagent_type="general"), text("I am done.")],
            **{"sa-1": [tool("bash", command="pwd"), text("looked")]},
        )
        with project.against(script):
            project.run("-p", "x", *BYPASS)
        assert result_text(tool_results(script.requests["sa-1"][1])[0]) == str(checkout(project))

    def test_files_that_a_message_mentions_are_its_own(self, project: Program) -> None:
        edit = tool("bash", command="echo mine > README.md")
        script = TeamScript(
            lead=[SPAWN, text("1"), text("2"), text("3")], alice=[edit, text("I am done."), text("Seen.")]
        )
        with project.against(script):
            project.run("-p", "x", *BYPASS)
            project.run("send", "alice", "See @README.md")
            project.run("-p", "y", *BYPASS)
        assert "mine" in said_by_user(script.requests["alice"][-1])

    def test_rules_about_paths_mean_paths_in_the_checkout(self, project: Program) -> None:
        (project.directory / ".team").mkdir()
        project.settings(permissions={"deny": ["write_file(src/**)"], "allow": ["write_file"]})
        _, script = run_team(project, tool("write_file", path="src/x.py", content="x"))
        assert "src/**" in result_text(tool_results(script.requests["alice"][1])[0])
        assert not (checkout(project) / "src" / "x.py").exists()

    def test_it_learns_about_its_branch(self, worked: tuple[Program, TeamScript]) -> None:
        assert "on the branch team/alice" in worked[1].requests["alice"][0]["system"][0]["text"]

    def test_it_is_not_asked_to_expect_others_there(self, worked: tuple[Program, TeamScript]) -> None:
        assert "in the same directory" not in worked[1].requests["alice"][0]["system"][0]["text"]

    def test_a_hook_file_of_the_project_is_guarded_in_the_checkout(self, project: Program) -> None:
        (project.directory / "check.sh").write_text("exit 0\n")
        git(project.directory, "add", "check.sh")
        git(project.directory, "commit", "--quiet", "-m", "Check")
        hook = {"type": "command", "command": "sh check.sh"}
        project.settings(hooks={"PreToolUse": [{"matcher": "grep", "hooks": [hook]}]})
        write = answer(
            tool("write_file", "t1", path="check.sh", content="exit 2\n"),
            tool("bash", "t2", command="echo exit 2 | tee check.sh"),
        )
        ran, script = run_team(project, write)
        by_tool, by_command = tool_results(script.requests["alice"][1])
        assert ran.code == 4
        assert "A hook or MCP server runs check.sh: changing it always asks" in result_text(by_tool)
        assert "check.sh: Read-only file system" in result_text(by_command)
        assert (checkout(project) / "check.sh").read_text() == "exit 0\n"

    def test_what_its_role_remembers_is_that_of_the_project(self, project: Program) -> None:
        notes = project.directory / ".team/memory/coder"
        work = answer(
            tool("write_file", "t1", path=str(notes / "MEMORY.md"), content="Use tabs."),
            tool("bash", "t2", command=f"echo x > {notes}/x.md"),
        )
        _, script = run_team(project, work, then=("--trust",))
        assert f"`{notes}/`" in script.requests["alice"][0]["system"][0]["text"]
        assert (notes / "MEMORY.md").read_text() == "Use tabs."
        assert "Read-only file system" in result_text(tool_results(script.requests["alice"][1])[1])
        script = TeamScript(
            lead=[tool("spawn_teammate", name="bob", role="coder", prompt="Go.", worktree=True), text("."), text(".")],
            bob=[text("I know.")],
        )
        with project.against(script):
            project.run("-p", "y", *BYPASS)
        assert "Use tabs." in script.requests["bob"][0]["system"][0]["text"]


class TestWhatTheLeadGets:
    def test_the_spawn_says_where_it_is(self, worked: tuple[Program, TeamScript]) -> None:
        said = result_text(tool_results(worked[1].requests["lead"][1])[0])
        assert said == "Spawned 'alice' (role: coder) in .team/worktrees/alice on team/alice"

    def test_the_result_ends_with_the_state_of_the_branch(self, worked: tuple[Program, TeamScript]) -> None:
        line = "I am done.\n\n[team/alice: 1 commit ahead, 3 files changed, 2 files uncommitted]"
        assert line in said_by_user(worked[1].requests["lead"][-1])

    def test_commits_are_in_the_main_repository_when_the_result_is(self, worked: tuple[Program, TeamScript]) -> None:
        directory = worked[0].directory
        assert git(directory, "show", "team/alice:new.py") == "new"
        assert git(directory, "status", "--short") == ""

    def test_team_shows_the_branch(self, worked: tuple[Program, TeamScript]) -> None:
        out = worked[0].run("team").out
        assert "on team/alice" in out
        assert "not enforced" not in out

    def test_diff_shows_the_whole_branch(self, worked: tuple[Program, TeamScript]) -> None:
        out = worked[0].run("--offline", stdin="/diff alice\n/diff\n").out
        assert out.startswith("team/alice: 1 commit ahead, 3 files changed, 2 files uncommitted:\n")
        assert "+++ b/new.py\n@@ -0,0 +1 @@\n+new\n" in out
        assert " # Shop\n+more\n" in out
        assert "untracked: alice (new)" in out
        assert out.endswith("No agent has changed a file since teamcli was started.\n")

    def test_the_lead_reads_its_files_and_changes_none(self, project: Program) -> None:
        path = ".team/worktrees/alice/new.py"
        looks = answer(tool("read_file", "t1", path=path), tool("write_file", "t2", path=path, content="x"))
        script = TeamScript(
            lead=[SPAWN, text("Waiting."), looks, tool("grep", pattern="new"), text("Done.")],
            alice=[COMMIT, text("I am done.")],
        )
        with project.against(script):
            project.run("-p", "x", *BYPASS)
        read, written = map(result_text, tool_results(script.requests["lead"][3]))
        assert "new" in read
        assert written.endswith("is in the checkout of a teammate, which only that teammate changes")
        assert "no matches" in result_text(tool_results(script.requests["lead"][4])[0])


class TestIfThereCanBeNone:
    def test_the_spawn_fails_with_the_reason_and_nobody_is_hired(self, program: Program) -> None:
        script = TeamScript(lead=[SPAWN, text("Done.")])
        with program.against(script):
            program.run("-p", "x", *BYPASS)
        said = result_text(tool_results(script.requests["lead"][1])[0])
        assert said == f"Error: {program.directory} is not a git repository: make it one with git init and a commit"
        assert "alice" not in program.run("team").out

    def test_without_a_sandbox_it_says_that_nothing_enforces_it(
        self, program: Program, repository_to_copy: Path
    ) -> None:
        project = in_repository(program, repository_to_copy)
        project.settings(sandbox="off")
        _, script = run_team(project, COMMIT)
        said = result_text(tool_results(script.requests["lead"][1])[0])
        assert "on team/alice (not enforced: " in said
        assert "on team/alice (not enforced)" in project.run("team").out
        assert git(project.directory, "show", "team/alice:new.py") == "new"

    def test_a_teammate_of_the_shared_directory_is_not_moved(self, project: Program) -> None:
        hire = tool("spawn_teammate", name="alice", role="coder", prompt="Go.")
        script = TeamScript(lead=[hire, text("1"), SPAWN, text("2")], alice=[text("I am done.")])
        with project.against(script):
            project.run("-p", "x", *BYPASS)
        said = result_text(tool_results(script.requests["lead"][3])[0])
        assert said == "Error: 'alice' works in the shared directory: shut it down, then spawn it again"


class TestSettings:
    def test_a_role_can_ask_for_it(self, project: Program) -> None:
        roles = project.home / ".teamcli" / "agents"
        roles.mkdir(parents=True)
        (roles / "careful.md").write_text("---\nname: careful\nisolation: worktree\n---\nBe careful.\n")
        hire = tool("spawn_teammate", name="alice", role="careful", prompt="Go.")
        script = TeamScript(lead=[hire, text("1"), text("2")], alice=[tool("bash", command="pwd"), text("I am done.")])
        with project.against(script):
            project.run("-p", "x", *BYPASS)
        assert result_text(tool_results(script.requests["alice"][1])[0]) == str(checkout(project))

    def test_the_team_file_can_ask_for_it_also_for_a_member_that_is_there(self, project: Program) -> None:
        (project.directory / ".team").mkdir()
        file = project.directory / ".team" / "team.toml"
        for line in ("", "worktree = true\n"):
            file.write_text(f'[[member]]\nname = "alice"\nrole = "coder"\n{line}')
            project.run("--trust", "--offline", stdin="q\n")
        project.run("send", "alice", "Where are you?")
        script = TeamScript(lead=[text("Done.")], alice=[tool("bash", command="pwd"), text("There.")])
        with project.against(script):
            project.run("-p", "x", *BYPASS, "--trust")
        assert result_text(tool_results(script.requests["alice"][1])[0]) == str(checkout(project))

    def test_a_setup_command_of_the_user_runs(self, project: Program) -> None:
        project.settings(worktree={"setup": "echo ready > build.log"})
        run_team(project)
        assert (checkout(project) / "build.log").read_text() == "ready\n"

    def test_one_of_the_project_runs_only_if_it_is_trusted(self, project: Program) -> None:
        (project.directory / ".team").mkdir()
        settings = {"worktree": {"setup": "echo ready > build.log"}}
        (project.directory / ".team" / "settings.json").write_text(json.dumps(settings))
        ran, _ = run_team(project)
        assert "worktree.setup: echo ready > build.log" in ran.err
        assert not (checkout(project) / "build.log").exists()
        shutil.rmtree(checkout(project))
        run_team(project, then=("--trust", "--continue"))
        assert (checkout(project) / "build.log").exists()


class TestTheEnd:
    def test_shutting_down_removes_what_is_clean_and_merged(self, project: Program) -> None:
        run_team(project)
        out = project.run(stdin="/shutdown alice\n").out
        assert out == (
            "'alice' was idle and is shut down now. "
            "Removed .team/worktrees/alice and team/alice: everything is merged.\n"
        )
        assert not checkout(project).exists()
        assert git(project.directory, "branch", "--list", "team/*") == ""

    def test_shutting_down_and_forgetting_keep_what_is_not_merged_and_name_it(self, project: Program) -> None:
        run_team(project, COMMIT)
        shut, forgotten = project.run(stdin="/shutdown alice\n/forget alice\n").out.splitlines()
        kept = "Kept .team/worktrees/alice and team/alice: not merged. /merge alice or /discard alice"
        assert shut == f"'alice' was idle and is shut down now. {kept}"
        assert forgotten == f"Forgot 'alice'. {kept}"
        assert (checkout(project) / "new.py").exists()

    def test_discarding_asks_first(self, project: Program) -> None:
        run_team(project, COMMIT)
        asked = project.run(stdin="/discard alice\n").out
        assert "Delete this for good? team/alice: 1 commit ahead, 1 file changed, nothing uncommitted" in asked
        assert checkout(project).exists()
        assert project.run(stdin="/discard alice no\n").out == "Nothing is deleted; alice keeps its checkout.\n"
        out = project.run(stdin="/discard ALICE yes\n/team\n").out
        assert out.startswith("Removed .team/worktrees/alice and team/alice.\n")
        assert "shutdown" in out
        assert not checkout(project).exists()
        assert git(project.directory, "branch", "--list", "team/*") == ""

    def test_there_is_nothing_to_discard_without_one(self, project: Program) -> None:
        assert "'bob' has no checkout; there are: none" in project.run(stdin="/discard bob\n").out

    def test_a_new_incarnation_continues_with_what_is_there(self, project: Program) -> None:
        run_team(project, COMMIT)
        project.run(stdin="/shutdown alice\n")
        _, script = run_team(project, tool("bash", command="git log --oneline | wc -l"))
        said = result_text(tool_results(script.requests["lead"][1])[0])
        assert said.endswith("in .team/worktrees/alice, which was there already, on team/alice")
        assert result_text(tool_results(script.requests["alice"][1])[0]).strip() == "2"

    def test_doctor_lists_those_that_belong_to_nobody(self, project: Program) -> None:
        run_team(project, COMMIT)
        assert "worktree" not in project.run("doctor").out
        project.run(stdin="/shutdown alice\n/forget alice\n")
        assert "worktrees of nobody: alice (/discard NAME removes one)" in project.run("doctor").out


class TestRestart:
    def test_a_kill_while_one_is_made_leaves_nothing_that_blocks_the_name(self, project: Program) -> None:
        project.settings(worktree={"setup": "touch begun; [ -e ../../go ] || sleep 60"})
        with project.against(TeamScript(lead=[SPAWN])), project.start("-p", "x", *BYPASS) as process:
            wait_until((checkout(project) / "begun").exists)
            process.kill()
        (project.directory / ".team" / "go").touch()
        _, script = run_team(project)
        said = result_text(tool_results(script.requests["lead"][1])[0])
        assert said == "Spawned 'alice' (role: coder) in .team/worktrees/alice on team/alice"

    def test_a_checkout_is_found_again(self, project: Program) -> None:
        run_team(project, COMMIT)
        script = TeamScript(lead=[text("Done.")], alice=[tool("bash", command="pwd; ls new.py"), text("Yes.")])
        project.run("send", "alice", "Still there?")
        with project.against(script):
            project.run("-p", "x", *BYPASS)
        assert result_text(tool_results(script.requests["alice"][1])[0]) == f"{checkout(project)}\nnew.py"

    def test_one_that_was_deleted_by_hand_is_made_again_and_the_user_learns_it(self, project: Program) -> None:
        run_team(project, COMMIT)
        shutil.rmtree(checkout(project))
        script = TeamScript(lead=[text("Done.")], alice=[tool("bash", command="ls new.py"), text("Yes.")])
        project.run("send", "alice", "Still there?")
        with project.against(script):
            ran = project.run("-p", "x", *BYPASS)
        assert ".team/worktrees/alice was deleted. It was recreated from team/alice" in ran.err
        assert result_text(tool_results(script.requests["alice"][1])[0]) == "new.py"

    def test_if_it_cannot_be_made_again_the_lead_reads_why(self, project: Program) -> None:
        run_team(project)
        shutil.rmtree(checkout(project))
        (project.directory / ".git").rename(project.directory / "elsewhere")
        script = TeamScript(lead=[text("Hm."), text("Done.")], alice=[])
        project.run("send", "alice", "Still there?")
        with project.against(script):
            project.run("-p", "x", *BYPASS)
        assert "is not a git repository" in project.run("team").out

    def test_an_answer_that_a_crash_cut_off_from_its_report_still_brings_the_branch(self, project: Program) -> None:
        run_team(project, COMMIT)
        git(project.directory, "branch", "-D", "team/alice")
        transcript = project.directory / ".team/transcripts/alice.jsonl"
        rows = [line for line in transcript.read_text().splitlines() if json.loads(line)["kind"] != "end"]
        transcript.write_text("".join(f"{row}\n" for row in rows))
        inbox = project.directory / ".team/inbox/lead.jsonl"
        inbox.write_text("")
        with project.against(TeamScript(lead=[text("Done."), text("Done.")])):
            project.run("-p", "x", *BYPASS)
        assert git(project.directory, "show", "team/alice:new.py") == "new"
        assert "[team/alice: 1 commit ahead" in inbox.read_text()
