from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from teamcli.agent.shell_commands import read_commands
from teamcli.agent.shell_words import MAX_BYTES, Script, SimpleCommand, Word, parse_line

unhurried = settings(deadline=None)


def texts(script: Script) -> list[str]:
    """Each command as `[A=1] name argument [> file]`; a dynamic word is marked by `?`."""
    return [text(command) for command in script.commands]


def text(command: SimpleCommand) -> str:
    words = [word.value if word.is_static else f"?{word.value}" for word in command.words]
    return " ".join(
        [*(f"[{word.value}]" for word in command.assignments), *words, *(f">{w.value}" for w in command.writes)]
    )


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("git status", ["git status"]),
        ("  git   status  ", ["git status"]),
        ("git\tstatus", ["git status"]),
        ("s''udo", ["sudo"]),
        ('s""udo', ["sudo"]),
        ("\\s\\u\\d\\o", ["sudo"]),
        ("'su'\"do\"", ["sudo"]),
        ("$'\\x73udo'", ["sudo"]),
        ("$'\\163udo'", ["sudo"]),
        ("$'\\u0073udo'", ["sudo"]),
        ('"rm" -r\\f', ["rm -rf"]),
        ("echo 'a b' \"c d\"", ["echo a b c d"]),
        ('echo "a\\$b\\"c\\\\d\\e"', ['echo a$b"c\\d\\e']),
        ("echo 'it'\\''s'", ["echo it's"]),
        ("echo a\\ b", ["echo a b"]),
        ('echo "a\\\nb"', ["echo ab"]),
        ("echo a \\\n  b", ["echo a b"]),
        ("echo {}", ["echo {}"]),
        ("echo '*' \\* \"?\" '~' '$X'", ["echo * * ? ~ $X"]),
        ("echo é", ["echo é"]),
        ("a\u00a0b c", ["a\u00a0b c"]),
        ("!sudo", ["!sudo"]),
        ("echo a # it's", ["echo a"]),
        ("# nothing", []),
        ("", []),
        ("   ", []),
    ],
)
def test_quotes_escapes_and_comments_are_resolved(line: str, commands: list[str]) -> None:
    script = parse_line(line)
    assert script.problem == ""
    assert texts(script) == commands


@pytest.mark.parametrize(
    "word",
    [
        "$X",
        "${X}",
        "${X:-a}",
        "$(a)",
        "`a`",
        '"$X"',
        "a$X",
        "*.py",
        "a?",
        "[ab]",
        "{a,b}",
        "{1..3}",
        "$$",
        "a$$",
        "~",
        "~/x",
        "a=~/x",
    ],
)
def test_a_word_that_the_shell_expands_is_dynamic_and_keeps_its_source(word: str) -> None:
    command = parse_line(f"echo {word}").commands[0]
    assert not command.words[1].is_static
    assert command.words[1].source == word


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("a; b & c", ["a", "b", "c"]),
        ("a && b || c", ["a", "b", "c"]),
        ("a | b |& c", ["a", "b", "c"]),
        ("a\nb", ["a", "b"]),
        ("(a; b)", ["a", "b"]),
        ("{ a; b; }", ["a", "b"]),
        ("! a", ["a"]),
        ("echo $(a $(b))", ["echo ?$(a $(b))", "a ?$(b)", "b"]),
        ("echo `a`", ["echo ?`a`", "a"]),
        ('echo "x $(a) y"', ["echo ?x $(a) y", "a"]),
        ("diff <(a) >(b)", ["diff ?<(a) ?>(b)", "a", "b"]),
        ("echo ${X:-$(a)}", ["echo ?${X:-$(a)}", "a"]),
        ("X=$(a)", ["[X=$(a)]", "a"]),
        ("X=$(a) b", ["[X=$(a)] b", "a"]),
        ("X=1 Y=2", ["[X=1] [Y=2]"]),
        ("x=(a $(b))", ["[x=(a $(b))]", "b"]),
        ("x[$(a)]=1", ["[x[$(a)]=1]", "a"]),
        ("export A=$(b) C=d", ["export ?A=$(b) C=d", "b"]),
        ("unset X", ["unset X"]),
        ("if a; then b; elif c; then d; else e; fi", ["a", "b", "c", "d", "e"]),
        ("while a; do b; done", ["a", "b"]),
        ("until a; do b; done", ["a", "b"]),
        ("for x in $(a) b; do c $x; done", ["a", "c ?$x"]),
        ("case $(a) in b) c;; *) d;; esac", ["a", "c", "d"]),
        ("f() { a; }; f", ["a", "f"]),
        ("function f { a; }", ["a"]),
        ("[ -f x ] && a", ["[ ?[ -f x ]", "a"]),
        ("[[ -f $(a) ]]", ["[[ ?[[ -f $(a) ]]", "a"]),
        ("cat <<E\n$(a) text\nE\nb", ["cat", "a", "b"]),
        ("cat <<'E'\n$(a) `b\nE\nc", ["cat", "c"]),
        ("cat <<E | a && b\nx\nE", ["cat", "a", "b"]),
        ("cat <<-E\n\tx\n\tE\na", ["cat", "a"]),
        ("cat <<< $(a)", ["cat", "a"]),
        ("python - <<'E'\nx\nE", ["python -"]),
    ],
)
def test_commands_are_found_in_every_construct(line: str, commands: list[str]) -> None:
    script = parse_line(line)
    assert script.problem == ""
    assert sorted(texts(script)) == sorted(commands)


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("a > f", ["a >f"]),
        ("a >> f 2> g", ["a >f >g"]),
        ("a &> f", ["a >f"]),
        ("a &>> f", ["a >f"]),
        ("a >| f", ["a >f"]),
        ("a >& f", ["a >f"]),
        ("> f a b", ["a b >f"]),
        ("a > f b", ["a b >f"]),
        ("> f", [">f"]),
        ("a < f", ["a"]),
        ("a 2>&1", ["a"]),
        ("a >&2", ["a"]),
        ("a 2>&-", ["a"]),
        ("a > /dev/null 2>/dev/stderr", ["a"]),
        ("a \\\n 2>&1", ["a"]),
        ("a && b > f", ["a", "b >f"]),
        ("a | b > f c", ["a", "b c >f"]),
        ("{ a; } > f", ["a", ">f"]),
        ("if a; then b; fi > f", ["a", "b", ">f"]),
        ("cat <<E > f\nx\nE", ["cat >f"]),
    ],
)
def test_files_that_redirections_write_are_reported(line: str, commands: list[str]) -> None:
    script = parse_line(line)
    assert script.problem == ""
    assert sorted(texts(script)) == sorted(commands)


@pytest.mark.parametrize(
    "line",
    [
        "echo 'a",
        'echo "a',
        "if a",
        "a; ; b",
        "a (b)",
        "su\\\ndo x",
        "X=1\\\n Y=2 a",
        "\\ sudo",
        "a\r\nb",
        "a\x0bb c",
        "a\0b",
        "\ud800",
        "echo `a \\`b\\``",
        "time { a; }",
        "cat <<E\\F\nx\nEF",
        'cat <<"E"a\nx\nE\nEa',
        "cat <<E\nx\\\nE\n'\nE\nsudo #'",
        "cat <<E |\nE\nx\nE",
        "X=$ sudo",
        "X=1 2=sudo",
        "[ a = {<a,b}&b ]",
        "!'sudo'",
        "['x' = y ]",
        "{}",
        "echo $'\\0'",
        'echo $"x"',
        "a <> f",
    ],
)
def test_a_line_that_bash_may_read_otherwise_is_a_problem(line: str) -> None:
    assert parse_line(line).problem


@pytest.mark.parametrize(
    ("line", "commands"),
    [
        ("echo ${a['$(b)']}", ["echo ?${a['$(b)']}"]),
        ("echo \"${a['$(b)']}\"", ["echo ?${a['$(b)']}"]),
        ("echo ${a[x]} ${a[$x]}", ["echo ?${a[x]} ?${a[$x]}"]),
        ("for x in 'a[$(b)]'; do echo ${!x} ${y:x} ${x@P}; done", ["echo ?${!x} ?${y:x} ?${x@P}"]),
        ("for x in 'a[$(b)]'; do echo $((x)) $[x]; done", ["echo ?$((x)) ?$[x]"]),
        ("for x in 'a[$(b)]'; do ((x)); echo; done", ["echo"]),
        ("echo $((1 + $(a)))", ["echo ?$((1 + $(a)))", "a"]),
        ("for ((i=0;i<3;i++)); do a; done", ["a"]),
    ],
)
def test_text_that_bash_would_evaluate_is_a_problem_and_the_commands_are_found_all_the_same(
    line: str, commands: list[str]
) -> None:
    script = parse_line(line)
    assert "evaluates" in script.problem
    assert sorted(texts(script)) == sorted(commands)


@pytest.mark.parametrize(
    "line",
    [
        "echo ${a[1]} ${a[@]} ${#a[*]} ${!a[@]} ${!pre@}",
        "echo ${x:-b} ${x##*/} ${x%.py} ${x:0:2} ${x:1} ${x//a/b} ${x^^} ${#x} ${x@Q}",
        "echo ${?} ${#} ${@:2} $((1+2*(3-4)))",
        "export WHERE=$WHERE:x A='b[c]'",
        "printf '%s\\n' $x",
        "a & wait $!",
        "test -f x",
        "read -r line",
        "find . -name '*.py' -type f",
    ],
)
def test_plain_expansions_and_names_are_no_problem(line: str) -> None:
    assert read_commands(line).problem == ""


@pytest.mark.parametrize(
    "line",
    [
        "test -v 'a[$(b)]'",
        "printf -v 'a[$(b)]' x",
        "printf -va'[$(b)]' x",
        "read 'a[$(b)]' <<< x",
        "declare 'a[$(b)]=1'",
        "declare -a 'a=($(b))'",
        "declare -i a='b[$(c)]'",
        "declare -n a='b[$(c)]'; echo $a",
        "typeset 'a[$(b)]=1'",
        "unset 'a[$(b)]'",
        "wait -p 'a[$(b)]'",
        "mapfile 'a[$(b)]'",
        "let 'a[$(b)]'",
        "builtin printf -v 'a[$(b)]' x",
        "for x in 'a[$(b)]'; do unset $x; done",
        "echo {a['$(b)']}>&1",
        "find . -delete",
        "find . -fprint f",
        "find . -fprintf f %p",
        "find . -fls f",
        "for x in '-exec a ;'; do find . $x; done",
    ],
)
def test_what_a_command_may_evaluate_or_change_beside_its_words_is_a_problem(line: str) -> None:
    assert read_commands(line).problem


def test_the_callback_of_mapfile_is_a_command() -> None:
    assert "x y" in texts(read_commands("mapfile -c 1 -C 'x y' a"))


def test_a_very_long_line_is_a_problem() -> None:
    assert "longer" in parse_line("a; " * MAX_BYTES).problem


@pytest.mark.parametrize("line", ["${X}do", "$X", "$(echo sudo)", "`a`", "*", "a; $X b", "s{u,}do", "~/bin/x"])
def test_a_command_name_that_is_not_known_is_a_problem(line: str) -> None:
    assert "known only when it runs" in parse_line(line).problem


@pytest.mark.parametrize(
    ("line", "inner"),
    [
        ("sudo -u root x y", "x y"),
        ("doas -u root x", "x"),
        ("env -u B A=1 x", "[A=1] x"),
        ("env -i x", "x"),
        ("env -S 'x y'", "x y"),
        ("nice -n 5 x", "x"),
        ("nice -10 x", "x"),
        ("nohup x", "x"),
        ("time -p x", "x"),
        ("time A=1 x", "[A=1] x"),
        ("timeout -k 5 10s x", "x"),
        ("timeout --signal=KILL 10 x", "x"),
        ("command x", "x"),
        ("command -p x", "x"),
        ("builtin x", "x"),
        ("exec -a name x", "x"),
        ("stdbuf -oL x", "x"),
        ("stdbuf -o L x", "x"),
        ("setsid x", "x"),
        ("ionice -c 3 x", "x"),
        ("chroot /mnt x", "x"),
        ("busybox x", "x"),
        ("coproc x", "x"),
        ("a | xargs -n 1 -I {} x {}", "x ?{} ?{}"),
        ("xargs x", "x ?{}"),
        ("find . -name '*.py' -exec x {} \\;", "x ?{} ?{}"),
        ("find . -execdir x {} +", "x ?{} ?{}"),
        ("fd a -x x", "x ?{}"),
        ("watch -n 1 x y", "x y"),
        ("watch 'x y'", "x y"),
        ("bash -c 'x y'", "x y"),
        ("bash -lc 'x y' name", "x y"),
        ("sh -e -c 'a; x y'", "x y"),
        ("bash -o pipefail -c x", "x"),
        ("/bin/sh -c x", "x"),
        ("zsh -c x", "x"),
        ("eval x y", "x y"),
        ("eval 'x y'", "x y"),
        ("trap 'x y' EXIT", "x y"),
        ("su -c 'x y' root", "x y"),
        ("flock /tmp/lock x", "x"),
        ("flock /tmp/lock -c 'x y'", "x y"),
        ("timeout 5 env A=1 nice bash -c 'eval \"x y\"'", "x y"),
        ("bash -c \"bash -c 'x y'\"", "x y"),
        ("echo 'x y' | sh", "x y"),
        ("sh <<'E'\nx y\nE", "x y"),
        ("sh <<< 'x y'", "x y"),
    ],
)
def test_a_wrapper_yields_itself_and_what_it_runs(line: str, inner: str) -> None:
    found = texts(read_commands(line))
    assert inner in found
    assert len(found) >= 2


@pytest.mark.parametrize(
    "line", ["command -v sudo", "which sudo", "timeout 5", "nice", "env A=1", "bash script.sh", "source x.sh"]
)
def test_a_wrapper_that_runs_nothing_known_yields_only_itself(line: str) -> None:
    script = read_commands(line)
    assert len(script.commands) == 1
    assert script.problem == ""


@pytest.mark.parametrize(
    "line",
    [
        "sh",
        "a | bash",
        "a | bash -s x",
        "sh -",
        "bash <(a)",
        "bash /dev/stdin",
        "source <(a)",
        ". /dev/stdin",
        "eval $X",
        'bash -c "$X"',
        "env $X a",
        "timeout $T a",
        "xargs $X",
        "base64 -d f | sh",
        "bash -c 'echo \"'",
        "eval " * 20 + "a",
    ],
)
def test_what_a_wrapper_runs_may_be_unknown(line: str) -> None:
    assert read_commands(line).problem


@pytest.mark.parametrize(
    "line", [":(){ :|:& };:", "bomb() { bomb | bomb & }; bomb", "f() { f & f & }; f", "bash -c ':(){ :|:& };:'"]
)
def test_a_fork_bomb_is_seen(line: str) -> None:
    assert read_commands(line).has_fork_bomb


@pytest.mark.parametrize(
    "line", ["f() { g | g & }", "f() { f; }", "f() { a | b; }; f", "f() { if a; then f | f; fi; }"]
)
def test_a_harmless_function_is_no_fork_bomb(line: str) -> None:
    assert not read_commands(line).has_fork_bomb


@pytest.mark.soak
def test_characters_beyond_the_basic_plane_are_read_and_do_not_crash_the_parser() -> None:
    assert texts(parse_line("echo '🎉' 🎉$X | 🎉")) == ["echo 🎉 ?🎉$X", "🎉"]
    program = """
import random, sys
from teamcli.agent.shell_words import parse_line
choose = random.Random(int(sys.argv[1]))
pieces = [*"ab;|&(){}'$`<>#= ", "<<E\\n", "\\nE\\n", *"🎉🎈" * 4, chr(0x10FFFF)]
for _ in range(int(sys.argv[2])):
    parse_line("".join(choose.choices(pieces, k=12)))
"""
    count = "10_000" if os.environ.get("TEAMCLI_SOAK") else "1_000"
    for seed in "1234":
        assert subprocess.run([sys.executable, "-c", program, seed, count], timeout=100).returncode == 0


def test_a_long_list_of_commands_is_read_without_recursion() -> None:
    script = parse_line(" && ".join(["a"] * 3000))
    assert len(script.commands) == 3000


@unhurried
@given(st.lists(st.text("ab./:=@%+,-", min_size=1), min_size=1).map(" ".join))
def test_a_plain_line_reads_the_same_with_and_without_the_parser(line: str) -> None:
    fast, slow = parse_line(line), parse_line(f"{line} ''")
    if not fast.problem and not slow.problem:
        assert (*fast.commands[0].words, Word("")) == slow.commands[0].words


@unhurried
@given(st.text())
@example("\\")
@example("$(")
@example("<<E\n")
@example("a <<E")
@example("((")
@example("\ud800'")
def test_reading_never_raises(line: str) -> None:
    read_commands(line)


SHELL_PIECES = [
    *(
        "a",
        "b",
        "ab",
        " ",
        " ",
        "\t",
        "\n",
        ";",
        "|",
        "&",
        "&&",
        "||",
        "(",
        ")",
        "{ ",
        "; }",
        "!",
        "'",
        '"',
        "\\",
        "\\\n",
        "$",
    ),
    *(
        "`",
        "$(",
        "${X",
        "}",
        "$((1",
        "))",
        "<<E\n",
        "<<'E'\n",
        "\nE\n",
        "E",
        "#",
        " # ",
        "=",
        "X=",
        "X=1 ",
        "~",
        "*",
        "{a,b}",
    ),
    *(
        "if ",
        "; then ",
        "; fi",
        "for x in ",
        "; do ",
        "; done",
        "case a in a) ",
        ";; esac",
        ">f ",
        " 2>&1",
        "<<<",
        "<(",
        "[[ ",
    ),
    *(" ]]", "[ ", " ]", "time ", "\r", "\\ ", "$'", "\\x61", '"$(', ')"', "'a b'", "$X", "{}", "- "),
]


SHELL_LINES = st.lists(st.sampled_from(SHELL_PIECES), min_size=1, max_size=12).map("".join)
needs_bash = pytest.mark.skipif(not Path("/bin/bash").exists(), reason="compares with the real bash")


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bash start-up file that writes down every command which bash tries to run."""
    path = tmp_path_factory.mktemp("witness") / "env.sh"
    path.write_text(
        'FUNCNEST=2\ncommand_not_found_handle() { printf "%s\\0" "$#" "$@" >> "$WITNESS_LOG"; [ "$1" = a ]; }\n'
    )
    return path


@needs_bash
@settings(max_examples=300, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SHELL_LINES)
@example("a\\\nb a")
@example("X=$ a")
@example("{}")
@example("!'a'")
@example("a <<E | \nE\n\nb\nE\n")
@example("['a' = b ]")
@example("a\\\n 2>&1")
@example('a <<"E"a\nb\nE\n')
@example("a\n{}")
@example("`a` ]]``a")
@example("a``b")
@example("é=1 a")
@example("X=🎉 a 🎉b")
@example("a <<🎉\nb\n🎉\na")
@example("$((1+$(case a in a) b;; esac)))")
@example("time - ")
@example("time a''b=")
def test_every_command_that_bash_runs_was_foreseen(witness: Path, line: str) -> None:
    check_against_bash(line, witness)


@pytest.mark.soak
@pytest.mark.skipif("TEAMCLI_SOAK" not in os.environ, reason="minutes long: run by `make soak`")
@pytest.mark.timeout(1800)
@needs_bash
@settings(max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(SHELL_LINES)
def test_every_command_that_bash_runs_was_foreseen_in_ever_new_lines(witness: Path, line: str) -> None:
    check_against_bash(line, witness)


def check_against_bash(line: str, witness: Path) -> None:
    for whole in (line, f"a {line}"):
        script = read_commands(whole)
        for arguments in [] if script.problem else commands_run_by_bash(whole, witness):
            assert any(could_be(arguments, command.words) for command in script.commands), (whole, arguments)


def commands_run_by_bash(line: str, witness: Path) -> list[list[str]]:
    # a directory for each run: a background command of an earlier one may still be writing
    directory = Path(tempfile.mkdtemp(dir=witness.parent))
    log = directory / "log"
    environment = {"PATH": "/nonexistent", "BASH_ENV": str(witness), "WITNESS_LOG": str(log), "LC_ALL": "C.UTF-8"}
    quiet = subprocess.DEVNULL
    subprocess.run(
        ["/bin/bash", "-c", line], cwd=directory, env=environment, stdin=quiet, stdout=quiet, stderr=quiet, timeout=60
    )
    fields = log.read_bytes().decode().split("\0")[:-1] if log.exists() else []
    commands = []
    while fields:
        count = int(fields[0])
        commands.append(fields[1 : count + 1])
        fields = fields[count + 1 :]
    return commands


def could_be(arguments: list[str], words: tuple[Word, ...]) -> bool:
    if not words:
        return not arguments
    if not words[0].is_static:
        return any(could_be(arguments[i:], words[1:]) for i in range(len(arguments) + 1))
    return bool(arguments) and arguments[0] == words[0].value and could_be(arguments[1:], words[1:])
