"""Rules in Claude Code's form: what they allow is never more than ours would, what they deny never less than there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from teamcli.claude_code.read_only import rules_for_reading
from teamcli.errors import ConfigError
from teamcli.permissions.access import Access, Calls, Executes, Harmless, Reads, Writes
from teamcli.permissions.claude_rules import why_unused
from teamcli.permissions.decide import decide, may_see
from teamcli.permissions.form import Form
from teamcli.permissions.policy import Mode, Policy, Verdict
from teamcli.permissions.rules import parse_rules
from teamcli.permissions.shell.forms import never_covered, unwrapped
from teamcli.permissions.shell.strict import NotUnderstood, read_line
from teamcli.tools.catalog import ALL_TOOLS

ROOT = Path("/work/project")
TOOLS = {tool.name for tool in ALL_TOOLS}


def policy(allow: str = "", ask: str = "", deny: str = "", mode: Mode = Mode.DEFAULT) -> Policy:
    rules = {kind: parse_rules(text, TOOLS, kind) for kind, text in (("allow", allow), ("ask", ask), ("deny", deny))}
    return Policy(mode, **rules)


def verdict(rules: Policy, tool: str, access: Access, **given: Any) -> Verdict:
    return decide(rules, tool, access, ROOT, lambda path: True, given).verdict


def runs(rules: Policy, command: str, **given: Any) -> Verdict:
    return verdict(rules, "bash", Executes(command), command=command, **given)


COMMANDS = [
    # rule, what it matches, what it does not
    ("Bash", ["ls", "curl x | sh"], []),
    ("Bash(*)", ["ls", "curl x | sh"], []),
    ("Bash(npm run build)", ["npm run build"], ["npm run build --watch", "npm run", "npm run builds"]),
    ("Bash(npm run test:*)", ["npm run test", "npm run test --watch"], ["npm run tests", "npm run", "yarn run test"]),
    ("Bash(npm run test *)", ["npm run test", "npm run test --watch"], ["npm run tests", "npm run"]),
    ("Bash(ls*)", ["ls", "ls -la", "lsof", "lsof -i"], ["sl", "cat ls"]),
    ("Bash(git * main)", ["git push origin main", "git merge main main"], ["git main", "git push origin maine"]),
    ("Bash(git commit -m *)", ["git commit -m x", "git commit -m 'x y'"], ["git commit --amend -m x"]),
    ('Bash(git commit -m "*")', ["git commit -m 'x y'", 'git commit -m "x"'], ["git commit --amend"]),
    ("Bash(* --version)", ["node --version", "cargo x --version"], ["node --versions", "--version"]),
    ("Bash(npm * --save *)", ["npm install --save", "npm install --save x"], ["npm install --saved"]),
    ("Bash(python3 *.py)", ["python3 a.py", "python3 -m x b.py"], ["python3 a.pyc"]),
    ("Bash(npm it's)", [], ["npm its"]),
    ("Bash(npx:*)", ["npx tsc", "npx -y x --fix a"], ["npm x"]),
    ("Bash(npx tsc:*)", ["npx tsc", "npx tsc --noEmit"], ["npx tsx", "npx"]),
    ("Bash(npx rul*)", ["npx rule", "npx rulo init"], ["npx other"]),
    ("Bash(uv run pytest *)", ["uv run pytest -x"], ["uv run python a.py", "uv pip install x"]),
    ("Bash(bash scripts/test.sh:*)", ["bash scripts/test.sh -v"], ["bash scripts/other.sh", "bash -c ls"]),
    ("Bash(sh scripts/*.sh)", ["sh scripts/a.sh"], ["sh other.sh", "sh -c scripts/a"]),
]


@pytest.mark.parametrize(("rule", "matched", "others"), COMMANDS)
def test_a_command_rule_allows_what_it_matches(rule: str, matched: list[str], others: list[str]) -> None:
    wanted = dict.fromkeys(matched, Verdict.ALLOW) | dict.fromkeys(others, Verdict.ASK)
    assert {command: runs(policy(allow=rule), command) for command in wanted} == wanted


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("git log --oneline -5 2>/dev/null || echo none", Verdict.ALLOW),
        ("git branch --show-current", Verdict.ALLOW),
        ("ls -a | head -3 | sort | uniq -c", Verdict.ALLOW),
        ("find . -name '*.md' -newer x", Verdict.ALLOW),
        ("test -f x && cat x || echo none", Verdict.ALLOW),
        ("sort -o x x", Verdict.ASK),
        ("sort -ox x", Verdict.ASK),
        ("sort --compress-program=x y", Verdict.ASK),
        ("git reflog delete x", Verdict.ASK),
        ("git diff --output=x", Verdict.ASK),
        ("git branch -D x", Verdict.ASK),
        ("git tag x", Verdict.ASK),
        ("uniq x y", Verdict.ASK),
        ("echo x > y", Verdict.ASK),
        ("echo $(touch x)", Verdict.ASK),
        ("find . -delete", Verdict.ASK),
        ("find . -exec rm {} +", Verdict.ASK),
        ("find . -fprint x", Verdict.ASK),
        ("cat x | sh", Verdict.ASK),
        ("touch x", Verdict.ASK),
    ],
)
def test_what_only_reads_is_allowed_in_the_text_of_a_command(command: str, wanted: Verdict) -> None:
    assert runs(policy(allow=",".join(rules_for_reading(command))), command) is wanted


@pytest.mark.parametrize(("rule", "matched", "others"), COMMANDS)
def test_a_command_rule_denies_what_it_matches(rule: str, matched: list[str], others: list[str]) -> None:
    wanted = dict.fromkeys(matched, Verdict.DENY) | dict.fromkeys(others, Verdict.ALLOW)
    rules = policy(deny=rule, mode=Mode.BYPASS_PERMISSIONS)
    assert {command: runs(rules, command) for command in wanted} == wanted


@pytest.mark.parametrize(("rule", "matched", "others"), COMMANDS)
def test_a_command_rule_asks_about_what_it_matches(rule: str, matched: list[str], others: list[str]) -> None:
    wanted = dict.fromkeys(matched, Verdict.ASK) | dict.fromkeys(others, Verdict.ALLOW)
    rules = policy(ask=rule, mode=Mode.BYPASS_PERMISSIONS)
    assert {command: runs(rules, command) for command in wanted} == wanted


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("Bash(git *)", "git log && curl x"),
        ("Bash(git *)", "git log $(curl x)"),
        ("Bash(git *)", "git -c core.pager=x log"),
        ("Bash(git * main)", "git -c alias.x='!sh' x main"),
        ("Bash(find *)", "find . -exec rm {} ;"),
        ("Bash(*sh*)", "sh -c 'curl x'"),
        ("Bash(x*)", "xargs rm"),
        ("Bash(npm *)", "npm test > ../out"),
        ("Bash(npm *)", "timeout $T npm test"),
        ("Bash(npm *)", "timeout 5 env npm test"),
        ("Bash(npm *)", "timeout -k npm 5 rm x"),
        ("Bash(npm *)", "timeout 5"),
        ("Bash(npm *)", "timeout '5 x' npm test"),
        ("Bash(./npm *)", "cd x && timeout 5 ./npm test"),
        ("bash(npm:*)", "timeout 5 npm test"),
        ("Bash(npm *)", "FOO=1 npm test"),
        ("Bash(echo $HOME)", "echo $HOME"),
        ("Bash(cat * | grep *)", "cat a | grep b"),
        ("Bash(git:* push)", "git push"),
        ("Bash(git:* push)", "git:x push"),
        ("Bash(git log *)", '"git log" x'),
        ("Bash(git log *)", 'git "log x"'),
        ("Bash(* log)", 'sh "-c x log"'),
    ],
)
def test_what_is_not_understood_asks_whatever_a_rule_says(rule: str, command: str) -> None:
    assert runs(policy(allow=rule), command) is Verdict.ASK


@pytest.mark.parametrize(
    ("rule", "command"),
    [
        ("Bash(rm *)", "ls && rm x"),
        ("Bash(rm *)", "FOO=1 rm x"),
        ("Bash(rm *)", "timeout 5 rm x"),
        ("Bash(rm *)", "ls | xargs rm"),
        ("Bash(rm *)", "bash -c 'rm x'"),
        ("Bash(rm *)", "/bin/rm x"),
        ("Bash(rm *)", "(rm x)"),
        ("Bash(rm *)", "if true; then rm x; fi"),
        ("Bash(git * main)", "ls; git push origin main"),
        ("Bash(git * main)", "nohup git push origin main"),
        ("Bash(git * main)", "git push origin main $X"[:20]),
        ("Bash(curl * | sh)", "curl -s x | sh"),
        ("Bash(echo $SECRET)", "echo $SECRET"),
        ("Bash(echo $SECRET)", "ls && echo $SECRET"),
        ("Bash(*.env*)", "cp .env x"),
        ("Bash(git:* push)", "git:x push"),
        ("Bash(X=1 npm *)", "X=1 npm test"),
    ],
)
def test_a_rule_denies_a_command_wherever_it_is(rule: str, command: str) -> None:
    assert runs(policy(deny=rule, mode=Mode.BYPASS_PERMISSIONS), command) is Verdict.DENY


def reads(rules: Policy, path: str) -> Verdict:
    return verdict(rules, "read_file", Reads(ROOT / Path(path).expanduser()))


def writes(rules: Policy, path: str, tool: str = "write_file") -> Verdict:
    return verdict(rules, tool, Writes(ROOT / Path(path).expanduser()))


PATHS = [
    # pattern, what it allows, what it denies in addition, what it never matches
    ("src/**", ["src/a", "src/x/a"], ["lib/src/a"], ["a", "srcs/a"]),
    ("./src/**", ["src/a"], ["lib/src/a"], ["a"]),
    ("/src/**", ["src/a", "src/x/a"], [], ["lib/src/a", "/src/a"]),
    ("//src/**", ["/src/a"], [], ["src/a"]),
    ("//work/project/src/**", ["src/a"], [], ["lib/src/a"]),
    ("~/notes/*", ["~/notes/a"], [], ["notes/a"]),
    (".env", [".env", "x/.env"], [], ["a.env", ".envrc"]),
    ("./.env", [".env"], ["x/.env"], [".envrc"]),
    ("/.env", [".env"], [], ["x/.env"]),
    ("*.py", ["a.py", "x/a.py"], [], ["a.pyc"]),
    ("**/*.py", ["a.py", "x/a.py"], [], ["a.pyc"]),
    ("src/*.py", ["src/a.py"], ["x/src/a.py"], ["src/x/a.py"]),
    ("docs", ["docs/a", "x/docs/a"], [], ["docs2/a"]),
    ("docs/", ["docs/a"], [], ["docs2/a"]),
    ("/docs", ["docs/a"], [], ["x/docs/a"]),
    ("**", ["a", "x/a"], [], []),
    ("*", ["a", "x/a"], [], []),
    (".", ["a", "x/a"], [], []),
    ("/", ["a", "x/a"], [], []),
    ("../other/**", ["/work/other/a"], [], ["other/a", "/other/a"]),
    ("src/../lib/*", ["lib/a"], ["x/lib/a"], ["src/a"]),
    ("a[bc].txt", ["ab.txt"], [], ["ad.txt"]),
]


@pytest.mark.parametrize(("pattern", "allowed", "also_denied", "never"), PATHS)
def test_an_edit_rule_allows_what_its_path_matches(
    pattern: str, allowed: list[str], also_denied: list[str], never: list[str]
) -> None:
    rules = policy(allow=f"Edit({pattern})")
    wanted = dict.fromkeys(allowed, Verdict.ALLOW) | dict.fromkeys([*also_denied, *never], Verdict.ASK)
    assert {path: writes(rules, path) for path in wanted} == wanted


@pytest.mark.parametrize(("pattern", "allowed", "also_denied", "never"), PATHS)
def test_an_edit_rule_denies_what_its_path_matches(
    pattern: str, allowed: list[str], also_denied: list[str], never: list[str]
) -> None:
    rules = policy(deny=f"Edit({pattern})", mode=Mode.ACCEPT_EDITS)
    wanted = dict.fromkeys([*allowed, *also_denied], Verdict.DENY) | dict.fromkeys(never, Verdict.ALLOW)
    assert {path: writes(rules, path, "edit_file") for path in wanted} == wanted


@pytest.mark.parametrize(("pattern", "allowed", "also_denied", "never"), PATHS)
def test_a_read_rule_denies_what_its_path_matches(
    pattern: str, allowed: list[str], also_denied: list[str], never: list[str]
) -> None:
    rules = policy(deny=f"Read({pattern})")
    wanted = dict.fromkeys([*allowed, *also_denied], Verdict.DENY) | dict.fromkeys(never, Verdict.ALLOW)
    assert {path: reads(rules, path) for path in wanted} == wanted


@pytest.mark.parametrize("tool", ["read_file", "grep", "glob"])
def test_a_read_rule_denies_every_tool_that_reads(tool: str) -> None:
    assert verdict(policy(deny="Read(secrets/**)"), tool, Reads(ROOT / "secrets")) is Verdict.DENY


def test_a_read_rule_hides_files_from_searches() -> None:
    rules = policy(deny="Read(./.env)")
    assert [may_see(rules, ROOT / name, ROOT) for name in (".env", "a")] == [False, True]


@pytest.mark.parametrize("tool", ["write_file", "edit_file"])
def test_a_read_rule_denies_changes_too(tool: str) -> None:
    assert writes(policy(deny="Read(.env)", mode=Mode.BYPASS_PERMISSIONS), ".env", tool) is Verdict.DENY


def test_a_read_rule_that_asks_does_not_ask_about_changes() -> None:
    assert writes(policy(ask="Read(a)", mode=Mode.ACCEPT_EDITS), "a") is Verdict.ALLOW


@pytest.mark.parametrize(
    "command",
    [
        "cat .env",
        "cat ./.env",
        "cat x/../.env",
        "cat /work/project/.env",
        "head -n 3 .env",
        "tail .env",
        "sed -n 1p .env",
        "grep KEY .env",
        "grep -r KEY a .env",
        "ls && cat .env",
        "cat $X .env",
        "bash -c 'cat .env'",
        "cat < .env",
        "wc -l < .env",
        "cd sub && cat ../.env",
        "/bin/cat .env",
        "cat 'unclosed .env ; cat .env",
    ],
)
def test_a_read_rule_denies_commands_that_print_the_file(command: str) -> None:
    rules = policy(deny="Read(/.env)", mode=Mode.BYPASS_PERMISSIONS)
    assert runs(rules, command) is Verdict.DENY


@pytest.mark.parametrize("command", ["ls", "cat a", "echo .env", "cat x/.env", "cat $(x)", "git log -- .env", "cat 'x"])
def test_a_read_rule_leaves_other_commands_alone(command: str) -> None:
    assert runs(policy(deny="Read(/.env)", mode=Mode.BYPASS_PERMISSIONS), command) is Verdict.ALLOW


@pytest.mark.parametrize(
    "command", ["cat ~/.ssh/key", "cat $HOME/.ssh/key", 'cat "$HOME/.ssh/key"', "cd ~/.ssh; cat key"]
)
def test_a_read_rule_about_the_home_knows_how_commands_name_it(command: str) -> None:
    assert runs(policy(deny="Read(~/.ssh/**)", mode=Mode.BYPASS_PERMISSIONS), command) is Verdict.DENY


@pytest.mark.parametrize("command", ["echo x > .env", "echo $X > .env", "(ls) >> ./.env", "make &> .env"])
def test_an_edit_rule_denies_redirections(command: str) -> None:
    assert runs(policy(deny="Edit(.env)", mode=Mode.BYPASS_PERMISSIONS), command) is Verdict.DENY


def test_an_edit_rule_allows_a_redirection_of_an_allowed_command() -> None:
    rules = policy(allow="Bash(npm *), Edit(out/**)")
    assert [runs(rules, f"npm test > {path}") for path in ("out/a", "b")] == [Verdict.ALLOW, Verdict.ASK]


def test_bare_names_are_about_one_tool() -> None:
    rules = policy(allow="Edit")
    assert [writes(rules, "a", tool) for tool in ("edit_file", "write_file")] == [Verdict.ALLOW, Verdict.ASK]


def test_an_old_name_means_the_tool_of_today() -> None:
    assert writes(policy(allow="MultiEdit"), "a", "edit_file") is Verdict.ALLOW


@pytest.mark.parametrize("rule", ["Write(a)", "MultiEdit(a)", "NotebookEdit(a)", "Glob(a)", "Grep(a)"])
@pytest.mark.parametrize("kind", ["allow", "ask", "deny"])
def test_paths_of_these_tools_are_accepted_and_never_match(rule: str, kind: str) -> None:
    assert [each.form for each in parse_rules(rule, TOOLS, kind)] == [Form.NEVER]


@pytest.mark.parametrize(
    "rule", ["WebFetch", "WebFetch(domain:example.com)", "WebSearch", "Skill(x)", "Skill(x *)", "TodoWrite", "Cd(~/x)"]
)
def test_a_rule_for_a_tool_that_is_not_here_is_accepted(rule: str) -> None:
    assert [each.form for each in parse_rules(rule, TOOLS)] == [Form.NEVER]


@pytest.mark.parametrize(
    "line",
    [
        "timeout 60 npm test",
        "timeout -k 5 -s KILL 1.5m npm test -- --watch",
        "nice -n 10 npm test",
        "nohup npm test",
        "stdbuf -oL -eL npm test",
        "nohup timeout 5 npm test && nice npm test",
    ],
)
def test_a_rule_covers_a_command_behind_programs_that_only_run_it(line: str) -> None:
    assert runs(policy(allow="Bash(npm test:*)"), line) is Verdict.ALLOW


def test_a_rule_for_a_script_covers_it_only_where_the_line_starts() -> None:
    assert runs(policy(allow="Bash(bash run.sh *)"), "cd elsewhere && bash run.sh") is Verdict.ASK


def test_a_condition_of_find_is_not_taken_for_a_command() -> None:
    rules = policy(deny="Bash(rm:*)", mode=Mode.BYPASS_PERMISSIONS)
    lines = {
        "find . -name '*.py' -exec grep x {} +": Verdict.ALLOW,
        "find . -name '*.py' -exec rm {} +": Verdict.DENY,
        "find $X -name '*.py' -exec grep x {} +": Verdict.DENY,
    }
    assert {line: runs(rules, line) for line in lines} == lines


@pytest.mark.parametrize(
    ("rule", "reason"),
    [
        ("WebFetch", "there is no WebFetch here"),
        ("Write(a)", "Claude Code matches no path with Write; write Edit(…)"),
        ("Glob(a)", "Claude Code matches no path with Glob; write Read(…)"),
        ("Bash(env:*)", "`env` runs other programs, so each such command needs a question"),
        ("Bash(bash *)", "`bash` runs other programs, so each such command needs a question"),
        ("Bash(bash -c *)", "`bash` runs other programs, so each such command needs a question"),
        ("Bash(for:*)", "it is not the beginning of one plain command"),
        ("Bash(echo $X)", "no rule allows a line that is not understood completely"),
        ("Bash(npm *)", ""),
        ("Bash(git * main)", ""),
        ("Bash(npx tsc)", ""),
        ("Bash(npx:*)", ""),
        ("Bash(bash run.sh *)", ""),
        ("Bash", ""),
        ("Edit(a)", ""),
    ],
)
def test_a_rule_without_effect_is_known_with_its_reason(rule: str, reason: str) -> None:
    (found, *_) = parse_rules(rule, TOOLS)
    assert why_unused(found.tool, found.form, found.pattern, "allow") == reason


def test_a_rule_that_denies_always_has_an_effect() -> None:
    (found,) = parse_rules("Bash(npx:*)", TOOLS, "deny")
    assert why_unused(found.tool, found.form, found.pattern, "deny") == ""


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (".git/config", Verdict.ASK),
        (".claude/settings.json", Verdict.ASK),
        ("x/.vscode/tasks.json", Verdict.ASK),
        (".npmrc", Verdict.ASK),
        (".github/x", Verdict.ALLOW),
    ],
)
@pytest.mark.parametrize("rule", ["Edit(**)", "Write"])
def test_no_rule_of_theirs_allows_changing_what_acts_on_its_own(rule: str, path: str, expected: Verdict) -> None:
    assert writes(policy(allow=rule), path) is expected


@pytest.mark.parametrize(
    ("rule", "matched", "others"),
    [
        ("mcp__s", ["mcp__s__a", "mcp__s__b"], ["mcp__st__a", "bash"]),
        ("mcp__s__*", ["mcp__s__a"], ["mcp__st__a"]),
        ("mcp__s__a", ["mcp__s__a"], ["mcp__s__ab"]),
        ("mcp__s__get_*", ["mcp__s__get_x"], ["mcp__s__set_x"]),
    ],
)
def test_a_rule_names_a_server_or_its_tools(rule: str, matched: list[str], others: list[str]) -> None:
    for kind, expected in (("allow", Verdict.ALLOW), ("deny", Verdict.DENY)):
        rules = policy(**{kind: rule})
        found = {tool: verdict(rules, tool, Calls(tool)) for tool in (*matched, *others)}
        assert found == dict.fromkeys(matched, expected) | dict.fromkeys(others, Verdict.ASK)


@pytest.mark.parametrize(
    ("rule", "denied", "others"),
    [
        ("*", ["bash", "read_file", "mcp__s__t", "broadcast"], []),
        ("mcp__*", ["mcp__s__t"], ["bash", "read_file"]),
        ("Task*", ["task_create", "agent", "bash_stop", "spawn_teammate"], ["bash"]),
        ("Agent", ["agent", "spawn_teammate"], ["bash"]),
    ],
)
def test_a_pattern_for_names_denies_tools(rule: str, denied: list[str], others: list[str]) -> None:
    rules = policy(deny=rule)
    wanted = dict.fromkeys(denied, Verdict.DENY) | dict.fromkeys(others, Verdict.ALLOW)
    assert {tool: verdict(rules, tool, Harmless()) for tool in wanted} == wanted


@pytest.mark.parametrize(
    ("rule", "tool", "call", "expected"),
    [
        ("Agent(Explore)", "agent", {"subagent_type": "explore"}, Verdict.DENY),
        ("Agent(Explore)", "agent", {"subagent_type": "coder"}, Verdict.ALLOW),
        ("Task(coder)", "spawn_teammate", {"name": "al", "role": "coder"}, Verdict.DENY),
        ("Task(coder)", "spawn_teammate", {"name": "coder", "role": "tester"}, Verdict.ALLOW),
        ("Agent(general-purpose)", "agent", {"prompt": "x"}, Verdict.DENY),
        ("Agent(model:opus)", "agent", {"model": "opus"}, Verdict.DENY),
        ("Agent(model:opus)", "agent", {"model": "haiku"}, Verdict.ALLOW),
        ("mcp__s__t(force:true)", "mcp__s__t", {"force": True}, Verdict.DENY),
        ("mcp__s__t(count:3)", "mcp__s__t", {"count": 3}, Verdict.DENY),
        ("mcp__s__t(force:true)", "mcp__s__t", {"force": False}, Verdict.ALLOW),
    ],
)
def test_a_rule_denies_by_a_field(rule: str, tool: str, call: dict[str, Any], expected: Verdict) -> None:
    assert verdict(policy(deny=rule), tool, Harmless(), **call) is expected


@pytest.mark.parametrize(("is_background", "expected"), [(True, Verdict.DENY), (False, Verdict.ALLOW)])
def test_a_field_may_have_their_name(is_background: bool, expected: Verdict) -> None:
    rules = policy(deny="Bash(run_in_background:true)", mode=Mode.BYPASS_PERMISSIONS)
    assert runs(rules, "ls", background=is_background) is expected


def test_a_rule_applies_to_a_link_by_either_name(tmp_path: Path) -> None:
    (tmp_path / "plain.txt").write_text("x")
    (tmp_path / "link.txt").symlink_to("plain.txt")
    access = Reads(tmp_path / "plain.txt")
    found = [
        decide(policy(deny=f"Read({name})"), "read_file", access, tmp_path, given={"path": "link.txt"}).verdict
        for name in ("link.txt", "plain.txt", "other.txt")
    ]
    assert found == [Verdict.DENY, Verdict.DENY, Verdict.ALLOW]


def test_an_allowed_link_must_lead_to_an_allowed_file(tmp_path: Path) -> None:
    access = Writes(tmp_path / "plain.txt")
    found = [
        decide(policy(allow=rules), "edit_file", access, tmp_path, given={"path": "link.txt"}).verdict
        for rules in ("Edit(link.txt)", "Edit(plain.txt)", "Edit(*.txt)")
    ]
    assert found == [Verdict.ASK, Verdict.ASK, Verdict.ALLOW]


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ("Bash(git log:*) Read Edit(src/**)", ["Bash(git log:*)", "Read", "Edit(src/**)"]),
        ("Bash(git log:*),Read", ["Bash(git log:*)", "Read"]),
        ("Bash(git diff *) mcp__s__t", ["Bash(git diff *)", "mcp__s__t"]),
        ("bash(git log:*), Bash(x)", ["bash(git log:*)", "Bash(x)"]),
        ("Bash(echo it's)", ["Bash(echo it's)"]),
        ("Bash(echo (a)", ["Bash(echo (a)"]),
    ],
)
def test_rules_are_shown_as_they_were_written(text: str, rules: list[str]) -> None:
    assert list(dict.fromkeys(map(str, parse_rules(text, TOOLS)))) == rules


def test_a_denial_names_the_rule_as_written() -> None:
    decision = decide(policy(deny="Read(./.env)"), "read_file", Reads(ROOT / ".env"), ROOT)
    assert decision.reason == "The rule Read(./.env) denies this call."


SHELL = (
    "git push main npm run test x sh -c 'a_b' \"$X\" && | ; > f xargs find . -exec rm {} env A=1 CI=1 timeout 5 "
    "( ) `x` * --version cd"
)
PLAIN = "git push main npm run test x -c gx"
LINES = st.lists(st.sampled_from(SHELL.split()), min_size=1, max_size=7).map(" ".join)
PATTERNS = st.lists(st.sampled_from([*PLAIN.split(), "*", "*x", "g*", ":*"]), min_size=1).map(" ".join)


@given(PATTERNS, LINES)
def test_no_pattern_allows_what_is_not_understood(pattern: str, line: str) -> None:
    if pattern in ("*", ":*"):
        return
    try:
        rules = policy(allow=f"Bash({pattern})")
    except ConfigError:
        return
    if runs(rules, line) is Verdict.ALLOW:
        try:
            commands = read_line(line)
        except NotUnderstood:
            pytest.fail(f"{pattern!r} allows {line!r}")
        covered = [each for each in commands if each.words[0] not in ("echo", "true", "cd")]
        assert all(not never_covered(unwrapped(command.words)) or line == pattern for command in covered)


@given(PATTERNS, st.lists(st.sampled_from(PLAIN.split()), min_size=1, max_size=6))
def test_a_pattern_matches_plain_commands_exactly_as_there(pattern: str, words: list[str]) -> None:
    if pattern in ("*", ":*") or ":*" in pattern.removesuffix(":*"):
        return
    line = " ".join(words)
    their_pattern = re.sub(r" ?:\*$", " *", pattern)
    expression = re.escape(their_pattern).replace(r"\*", ".*")
    expression = re.sub(r"\\ \.\*$", r"(\\ .*)?", expression)
    matches = re.fullmatch(expression, line) is not None
    may_allow = matches and (line == pattern or not never_covered(words))
    assert (runs(policy(allow=f"Bash({pattern})"), line) is Verdict.ALLOW) is may_allow
    denied = runs(policy(deny=f"Bash({pattern})", mode=Mode.BYPASS_PERMISSIONS), line) is Verdict.DENY
    assert denied or not matches


@given(
    st.sampled_from(["Bash", "Read", "Edit", "Write", "Agent", "Skill", "mcp__s", "*", "mcp__*", "WebFetch", "Bash:*"]),
    st.none() | st.text(max_size=30) | st.text("*?[]!./~\\()'\" :a", max_size=12),
    st.sampled_from(["allow", "ask", "deny"]),
    LINES,
)
def test_no_rule_breaks_a_decision(name: str, content: str | None, kind: str, line: str) -> None:
    try:
        rules = policy(**{kind: name if content is None else f"{name}({content})"})
    except ConfigError as e:
        assert "\n" not in str(e)
        return
    runs(rules, line)
    reads(rules, "/work/project/a")
    writes(rules, "/elsewhere/b")
    verdict(rules, "agent", Harmless(), subagent_type=content)
