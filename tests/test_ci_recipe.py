"""The workflow in docs/ci.md: its shape is checked, and its shell steps run here, against the fake API."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import yaml

from teamcli.cli.main import _agent_parser, parse_options
from tests.support.answers import said_by_user
from tests.support.console import on_path
from tests.support.fake_api import FakeAPI, status, text, tool
from tests.support.program import PATIENCE_SECONDS, ROOT, Program

PAGE = (ROOT / "docs/ci.md").read_text(encoding="utf-8")
EXPRESSION = re.compile(r"\$\{\{ ([\w.]+) \}\}")
REVIEW = "Line 1 of a.py: name the unit."


def workflow() -> dict[Any, Any]:
    (block,) = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    parsed = yaml.safe_load(block)
    assert isinstance(parsed, dict)
    return parsed


def steps() -> list[dict[str, Any]]:
    return list(workflow()["jobs"]["review"]["steps"])


class Runner:
    """Runs shell steps as GitHub does: each in a bash of its own, until one fails."""

    def __init__(self, program: Program, api: FakeAPI, tmp_path: Path) -> None:
        self.program = program
        self.temp = tmp_path / "runner"
        self.bin = on_path(tmp_path / "bin", api.url).parent
        for name in ("pip", "gh"):
            self._install(name)
        self.temp.mkdir()
        self._git("init", "-q", "-b", "main")
        self.base = self._commit("a.py", "delay = 1\n")
        self._commit("a.py", "delay = 2\n")
        self.values = {
            "secrets.ANTHROPIC_API_KEY": program.key,
            "github.event.pull_request.base.sha": self.base,
            "github.token": "token",
            "github.event.number": "7",
        }

    def run(self) -> dict[str, subprocess.CompletedProcess[str]]:
        done: dict[str, subprocess.CompletedProcess[str]] = {}
        for step in steps():
            if "run" in step and all(each.returncode == 0 for each in done.values()):
                done[step["name"]] = self._run(step)
        return done

    def called(self, name: str) -> str:
        path = self.temp / f"{name}.called"
        return path.read_text() if path.exists() else ""

    def _run(self, step: dict[str, Any]) -> subprocess.CompletedProcess[str]:
        script = self.temp / "step.sh"
        script.write_text(step["run"])
        given = {
            name: EXPRESSION.sub(lambda found: self.values[found[1]], value)
            for name, value in step.get("env", {}).items()
        }
        env = self.program.env() | {
            "PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}",
            "RUNNER_TEMP": str(self.temp),
            "GITHUB_STEP_SUMMARY": str(self.temp / "summary.md"),
            **given,
        }
        return subprocess.run(
            ["bash", "-e", str(script)],
            cwd=self.program.directory,
            env=env,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PATIENCE_SECONDS,
        )

    def _install(self, name: str) -> None:
        path = self.bin / name
        path.write_text(f'#!/bin/sh\necho "$@" > {self.temp}/{name}.called\n')
        path.chmod(0o755)

    def _git(self, *arguments: str) -> str:
        named = ["git", "-c", "user.name=x", "-c", "user.email=x@example.com", *arguments]
        done = subprocess.run(
            named, cwd=self.program.directory, env=self.program.env(), capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def _commit(self, name: str, content: str) -> str:
        (self.program.directory / name).write_text(content)
        self._git("add", name)
        self._git("commit", "-qm", name)
        return self._git("rev-parse", "HEAD")


def test_the_workflow_has_the_shape_that_github_expects() -> None:
    found = workflow()
    assert found[True] == "pull_request"  # YAML 1.1 reads the key `on` as true, and GitHub does not
    assert found["permissions"] == {"contents": "read", "pull-requests": "write"}
    (job,) = found["jobs"].values()
    assert {"if", "runs-on", "timeout-minutes", "steps"} == set(job)
    assert all(("run" in step) != ("uses" in step) for step in job["steps"])
    assert [step["uses"] for step in job["steps"] if "uses" in step] == [
        "actions/checkout@v4",
        "actions/setup-python@v5",
    ]


def test_no_script_contains_an_expression_and_each_variable_is_given() -> None:
    for step in steps():
        script = step.get("run", "")
        assert "${{" not in script
        wanted = set(re.findall(r"\$\{?([A-Z_]+)", script)) - {"RUNNER_TEMP", "GITHUB_STEP_SUMMARY"}
        assert wanted <= set(step.get("env", {}))


def test_every_command_line_of_the_page_can_be_parsed() -> None:
    known = {option for action in _agent_parser()._actions for option in action.option_strings}
    lines = [line for line in PAGE.replace("\\\n", " ").splitlines() if re.match(r"\s*teamcli -p", line)]
    assert len(lines) == 2
    for line in lines:
        words = shlex.split(line.partition("<")[0])[1:]
        assert {word for word in words if word.startswith("-")} <= known
        assert parse_options(words).verbose


def test_a_review_is_shown_in_the_log_the_summary_and_a_comment(program: Program, tmp_path: Path) -> None:
    with FakeAPI([tool("read_file", path="a.py"), text(REVIEW)]) as api:
        runner = Runner(program, api, tmp_path)
        done = runner.run()
    assert {name: each.returncode for name, each in done.items()} == {"Install teamcli": 0, "Review": 0, "Comment": 0}
    asked = said_by_user(api.requests[0])
    assert "Review this change." in asked
    assert "-delay = 1\n+delay = 2" in asked
    assert "  ✓ lead: read a.py" in done["Review"].stderr
    assert (runner.temp / "summary.md").read_text() == f"{REVIEW}\n"
    assert runner.called("gh") == f"pr comment 7 --body-file {runner.temp}/review.md\n"
    assert runner.called("pip").startswith("install git+https://github.com/")


def test_nothing_is_changed_and_that_is_no_failure(program: Program, tmp_path: Path) -> None:
    calls = [tool("bash", command="touch made"), tool("write_file", path="made", content="x")]
    with FakeAPI([*calls, text(REVIEW)]) as api:
        done = Runner(program, api, tmp_path).run()
    assert done["Review"].returncode == 0
    assert not (program.directory / "made").exists()


def test_a_limit_is_a_warning(program: Program, tmp_path: Path) -> None:
    with FakeAPI(default=tool("read_file", path="a.py")) as api:
        done = Runner(program, api, tmp_path).run()
    assert done["Review"].returncode == 0
    assert "::warning::The review reached its limit" in done["Review"].stdout
    assert len(api.requests) == 40


def test_a_failure_fails_the_step_and_nothing_is_commented(program: Program, tmp_path: Path) -> None:
    with FakeAPI([status(401)]) as api:
        runner = Runner(program, api, tmp_path)
        done = runner.run()
    assert done["Review"].returncode == 2
    assert "rejected the credential" in done["Review"].stderr
    assert runner.called("gh") == ""


def test_without_the_secret_nothing_runs(program: Program, tmp_path: Path) -> None:
    with FakeAPI() as api:
        runner = Runner(program, api, tmp_path)
        runner.values["secrets.ANTHROPIC_API_KEY"] = ""
        done = runner.run()
    assert done["Review"].returncode != 0
    assert "add this secret to the repository" in done["Review"].stderr
    assert api.requests == []
