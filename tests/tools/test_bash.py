from __future__ import annotations

import os
import shutil
import threading
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamcli.agent.tool import Executes
from teamcli.errors import Cancelled, ToolError
from teamcli.exec.command_host import CommandHost
from teamcli.exec.command_output import BoundedText
from teamcli.tools.bash import BASH
from tests.tools.shell import Shell


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


@pytest.mark.parametrize(
    ("command", "result"),
    [
        ("echo hi", "hi"),
        ("printf 'a\\n\\n\\n'", "a"),
        ("true", "(no output)"),
        ("echo out; echo err >&2; echo out again", "out\nerr\nout again"),
        ("exit 7", "(no output)\n[exit code 7]"),
        ("echo hi; exit 7", "hi\n[exit code 7]"),
        ("echo hi; kill -9 $$", "hi\n[killed by signal 9 (SIGKILL)]"),
        ("kill -40 $$", "(no output)\n[killed by signal 40 (real-time)]"),
        ("no-such-program-here 2>/dev/null", "(no output)\n[exit code 127]"),
        ("cat", "(no output)"),
        ("read line; echo $?", "1"),
        (r"printf '\377\376'", "\ufffd\ufffd"),
        (r"printf '\303'; printf '\244'", "ä"),
        ("echo one\necho two", "one\ntwo"),
        ("echo <<END\nx\nEND", "(no output)"),
        ("[[ a == a ]] && echo bash", "bash"),
        ("echo 'ünï → 🙂'", "ünï → 🙂"),
        ("yes | head -1", "y"),
    ],
)
def test_the_result_is_the_output_and_the_exit_code_if_it_is_not_zero(shell: Shell, command: str, result: str) -> None:
    output = shell.call(BASH, command=command)
    assert not output.is_error
    assert output.content == result


def test_a_command_that_begins_with_a_dash_is_not_an_option_of_the_shell(shell: Shell) -> None:
    assert "[exit code 127]" in shell.bash("-n")


def test_every_command_starts_in_the_workspace_root(shell: Shell, tmp_path: Path) -> None:
    assert shell.bash("pwd; cd /") == str(tmp_path)
    assert shell.bash("pwd -P") == str(tmp_path)


def test_signals_that_python_ignores_are_normal_in_commands(shell: Shell) -> None:
    assert shell.bash("(yes; echo $? > code) | head -1 > /dev/null; cat code") == "141"


@pytest.mark.parametrize("command", ["", "  \n "])
def test_an_empty_command_is_refused(shell: Shell, command: str) -> None:
    with pytest.raises(ToolError, match=r"^command: is empty"):
        shell.bash(command)


def test_a_command_with_a_nul_is_refused_before_the_user_is_asked(shell: Shell) -> None:
    with pytest.raises(ToolError, match=r"^command: contains a NUL"):
        BASH.bind(shell.context).prepare({"command": "echo \0"})


def test_a_command_that_is_not_text_is_refused(shell: Shell) -> None:
    with pytest.raises(ToolError, match=r"^command: is not valid Unicode at character 5"):
        shell.bash("echo \ud800")


def test_a_command_too_long_for_the_system_is_refused_with_a_remedy(shell: Shell) -> None:
    with pytest.raises(ToolError, match=r"^command: is too long .* script file"):
        shell.bash(f"echo {'x' * 3_000_000}")
    assert len(shell.bash(f"echo {'x' * 20_000}")) == 20_000


def test_a_deleted_workspace_is_named(tmp_path: Path) -> None:
    root = tmp_path / "gone"
    root.mkdir()
    shell = Shell(root)
    root.rmdir()
    with pytest.raises(ToolError, match=f"{root}: No such file or directory"):
        shell.bash("true")
    root.mkdir()
    assert shell.bash("echo back") == "back"
    shell.close()


@pytest.mark.parametrize("seconds", [0, 601, "soon"])
def test_a_timeout_out_of_range_names_the_field(shell: Shell, seconds: object) -> None:
    with pytest.raises(ToolError, match="timeout_seconds"):
        shell.bash("true", timeout_seconds=seconds)


def test_a_timeout_is_an_error_result_with_the_output_so_far_and_a_remedy(shell: Shell) -> None:
    output = shell.call(BASH, command="echo so far; sleep 300", timeout_seconds=3)
    assert output.is_error
    assert output.content.startswith("Error: Timeout (3s)")
    assert "timeout_seconds (up to 600) or background" in output.content
    assert output.content.endswith("Output so far:\nso far")


def test_commands_see_no_credentials_and_wait_for_no_person(tmp_path: Path) -> None:
    secrets = {"ANTHROPIC_API_KEY": "k", "ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_CUSTOM_HEADERS": "h"}
    given = {"PATH": os.environ["PATH"], "PAGER": "most", "MULTI": "a\nb=c", "EMPTY": "", **secrets}
    shell = Shell(tmp_path, CommandHost(given))
    seen = dict(pair.split("=", 1) for pair in shell.bash("env -0 | tr '\\0' '|'").strip("|").split("|"))
    shell.close()
    for name in ("PWD", "OLDPWD", "SHLVL", "_"):  # the shell's own
        seen.pop(name, None)
    assert seen == {
        "PATH": os.environ["PATH"],
        "SHELL": shutil.which("bash"),  # given, because every bash would look it up in /etc/passwd
        "PAGER": "most",
        "GIT_PAGER": "cat",
        "GIT_TERMINAL_PROMPT": "0",
        "MULTI": "a\nb=c",
        "EMPTY": "",
    }


def test_no_credential_can_be_read_from_the_processes_above_a_command(tmp_path: Path) -> None:
    shell = Shell(tmp_path, CommandHost({**os.environ, "ANTHROPIC_API_KEY": "the-secret"}))
    found = shell.bash(
        'pid=$PPID; for i in 1 2; do tr "\\0" "\\n" < /proc/$pid/environ | grep -c the-secret;'
        ' pid=$(ps -o ppid= -p $pid | tr -d " "); done'
    )
    shell.close()
    assert found.startswith("0\n0")


def test_long_output_keeps_its_beginning_and_end_and_says_how_much_is_left_out(shell: Shell) -> None:
    text = shell.bash("seq 100000")
    head, mark, tail = text.partition("\n[... 558,895 characters left out ...]\n")
    assert mark
    assert head.startswith("1\n2\n3\n")
    assert tail.endswith("99999\n100000")
    assert len(head + tail) == 30_000 - 1  # without the newline at the end


def test_output_is_cut_between_characters(shell: Shell) -> None:
    text = shell.bash("yes 'ä🙂' | tr -d '\\n' | head -c 600000")
    assert "\ufffd" not in text
    assert "[... 170,000 characters left out ...]" in text


def test_fifty_megabytes_on_one_line_take_little_memory(shell: Shell) -> None:
    shell.bash("true")
    tracemalloc.start()
    try:
        text = shell.bash("head -c 50000000 /dev/zero | tr '\\0' x")
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert "[... 49,970,000 characters left out ...]" in text
    assert peak < 5_000_000


def test_endless_output_ends_with_the_time(shell: Shell) -> None:
    output = shell.call(BASH, command="yes", timeout_seconds=1)
    assert output.is_error
    assert len(output.content) < 31_000
    assert sum(map(len, shell.progress)) < 1_000_000


def test_progress_shows_output_while_the_command_runs(shell: Shell, tmp_path: Path) -> None:
    shell.on_progress = lambda text: (tmp_path / "seen").touch() if "first" in text else None
    assert shell.bash("echo first; until [ -e seen ]; do sleep 0.01; done; echo second") == "first\nsecond"
    assert "".join(shell.progress) == "first\nsecond\n"


def test_progress_comes_in_few_pieces(shell: Shell) -> None:
    started = time.monotonic()
    shell.bash("for i in $(seq 3000); do echo $i; done")
    assert len(shell.progress) <= (time.monotonic() - started) / 0.1 + 1


def test_a_cancelled_command_raises_with_its_output_so_far(shell: Shell) -> None:
    shell.on_progress = lambda text: threading.Thread(target=shell.cancel.cancel, args=["interrupted"]).start()
    with pytest.raises(Cancelled, match="interrupted") as raised:
        shell.bash("echo so far; sleep 300")
    assert raised.value.output == "so far"


def test_a_scope_that_is_cancelled_already_runs_nothing(shell: Shell, tmp_path: Path) -> None:
    shell.cancel.cancel("too late")
    with pytest.raises(Cancelled, match="too late"):
        shell.bash("touch ran")
    assert not (tmp_path / "ran").exists()


def test_a_late_cancel_does_not_hit_the_next_command(shell: Shell) -> None:
    first = shell.host.start("true", Path("/"))
    first.follow(lambda text: None, lambda text: None)
    second = shell.host.start("echo alive; sleep 0.1", Path("/"))
    first.stop()
    assert second.follow(lambda text: None, lambda text: None).exit_code == 0


def test_a_failing_progress_ends_the_command(shell: Shell) -> None:
    def fail(text: str) -> None:
        raise ValueError("broken screen")

    shell.on_progress = fail
    with pytest.raises(ValueError, match="broken screen"):
        shell.bash("echo x; sleep 300")
    shell.on_progress = lambda text: None
    assert shell.bash("echo fine") == "fine"


def test_it_asks_for_the_whole_command_and_shows_its_first_line(shell: Shell) -> None:
    command = f"echo {'x' * 200}\necho 2"
    call = BASH.bind(shell.context).prepare({"command": command})
    assert call.access == Executes(command, shell.context.workspace.cwd)
    assert call.display.title == f"$ echo {'x' * 95}…"
    assert BASH.bind(shell.context).prepare({"command": "ls"}).display.title == "$ ls"


def test_the_model_reads_a_short_description(shell: Shell) -> None:
    spec = BASH.bind(shell.context).spec
    assert set(spec.input_schema["properties"]) == {"command", "timeout_seconds", "background"}
    assert len(str(spec.to_dict())) < 650


@pytest.mark.parametrize("pieces", [["abcdefghij"], list("abcdefghij"), ["abcde", "fghij"], ["a", "bcdefghi", "j"]])
def test_bounded_text_is_the_same_however_it_came(pieces: list[str]) -> None:
    text = BoundedText(6)
    for piece in pieces:
        text.add(piece)
    assert str(text) == "abc\n[... 4 characters left out ...]\nhij"
    text.clear()
    text.add("abcdef")
    assert str(text) == "abcdef"
