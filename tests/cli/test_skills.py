"""Skills from the outside: the real program and the strict API."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from teamcli.config.front_matter import MAX_BYTES
from teamcli.config.project import inspect_project
from teamcli.config.skills import LONGEST_DESCRIPTION, MOST_SHOWN, find_skills, skill_dirs
from tests.support.answers import answer, result_text, said_by_user, tool_results
from tests.support.fake_api import text, tool
from tests.support.program import Program, Ran
from tests.support.screen import Screen
from tests.support.team_script import TeamScript

SKILL_DIRS = (".team/skills", ".claude/skills", "~/.teamcli/skills", "~/.claude/skills")
BYPASS = ("--permission-mode", "bypassPermissions")


def skills_dir(program: Program, where: str) -> Path:
    return program.home / where[2:] if where.startswith("~/") else program.directory / where


def skill(directory: Path, name: str, front: str = "", body: str = "Do it well.") -> Path:
    path = directory / name / "SKILL.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    front = front or f"name: {name}\ndescription: how to {name}"
    path.write_text(f"---\n{front}\n---\n{body}\n", encoding="utf-8")
    return path


def run(program: Program, script: Any, *arguments: str) -> Ran:
    with program.against(script):
        return program.run("-p", "go", *arguments)


def system(request: dict[str, Any]) -> str:
    return str(request["system"][0]["text"])


def offered(request: dict[str, Any]) -> list[str]:
    """The lines about skills."""
    lines = system(request).splitlines()
    start = next((number for number, line in enumerate(lines) if line.startswith("Skills tell how")), len(lines))
    return [line for line in lines[start + 1 :] if line.startswith(("- ", "("))]


def test_each_skill_is_a_line_in_the_prompt_and_its_body_is_read_on_use(program: Program) -> None:
    for number, where in enumerate(SKILL_DIRS):
        skill(skills_dir(program, where), f"s{number}", body=f"Body {number}.")
    (skills_dir(program, SKILL_DIRS[0]) / "s0/more.txt").write_text("beside it")
    reads = [tool("read_file", path=f"{where}/s{number}/SKILL.md") for number, where in enumerate(SKILL_DIRS)]
    more = [
        tool("read_file", path=".team/skills/s0/more.txt"),
        tool("glob", pattern="*", path=".team/skills/s0"),
        tool("grep", pattern="beside", path=".team/skills/s0"),
    ]
    script = TeamScript(lead=[answer(*reads, *more), text("end")])
    assert run(program, script, "--trust").code == 0
    first, second = script.requests["lead"]
    assert offered(first) == [f"- s{n}: how to s{n} ({where}/s{n}/SKILL.md)" for n, where in enumerate(SKILL_DIRS)]
    assert "Body" not in system(first)
    *bodies, beside, listed, found = tool_results(second)
    assert [f"Body {number}." in result_text(body) for number, body in enumerate(bodies)] == [True] * 4
    assert "beside it" in result_text(beside)
    assert "more.txt" in result_text(listed)
    assert "beside it" in result_text(found)


def test_skills_are_read_only_and_open_nothing_else(program: Program) -> None:
    paths = [str(skill(skills_dir(program, where), f"s{number}")) for number, where in enumerate(SKILL_DIRS)]
    calls = [tool("write_file", path=path, content="x") for path in paths]
    calls += [tool("edit_file", path=path, old_text="Do it well.", new_text="x") for path in paths]
    calls += [tool("write_file", path=str(Path(paths[0]).parent / "new.md"), content="x")]
    calls += [tool("read_file", path=path) for path in (".team/config.json", "~/.teamcli/key", "~/.claude/settings")]
    script = TeamScript(lead=[answer(*calls), text("end")])
    run(program, script, "--trust", *BYPASS)
    results = tool_results(script.requests["lead"][1])
    assert all(result["is_error"] for result in results)
    assert all("belongs to a skill" in result_text(result) for result in results[:9])
    assert all("Do it well." in Path(path).read_text() for path in paths)


def test_only_teammates_and_sub_agents_that_can_read_learn_of_skills(program: Program) -> None:
    skill(skills_dir(program, SKILL_DIRS[2]), "mine")
    spawns = [
        tool("spawn_teammate", name="alice", role="coder", prompt="go"),
        tool("spawn_teammate", name="bob", role="coder", prompt="go", tools=["bash"]),
    ]
    forks = [tool("agent", prompt="x"), tool("agent", prompt="x", subagent_type="general")]
    read = tool("read_file", path="~/.teamcli/skills/mine/SKILL.md")
    works = lambda request, number: read if number == 0 else text("read")  # noqa: E731 - shorter than its name
    script = TeamScript(
        lead=lambda request, n: (answer(*spawns), answer(*forks), *[text("end")] * 9)[n],
        alice=works,
        bob=[text("ok")],
        **{"sa-1": works, "sa-2": works},
    )
    assert run(program, script, *BYPASS).code == 0
    line = ["- mine: how to mine (~/.teamcli/skills/mine/SKILL.md)"]
    for name, lines in (("lead", line), ("alice", line), ("sa-1", line), ("sa-2", line), ("bob", [])):
        assert [offered(request) for request in script.requests[name]] == [lines] * len(script.requests[name]), name
    for name in ("alice", "sa-1", "sa-2"):
        assert "Do it well." in result_text(tool_results(script.requests[name][1])[0]), name


def test_without_skills_the_prompt_does_not_mention_them(program: Program) -> None:
    script = TeamScript(lead=[text("end")])
    run(program, script)
    assert "kill" not in system(script.requests["lead"][0])


def test_the_prompt_stays_the_same_while_skills_come_and_go(program: Program) -> None:
    skill(skills_dir(program, SKILL_DIRS[0]), "one")
    script = TeamScript(lead=[text("a"), text("b"), text("c")])
    with program.against(script):
        program.run("--trust", stdin="hello\n!cp -r .team/skills/one .team/skills/two\nagain\n/clear\nand now\n")
        told = {system(request) for request in script.requests["lead"]}
    assert len(told) == 1
    assert len(script.requests["lead"]) == 3
    again = TeamScript(lead=[text("d")])
    (program.directory / ".team/skills/two/SKILL.md").write_text("# Second\n\nText.")
    run(program, again, "--trust")
    assert offered(again.requests["lead"][0])[1:] == ["- two: Second (.team/skills/two/SKILL.md)"]


def test_skills_of_a_project_need_trust_and_the_users_own_do_not(program: Program) -> None:
    for where in SKILL_DIRS:
        skill(skills_dir(program, where), "same", f"description: from {where}")
    read = tool("read_file", path=".team/skills/same/SKILL.md")
    strange, trusted = TeamScript(lead=[read, text("end")]), TeamScript(lead=[read, text("end")])
    ran = run(program, strange)
    assert "skill in .team/skills/same, new" in ran.err
    assert "skill in .claude/skills/same, new" in ran.err
    assert offered(strange.requests["lead"][0]) == ["- same: from ~/.teamcli/skills (~/.teamcli/skills/same/SKILL.md)"]
    assert "own state" in result_text(tool_results(strange.requests["lead"][1])[0])
    assert "kills" not in run(program, trusted, "--trust").err
    assert offered(trusted.requests["lead"][0]) == ["- same: from .team/skills (.team/skills/same/SKILL.md)"]
    assert "Do it well." in result_text(tool_results(trusted.requests["lead"][1])[0])


class TestCalledByTheUser:
    def test_its_text_goes_to_the_lead_with_the_arguments(self, program: Program) -> None:
        own = skills_dir(program, SKILL_DIRS[2])
        skill(own, "pdf", body="Fill in $1, then $ARGUMENTS.")
        skill(own, "plain", "description: x")
        with program.against([text("ok"), text("ok"), text("ok")]) as api:
            assert program.run(stdin="/pdf a b\n/plain now\n/plain\n").code == 0
        first, second, third = map(said_by_user, api.requests)
        assert first.startswith("Fill in a, then a b.\n\n<note>This is the skill pdf, called by the user;")
        assert "paths in it are relative to ~/.teamcli/skills/pdf/</note>" in first
        assert second.startswith("Do it well.\n\nnow\n\n<note>")
        assert third.startswith("Do it well.\n\n<note>")

    def test_built_in_and_custom_commands_come_before_skills(self, program: Program) -> None:
        own = skills_dir(program, SKILL_DIRS[2])
        for name in ("team", "fix", "free"):
            skill(own, name, body=f"The skill {name}.")
        commands = program.home / ".teamcli/commands"
        commands.mkdir()
        (commands / "fix.md").write_text("The command fix.")
        with program.against([text("ok")] * 2) as api:
            ran = program.run(stdin="/team\n/fix\n/free\n/help\n/help free\n/freee\n")
        assert "No teammates yet." in ran.out
        first, second = map(said_by_user, api.requests)
        assert "The command fix." in first
        assert "The skill free." in second
        assert "\nSkills\n  /free [TEXT]" in ran.out
        assert "how to free" in ran.out
        assert "did you mean /free?" in ran.out
        assert "A skill, from ~/.teamcli/skills/free/SKILL.md" in ran.out
        for name in ("team", "fix"):
            assert f"skills/{name}/SKILL.md cannot be called: /{name} is another command" in ran.out

    def test_front_matter_can_hide_a_skill_from_agents_or_from_the_user(self, program: Program) -> None:
        own = skills_dir(program, SKILL_DIRS[2])
        skill(own, "deploy", "description: x\ndisable-model-invocation: true\nargument-hint: [where]")
        skill(own, "style", "description: y\nuser-invocable: false\nallowed-tools: Bash(rm:*)")
        with program.against([text("ok")]) as api:
            out = program.run(stdin="/style\n/help deploy\n/deploy\n").out
        assert "unknown command /style" in out
        assert "/deploy [where]" in out
        assert [line[:8] for line in offered(api.requests[0])] == ["- style:"]

    def test_calling_a_deleted_skill_reports_it(self, program: Program) -> None:
        skill(skills_dir(program, SKILL_DIRS[2]), "pdf")
        out = program.run(stdin='!rm "$HOME/.teamcli/skills/pdf/SKILL.md"\n/pdf\n').out
        assert "the skill in ~/.teamcli/skills/pdf/SKILL.md can no longer be used: cannot read" in out

    def test_tab_offers_a_skill(self, program: Program) -> None:
        skill(skills_dir(program, SKILL_DIRS[2]), "polish")
        with Screen(program) as screen:
            screen.wait_for("team >>")
            screen.type("/pol")
            screen.wait_for("how to polish")
            screen.type("\t")
            screen.wait_for("team >> /polish")
            screen.type("\x03q\r")
            assert screen.wait_for_end() == 0


def test_an_unusable_skill_is_reported_with_its_file_and_stops_nothing(program: Program) -> None:
    project, own = skills_dir(program, SKILL_DIRS[0]), skills_dir(program, SKILL_DIRS[2])
    skill(project, "good").write_bytes(b"\xef\xbb\xbf---\r\nname: good\r\ndescription: is good\r\n---\r\nText.\r\n")
    skill(project, "open").write_text("---\nname: x\n")
    skill(project, "bytes").write_bytes(b"\xff")
    skill(project, "huge", body="x" * MAX_BYTES)
    skill(project, "empty", "description: x", body="")
    skill(project, "spaced", "name: PDF Processing\ndescription: forms")
    skill(project, "odd", "name: '...'")
    skill(project, "twice", "name: good")
    os.mkfifo(project / "open" / "pipe")
    (project / "fifo").mkdir()
    os.mkfifo(project / "fifo/SKILL.md")
    (project / "gone").mkdir()
    (project / "gone/SKILL.md").symlink_to("nowhere")
    skill(program.home / "elsewhere", "secret")
    (project / "out").symlink_to(program.home / "elsewhere/secret")
    (project / "leak").mkdir()
    (project / "leak/SKILL.md").symlink_to(program.home / "elsewhere/secret/SKILL.md")
    (project / "notes.txt").write_text("no skill")
    (project / "no-skill").mkdir()
    own.mkdir(parents=True)
    (own / "linked").symlink_to(program.home / "elsewhere/secret")  # the user may keep skills anywhere
    script = TeamScript(lead=[tool("read_file", path="~/.teamcli/skills/linked/SKILL.md"), text("end")])
    err = run(program, script, "--trust").err
    assert [line.split(":")[0] for line in offered(script.requests["lead"][0])] == [
        "- good",
        "- pdf-processing",
        "- secret",
    ]
    assert "Do it well." in result_text(tool_results(script.requests["lead"][1])[0])
    for name, why in {
        "open": "line 3: the front matter has no closing ---",
        "bytes": "line 1: it is not UTF-8",
        "huge": "it is larger than 262,144 bytes",
        "empty": "it has no text",
        "odd": "'...' is not a valid name",
        "twice": "there is a skill 'good' already in this folder",
        "fifo": "it is not a regular file",
        "gone": "it is a broken link",
        "out": "it is a link that leads out of the project",
        "leak": "it is a link that leads out of the project",
    }.items():
        assert err.count(f"The skill in .team/skills/{name}/SKILL.md is not used: {why}") == 1, name
    assert "spaced/SKILL.md is called pdf-processing here: 'PDF Processing' is not a valid name" in err


@pytest.mark.parametrize("folder", ["ünï", "_own", ".hidden", "a+b", "Cap.1", "y" * 80])
def test_a_skill_of_claude_code_is_called_as_its_folder(tmp_path: Path, folder: str) -> None:
    skill(tmp_path / "user/.claude/skills", folder, "name: Other Name\ndescription: d", body="")
    home = tmp_path / "user/.teamcli"
    skills = find_skills(skill_dirs(tmp_path, home, inspect_project(tmp_path, home).agreement))
    assert [each.name for each in skills.found] == [folder]
    assert skills.problems == ()


@pytest.mark.parametrize("target", [".", ".team", ".team/inbox"])
def test_no_link_opens_the_state_of_the_team(tmp_path: Path, target: str) -> None:
    (tmp_path / ".team/inbox").mkdir(parents=True)
    (tmp_path / target / "SKILL.md").write_text("# x")
    (tmp_path / ".claude/skills").mkdir(parents=True)
    (tmp_path / ".claude/skills/x").symlink_to(tmp_path / target)
    home = tmp_path / "home/.teamcli"
    skills = find_skills(skill_dirs(tmp_path, home, inspect_project(tmp_path, home).agreement))
    assert skills.found == ()
    assert "leads out of the project" in skills.problems[0]


def test_the_lines_in_the_prompt_are_bounded_in_number_and_length(program: Program) -> None:
    own = skills_dir(program, SKILL_DIRS[2])
    for number in range(MOST_SHOWN + 7):
        skill(own, f"s{number:03}", f"description: {'long ' * 500}\x1b[2J")
    script = TeamScript(lead=[tool("read_file", path="~/.teamcli/skills/s056/SKILL.md"), text("end")])
    err = run(program, script).err
    *lines, last = offered(script.requests["lead"][0])
    assert len(lines) == MOST_SHOWN
    assert last == "(7 more are left out)"
    assert max(map(len, lines)) < LONGEST_DESCRIPTION + 60
    assert "\x1b" not in system(script.requests["lead"][0])
    assert f"Agents see only {MOST_SHOWN} skills; the other 7" in err
    assert "Do it well." in result_text(tool_results(script.requests["lead"][1])[0])
