"""Lines that once did more than narrow rules said. Each asks now, and none lifts a rule that denies."""

from __future__ import annotations

from pathlib import Path

import pytest

from teamcli.errors import ConfigError
from teamcli.permissions.access import Executes, Reads, Writes
from teamcli.permissions.decide import decide
from teamcli.permissions.policy import Mode, Policy, Verdict
from teamcli.permissions.rules import parse_rules

ROOT = Path("/work space/project")
PROGRAMS = (
    "ls echo find rg sed awk printf bash compgen jobs declare git wget install tar export ssh-agent choom capsh ed for "
    "test true cat make less vim man scp ssh"
)
ALLOWED = parse_rules(", ".join(f"bash({name}:*)" for name in PROGRAMS.split()))
LINES = [
    "for PATH in ./evil; do ls; done",
    "echo `<<<a` `./evil.sh`",
    "find . -ex${X}ec ./evil {} +",
    "rg --p${X}re=./evil x",
    "ls $(>f)",
    "ls() { ./evil; } > f; ls",
    "echo ${X#a{fd}>f}",
    "sed -n -l 1p '1e ./evil' f",
    "sed -nl1 '1e ./evil' f",
    "sed --expression='1e ./evil' f",
    "sed 's/a/b/e' f",
    "sed 's/a/b/w f' g",
    "sed -f script f",
    "awk 'BEGIN{system\n(\"./evil\")}'",
    "awk 'BEGIN{\"./evil\" | getline}'",
    "awk 'BEGIN{print > \"f\"}'",
    "awk -f script",
    "printf -vPATH ./evil; ls",
    "printf -v PATH ./evil; ls",
    "bash /proc/self/fd/0 <<E\n./evil\nE",
    "compgen -W '$(./evil)'",
    "jobs -x ./evil",
    'declare -a "x=$y"',
    "test -v 'a[$(./evil)]'",
    "git ls-remote --exec=./evil x",
    "git clone --u=./evil x",
    "git push --e=./evil x",
    "git fetch-pack --exec=./evil x",
    "git remote-ext x ./evil",
    "git -c core.pager=./evil log",
    "git --exec-path=. log",
    "wget --config=f x",
    "install --strip-program=./evil -s a b",
    "export TAR_OPTIONS=--to-command=./evil; tar xf a",
    "TAR_OPTIONS=--to-command=./evil tar xf a",
    "export RIPGREP_CONFIG_PATH=f; rg x",
    "RIPGREP_CONFIG_PATH=f rg x",
    "ssh-agent ./evil",
    "choom -n 1 -- ./evil",
    "capsh -- -c ./evil",
    "ed f",
    "make 'SHELL = ./evil'",
    "make .SHELLFLAGS=./evil",
    "git merge-index ./evil -a",
    "git submodule--helper foreach ./evil",
    "git a/evil",
    "git send-email --header-cmd=./evil x",
    "less -k f g",
    "less --lesskey-src=f g",
    "less +!./evil f",
    "vim '+!./evil' f",
    "man -C f ls",
    "scp -D ./evil a b",
    "ssh -I ./evil.so host",
]
DISGUISES = [
    "echo `<<<a` `./evil.sh`",
    "compgen -W '$(evil.sh)'",
    "jobs -x evil.sh",
    "x=$'\\x24(evil.sh)'; echo \"${x@P}\"",
    "x=$'a[\\44(evil.sh)]'; echo $((x))",
    "read x < f; echo ${x@P}",
    "shopt -s expand_aliases\nalias x=evil.sh\nx",
    "sed '1e evil.sh a' f",
    "less '+!evil.sh a' f",
    "make 'SHELL = evil.sh'",
    "git merge-index evil.sh -a",
]


@pytest.mark.parametrize("line", LINES)
def test_a_line_that_did_more_than_its_rule_said_asks(line: str) -> None:
    for mode in (Mode.DEFAULT, Mode.ACCEPT_EDITS):
        assert decide(Policy(mode, ALLOWED), "bash", Executes(line), ROOT).verdict is Verdict.ASK


@pytest.mark.parametrize("line", DISGUISES)
def test_a_line_that_hid_a_command_does_not_lift_a_rule_that_denies(line: str) -> None:
    policy = Policy(Mode.BYPASS_PERMISSIONS, deny=parse_rules("bash(evil.sh:*)"))
    assert decide(policy, "bash", Executes(line), ROOT).verdict is Verdict.DENY


@pytest.mark.parametrize(
    "line",
    [
        "git-push origin",
        "/usr/lib/git-core/git-push",
        "git merge-index git push",
        "shopt -s expand_aliases\nalias g=git\ng push",
        "sed '1e git push' f",
        "vim '+!git push' f",
    ],
)
def test_no_other_name_of_git_lifts_a_rule_about_a_subcommand(line: str) -> None:
    policy = Policy(Mode.BYPASS_PERMISSIONS, deny=parse_rules("bash(git push:*)"))
    assert decide(policy, "bash", Executes(line), ROOT).verdict is Verdict.DENY


def test_a_rule_for_exactly_one_script_does_not_cover_its_namesake_elsewhere() -> None:
    policy = Policy(allow=parse_rules("bash(sh build), bash(make all)"))
    verdicts = [
        decide(policy, "bash", Executes(line), ROOT).verdict
        for line in ("sh build", "cd sub && sh build", "cd sub && make all")
    ]
    assert verdicts == [Verdict.ALLOW, Verdict.ASK, Verdict.ALLOW]


@pytest.mark.parametrize(
    "line",
    ["sed -n 1,5p f", "sed s/a/b/g f", "awk '{print $1}' f", "find . -name '*.py'", "git log -p", "printf '%s\\n' a"],
)
def test_plain_forms_of_these_programs_are_covered(line: str) -> None:
    assert decide(Policy(allow=ALLOWED), "bash", Executes(line), ROOT).verdict is Verdict.ALLOW


@pytest.mark.parametrize(
    "glob",
    ["*a" * 40 + "*b", "**/" * 12 + "b", "**/a/" * 30 + "b", "[a]*" * 40 + "b", "*" * 5000 + "b", "?*" * 60 + "b"],
    ids=lambda glob: glob[:12],
)
def test_no_glob_of_a_rule_is_slow(glob: str) -> None:
    """With backtracking these would not end."""
    path = ROOT / "/".join(["a" * 60] * 40)
    for rule in parse_rules([f"read_file({glob})", f"edit_file({glob})"]):
        policy = Policy(Mode.ACCEPT_EDITS, deny=(rule,))
        assert decide(policy, "read_file", Reads(path), ROOT).verdict is Verdict.ALLOW
        assert decide(policy, "edit_file", Writes(path), ROOT).verdict is Verdict.ALLOW


def test_a_rule_with_a_nul_character_is_refused_when_it_is_read() -> None:
    with pytest.raises(ConfigError, match="NUL"):
        parse_rules("read_file(~\0)")


@pytest.mark.parametrize("pattern", ["~\ud800", "~nobody-of-this-name/x", "[]", "[!]", "a[]b"])
def test_an_odd_path_rule_breaks_no_call(pattern: str) -> None:
    policy = Policy(deny=parse_rules(f"read_file({pattern})"))
    assert decide(policy, "read_file", Reads(ROOT / "a"), ROOT).verdict is Verdict.ALLOW


def test_brackets_with_nothing_in_them_are_just_brackets() -> None:
    policy = Policy(deny=parse_rules("read_file(a[]b)"))
    assert decide(policy, "read_file", Reads(ROOT / "a[]b"), ROOT).verdict is Verdict.DENY
