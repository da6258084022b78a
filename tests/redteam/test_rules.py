"""Attacks on rules: by quoting, expansion and redirection, by a stranger's settings, by text that becomes a rule."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from teamcli.agent.tool import Executes
from teamcli.permissions.decide import decide
from teamcli.permissions.policy import Mode, Policy, Verdict
from teamcli.permissions.rules import parse_rules
from tests.redteam.marker import DENIED, attempt, make_marker, marks
from tests.support.program import Program

ROOT = Path("/work space/project")
NARROW = "bash(git status:*), bash(echo:*), bash(ls:*), bash(cat:*), bash(pytest -q)"

BEYOND_NARROW_RULES = {
    "a second command": "git status; zap",
    "a second command without a blank": "git status;zap",
    "a second line": "git status\nzap",
    "a second line behind a comment": "git status # harmless\nzap",
    "a comment that hides a continued line": "git status # \\\nzap",
    "a pipe": "git status | zap",
    "a pipe of both outputs": "git status |& zap",
    "in the background": "git status & zap",
    "if it fails": "git status || zap",
    "a substitution": "echo $(zap)",
    "a substitution in quotes": 'echo "$(zap)"',
    "back-quotes": "echo `zap`",
    "back-quotes in quotes in a substitution": 'echo "$(echo "`zap`")"',
    "a process substitution": "cat <(zap)",
    "an output process": "echo a > >(zap)",
    "a default value": "echo ${X:-$(zap)}",
    "a replacement": "echo ${X/a/$(zap)}",
    "arithmetic": "echo $((1 + $(zap)))",
    "old arithmetic": "echo $[$(zap)]",
    "a subscript": "echo ${X[$(zap)]}",
    "a subscript in a value": "for X in 'a[$(zap)]'; do echo $((X)); done",
    "a prompt in a value": "for X in '$(zap)'; do echo ${X@P}; done",
    "an indirection": "for X in 'a[$(zap)]'; do echo ${!X}; done",
    "a here-document": "cat <<E\n$(zap)\nE",
    "a here-document that ends early": "cat <<E\nE\nzap",
    "a here-document with joined lines": "cat <<E\na\\\nE\nzap\nE",
    "a here-string": "cat <<< $(zap)",
    "a loop": "for X in a; do zap; done",
    "a condition": "if zap; then ls; fi",
    "a case": "case a in a) zap;; esac",
    "a pattern of a case": "case a in $(zap)) ls;; esac",
    "a test": "[[ -n $(zap) ]]",
    "a group": "{ git status; zap; }",
    "a subshell": "(git status; zap)",
    "a function": "git() { zap; }; git status",
    "a function of an allowed name with arguments": "function echo { zap; }; echo a",
    "a variable in front": "PATH=. git status",
    "a library in front": "LD_PRELOAD=./zap.so git status",
    "a pager in front": "GIT_PAGER=zap git status",
    "a variable with a substitution": "X=$(zap) git status",
    "a variable for all": "X=1; git status",
    "a program beside": "./git status",
    "a program elsewhere": "/tmp/git status",
    "another subcommand": "git push",
    "a subcommand that begins alike": "git statusx",
    "options before the subcommand": "git -c alias.status='!zap' status",
    "a subcommand from a variable": "git $X",
    "a subcommand from a file name": "git stat*",
    "a subcommand in braces": "git {push,status}",
    "a word that hides two": "git 'status; zap'; zap",
    "a line break in the program": "z\\\nap",
    "a write": "echo a > f",
    "a write over a start-up file": "echo zap >> ~/.bashrc",
    "a write over a hook": "echo zap > .git/hooks/pre-commit",
    "a write that is forced": "echo a >| f",
    "a write of both outputs": "echo a &> f",
    "a write by a descriptor": "echo a >& f",
    "a write before the command": "> f echo a",
    "a write of a group": "{ echo a; } > f",
    "opened for reading and writing": "echo a <> f",
    "a descriptor with a name": "echo a {fd}> f",
    "arguments to a whole command": "pytest -q --pdbcls=zap:zap",
    "a look-alike": "\u0435cho a",
    "a blank that is none": "git\u00a0status",
    "a carriage return": "git status\rzap",
    "a form feed": "git status\x0czap",
    "an open quote": "git status 'zap",
    "an escape sequence": "\x1b[2Kgit status; zap",
    "half a character": "git status; zap \ud800",
    "a very long line": "git status " + "a " * 20_000 + "; zap",
}
CHANGES_OF_A_FILE = {"a write", "a write that is forced", "a write of both outputs", "a write before the command"}
"""`acceptEdits` allows these, as it allows write_file."""
DISGUISED = {
    "split by quotes": "z''ap",
    "split by double quotes": 'z""a""p',
    "escaped": "\\z\\a\\p",
    "as C would write it": "$'\\x7aap'",
    "in octal": "$'\\172ap'",
    "in unicode": "$'\\u007aap'",
    "translated": '$"zap"',
    "split by nothing": "z$()ap",
    "split by empty back-quotes": "z``ap",
    "split by no arguments": "z$@ap",
    "split by an empty variable": "z${X}ap",
    "over two lines": "z\\\nap",
    "over two lines in quotes": 'echo $X; "z\\\nap"',
    "cut by a null character": "$'zap\\x00y'",
    "behind a test that is none": "A=1 [[ a || zap",
    "behind a test that is redirected": "> f [[ a || zap",
    "text that is evaluated, escaped": "X=a\\[\\$\\(zap\\)]; echo $((X))",
    "text that is evaluated, in several quotes": "X='a[$''(zap)]'; echo $((X))",
    "behind a descriptor that is closed": ">& -zap",
    "behind an array that is not closed": "X=(\na X=(\nzap",
    "behind an array in an array": "X=(a X=(b)\nzap)",
    "behind a here-document that begins later": "cat <<E 'a\nb'\nE\nzap\nE",
    "from a variable": "X=zap; $X",
    "from two variables": "X=z; Y=ap; $X$Y",
    "from a part of a variable": "X=xzap; ${X:1}",
    "from a default": "${X:-zap}",
    "from an indirection": "X=Y; Y=zap; ${!X}",
    "from an array": 'X=(zap a); "${X[@]}"',
    "from the arguments": 'set -- zap; "$@"',
    "from a loop": "for X in zap; do $X; done",
    "from a substitution": "$(echo zap)",
    "from a cipher": "$(tr a-z n-za-m <<< mnc)",
    "from braces": "{zap,a}",
    "from braces with nothing": "z{a,}p",
    "from a file name": "./z?p",
    "from a class of letters": "./[z]ap",
    "by its path": "/usr/bin/zap",
    "by the home": "~/bin/zap",
    "by the present directory": "$PWD/zap",
    "in capitals, where the disk ignores them": "ZAP",
    "with a variable in front": "A=1 zap",
    "with a write in front": "> f zap",
    "negated": "! zap",
    "a subcommand from a variable": "X=push; git $X",
    "a subcommand from a substitution": "git $(echo push)",
    "a subcommand in braces": "git pus{h,}",
    "a subcommand behind options": "git -C . -c a=b push",
    "a subcommand through a function": 'f() { git "$@"; }; f push',
    "a trace prompt": "PS4='$(zap)'; set -x; ls",
    "a start-up file": "BASH_ENV=<(echo zap) bash -c ls",
    "a function for the next shell": "env 'BASH_FUNC_ls%%=() { zap; }' bash -c ls",
    "a table of the shell": "BASH_CMDS[ls]=./zap; ls",
    "text that is evaluated": "X='a[$(zap)]'; echo $((X))",
    "text that is evaluated by a test": "X='a[$(zap)]'; [[ X -eq 0 ]]",
    "text that is evaluated as a subscript": "X='a[$(zap)]'; Y[X]=1",
    "behind a flood of guesses": "uv run a b; " * 300 + "git -C . push",
    "behind a flood of commands": "ls; " * 3000 + "zap",
    "an encoded line in an alias of git": "git -c alias.x='!echo emFw | base64 -d | sh' x",
    "a line that cannot be parsed": "if zap",
    "a line that cannot be parsed, with the rest in quotes": "zap 'a",
}


def verdict(command: str, mode: Mode = Mode.DEFAULT, allow: str = "", deny: str = "") -> Verdict:
    return decide(Policy(mode, parse_rules(allow), (), parse_rules(deny)), "bash", Executes(command), ROOT).verdict


@pytest.mark.parametrize("mode", [Mode.DEFAULT, Mode.ACCEPT_EDITS])
@pytest.mark.parametrize("attack", BEYOND_NARROW_RULES)
def test_no_line_does_more_than_narrow_rules_allow(attack: str, mode: Mode) -> None:
    is_edit = mode is Mode.ACCEPT_EDITS and attack in CHANGES_OF_A_FILE
    assert (verdict(BEYOND_NARROW_RULES[attack], mode, NARROW) is Verdict.ALLOW) is is_edit


@pytest.mark.parametrize("attack", DISGUISED)
def test_no_disguise_lifts_a_deny_rule_in_any_mode(attack: str) -> None:
    for mode in Mode:
        assert verdict(DISGUISED[attack], mode, "bash", DENIED) is not Verdict.ALLOW
    assert verdict(DISGUISED[attack], Mode.BYPASS_PERMISSIONS, "", DENIED) is Verdict.DENY


@pytest.mark.parametrize("attack", DISGUISED)
def test_no_disguise_lifts_a_deny_or_ask_rule_where_the_sandbox_allows_commands(attack: str) -> None:
    for mode in (Mode.DEFAULT, Mode.ACCEPT_EDITS):
        for rules in ({"deny": parse_rules(DENIED)}, {"ask": parse_rules(DENIED)}):
            policy = Policy(mode, **rules, commands_are_confined=True)
            assert decide(policy, "bash", Executes(DISGUISED[attack]), ROOT).verdict is not Verdict.ALLOW
            assert decide(policy, "bash", Executes("pytest -q | tail $X"), ROOT).verdict is Verdict.ALLOW


def test_a_refusal_that_is_not_certain_says_why_and_what_to_do() -> None:
    policy = Policy(Mode.BYPASS_PERMISSIONS, (), (), parse_rules("bash(git push:*)"))
    reason = decide(policy, "bash", Executes("X=$(f); $X push"), ROOT).reason
    assert "bash(git push:*)" in reason
    assert "`$X` is known only when it runs" in reason
    assert "Write the command out" in reason


def test_no_rule_that_allows_word_for_word_lifts_a_rule_that_may_deny() -> None:
    line = "git $X"
    assert verdict(line, Mode.BYPASS_PERMISSIONS, "bash(git $X)", "bash(git push:*)") is Verdict.DENY
    assert verdict("git push", Mode.BYPASS_PERMISSIONS, "bash(git push)", "bash(git push:*)") is Verdict.DENY


def test_the_whole_program_does_no_more_than_narrow_rules_allow(program: Program) -> None:
    make_marker(program)
    lines = [line for line in BEYOND_NARROW_RULES.values() if line.isprintable() or "\n" in line]
    ran, said = attempt(program, lines, "--allowedTools", NARROW.replace(", ", ","))
    assert [each for each in said if "nobody can be asked" not in each] == []
    assert ran.code == 4
    assert marks(program) == []
    assert not (program.directory / "f").exists()


def test_the_whole_program_sees_through_disguises(program: Program) -> None:
    make_marker(program)
    flags = ("--permission-mode", "bypassPermissions", "--disallowedTools", DENIED)
    attempt(program, DISGUISED.values(), *flags)
    assert marks(program) == []


EDITS = ("--offline", "--permission-mode", "acceptEdits")


class TestSettings:
    """Rules come from several files and flags. They add up, and a deny rule wins wherever it stands."""

    def write(self, program: Program, place: str, **permissions: Any) -> None:
        path = {
            "user": program.home / ".teamcli/settings.json",
            "project": program.directory / ".team/settings.json",
            "local": program.directory / ".team/settings.local.json",
        }[place]
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({"permissions": permissions}))

    @pytest.mark.parametrize("denying", ["user", "project", "local", "flag"])
    def test_deny_wins_wherever_it_is_written(self, program: Program, denying: str) -> None:
        """All four places allow the command, one denies it."""
        make_marker(program)
        rule = ["bash(zap:*)"]
        for place in ("user", "project", "local"):
            self.write(program, place, allow=rule, **({"deny": rule} if place == denying else {}))
        flags = ("--disallowedTools", *rule) if denying == "flag" else ()
        _, said = attempt(program, ["zap"], "--trust", "--allowedTools", *rule, *flags)
        assert "The rule bash(zap:*) denies this call" in said[0]
        assert marks(program) == []

    @pytest.mark.parametrize("place", ["project", "local"])
    def test_a_cloned_repository_allows_nothing(self, program: Program, place: str) -> None:
        make_marker(program)
        self.write(program, place, allow=["bash"], mode="bypassPermissions")
        ran, said = attempt(program, ["zap"])
        assert "nobody can be asked" in said[0]
        assert ran.code == 4
        assert marks(program) == []

    @pytest.mark.parametrize("place", ["project", "local"])
    def test_a_cloned_repository_may_tighten(self, program: Program, place: str) -> None:
        make_marker(program)
        self.write(program, place, deny=["bash(zap:*)"])
        _, said = attempt(program, ["zap"], "--permission-mode", "bypassPermissions")
        assert "denies this call" in said[0]
        assert marks(program) == []

    def test_a_flag_for_the_mode_does_not_lift_a_rule(self, program: Program) -> None:
        make_marker(program)
        self.write(program, "user", deny=["bash(zap:*)"], mode="plan")
        _, said = attempt(program, ["zap", "git status"], "--permission-mode", "bypassPermissions")
        assert "denies this call" in said[0]
        assert marks(program) == ["git status"]

    def test_ask_beats_allow_wherever_they_are_written(self, program: Program) -> None:
        make_marker(program)
        self.write(program, "user", ask=["bash(zap:*)"])
        ran, said = attempt(program, ["zap"], "--allowedTools", "bash")
        assert ran.code == 4
        assert "asks before each such call" in said[0]
        assert marks(program) == []

    def test_rules_make_accept_edits_ask_about_files_that_run_things(self, program: Program) -> None:
        """The rules that the documentation gives, word by word."""
        page = (Path(__file__).parents[2] / "docs/permissions.md").read_text()
        rules = json.loads(page.partition("## Files that run things")[2].partition("```json")[2].partition("```")[0])
        running = (".claude/settings.json", ".claude/agents/x.md", ".mcp.json", ".vscode/tasks.json", ".envrc")
        self.write(program, "user", **rules["permissions"])
        ran = program.run("-p", " then ".join(f"write {path}: x" for path in (*running, "sub/.envrc", "a.txt")), *EDITS)
        assert ran.code == 4
        assert (program.directory / "a.txt").exists()
        assert not any((program.directory / path).exists() for path in (*running, "sub"))
        ran = program.run("-p", "write .bashrc: x", *EDITS, "--cwd", str(program.home))
        assert ran.code == 4
        assert not (program.home / ".bashrc").exists()


@pytest.mark.parametrize(
    "command",
    [
        "zap), bash(zap2",
        "zap,bash",
        'zap") , bash("',
        "zap:*",
        "zap *",
        '="zap"',
        "zap\n, bash",
        "zap \\), bash(",
        "zap $(echo ')'), bash",
        "zap '",
        "zap '), bash(zap2'",
        "zap ',bash'",
        "zap ':*'",
        "zap '*'",
        "zap\nzap2",
        'zap "\\"), bash"',
    ],
)
def test_text_of_a_command_never_becomes_a_broader_rule(command: str) -> None:
    """*Always* writes a rule that the model's own text is a part of."""
    named = decide(Policy(), "bash", Executes(command), ROOT).rule
    rules = parse_rules(named)
    assert len(rules) <= 1  # none where only `bash` would do
    for other in ("zap", "zap2", "zap other", "ls", f"{command} more", f"{command}; ls"):
        if other != command:
            assert decide(Policy(allow=rules), "bash", Executes(other), ROOT).verdict is Verdict.ASK
