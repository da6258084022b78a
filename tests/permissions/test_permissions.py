from __future__ import annotations

import inspect
import itertools
import json
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from teamcli.agent.tool import Access, Executes, Harmless, Reads, Writes
from teamcli.errors import ConfigError
from teamcli.permissions.decide import decide, may_see
from teamcli.permissions.policy import Decision, Mode, Policy, Verdict
from teamcli.permissions.rules import Form, Rule, parse_rules

ROOT = Path("/work space/project")
TOOLS = ("bash", "read_file", "write_file", "edit_file", "glob", "grep", "spawn_teammate")
unhurried = settings(deadline=None)
ALLOW, ASK, DENY = Verdict.ALLOW, Verdict.ASK, Verdict.DENY


def policy(allow: str = "", ask: str = "", deny: str = "", mode: Mode = Mode.DEFAULT) -> Policy:
    return Policy(mode, parse_rules(allow, TOOLS), parse_rules(ask, TOOLS), parse_rules(deny, TOOLS))


def run(rules: Policy, command: str) -> Decision:
    return decide(rules, "bash", Executes(command), ROOT)


def write(rules: Policy, path: str, tool: str = "edit_file") -> Decision:
    return decide(rules, tool, Writes(ROOT / path), ROOT)


def read(rules: Policy, path: str, tool: str = "read_file") -> Decision:
    return decide(rules, tool, Reads(ROOT / path), ROOT)


def in_modes(*modes: Mode) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Have a test hold in each of these modes, as one test: there are hundreds of commands to try."""

    def over_all(test: Callable[..., None]) -> Callable[..., None]:
        def in_each(**given: Any) -> None:
            for mode in modes:
                test(mode=mode, **given)

        kept = [each for each in inspect.signature(test).parameters.values() if each.name != "mode"]
        in_each.__signature__ = inspect.Signature(kept)  # type: ignore[attr-defined]
        in_each.__name__ = test.__name__
        return in_each

    return over_all


EDIT, READ, BASH, NOTHING = Writes(ROOT / "a.py"), Reads(ROOT / "a.py"), Executes("pytest -q"), Harmless()


@pytest.mark.parametrize(
    ("mode", "tool", "access", "verdict"),
    [
        (Mode.DEFAULT, "bash", BASH, ASK),
        (Mode.DEFAULT, "edit_file", EDIT, ASK),
        (Mode.DEFAULT, "read_file", READ, ALLOW),
        (Mode.DEFAULT, "spawn_teammate", NOTHING, ALLOW),
        (Mode.ACCEPT_EDITS, "bash", BASH, ASK),
        (Mode.ACCEPT_EDITS, "edit_file", EDIT, ALLOW),
        (Mode.ACCEPT_EDITS, "read_file", READ, ALLOW),
        (Mode.ACCEPT_EDITS, "spawn_teammate", NOTHING, ALLOW),
        (Mode.PLAN, "bash", BASH, DENY),
        (Mode.PLAN, "edit_file", EDIT, DENY),
        (Mode.PLAN, "read_file", READ, ALLOW),
        (Mode.PLAN, "spawn_teammate", NOTHING, ALLOW),
        (Mode.BYPASS_PERMISSIONS, "bash", BASH, ALLOW),
        (Mode.BYPASS_PERMISSIONS, "edit_file", EDIT, ALLOW),
        (Mode.BYPASS_PERMISSIONS, "read_file", READ, ALLOW),
        (Mode.BYPASS_PERMISSIONS, "spawn_teammate", NOTHING, ALLOW),
    ],
)
def test_without_rules_the_mode_decides(mode: Mode, tool: str, access: Access, verdict: Verdict) -> None:
    assert decide(policy(mode=mode), tool, access, ROOT).verdict is verdict


@pytest.mark.parametrize("tool", TOOLS)
@in_modes(*Mode)
def test_a_denied_tool_is_denied_in_every_mode_whatever_else_the_rules_say(mode: Mode, tool: str) -> None:
    access = {"bash": BASH, "write_file": EDIT, "edit_file": EDIT, "spawn_teammate": NOTHING}.get(tool, READ)
    decision = decide(policy(allow=tool, ask=tool, deny=tool, mode=mode), tool, access, ROOT)
    assert decision.verdict is DENY
    assert tool in decision.reason


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [(Mode.DEFAULT, ASK), (Mode.ACCEPT_EDITS, ASK), (Mode.PLAN, DENY), (Mode.BYPASS_PERMISSIONS, ASK)],
)
def test_an_ask_rule_beats_an_allow_rule_and_asks_in_bypass_too(mode: Mode, verdict: Verdict) -> None:
    assert run(policy(allow="bash", ask="bash(git push:*)", mode=mode), "git push").verdict is verdict


def test_an_ask_rule_offers_no_rule_because_none_would_help() -> None:
    decision = run(policy(allow="bash(git:*)", ask="bash(git push:*)"), "git push")
    assert decision == Decision(ASK, "The rule bash(git push:*) asks before each such call.", "", is_asked_by_rule=True)


def test_an_ask_rule_asks_even_for_what_is_harmless() -> None:
    assert read(policy(ask="read_file(secrets/**)"), "secrets/a").verdict is ASK
    assert decide(policy(ask="spawn_teammate"), "spawn_teammate", NOTHING, ROOT).verdict is ASK


ALLOWED_BY_GIT_AND_CO = [
    "git status",
    "git  status",
    "'git' status",
    "git status -s",
    "git log --oneline | head -5",
    "git status && git log",
    "git status; git log",
    "git status\ngit log",
    "git log 2>&1",
    "git log 2>/dev/null >/dev/null",
    "git log --format='%h, %s; rm x'",
    "git status \\\n  --short",
    "pytest -q",
    "pytest '-q'",
    "git status && pytest -q",
    "head -5 && CI=1 make test",
    "CI=1 git status",
    "git status || git log",
    "cd src && git status",
    "echo a && git status",
    "true; git log -1",
    "git log HEAD~1 @{u}",
    'git log --author="a b" > /dev/null',
    "git log \"$(cat <<'END'\nit's $(rm x)\nEND\n)\"",
]
NOT_UNDERSTOOD = [
    "git status $X",
    "git status *.py",
    "git status & git log",
    "(git status)",
    "{ git status; }",
    "git log $(git status)",
    "git log `git status`",
    "git log <(git status)",
    'git log "x $(git status) y"',
    "if git status; then git log; fi",
    "for x in a b; do git log $x; done",
    "git log < file",
    "git status # comment; rm x",
    "git log <<'E'\n$(rm x)\nE",
]
"""No rule but `bash` allows these, although every program in them is allowed."""
NOT_ALLOWED_BY_GIT_AND_CO = [
    "timeout 5 git status",
    "git",
    "git push",
    "git statusx",
    "gitstatus",
    "xgit status",
    "/tmp/git status",
    "./git status",
    "git 'status log'",
    "git $X",
    "git stat?s",
    "pytest",
    "pytest -q x",
    "pytest -q > f",
    "git status && rm x",
    "git status; rm x",
    "git status & rm x",
    "git status | rm x",
    "git status || rm x",
    "git status\nrm x",
    "git log $(rm x)",
    "git log `rm x`",
    'git log "$(rm x)"',
    "git log <(rm x)",
    "git log >(rm x)",
    "git log ${X:-$(rm x)}",
    "git log $((1+$(rm x)))",
    "git log <<E\n$(rm x)\nE",
    "git log <<< $(rm x)",
    "{ git log; } > file",
    "> file",
    "X=1 git status",
    "PATH=/tmp git status",
    "X=$(rm x) git status",
    "CI=2 make test",
    "make test",
    "X=1; git status",
    "export X=1; git status",
    "git() { rm x; }; git status",
    "$X",
    "${X}it status",
    "$(echo git) status",
    "git status && $X",
    "sh",
    "echo Z2l0IHN0YXR1cwo= | base64 -d | sh",
    "git log | sh",
    "timeout 5 rm x",
    "timeout 5 git push",
    "timeout $T git status",
    "nice git status",
    "bash -c 'git status'",
    "eval git status",
    "xargs git status",
    "find . -exec git status \\;",
    "git status\r\nrm x",
    "git st\\\natus",
    "git status '",
    "git status <> f",
    "if git status",
    "time { git status; }",
    "git status; }",
    "# git status",
    "",
    " ",
    "\0",
    "\ud800",
]
WRITING = [
    "git log > file",
    "git log >> file",
    "git log 2> file",
    "git log &> file",
    "git log >| file",
    "> file git log",
]
GIT_AND_CO = (
    "bash(git status:*), bash(git log:*), bash(head:*), bash(pytest -q), bash(CI=1 make test:*), bash(timeout:*)"
)


@pytest.mark.parametrize("command", ALLOWED_BY_GIT_AND_CO)
@in_modes(Mode.DEFAULT, Mode.ACCEPT_EDITS)
def test_allowed_when_every_command_of_the_line_is(command: str, mode: Mode) -> None:
    decision = run(policy(GIT_AND_CO, mode=mode), command)
    assert decision.verdict is ALLOW
    assert decision.rule


@pytest.mark.parametrize("command", NOT_UNDERSTOOD)
@in_modes(Mode.DEFAULT, Mode.ACCEPT_EDITS)
def test_a_line_that_is_not_understood_asks_whatever_rules_allow_and_says_how_to_write_it(
    command: str, mode: Mode
) -> None:
    decision = run(policy(f"{GIT_AND_CO}, bash(={json.dumps(command)})", mode=mode), command)
    assert decision.verdict is ASK
    assert decision.rule == ""
    assert "because " in decision.advice
    assert ": " in decision.advice


@pytest.mark.parametrize("command", WRITING)
def test_a_redirection_to_a_file_counts_as_a_change_of_that_file(command: str) -> None:
    assert run(policy(GIT_AND_CO), command).verdict is ASK
    assert run(policy(GIT_AND_CO, mode=Mode.ACCEPT_EDITS), command).verdict is ALLOW
    assert run(policy(f"{GIT_AND_CO}, write_file(./file)"), command).verdict is ALLOW
    assert run(policy(f"{GIT_AND_CO}, write_file(./other)"), command).verdict is ASK
    assert run(policy(GIT_AND_CO, ask="edit_file(./file)", mode=Mode.ACCEPT_EDITS), command).verdict is ASK
    for mode in Mode:
        assert run(policy("bash", deny="edit_file(./file)", mode=mode), command).verdict is DENY


@pytest.mark.parametrize(
    "command",
    [
        "git log > ../file",
        "git log > /elsewhere/file",
        "git log > .git/config",
        "git log > .GIT/hooks/x",
        "git log > .team/settings.json",
        "cd src && git log > ../../file",
        "cd src; cd .. ; git log > ../file",
    ],
)
def test_a_redirection_keeps_to_the_bounds_of_the_file_tools(command: str) -> None:
    assert run(policy(f"{GIT_AND_CO}, write_file", mode=Mode.ACCEPT_EDITS), command).verdict is ASK


def test_a_redirection_through_a_link_is_about_the_file_behind_it(tmp_path: Path) -> None:
    root = tmp_path.resolve() / "work"
    (root / "sub").mkdir(parents=True)
    (root / "out").symlink_to(tmp_path)
    (root / "in").symlink_to(root / "sub")
    rules = policy("bash(git:*)", deny="edit_file(sub/**)", mode=Mode.ACCEPT_EDITS)
    lines = ("git log > out/f", "cd out && git log > f", "git log > in/f", "cd in && git log > f")
    assert [decide(rules, "bash", Executes(line), root).verdict for line in lines] == [ASK, ASK, DENY, DENY]


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("cd src", ALLOW),
        ("cd src && echo a", ALLOW),
        ("cd '/work space/project/src'", ALLOW),
        ("cd .", ALLOW),
        ("cd src/..", ALLOW),
        ("echo a; true", ALLOW),
        ("echo -e 'a b'", ALLOW),
        ("cd ..", ASK),
        ("cd /", ASK),
        ("cd", ASK),
        ("cd -", ASK),
        ("cd -P src", ASK),
        ("cd src ..", ASK),
        ("cd src; cd ../..", ASK),
        ("cd ~", ASK),
        ("cd $X", ASK),
        ("cd src && ls", ASK),
        ("echo $X", ASK),
        ("/bin/echo a", ASK),
    ],
)
def test_cd_in_the_workspace_true_and_echo_need_no_rule(command: str, verdict: Verdict) -> None:
    assert run(policy(), command).verdict is verdict


def test_a_rule_for_a_script_is_about_the_script_where_the_line_starts() -> None:
    rules = policy("bash(./build:*)")
    assert run(rules, "./build x").verdict is ALLOW
    assert run(rules, "cd evil && ./build x").verdict is ASK


@pytest.mark.parametrize("command", NOT_ALLOWED_BY_GIT_AND_CO)
@in_modes(Mode.DEFAULT, Mode.ACCEPT_EDITS)
def test_asks_when_one_command_of_the_line_is_not_allowed(command: str, mode: Mode) -> None:
    verdict = run(policy(GIT_AND_CO, mode=mode), command).verdict
    assert verdict is ASK


@pytest.mark.parametrize(
    "command",
    [
        "echo ${a['$(touch p)']}",
        "test -v 'a[$(touch p)]'",
        "printf -v 'a[$(touch p)]' x",
        "read 'a[$(touch p)]' <<< x",
        "declare 'a[$(touch p)]=1'",
        "export x='a[$(touch p)]'; echo $((x))",
        "for x in 'a[$(touch p)]'; do echo ${!x}; done",
        "find . -delete",
        "find . -fprint f",
        "find . -ok touch p ';'",
    ],
)
def test_no_rule_for_a_program_covers_commands_that_are_hidden_in_its_words(command: str) -> None:
    programs = "echo test printf read declare export find"
    assert run(policy(",".join(f"bash({name}:*)" for name in programs.split())), command).verdict is ASK


@pytest.mark.parametrize("command", ALLOWED_BY_GIT_AND_CO + NOT_ALLOWED_BY_GIT_AND_CO)
def test_plan_refuses_every_command_even_an_allowed_one(command: str) -> None:
    decision = run(policy(GIT_AND_CO, mode=Mode.PLAN), command)
    assert decision.verdict is DENY
    assert "plan" in decision.reason


@pytest.mark.parametrize("command", ALLOWED_BY_GIT_AND_CO + NOT_ALLOWED_BY_GIT_AND_CO)
def test_bypass_and_a_rule_for_the_whole_tool_ask_about_nothing(command: str) -> None:
    assert run(policy(mode=Mode.BYPASS_PERMISSIONS), command).verdict is ALLOW
    assert run(policy("bash"), command).verdict is ALLOW


@pytest.mark.parametrize("command", ALLOWED_BY_GIT_AND_CO + NOT_ALLOWED_BY_GIT_AND_CO)
def test_the_rule_that_an_ask_names_allows_the_call_and_survives_a_list(command: str) -> None:
    rule = run(policy(), command).rule
    if not rule:  # a line that no rule for a program covers
        assert run(policy("bash"), command).verdict is ALLOW
        return
    rules = parse_rules(f"edit_file(src/**), {rule}, bash(x:*)")
    assert len(rules) == 3
    assert str(rules[1]) == rule
    assert run(Policy(allow=(rules[1],)), command).verdict is ALLOW


@pytest.mark.parametrize(
    ("command", "rule"),
    [
        ("pytest -q", "bash(pytest -q)"),
        ("git log --format='%h,%s'", "bash(git log --format='%h,%s')"),
        ("ls ')'", "bash(ls ')')"),
        ("ls \\)", "bash(ls \\))"),
        ("a > f", "bash(a > f)"),
        ("a\nb", 'bash(="a\\nb")'),
        ("git show 'HEAD:*'", "bash(git show 'HEAD:*')"),
        ("ls '*'", "bash(ls '*')"),
        (" a ", 'bash(=" a ")'),
        ("a '), bash(b'", "bash(a '), bash(b')"),
        ("a 'it'\\''s'", "bash(a 'it'\\''s')"),
    ],
)
def test_an_ask_names_the_narrowest_rule_in_one_line(command: str, rule: str) -> None:
    decision = run(policy(), command)
    assert decision.verdict is ASK
    assert decision.rule == rule
    assert run(policy(rule), command).verdict is ALLOW
    assert run(policy(rule), f"{command}; x").verdict is ASK


@pytest.mark.parametrize(
    "command", ["echo $(date)", "case x in a) b;; esac", "ls *", "", "=x", "a), bash(b", "a\x1b[2J"]
)
def test_an_ask_names_no_rule_if_only_the_whole_tool_would_cover_the_line(command: str) -> None:
    decision = run(policy(), command)
    assert decision.verdict is ASK
    assert decision.rule == ""


def test_an_exact_rule_covers_its_whole_text_but_only_that() -> None:
    rules = policy('bash(a > f && b), bash(="b; c")')
    assert run(rules, "a > f && b").verdict is ALLOW
    assert run(rules, "b; c").verdict is ALLOW
    assert run(rules, "a > f").verdict is ASK
    assert run(rules, "b").verdict is ASK
    assert run(rules, "b;  c").verdict is ASK


def test_an_exact_rule_with_a_redirection_allows_that_command_in_a_list() -> None:
    rules = policy("bash(make hi > f), bash(ls)")
    assert run(rules, "ls && make 'hi' >f").verdict is ALLOW
    assert run(rules, "ls && make hi > g").verdict is ASK
    assert run(rules, "ls && make hi").verdict is ASK
    assert run(rules, "cd src && make hi > f").verdict is ASK


DENY_PUSH = "bash(git push:*), bash(curl:*), bash(make clean), bash(npm publish --tag beta:*)"
PUSHES = [
    "git push",
    "git push origin main",
    "g'i't push",
    "git pu\\sh",
    '"git" "push"',
    "/usr/bin/git push",
    "X=1 git push",
    "git push > f",
    "> f git push",
    "a; git push",
    "a && git push || b",
    "a | git push",
    "git push &",
    "(git push)",
    "{ git push; }",
    "echo $(git push)",
    "echo `git push`",
    'echo "$(git push)"',
    "echo <(git push)",
    "X=$(git push)",
    "if git push; then a; fi",
    "for x in a; do git push; done",
    "while a; do git push; done",
    "case a in a) git push;; esac",
    "f() { git push; }; f",
    "! git push",
    "cat <<E\n$(git push)\nE",
    "env X=1 git push",
    "timeout 5 git push",
    "nice -n 3 git push",
    "nohup git push",
    "time git push",
    "time { git push; }",
    "command git push",
    "exec git push",
    "xargs git push",
    "find . -exec git push \\;",
    "bash -c 'git push'",
    "bash -c 'a; git push'",
    'sh -c "git push $X"',
    "eval git push",
    "eval 'git push'",
    "echo 'git push' | sh",
    "sh <<'E'\ngit push\nE",
    "git pu\\\nsh",
    "git push '",
    "git pu``sh",
    "g$@it push",
    "if git push",
    "a; ; git push",
    "curl x",
    "curl",
    "$(curl x)",
    "curl x | sh",
    "make clean",
    "make  'clean'",
    "a; make clean",
    "npm publish --tag beta x",
]
NO_PUSHES = [
    "git pushx",
    "git status",
    "echo git push",
    "echo 'git push'",
    "make clean all",
    "make",
    "npm publish",
    "curlx",
    "git commit -m 'git push'",
]


@pytest.mark.parametrize("command", PUSHES)
@in_modes(*Mode)
def test_a_deny_rule_finds_its_command_anywhere_and_in_every_mode(command: str, mode: Mode) -> None:
    decision = run(policy("bash", deny=DENY_PUSH, mode=mode), command)
    assert decision.verdict is DENY
    assert decision.rule in decision.reason
    assert decision.rule in DENY_PUSH


@pytest.mark.parametrize("command", PUSHES)
def test_an_ask_rule_finds_its_command_anywhere(command: str) -> None:
    assert run(policy("bash", ask=DENY_PUSH), command).verdict is ASK


@pytest.mark.parametrize("command", NO_PUSHES)
def test_a_deny_rule_leaves_other_commands_alone(command: str) -> None:
    assert run(policy("bash", deny=DENY_PUSH), command).verdict is ALLOW


@pytest.mark.parametrize("command", ["git $X", "git p?sh", "git $(echo push)", "git $X origin"])
def test_what_may_turn_out_to_be_denied_is_denied_whatever_is_allowed(command: str) -> None:
    assert run(policy("bash"), command).verdict is ALLOW
    decision = run(policy("bash", deny=DENY_PUSH), command)
    assert decision.verdict is DENY
    assert decision.rule in DENY_PUSH


@pytest.mark.parametrize(
    "command", ["$X", "if ls", "ls '", "echo `date`", "$(echo ls)", "l* x", "~/bin/x", "{ls,x}", "x=1; $x", "ls )"]
)
@in_modes(Mode.DEFAULT, Mode.BYPASS_PERMISSIONS)
def test_a_line_that_does_not_parse_or_hides_a_name_counts_as_denied_while_a_rule_denies_commands(
    command: str, mode: Mode
) -> None:
    assert run(policy("bash", mode=mode), command).verdict is ALLOW
    assert run(policy("bash", deny="read_file(x), edit_file", mode=mode), command).verdict is ALLOW
    decision = run(policy("bash", deny="bash(git push:*)", mode=mode), command)
    assert decision.verdict is DENY
    assert "Write the command out" in decision.reason


DANGEROUS = [
    "X=su; ${X}do",
    "X=sudo; $X ls",
    "export X=sudo; $X ls",
    "{rm,-rf,/}",
    "{sudo,ls}",
    "rm -rf /",
    "rm -fr /",
    "rm -fr  /",
    "rm -r -f /",
    "rm -f -r /",
    "rm -R /",
    "rm -Rf /",
    "rm -rfv /",
    "rm / -rf",
    "rm -rf -- /",
    "rm --recursive --force /",
    "rm --rec /",
    "rm -rf --no-preserve-root /",
    "rm -rf a /",
    'rm -rf "/"',
    "r''m -r\\f '/'",
    "rm -rf /*",
    "rm -rf '/'*",
    "rm -rf /.",
    "rm -rf //",
    "rm -rf /./",
    "rm -rf /../",
    "rm -rf /tmp/..",
    "rm -rf ~",
    "rm -rf ~/",
    "rm -rf ~/*",
    "rm -rf ~root",
    "rm -rf $HOME",
    'rm -rf "$HOME"',
    "rm -rf ${HOME}/",
    "rm -rf $HOME/*",
    "/bin/rm -rf /",
    "cd / && rm -rf /",
    "echo $(rm -rf /)",
    "xargs rm -rf /",
    "busybox rm -rf /",
    "bash -c 'rm -rf /'",
    "sudo ls",
    "sudo",
    "s''udo ls",
    "s\\udo ls",
    "$'\\x73udo' ls",
    "/usr/bin/sudo ls",
    "su``do ls",
    "su$@do ls",
    "su$()do ls",
    "🎉; sudo ls",
    "echo 🎉 | sudo ls",
    "su\\\ndo ls",
    "X=1 sudo ls",
    "> f sudo ls",
    "echo pw | sudo -S ls",
    "env sudo ls",
    "timeout 5 sudo ls",
    "find . -exec sudo rm {} +",
    "eval 'su''do ls'",
    "eval \"s''udo ls\"",
    "echo 'sudo ls' | bash",
    "bash <<E\nsudo ls\nE",
    "if true; then sudo ls; fi",
    "f() { sudo ls; }; f",
    "time { sudo ls; }",
    "sudo ls '",
    "doas ls",
    "su",
    "su -c ls",
    "pkexec ls",
    "shutdown now",
    "shutdown -h +1",
    "/sbin/shutdown now",
    "reboot",
    "re'boot'",
    "halt",
    "poweroff",
    "init 0",
    "init 6",
    "telinit 6",
    "systemctl reboot",
    "systemctl -i poweroff",
    "mkfs /dev/sda",
    "mkfs.ext4 /dev/sda1",
    "mkfs -t ext4 x",
    "dd if=x of=/dev/sda",
    "dd of=//dev/nvme0n1 if=x",
    "echo x > /dev/sda",
    "cat x >/dev/nvme0n1",
    "cat x >> /dev/disk/by-id/x",
    "{ cat x; } > /dev/sdb",
    ":(){ :|:& };:",
    "bomb() { bomb | bomb & }; bomb",
]
NOT_DANGEROUS = [
    "rm -rf /tmp/x",
    "rm -rf /tmp/*",
    "rm -f /x",
    "rm /",
    "rm -rf .",
    "rm -rf ./*",
    "rm -rf *",
    "rm -rf build/*",
    "rm -rf ~/x",
    "rm -rf $HOME/.cache/x",
    "rm -rf '~'",
    "rm -rf '$HOME'",
    "rm -rf '/*'",
    "rm -i -- -rf",
    "echo rm -rf /",
    "echo 'rm -rf /'",
    "echo sudoku",
    "echo sudo",
    'echo "sudo rm"',
    "grep shutdown f",
    "grep -r sudo . | head",
    'git commit -m "reboot"',
    "git commit -m 'sudo rm -rf /'",
    "command -v sudo",
    "which sudo",
    "man sudo",
    "timeout 5 grep sudo f",
    "cat <<'E' > README\nsudo apt install x\nE",
    "python - <<'E'\nreboot\nE",
    "X=sudo",
    "init 3",
    "echo init 0",
    "npm run reboot",
    "echo '🎉 sudo'",
    "systemctl status reboot.target",
    "dd if=/dev/zero of=x",
    "dd if=x of=/dev/null",
    "echo x > /dev/null",
    "echo x 2>/dev/stderr",
    "echo x > /dev/shm/x",
    "cat /dev/sda",
    "mkfsx",
    "suspend",
    "f() { g | g & }; f",
    "f() { if a; then f | f; fi; }",
]


@pytest.mark.parametrize("command", DANGEROUS)
@in_modes(*Mode)
def test_a_dangerous_command_is_blocked_in_every_mode_and_by_no_rule_allowed(command: str, mode: Mode) -> None:
    exact = Rule("bash", Form.TEXT, command)
    decision = run(Policy(mode, (exact, *parse_rules("bash, bash(sudo:*)"))), command)
    assert decision.verdict is DENY
    assert "Dangerous command blocked" in decision.reason


@pytest.mark.parametrize("command", NOT_DANGEROUS)
def test_a_command_that_only_mentions_danger_is_not_blocked(command: str) -> None:
    assert run(policy("bash"), command).verdict is ALLOW


def quoted_at_random(word: str, seed: int) -> str:
    choose = random.Random(seed)
    styles = ["{}", "'{}'", '"{}"', "\\{}", "{}''", '""{}', "$'{}'"]
    return "".join(choose.choice(styles).format(character) for character in word)


STATIC_DENIED = [
    "rm -rf /",
    "rm -r -f //",
    "sudo ls",
    "shutdown now",
    "reboot",
    "mkfs.ext4 x",
    "dd of=/dev/sda",
    "git push",
    "init 0",
]


@unhurried
@given(
    st.sampled_from(STATIC_DENIED),
    st.integers(),
    st.sampled_from(["{}", "a; {}", "$({})", "timeout 5 {}", "a | {} | b"]),
)
def test_no_quoting_turns_a_denied_command_into_another(command: str, seed: int, around: str) -> None:
    quoted = " ".join(quoted_at_random(word, seed + i) for i, word in enumerate(command.split()))
    for mode in Mode:
        assert run(policy("bash", deny=DENY_PUSH, mode=mode), around.format(quoted)).verdict is DENY


@unhurried
@given(st.text())
@example("echo ')")
@example("a,b")
@example('a\\"),')
@example('="x"')
@example("a:*")
def test_any_command_is_decided_and_the_rule_it_names_allows_exactly_it(command: str) -> None:
    decision = run(policy(), command)
    if decision.verdict is DENY:
        assert "Dangerous" in decision.reason
        return
    if not decision.rule:
        assert decision.advice or decision.verdict is ALLOW
        return
    assert parse_rules(["x", f"y,{decision.rule} , z"])[2] == Rule.parse(decision.rule)
    assert str(Rule.parse(decision.rule)) == decision.rule
    assert run(policy(decision.rule), command).verdict is ALLOW
    assert run(policy(decision.rule), f"{command}\nother").verdict is not ALLOW


PATH_PARTS = st.text(st.characters(exclude_characters="/\0"), min_size=1).filter(lambda part: part not in (".", ".."))


@unhurried
@given(st.lists(PATH_PARTS, min_size=1, max_size=3), st.booleans(), PATH_PARTS)
def test_any_path_is_decided_and_the_rule_it_names_allows_exactly_it(
    parts: list[str], inside: bool, other: str
) -> None:
    path = (ROOT if inside else Path("/elsewhere")).joinpath(*parts)
    decision = decide(policy(), "edit_file", Writes(path), ROOT)
    assert decision.verdict is ASK
    allowed = policy(f"write_file,{decision.rule}, bash")
    assert len(allowed.allow) == 3
    assert decide(allowed, "edit_file", Writes(path), ROOT).verdict is ALLOW
    assert decide(allowed, "edit_file", Writes(path.parent), ROOT).verdict is ASK
    if other != path.name:
        assert decide(allowed, "edit_file", Writes(path.parent / other), ROOT).verdict is ASK
    assert decide(allowed, "edit_file", Writes(path.parent / f"{path.name}-x" / path.name), ROOT).verdict is ASK


@unhurried
@given(st.text())
def test_any_rule_text_is_parsed_or_refused_with_a_config_error(text: str) -> None:
    try:
        rules = parse_rules(text)
    except ConfigError:
        return
    written = dict.fromkeys(map(str, rules))  # what one rule of Claude Code became is written once
    assert parse_rules(",".join(written)) == tuple(dict.fromkeys(rules))
    for access in (EDIT, READ, BASH, NOTHING):
        decide(Policy(Mode.DEFAULT, rules, rules, rules), "bash", access, ROOT)


@unhurried
@given(st.text("[]!^-*?\\/ab.~"))
def test_any_glob_is_refused_or_decides(glob: str) -> None:
    try:
        rule = Rule.parse(f"edit_file({glob})")
    except ConfigError:
        return
    for path, mode in itertools.product((ROOT, ROOT / "a", ROOT / "a/b", Path("/a"), Path("/")), Mode):
        both = decide(Policy(mode, (rule,), deny=(rule,)), "edit_file", Writes(path), ROOT)
        assert both.verdict is decide(Policy(mode, deny=(rule,)), "edit_file", Writes(path), ROOT).verdict


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("src/**", "src/a.py", True),
        ("src/**", "src/a/b.py", True),
        ("src/**", "srcx/a.py", False),
        ("src/**", "x/src/a.py", False),
        ("src", "src/a.py", True),
        ("src/", "src/a.py", True),
        ("src", "x/src/a.py", True),
        ("src/*", "src/a.py", True),
        ("src/*.py", "src/a.py", True),
        ("src/*.py", "src/a.txt", False),
        ("src/*.py", "src/x/a.py", False),
        ("src/**/*.py", "src/a.py", True),
        ("src/**/*.py", "src/x/y/a.py", True),
        ("**/test_*.py", "a/b/test_c.py", True),
        ("**/test_*.py", "test_c.py", True),
        ("*.py", "a.py", True),
        ("*.py", "x/a.py", True),
        ("*.py", "a.pyc", False),
        ("./a.py", "a.py", True),
        ("./a.py", "x/a.py", False),
        ("a?.py", "ab.py", True),
        ("a?.py", "a/.py", False),
        ("a[bc].py", "ab.py", True),
        ("a[!bc].py", "ab.py", False),
        ("a[!bc].py", "ad.py", True),
        ("a\\*.py", "a*.py", True),
        ("a\\*.py", "ab.py", False),
        ("**", "x/a.py", True),
        ("*", "x/a.py", True),
        ("./**", "x/a.py", True),
        ("/work space/project/src/**", "src/a.py", True),
        ("//work space/project/src/**", "src/a.py", True),
        ("/src/**", "src/a.py", False),
        ("/elsewhere/**", "/elsewhere/a.py", True),
        ("/elsewhere/**", "/elsewherex/a.py", False),
        ("*.py", "/elsewhere/a.py", False),
        ("**", "/elsewhere/a.py", False),
        ("a.py\n", "a.py", True),
        ("a.py", "a.py\n", False),
        ("A.py", "a.py", False),
        ("(a),b.py", "(a),b.py", True),
    ],
)
def test_path_patterns_are_globs_from_the_workspace_root(pattern: str, path: str, matches: bool) -> None:
    decision = write(policy(f"write_file, edit_file({pattern})"), path)
    assert decision.verdict is (ALLOW if matches else ASK)


def test_a_home_pattern_means_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/someone")
    rules = policy("edit_file(~/notes/**)", deny="read_file(~/.ssh/**)")
    assert write(rules, "/home/someone/notes/a").verdict is ALLOW
    assert write(rules, "/home/someone/other").verdict is ASK
    assert read(rules, "/home/someone/.ssh/id").verdict is DENY
    assert read(rules, "/home/someone/.ssh", "grep").verdict is DENY


@pytest.mark.parametrize("tool", ["read_file", "glob", "grep"])
@pytest.mark.parametrize("path", ["secrets/a", "secrets/x/a", "secrets", "a.pem", "x/y/a.pem", "/elsewhere/a.pem"])
@in_modes(*Mode)
def test_a_path_denied_for_reading_is_denied_to_every_tool_that_reads(mode: Mode, tool: str, path: str) -> None:
    rules = policy("read_file, glob, grep", deny="read_file(secrets/**), grep(*.pem)", mode=mode)
    assert read(rules, path, tool).verdict is DENY


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
@in_modes(*Mode)
def test_a_path_denied_for_changes_is_denied_to_every_tool_that_changes(mode: Mode, tool: str) -> None:
    rules = policy("write_file, edit_file", deny="edit_file(migrations/**)", mode=mode)
    assert write(rules, "migrations/1.sql", tool).verdict is DENY
    assert read(rules, "migrations/1.sql").verdict is ALLOW


def test_a_rule_without_a_pattern_is_about_one_tool_only() -> None:
    rules = policy(deny="grep, edit_file")
    assert read(rules, "a").verdict is ALLOW
    assert read(rules, "a", "grep").verdict is DENY
    assert write(rules, "a", "write_file").verdict is ASK


def test_an_allowed_edit_does_not_allow_another_tool() -> None:
    assert write(policy("edit_file(src/**)"), "src/a.py", "write_file").verdict is ASK


def test_a_search_above_a_denied_path_is_allowed_and_may_not_show_the_denied_files() -> None:
    rules = policy(deny="read_file(secrets/**), grep(.env), edit_file(src/**), read_file")
    assert read(rules, ".", "grep").verdict is ALLOW
    assert not may_see(rules, ROOT / "secrets/a", ROOT)
    assert not may_see(rules, ROOT / "x/.env", ROOT)
    assert may_see(rules, ROOT / "src/a.py", ROOT)


@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("src/a.py", "edit_file(src/a.py)"),
        ("a.py", "edit_file(./a.py)"),
        ("/elsewhere/a.py", "edit_file(/elsewhere/a.py)"),
        ("src/[id].tsx", 'edit_file(="src/[id].tsx")'),
        ("a, b.py", 'edit_file(="a, b.py")'),
        ("it's.py", 'edit_file(="it\'s.py")'),
        ("a b.py", "edit_file(./a b.py)"),
    ],
)
def test_an_ask_about_a_file_names_the_rule_for_that_file(path: str, rule: str) -> None:
    assert write(policy(), path).rule == rule


def test_reasons_name_the_mode_or_the_rule_in_one_sentence() -> None:
    reasons = [
        run(policy(), "pytest").reason,
        run(policy(), "$X").reason,
        write(policy(), "a").reason,
        run(policy(mode=Mode.PLAN), "pytest").reason,
        run(policy(deny="bash(pytest:*)"), "pytest").reason,
        run(policy("bash(pytest:*)"), "pytest").reason,
        run(policy(), "sudo x").reason,
    ]
    assert reasons == [
        "The mode default asks before bash runs this command: no rule allows `pytest`.",
        "The mode default asks before bash runs this command: no rule for a program covers this line, because it "
        "expands `$`: write the value out, or use single quotes.",
        "The mode default asks before edit_file changes a file.",
        "The mode plan refuses bash: only reading is possible until it is left.",
        "The rule bash(pytest:*) denies this call.",
        "The rule bash(pytest:*) allows it.",
        "Dangerous command blocked: `sudo` runs a command as another user.",
    ]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("", []),
        (" , ,", []),
        ("bash", ["bash"]),
        ("bash,read_file", ["bash", "read_file"]),
        (" bash ( git status ) , edit_file(src/**) ", ["bash(git status)", "edit_file(src/**)"]),
        ("bash(git log --format=%h,%s:*),bash", ["bash(git log --format=%h,%s:*)", "bash"]),
        ("bash(echo $(a, b)),grep", ["bash(echo $(a, b))", "grep"]),
        ("bash(echo ')', a),grep", ["bash(echo ')', a)", "grep"]),
        ('bash(echo "\\")", a),grep', ['bash(echo "\\")", a)', "grep"]),
        ('bash(="a), b"),grep', ['bash(="a), b")', "grep"]),
        ("bash(git commit -m 'x':*)", ["bash(git commit -m 'x':*)"]),
    ],
)
def test_rules_are_separated_by_commas_outside_parentheses_and_quotes(text: str, rules: list[str]) -> None:
    assert [str(rule) for rule in parse_rules(text, TOOLS)] == rules
    assert parse_rules([text, "bash"], TOOLS) == (*parse_rules(text, TOOLS), Rule.parse("bash"))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("Bahs(git:*)", "did you mean bash?"),
        ("bsh", "did you mean bash?"),
        ("EditFile(src/**)", "did you mean edit_file?"),
        ("Bash:*", "separate rules by commas"),
        ("Bash()", "write Bash alone"),
        ("Bash(:*)", "write Bash alone"),
        ("Edit(!src)", ".gitignore"),
        ("Edit([z-a])", "bad character range"),
        ("mcp__*", "only ask or deny"),
        ("*", "only ask or deny"),
        ("Bash(run_in_background:true)", "only ask or deny"),
        ("read-file", "did you mean read_file?"),
        ("zzzzzz", "there are bash, edit_file"),
        ("bash(git", "not closed"),
        ("bash(echo 'a)", "not closed"),
        ("bash(echo it's)", "not closed"),
        ("bash(a) bash(b)", "separate rules by commas"),
        ("bash(a))", "separate rules by commas"),
        ("bash read_file", "separate rules by commas"),
        ("(git)", "expected a tool name"),
        ("bash()", "write bash alone"),
        ("bash(*)", "write bash alone"),
        ("bash(:*)", "write bash alone"),
        ("bash(git push *)", "bash(git push:*)"),
        ("bash(a && b:*)", "one plain command"),
        ("bash(a > f:*)", "one plain command"),
        ("bash($X:*)", "one plain command"),
        ("bash(if:*)", "one plain command"),
        ("bash(=x)", "JSON"),
        ("bash(=1)", "JSON"),
        ("edit_file()", "glob"),
        ("edit_file(src:*)", "glob"),
        ("edit_file(../x)", "absolute"),
        ("edit_file([z-a])", "glob"),
        ("spawn_teammate(alice)", "takes no pattern"),
    ],
)
def test_a_bad_rule_is_a_config_error_that_names_it_and_the_remedy(text: str, complaint: str) -> None:
    with pytest.raises(ConfigError) as error:
        parse_rules(f"read_file, {text}", TOOLS)
    assert complaint in str(error.value)
    assert text.strip(")") in str(error.value)
    assert "\n" not in str(error.value)


def test_without_known_tools_any_name_is_taken() -> None:
    assert str(Rule.parse("anything")) == "anything"


def test_one_rule_is_one_rule() -> None:
    with pytest.raises(ConfigError):
        Rule.parse("bash, grep")


def test_a_decision_costs_little() -> None:
    rules = policy(GIT_AND_CO, deny=DENY_PUSH)
    commands = [f"git log --format='%h {i}' | head -{i}" for i in range(300)]
    run(rules, "git log 'x'")
    begin = time.process_time()
    for command in commands:
        run(rules, command)
    assert (time.process_time() - begin) / len(commands) < 0.005
