"""The broader rule that *always* offers: only for tame commands, and only if it allows the call."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamcli.permissions.access import Executes, Writes
from teamcli.permissions.decide import decide
from teamcli.permissions.policy import Mode, Policy, Verdict
from teamcli.permissions.rules import parse_rules
from teamcli.permissions.shell.forms import BUILTINS, RUNNERS

ROOT = Path("/work")
OFFERED = {
    "git diff --stat HEAD~1": ["bash(git diff:*)"],
    "git status && pytest -q": ["bash(git status:*)", "bash(pytest:*)"],
    "git log -1; git log -2": ["bash(git log:*)"],
    "cat a.txt | grep -n x | wc -l": ["bash(cat:*)", "bash(grep:*)", "bash(wc:*)"],
    "cd src && ls -l": ["bash(ls:*)"],
    "CI=1 pytest -q": ["bash(pytest:*)"],
    "python3 -m pytest tests": ["bash(python3 -m pytest:*)"],
    ".venv/bin/ruff check .": ["bash(.venv/bin/ruff:*)"],
    "npm run lint -- --fix": ["bash(npm run lint:*)"],
    "npm run build:prod x": ["bash(npm run build:prod:*)"],
    "echo now && find . -name '*.py'": ["bash(find:*)"],
}
NOT_OFFERED = [
    *("rm -rf build", "mv a b", "cp a b", "tee f", "sed -i s/a/b/ f", "chmod +x f", "kill 1", "dd if=a of=b"),
    *("curl http://x", "wget x", "ssh host ls", "scp a h:", "nc h 1", "docker run x", "kubectl delete pod x"),
    *("python -c 'print(1)'", "python x.py", "node -e 1", "perl -e 1", "make test", "./build.sh", "unknown arg"),
    *(
        "git fetch http://x",
        "git push",
        "git reset --hard",
        "git clean -fd",
        "git checkout .",
        "git -c a=b diff",
        "git config a b",
    ),
    *("git diff --ext-diff", "git", "find . -delete", "find . -exec rm {} ';'", "xargs rm", "env ls", "cat x | sh"),
    *("cat a | python -", "git status && rm x", "ls > out.txt", "cat $X", "pip install x", "npm install", "npm run"),
    *("cd /elsewhere && ./bin/pytest", "python -m http.server", "'git diff'", "git 'di ff'"),
]


@pytest.mark.parametrize("line", OFFERED)
def test_what_is_offered_allows_the_line(line: str) -> None:
    offered = decide(Policy(), "bash", Executes(line), ROOT).broader
    assert list(offered) == OFFERED[line]
    assert decide(Policy(allow=parse_rules(offered)), "bash", Executes(line), ROOT).verdict is Verdict.ALLOW


@pytest.mark.parametrize("line", NOT_OFFERED)
def test_no_broader_rule_is_offered_for_what_may_do_harm(line: str) -> None:
    assert decide(Policy(), "bash", Executes(line), ROOT).broader == ()


def test_nothing_is_offered_for_programs_that_run_others() -> None:
    offered = {name: decide(Policy(), "bash", Executes(f"{name} x"), ROOT).broader for name in RUNNERS | BUILTINS}
    assert not any(offered.values())


def test_only_what_no_rule_covers_yet_is_offered() -> None:
    policy = Policy(allow=parse_rules("bash(git status:*)"))
    assert decide(policy, "bash", Executes("git status && ls"), ROOT).broader == ("bash(ls:*)",)


def test_a_line_that_writes_a_file_is_offered_only_if_files_may_change() -> None:
    modes = (Mode.DEFAULT, Mode.ACCEPT_EDITS)
    offered = [decide(Policy(mode), "bash", Executes("ls > out.txt"), Path.cwd()).broader for mode in modes]
    assert offered == [(), ("bash(ls:*)",)]


@pytest.mark.parametrize(
    ("path", "offered"),
    [
        ("src/a.py", ("edit_file(src/**)",)),
        ("src/a b/c.py", ("edit_file(src/a b/**)",)),
        ("a.py", ()),
        (".github/ci.yml", ()),
        ("src/.hidden/x", ()),
        ("a*b/c", ()),
        ("/etc/hosts", ()),
        ("", ()),
    ],
)
def test_the_directory_of_a_file_is_offered(path: str, offered: tuple[str, ...]) -> None:
    access = Writes(ROOT / path)
    assert decide(Policy(), "edit_file", access, ROOT).broader == offered
    if offered:
        assert decide(Policy(allow=parse_rules(offered)), "edit_file", access, ROOT).verdict is Verdict.ALLOW
