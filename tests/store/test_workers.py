"""Members that run on other machines, with real processes."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from typing import Any

import pytest

from teamcli import Session, UsageError
from tests.store.machines import Machines
from tests.support.answers import text, tool
from tests.support.team_script import TeamScript
from tests.support.waiting import DEADLINE_SECONDS, wait_until
from tests.worktrees.conftest import git


def spawn(prompt: str, **terms: Any) -> Any:
    return tool("spawn_teammate", name="alice", role="coder", prompt=prompt, **terms)


def test_a_member_works_on_the_host_that_the_lead_names(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("where are you?", host="box"), text("asked"), text("it answered")],
        alice=[tool("bash", command="pwd"), text("done")],
    )
    with machines.lead.against(script):
        machines.worker("box")
        ran = machines.run("ask alice")
    assert ran.out.strip() == "it answered"
    result = script.requests["alice"][1]["messages"][-1]["content"][0]["content"]
    assert str(machines.base / "box" / ".team" / "worktrees" / "alice") in str(result)


def test_a_host_that_nobody_runs_is_named_with_those_there_are(machines: Machines) -> None:
    script = TeamScript(lead=[spawn("hi", host="mars"), text("no")])
    with machines.lead.against(script):
        machines.worker("box")
        machines.run("ask alice")
    error = str(script.requests["lead"][1]["messages"][-1]["content"])
    assert "there is no host 'mars'; there are: box" in error


def test_the_host_of_a_member_is_marked_as_gone_when_it_has_died(machines: Machines) -> None:
    script = TeamScript(lead=[spawn("hi", host="box"), text("asked"), text("it answered")], alice=[text("done")])
    with machines.lead.against(script):
        worker = machines.worker("box")
        machines.run("ask alice")
        assert re.search(r"alice +box +coder", machines.lead.run("team").out)
        worker.kill()
        wait_until(lambda: "Host box: not running" in machines.lead.run("team").out)
        shown = machines.lead.run("team").out
    assert re.search(r"alice +box \(gone\) +coder", shown), shown


def test_another_worker_finishes_what_a_killed_one_has_begun(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("build it", host="any"), text("asked"), text("it is built")],
        alice=[tool("bash", command=f"touch began; test -e {machines.base}/go || sleep 600"), text("built")],
    )
    with machines.lead.against(script):
        first = machines.worker("one")
        lead = machines.lead.start("-p", "build", "--permission-mode", "bypassPermissions")
        wait_until(lambda: (machines.base / "one/.team/worktrees/alice/began").exists())
        second = machines.worker("two")
        (machines.base / "go").touch()
        first.kill()
        second.wait_for("alice: working")
        out, err = lead.communicate(timeout=60)
    assert out.decode().strip() == "it is built", err
    told = str(script.requests["alice"][-1]["messages"])
    assert "You run on the host 'two' now; 'one' is gone" in told
    events = [json.loads(entry) for (entry,) in machines.rows("select entry from event")]
    notices = [event["text"] for event in events if event["event"] == "notice"]
    assert "alice continues on the host 'two'; 'one' is gone or has left." in notices
    epochs = machines.rows("select distinct epoch from transcript where agent = 'alice' order by 1")
    assert [epoch for (epoch,) in epochs] == [1, 2, 3]


def test_a_host_that_wakes_too_late_says_whom_it_has_lost_and_nothing_else(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("build it", host="any"), text("asked"), text("it is built")],
        alice=[tool("bash", command=f"touch began; test -e {machines.base}/go || sleep 600"), text("built")],
    )
    with machines.lead.against(script):
        first = machines.worker("one")
        lead = machines.lead.start("-p", "build", "--permission-mode", "bypassPermissions")
        wait_until(lambda: (machines.base / "one/.team/worktrees/alice/began").exists())
        second = machines.worker("two")
        (machines.base / "go").touch()
        first.freeze()
        second.wait_for("alice: working")
        lead.communicate(timeout=60)
        before = len(first.lines)
        first.process.send_signal(signal.SIGCONT)
        first.wait_for("another host runs alice now")
        # Its own end comes after everything that could still be printed about her.
        first.process.send_signal(signal.SIGTERM)
        assert first.process.wait(60) == 0
        first.join()
    printed = [line for line in first.lines[before:] if not line.startswith("alice: ")]
    assert [line for line in printed if "alice" in line] == [
        "'one' was frozen or cut off for too long: another host runs alice now, and nothing more is written here."
    ]
    assert not first.says("is closed")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_member_is_told_once_that_its_sub_agents_ended_with_their_host(
    machines: Machines, how: signal.Signals
) -> None:
    script = TeamScript(
        lead=[spawn("look into it", host="any"), text("asked"), text("it is done")],
        alice=[
            tool("agent", prompt="look for long", description="the long look", background=True),
            tool("bash", command=f"touch began; while ! test -e {machines.base}/go; do sleep 0.1; done"),
            tool("wait_for_message", timeout_seconds=60),
            text("done"),
        ],
        **{"sa-1": [tool("bash", command="touch looks; sleep 600")]},
    )
    with machines.lead.against(script):
        first = machines.worker("one")
        lead = machines.lead.start("-p", "begin", "--permission-mode", "bypassPermissions")
        place = machines.base / "one/.team/worktrees/alice"
        wait_until(lambda: (place / "began").exists() and (place / "looks").exists())
        second = machines.worker("two")
        first.process.send_signal(how)
        if how is signal.SIGTERM:
            first.wait_for("Handing over")
        (machines.base / "go").touch()
        second.wait_for("alice: working")
        out, err = lead.communicate(timeout=60)
        # The host comes back under its name, and finds in its files what it had not reported.
        first.process.wait(60)
        machines.worker("one")
    assert out.decode().strip() == "it is done", err
    told = json.dumps(script.requests["alice"][-1]["messages"])
    assert told.count("ended with the host that ran it, before it had finished") == 1
    mail = [json.loads(body) for (body,) in machines.rows("select body from message where inbox = 'alice'")]
    assert [each["description"] for each in mail if each["from"] == "sa-1"] == ["the long look"]


def test_a_lead_that_continues_in_another_clone_is_told_that_its_sub_agents_ended(machines: Machines) -> None:
    script = TeamScript(
        lead=[
            tool("agent", prompt="look for long", background=True),
            tool("bash", command="touch began; sleep 600"),
            text("I have heard"),
        ],
        **{"sa-1": [tool("bash", command="touch looks; sleep 600")]},
    )
    with machines.lead.against(script):
        lead = machines.lead.start("-p", "begin", "--permission-mode", "bypassPermissions")
        place = machines.lead.directory
        wait_until(lambda: (place / "began").exists() and (place / "looks").exists())
        lead.kill()
        lead.communicate()
        ran = machines.clone("other").run("-p", "continue", "--continue", "--permission-mode", "bypassPermissions")
    assert ran.out.strip() == "I have heard", ran.err
    assert json.dumps(script.requests["lead"][-1]["messages"]).count("ended with the host that ran it") == 1


def test_a_worker_that_is_told_to_leave_hands_its_members_over(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("build it", host="any"), text("asked"), text("it is built")],
        alice=[
            tool("bash", command=f"touch began; while ! test -e {machines.base}/go; do sleep 0.1; done"),
            text("built"),
        ],
    )
    with machines.lead.against(script):
        first = machines.worker("one")
        lead = machines.lead.start("-p", "build", "--permission-mode", "bypassPermissions")
        wait_until(lambda: (machines.base / "one/.team/worktrees/alice/began").exists())
        machines.worker("two")
        first.process.send_signal(signal.SIGTERM)
        first.wait_for("Handing over")
        (machines.base / "go").touch()
        out, err = lead.communicate(timeout=60)
        assert first.process.wait(60) == 0
    assert out.decode().strip() == "it is built", err
    # The call was finished on the first host, and its result went along.
    assert "exit code 0" in str(script.requests["alice"][-1]["messages"]) or len(script.requests["alice"]) == 2


def test_work_on_another_host_is_pushed_and_the_lead_merges_it(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("write it", host="box"), text("asked"), tool("merge_teammate", name="alice"), text("merged")],
        alice=[tool("write_file", path="new.txt", content="from afar\n"), text("written")],
    )
    with machines.lead.against(script):
        machines.worker("box")
        ran = machines.run("have it written")
    assert ran.out.strip() == "merged", ran.err
    assert "Merged team/alice into" in str(script.requests["lead"][3]["messages"][-1])
    assert (machines.lead.directory / "new.txt").read_text() == "from afar\n"
    assert "1 commit ahead, 1 file changed, nothing uncommitted, pushed" in str(script.requests["lead"][2]["messages"])
    assert "team/alice" in git(machines.remote, "branch", "--list", "team/alice")


def test_a_lock_that_a_killed_git_has_left_does_not_keep_a_member_from_working(machines: Machines) -> None:
    script = TeamScript(lead=[spawn("hi", host="box"), text("asked"), text("it answered")], alice=[text("done")])
    with machines.lead.against(script):
        machines.worker("box")
        lock = machines.private_repository("box") / "refs/remotes/shared/team/alice.lock"
        in_clone = machines.base / "box/.git/refs/remotes/origin/team/alice.lock"
        for place in (lock, in_clone):
            place.parent.mkdir(parents=True)
            place.touch()
        git(machines.lead.directory, "commit", "--quiet", "--allow-empty", "-m", "box does not have this")
        ran = machines.run("ask alice")
    assert ran.out.strip() == "it answered", ran.err
    assert not lock.exists()


def test_a_member_continues_from_what_was_pushed_and_merged(machines: Machines) -> None:
    script = TeamScript(
        lead=[
            spawn("write it", host="box"),
            text("asked"),
            tool("merge_teammate", name="alice"),
            spawn("once more"),
            text("asked again"),
            tool("merge_teammate", name="alice"),
            text("merged"),
        ],
        alice=[
            tool("write_file", path="new.txt", content="one\n"),
            text("written"),
            tool("bash", command="cat new.txt; echo two >> new.txt"),
            text("again"),
        ],
    )
    with machines.lead.against(script):
        machines.worker("box")
        ran = machines.run("have it written")
    assert ran.out.strip() == "merged", ran.err
    assert (machines.lead.directory / "new.txt").read_text() == "one\ntwo\n"


def test_a_conflict_is_resolved_on_the_host_of_the_member(machines: Machines) -> None:
    script = TeamScript(
        lead=[
            spawn("change start.txt", host="box"),
            text("asked"),
            tool("bash", command="echo lead > start.txt; git commit -qam lead"),
            tool("merge_teammate", name="alice"),
            text("conflict"),
            tool("merge_teammate", name="alice"),
            text("merged"),
        ],
        alice=[
            tool("bash", command="echo alice > start.txt"),
            text("changed"),
            lambda request: tool("bash", command=f"git merge {commit_in(request)}; {RESOLVE}"),
            text("resolved"),
        ],
    )
    with machines.lead.against(script):
        machines.worker("box")
        ran = machines.run("have it changed")
    assert ran.out.strip() == "merged", (ran.err, script.requests["lead"][-1]["messages"][-3:])
    assert (machines.lead.directory / "start.txt").read_text() == "both\n"
    assert git(machines.remote, "branch", "--list", "*.target") == ""


RESOLVE = "echo both > start.txt; git add --all; git commit --quiet --message resolved"


def commit_in(request: dict[str, Any]) -> str:
    found = re.findall(r"git merge ([0-9a-f]{40})", str(request["messages"]))
    return str(found[-1])


def test_a_member_waits_for_the_host_that_the_team_file_names(machines: Machines) -> None:
    team = machines.lead.directory / ".team"
    team.mkdir()
    (team / "team.toml").write_text('[[member]]\nname = "alice"\nrole = "coder"\nhost = "box"\n')
    script = TeamScript(
        lead=[text("hello"), tool("send_message", to="alice", content="hi"), text("sent"), text("it answered")],
        alice=[tool("bash", command="pwd"), text("here")],
    )
    with machines.lead.against(script):
        machines.run("hello", "--trust")
        assert machines.rows("select name from lease where host <> '' and name = 'alice'") == []
        machines.worker("box")
        assert machines.run("write to alice").out.strip() == "it answered"
    assert str(machines.base / "box") in str(script.requests["alice"][1]["messages"])


def test_a_worker_that_leaves_hands_an_idle_member_over_while_another_one_is_busy(machines: Machines) -> None:
    go = machines.base / "go"
    script = TeamScript(
        lead=[
            spawn("work for long", host="any"),
            tool("spawn_teammate", name="bob", role="coder", prompt="be quick", host="one"),
            *(text("fine") for _ in range(6)),
        ],
        alice=[tool("bash", command=f"touch began; while ! test -e {go}; do sleep 0.1; done"), text("built")],
        bob=[text("hello"), text("still here")],
    )
    with machines.lead.against(script):
        first = machines.worker("one")
        lead = machines.lead.start("-p", "build", "--permission-mode", "bypassPermissions")
        wait_until(lambda: (machines.base / "one/.team/worktrees/alice/began").exists())
        first.wait_for("bob: idle")
        second = machines.worker("two")
        first.process.send_signal(signal.SIGTERM)
        first.wait_for("Handing over")
        machines.lead.run("send", "bob", "are you there?")
        second.wait_for("bob: working")
        assert not go.exists()
        go.touch()
        lead.communicate(timeout=60)
        assert first.process.wait(60) == 0


def test_members_that_a_worker_is_just_taking_when_it_is_told_to_leave_continue_elsewhere(machines: Machines) -> None:
    go, names = machines.base / "go", ("alice", "bob", "carol")
    wait = tool("bash", command=f"touch began; while ! test -e {go}; do sleep 0.1; done")
    spawns = [tool("spawn_teammate", name=name, role="coder", prompt="build", host="any") for name in names]
    script = TeamScript(
        lead=[*spawns, *(text("fine") for _ in range(6))], **{name: [wait, text("built")] for name in names}
    )
    with machines.lead.against(script):
        first = machines.worker("one")
        lead = machines.lead.start("-p", "build", "--permission-mode", "bypassPermissions")
        wait_until(lambda: all((machines.base / f"one/.team/worktrees/{name}/began").exists() for name in names))
        setup = f"touch {machines.base}/making; while ! test -e {go}; do sleep 0.1; done"
        machines.lead.settings(sandbox="off", lease_seconds=2.0, worktree={"setup": setup})
        second = machines.worker("two", "--slots", "3")
        first.kill()
        wait_until((machines.base / "making").exists)
        second.process.send_signal(signal.SIGTERM)
        assert second.process.wait(60) == 0
        machines.worker("three")
        go.touch()
        _, err = lead.communicate(timeout=60)
    assert lead.returncode == 0, err
    finished = [json.loads(doc) for (doc,) in machines.rows("select doc from member where doc <> ''")]
    assert {member["name"]: member["interrupted"] for member in finished} == dict.fromkeys(names, False)


def test_all_members_of_a_host_that_has_died_are_brought_to_another_one_at_the_same_time(machines: Machines) -> None:
    go, names = machines.base / "go", ("alice", "bob", "carol")
    wait = tool("bash", command=f"touch began; while ! test -e {go}; do sleep 0.1; done")
    spawns = [tool("spawn_teammate", name=name, role="coder", prompt="build", host="any") for name in names]
    script = TeamScript(
        lead=[*spawns, *(text("fine") for _ in range(6))], **{name: [wait, text("built")] for name in names}
    )
    with machines.lead.against(script):
        first = machines.worker("one")
        lead = machines.lead.start("-p", "build", "--permission-mode", "bypassPermissions")
        wait_until(lambda: all((machines.base / f"one/.team/worktrees/{name}/began").exists() for name in names))
        # Each checkout is made only once all of them have begun.
        making = f"touch {machines.base}/making.$(basename $TEAMCLI_WORKTREE)"
        all_begun = f"test $(ls {machines.base}/making.* | wc -l) = {len(names)}"
        setup = f"{making}; while ! {all_begun}; do sleep 0.1; done"
        machines.lead.settings(sandbox="off", lease_seconds=2.0, worktree={"setup": setup})
        machines.worker("two")
        first.kill()
        wait_until(lambda: len(list(machines.base.glob("making.*"))) == len(names))
        go.touch()
        _, err = lead.communicate(timeout=60)
    assert lead.returncode == 0, err


def test_commands_see_neither_the_address_nor_the_password_of_the_database(machines: Machines) -> None:
    machines.lead.variables["PGPASSWORD"] = "correct horse battery 1"
    command = "printenv TEAMCLI_STORE PGPASSWORD; env | grep -c 'correct horse'"
    script = TeamScript(lead=[tool("bash", command=command), text("done")])
    with machines.lead.against(script):
        machines.run("look")
    result = script.requests["lead"][-1]["messages"][-1]["content"][0]["content"]
    assert result == "0\n[exit code 1]"


@pytest.fixture
def library(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Session]:
    """Opens a session of the library in the lead's clone."""
    monkeypatch.setenv("HOME", str(machines.lead.home))

    def open_one(**options: Any) -> Session:
        settings = {"store": machines.url}
        return Session(machines.lead.directory, settings=settings, permission_mode="bypassPermissions", **options)

    return open_one


def test_a_program_says_on_which_host_a_member_starts(machines: Machines, library: Callable[..., Session]) -> None:
    machines.worker("box")
    with library() as session:
        assert session.spawn("alice", "coder", "run pwd", host="box").host == "box"
        assert session.wait(DEADLINE_SECONDS)
        (mail,) = session.inbox()
    assert str(machines.base / "box" / ".team" / "worktrees" / "alice") in mail.message.content


def test_a_program_says_which_team_of_the_database_it_uses(machines: Machines, library: Callable[..., Session]) -> None:
    machines.make_team("shop")
    with pytest.raises(UsageError, match="several teams"):
        library()
    with library(team="shop") as session:
        session.spawn("alice", "coder", "list")
        assert session.wait(DEADLINE_SECONDS)
    query = "select team.name, member.name from member join team on team.id = member.team"
    assert machines.rows(query) == [("shop", "alice")]
