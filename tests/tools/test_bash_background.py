from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from teamcli.agent.tool import Harmless
from teamcli.errors import ToolError
from teamcli.exec.commands import MAX_BACKGROUND, Report
from teamcli.tools.bash_output import BASH_OUTPUT, describe_state
from teamcli.tools.bash_stop import BASH_STOP
from tests.tools.shell import Shell, alter_supervisor, needs_proc, new_mark, processes_with, wait_until


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    shell = Shell(tmp_path)
    yield shell
    shell.close()


def look(shell: Shell, id: str) -> str:
    return shell.call(BASH_OUTPUT, id=id).content


def stop(shell: Shell, id: str) -> str:
    return shell.call(BASH_STOP, id=id).content


def look_until(shell: Shell, id: str, text: str) -> str:
    seen = ""

    def look_again() -> bool:
        nonlocal seen
        seen += look(shell, id) + "\n"
        return text in seen

    wait_until(look_again, f"{text!r} of {id}")
    return seen


def test_a_background_command_returns_an_id_at_once_and_says_how_to_see_its_output(shell: Shell) -> None:
    result = shell.bash("sleep 300", background=True)
    assert result == "Started in the background as bg-1; bash_output shows what it prints, bash_stop ends it."
    assert re.fullmatch(r"bg-1: running for \d+s\n\(no new output\)", look(shell, "bg-1"))


def test_each_status_shows_only_new_output(shell: Shell, tmp_path: Path) -> None:
    id = shell.in_background("echo one; until [ -e go ]; do sleep 0.01; done; echo two; exit 3")
    assert "one" in look_until(shell, id, "one")
    assert re.fullmatch(rf"{id}: running for \d+s\n\(no new output\)", look(shell, id))
    (tmp_path / "go").touch()
    seen = look_until(shell, id, "exited with code 3 after ")
    assert "two" in seen
    assert "one" not in seen
    assert look(shell, id).endswith("(no new output)")


def test_a_stopped_command_is_dead_and_shows_its_last_output(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_supervisor(
        tmp_path, monkeypatch, "processes", "TERM_GRACE_SECONDS = 30"
    )  # a busy machine is no reason to kill
    id = shell.in_background("echo working; touch ready; sleep 300")
    wait_until((tmp_path / "ready").exists)
    assert stop(shell, id).startswith(f"{id}: killed by signal 15 (SIGTERM) after ")
    assert "killed by signal 15" in stop(shell, id), "a second stop tells the same"


def test_what_a_background_command_leaves_running_is_ended_and_reported(shell: Shell) -> None:
    id = shell.in_background("sleep 300 &")
    assert "do not use &" in look_until(shell, id, "exited with code 0")


def test_an_unknown_id_is_an_error_that_lists_the_known_ones(shell: Shell) -> None:
    with pytest.raises(ToolError, match=r"^id: there is no background command 'bg-9' \(there are: none\)"):
        look(shell, "bg-9")
    first, second = shell.in_background("true"), shell.in_background("true")
    with pytest.raises(ToolError, match=rf"\(there are: {first}, {second}\)"):
        stop(shell, "bg-9")


def test_agents_cannot_reach_each_others_commands(shell: Shell, tmp_path: Path) -> None:
    other = Shell(tmp_path, jobs=shell.jobs)  # also on another host, as members with a checkout have
    assert (shell.in_background("true"), other.in_background("true")) == ("bg-1", "bg-2")
    with pytest.raises(ToolError, match=r"there are: bg-2"):
        look(other, "bg-1")
    other.close()


def test_too_many_at_once_are_refused_until_one_ends(shell: Shell) -> None:
    ids = [shell.in_background("sleep 300") for _ in range(MAX_BACKGROUND)]
    with pytest.raises(ToolError, match=r"20 commands run in the background already; end one with bash_stop"):
        shell.in_background("sleep 300")
    stop(shell, ids[0])
    assert shell.in_background("sleep 300") == "bg-21"


def test_ended_commands_are_forgotten_eventually(shell: Shell) -> None:
    for _ in range(50):
        look_until(shell, shell.in_background("true"), "exited")
    with pytest.raises(ToolError, match=r"there are: bg-\d+(, bg-\d+){20}\)"):
        look(shell, "bg-1")


def test_background_output_is_bounded(shell: Shell, tmp_path: Path) -> None:
    id = shell.in_background("seq 1000000; touch ready; sleep 300")
    wait_until((tmp_path / "ready").exists)
    text = look_until(shell, id, "1000000")
    assert len(text) < 61_000
    assert "characters left out ...]" in text


def test_a_cancelled_turn_does_not_end_what_runs_in_the_background(shell: Shell, tmp_path: Path) -> None:
    id = shell.in_background("until [ -e go ]; do sleep 0.01; done; echo went on")
    shell.cancel.cancel()
    (tmp_path / "go").touch()
    look_until(shell, id, "went on")


@needs_proc
def test_closing_an_agents_commands_ends_them(shell: Shell, tmp_path: Path) -> None:
    mark = new_mark()
    shell.in_background(f"export M={mark}; setsid sh -c 'touch ready; sleep 300; true' & sleep 300; true")
    wait_until((tmp_path / "ready").exists)
    assert processes_with(mark)
    shell.commands.close()
    assert processes_with(mark) == []


@needs_proc
def test_closing_the_host_ends_background_commands(shell: Shell, tmp_path: Path) -> None:
    mark = new_mark()
    id = shell.in_background(f"export M={mark}; trap '' TERM; touch ready; sh -c 'sleep 300; true'; true")
    wait_until((tmp_path / "ready").exists)
    shell.host.close()
    assert processes_with(mark) == []
    look_until(shell, id, "lost after")
    with pytest.raises(ToolError, match="about to end"):
        shell.bash("true")


def test_status_and_stop_need_no_permission(shell: Shell) -> None:
    for tool in (BASH_OUTPUT, BASH_STOP):
        bound = tool.bind(shell.context)
        assert bound.prepare({"id": "bg-1"}).access == Harmless()
        assert "bg-1" in bound.prepare({"id": "bg-1"}).display.title
        assert len(str(bound.spec.to_dict())) < 250


class TestReport:
    """How a command ended is offered to its agent once, unless the agent knows."""

    @pytest.fixture
    def ends(self) -> list[Report]:
        return []

    @pytest.fixture
    def shell(self, tmp_path: Path, ends: list[Report]) -> Iterator[Shell]:
        shell = Shell(tmp_path, on_end=ends.append)
        yield shell
        shell.close()

    def test_says_exit_code_time_and_new_output_and_only_once(self, shell: Shell, ends: list[Report]) -> None:
        id = shell.in_background("echo one; echo two >&2; exit 3")
        wait_until(lambda: ends, f"the end of {id}")
        status = ends[0]()
        assert status
        assert (status.id, status.new_output) == (id, "one\ntwo")
        assert status.ended
        assert status.ended.exit_code == 3
        assert ends[0]() is None

    def test_leaves_the_output_for_bash_output(self, shell: Shell, ends: list[Report]) -> None:
        id = shell.in_background("echo one")
        wait_until(lambda: ends, f"the end of {id}")
        ends[0]()
        assert "one" in look(shell, id)

    def test_is_not_made_if_the_agent_has_seen_the_end(self, shell: Shell, ends: list[Report]) -> None:
        id = shell.in_background("exit 0")
        look_until(shell, id, "exited with code 0")
        wait_until(lambda: ends, f"the end of {id}")
        assert ends[0]() is None

    def test_is_not_made_if_the_agent_has_stopped_the_command(self, shell: Shell, ends: list[Report]) -> None:
        stop(shell, shell.in_background("sleep 300"))
        assert [report() for report in ends] == [None]

    def test_is_not_made_if_all_commands_are_ended(self, shell: Shell, ends: list[Report]) -> None:
        shell.in_background("sleep 300")
        shell.commands.close()
        assert [report() for report in ends] == [None]

    def test_is_made_if_the_user_has_stopped_the_command(self, shell: Shell, ends: list[Report]) -> None:
        shell.in_background("echo one; exec sleep 300")
        (job,) = shell.jobs.running()
        wait_until(lambda: job.recent, "its output")
        job.stop()
        status = ends[0]()
        assert status
        assert describe_state(status).startswith("was stopped by the user after ")
        assert status.new_output == "one"
        assert shell.jobs.running() == []

    def test_does_not_blame_the_user_for_a_command_that_has_ended_before(
        self, shell: Shell, ends: list[Report]
    ) -> None:
        shell.in_background("exit 3")
        wait_until(lambda: ends, "its end")
        shell.jobs.find("bg-1").stop()
        status = ends[0]()
        assert status
        assert describe_state(status).startswith("exited with code 3")

    def test_is_announced_when_the_command_starts(self, shell: Shell) -> None:
        assert "a message reports its end" in shell.bash("sleep 300", background=True)
