"""How the work of members on other machines travels: whose branch it is, and what is said if it cannot."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen
from typing import Any

import pytest

from tests.store.machines import BYPASS, Machines, Worker
from tests.support.answers import text, tool
from tests.support.running import Running
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until
from tests.worktrees.conftest import git


def spawn(prompt: str = "work", **terms: Any) -> Any:
    return tool("spawn_teammate", name="alice", role="coder", prompt=prompt, **{"host": "box", **terms})


SHUTDOWN = tool("shutdown_request", teammate="alice")
MERGE = tool("merge_teammate", name="alice")


def write(name: str) -> Any:
    return tool("bash", command=f"ls; echo {name} > {name}")


def after(file: Path, command: str) -> Any:
    return tool("bash", command=f"ls; while ! test -e {file}; do sleep 0.05; done; {command}")


def branches(machines: Machines) -> list[str]:
    return git(machines.remote, "for-each-ref", "--format=%(refname:short)", "refs/heads/team").splitlines()


def results(script: TeamScript, agent: str) -> list[str]:
    """What its calls have returned."""
    messages = script.requests[agent][-1]["messages"]
    blocks = [block for message in messages if message["role"] == "user" for block in message["content"]]
    return [str(block["content"]) for block in blocks if isinstance(block, dict) and block["type"] == "tool_result"]


def member(machines: Machines, name: str = "alice") -> dict[str, Any]:
    ((doc,),) = machines.rows(f"select doc from member where name = '{name}'")
    found = json.loads(doc)
    assert isinstance(found, dict)
    return found


class TestWhoseBranchItIs:
    def test_a_member_begins_at_the_leads_commit_also_if_it_is_not_pushed(self, machines: Machines) -> None:
        git(machines.lead.directory, "commit", "--quiet", "--allow-empty", "-m", "only here")
        script = TeamScript(
            lead=[spawn(), text("asked"), text("done")],
            alice=[tool("bash", command="git log -1 --format=%s"), text("ok")],
        )
        with machines.lead.against(script):
            machines.worker("box")
            machines.run("begin")
        assert "only here" in results(script, "alice")[0]

    def test_a_new_incarnation_never_starts_from_what_an_older_one_has_pushed(self, machines: Machines) -> None:
        script = TeamScript(
            lead=[spawn(), text("asked"), SHUTDOWN, spawn(), text("asked"), text("done")],
            alice=[write("old.txt"), text("ok"), write("new.txt"), text("ok")],
        )
        with machines.lead.against(script):
            machines.worker("box")
            machines.run("begin")
        assert "old.txt" not in results(script, "alice")[0]
        assert branches(machines) == ["team/alice", "team/alice.2"]
        assert "old.txt" in git(machines.remote, "ls-tree", "--name-only", "team/alice")
        assert "old.txt" not in git(machines.remote, "ls-tree", "--name-only", "team/alice.2")
        assert "pushed as team/alice.2" in str(script.requests["lead"][-1]["messages"])
        assert "was shut down before it read" not in str(script.requests["lead"][-1]["messages"])

    def test_a_team_of_another_name_has_other_branches(self, machines: Machines) -> None:
        machines.make_team("shop")
        script = TeamScript(lead=[spawn(), text("asked"), text("done")] * 2, alice=[write("new.txt"), text("ok")] * 2)
        with machines.lead.against(script):
            machines.worker("box", "--team", "default")
            machines.worker("box", "--team", "shop", clone="box2")
            machines.run("begin", "--team", "default")
            machines.run("begin", "--team", "shop")
        assert branches(machines) == ["team/alice", "team/alice@shop"]

    def test_a_branch_in_the_way_is_refused_and_stays_as_it_is(self, machines: Machines) -> None:
        before = git(machines.lead.directory, "rev-parse", "HEAD")
        git(machines.lead.directory, "push", "--quiet", "origin", "HEAD:refs/heads/team/alice")
        git(machines.lead.directory, "commit", "--quiet", "--allow-empty", "-m", "more")
        script = TeamScript(lead=[spawn(), text("refused")])
        with machines.lead.against(script):
            machines.worker("box")
            machines.run("begin")
        assert "'origin' has a branch team/alice, of an earlier member or of another team" in results(script, "lead")[0]
        assert "git push origin --delete team/alice" in results(script, "lead")[0]
        assert git(machines.remote, "rev-parse", "team/alice") == before
        assert machines.rows("select name from member") == []

    def test_a_host_does_not_take_a_member_of_the_team_file_whose_branch_is_taken(self, machines: Machines) -> None:
        team = machines.lead.directory / ".team"
        team.mkdir()
        (team / "team.toml").write_text('[[member]]\nname = "alice"\nrole = "coder"\nhost = "box"\n')
        git(machines.lead.directory, "push", "--quiet", "origin", "HEAD:refs/heads/team/alice")
        with machines.lead.against(TeamScript(lead=[text("hello")])):
            worker = machines.worker("box")
            machines.run("hello", "--trust")
            worker.wait_for("alice cannot run on 'box': 'origin' has a branch team/alice")
        wait_until(lambda: "has a branch team/alice" in member(machines)["error"])


class TestTakingOver:
    def test_another_host_continues_from_exactly_what_was_pushed_last(self, machines: Machines) -> None:
        began, go = machines.base / "one/.team/worktrees/alice/began", machines.base / "go"
        commit = "echo lost > lost.txt; git add lost.txt; git commit -qm lost"
        more = tool("send_message", to="alice", content="more")
        script = TeamScript(
            lead=[spawn(host="any"), text("asked"), more, text("sent"), text("done")],
            alice=[
                write("pushed.txt"),
                text("ok"),
                tool("bash", command=f"{commit}; touch began; test -e {go} || sleep 600"),
                tool("bash", command="ls; git log --format=%s"),
                text("ok"),
            ],
        )
        with machines.lead.against(script):
            first = machines.worker("one")
            lead = machines.lead.start("-p", "begin", *BYPASS)
            wait_until(began.exists)
            second = machines.worker("two")
            go.touch()
            first.kill()
            second.wait_for("alice: working")
            assert lead.communicate(timeout=60)[0].decode().strip() == "done"
        seen = results(script, "alice")[-1]
        files, log = seen.splitlines()[:2], seen.splitlines()[2:]
        assert files == ["pushed.txt", "start.txt"]
        assert log == ["alice continues on two", "Work of alice", "start"]


class TestAPushThatComesTooLate:
    """alice's work has ended on one, whose push waits at the remote. Then one is frozen, and two takes her over."""

    @pytest.fixture
    def gate(self, machines: Machines) -> Path:
        """The first push after `slow` is there waits for this file."""
        slow, waiting, gate = (machines.base / name for name in ("slow", "waiting", "gate"))
        hook = machines.remote / "hooks" / "pre-receive"
        wait = f"echo $PPID > {waiting}.new; mv {waiting}.new {waiting}; while ! test -e {gate}; do sleep 0.05; done"
        hook.write_text(f"#!/bin/sh\nif rm {slow} 2>/dev/null; then {wait}; fi\nexit 0\n")
        hook.chmod(0o755)
        return gate

    @pytest.fixture
    def receives(self, machines: Machines) -> Callable[[], bool]:
        """Whether the remote still works on that push."""
        return lambda: Path(f"/proc/{(machines.base / 'waiting').read_text().strip()}").exists()

    def lose_alice(self, machines: Machines, script: TeamScript) -> tuple[Worker, Worker, Popen[bytes]]:
        one = machines.worker("one")
        lead = machines.lead.start("-p", "begin", *BYPASS)
        wait_until(lambda: len(script.requests["alice"]) == 1)
        (machines.base / "slow").touch()
        (machines.base / "begin").touch()
        wait_until((machines.base / "waiting").exists)
        one.freeze()
        two = machines.worker("two")
        wait_until(lambda: len(script.requests["alice"]) == 3)
        return one, two, lead

    def test_it_is_refused_and_what_the_next_host_pushes_is_merged(
        self, machines: Machines, gate: Path, receives: Callable[[], bool]
    ) -> None:
        begin, go = machines.base / "begin", machines.base / "go"
        script = TeamScript(
            lead=[spawn(host="any"), text("asked"), MERGE, text("merged")],
            alice=[
                after(begin, "echo from one > new.txt"),
                text("ok"),
                after(go, "echo from two > new.txt"),
                text("ok"),
            ],
        )
        with machines.lead.against(script):
            one, _, lead = self.lose_alice(machines, script)
            gate.touch()
            wait_until(lambda: not receives())
            one.process.send_signal(signal.SIGCONT)
            one.wait_for("another host runs alice now")
            go.touch()
            assert lead.communicate(timeout=60)[0].decode().strip() == "merged"
        assert (machines.lead.directory / "new.txt").read_text() == "from two\n"
        assert "nothing uncommitted, pushed]" in str(script.requests["lead"][2]["messages"])

    def test_its_host_gives_it_up_and_can_take_the_member_again(self, machines: Machines, gate: Path) -> None:
        begin, never = machines.base / "begin", machines.base / "never"
        script = TeamScript(
            lead=[spawn(host="any"), text("asked"), text("done")],
            alice=[after(begin, "echo from one > new.txt"), text("ok"), after(never, "true"), text("here"), text("ok")],
        )
        with machines.lead.against(script):
            one, two, lead = self.lose_alice(machines, script)
            one.process.send_signal(signal.SIGCONT)
            one.wait_for("another host runs alice now")
            two.kill()
            wait_until(lambda: len(script.requests["alice"]) == 4)
            assert not gate.exists()
            lead.communicate(timeout=60)
            gate.touch()


class TestTheEnd:
    def test_a_branch_with_nothing_new_but_a_change_of_hosts_is_removed(self, machines: Machines) -> None:
        script = TeamScript(
            lead=[spawn(host="any"), text("asked"), MERGE, text("merged")], alice=[write("new.txt"), text("ok")]
        )
        with machines.lead.against(script):
            first = machines.worker("one")
            machines.run("begin")
            second = machines.worker("two")
            first.kill()
            second.wait_for("alice: idle")
            assert "alice continues on two" in git(machines.remote, "log", "--format=%s", "team/alice")
            with Running(machines.lead, *BYPASS) as repl:
                repl.type("/shutdown alice")
                wait_until(lambda: branches(machines) == [])
                repl.leave()

    def test_what_is_merged_is_removed_everywhere(self, machines: Machines) -> None:
        script = TeamScript(
            lead=[spawn(), text("asked"), MERGE, SHUTDOWN, text("done")],
            alice=[write("new.txt"), text("ok")],
        )
        with machines.lead.against(script):
            machines.worker("box")
            machines.run("begin")
            wait_until(lambda: branches(machines) == [])
            wait_until(lambda: not (machines.base / "box/.team/worktrees/alice").exists())
        assert (machines.lead.directory / "new.txt").exists()

    def test_what_is_not_merged_stays_at_the_remote_and_can_be_merged_later(self, machines: Machines) -> None:
        script = TeamScript(
            lead=[spawn(), text("asked"), SHUTDOWN, text("done"), MERGE, text("merged")],
            alice=[write("new.txt"), text("ok")],
        )
        with machines.lead.against(script):
            worker = machines.worker("box")
            machines.run("begin")
            worker.wait_for("everything is pushed. Kept team/alice at 'origin': not merged.")
            assert branches(machines) == ["team/alice"]
            machines.run("merge it")
        assert (machines.lead.directory / "new.txt").exists()
        assert branches(machines) == []

    def test_forgetting_removes_a_merged_branch_and_discarding_any(self, machines: Machines) -> None:
        script = TeamScript(
            lead=[spawn(), text("asked"), SHUTDOWN, text("done"), spawn(), text("asked"), SHUTDOWN, text("done")],
            alice=[write("one.txt"), text("ok"), write("two.txt"), text("ok")],
        )
        with machines.lead.against(script):
            machines.worker("box")
            machines.run("begin")
            machines.run("again")
            assert branches(machines) == ["team/alice", "team/alice.2"]
            with Running(machines.lead, *BYPASS) as repl:
                repl.type("/discard alice yes")
                repl.wait_for("Removed team/alice.2 at 'origin'.")
                repl.leave()
        assert branches(machines) == ["team/alice"]


class TestWhatCannotTravel:
    def test_without_a_remote_the_spawn_says_so(self, machines: Machines) -> None:
        script = TeamScript(lead=[spawn(), text("asked"), text("done")], alice=[write("new.txt"), text("ok")])
        with machines.lead.against(script):
            machines.clone("box")
            for clone in ("lead", "box"):
                git(machines.base / clone, "remote", "remove", "origin")
            worker = machines.worker("box")
            machines.run("begin")
        said = results(script, "lead")[0]
        assert "on the host box (the repository has no remote: add one (git remote add origin URL)" in said
        assert "Its work stays on its host" in said
        assert "1 file uncommitted, not pushed: the repository has no remote" in str(
            script.requests["lead"][-1]["messages"]
        )
        assert worker.says("alice cannot share its commits: the repository has no remote")

    def test_a_push_that_the_remote_refuses_is_said_at_the_spawn_and_with_the_result(self, machines: Machines) -> None:
        hook = machines.remote / "hooks" / "pre-receive"
        hook.write_text("#!/bin/sh\necho 'You may only read.'\nexit 1\n")
        hook.chmod(0o755)
        script = TeamScript(lead=[spawn(), text("asked"), text("done")], alice=[write("new.txt"), text("ok")])
        with machines.lead.against(script):
            worker = machines.worker("box")
            machines.run("begin")
        refused = "'origin' refused team/alice: [remote rejected] (pre-receive hook declined): You may only read."
        assert refused in results(script, "lead")[0]
        assert f"not pushed: {refused}" in str(script.requests["lead"][-1]["messages"]).replace("\\'", "'")
        assert worker.says(f"alice cannot share its commits: {refused}")

    def test_a_remote_that_is_away_is_said_once_and_tried_with_each_piece_of_work(self, machines: Machines) -> None:
        more = tool("send_message", to="alice", content="more")
        script = TeamScript(
            lead=[spawn(), text("asked"), text("done"), *[more, text("sent"), text("done")] * 3],
            alice=[answer for n in "1234" for answer in (write(f"{n}.txt"), text("ok"))],
        )
        away = machines.remote.with_name("away.git")
        with machines.lead.against(script):
            worker = machines.worker("box")
            machines.run("begin")
            machines.remote.rename(away)
            machines.run("more")
            machines.run("more")
            assert [line for line in worker.lines if "works with what this host has: 'origin' cannot be" in line][
                1:
            ] == []
            assert worker.says("works with what this host has: 'origin' cannot be reached")
            assert "not pushed: 'origin' cannot be reached" in str(script.requests["lead"][-1]["messages"]).replace(
                "\\'", "'"
            )
            away.rename(machines.remote)
            machines.run("more")
        assert git(machines.remote, "ls-tree", "--name-only", "team/alice").split() == [
            *(f"{n}.txt" for n in "1234"),
            "start.txt",
        ]

    def test_a_clone_of_another_repository_is_no_host(self, machines: Machines) -> None:
        other = machines.base / "other"
        other.mkdir()
        git(other, "init", "--quiet")
        git(other, "commit", "--quiet", "--allow-empty", "-m", "another beginning")
        ran = machines.lead.run("--cwd", str(other), "worker", "--name", "other")
        assert ran.code == 2
        assert f"no team of the repository {git(other, 'rev-parse', 'HEAD')[:12]}" in ran.err


class TestAnAgentThatChangesTheClone:
    def test_neither_a_merge_nor_a_push_obeys_what_the_lead_has_written_there(self, machines: Machines) -> None:
        evil, mark = machines.base / "evil.git", machines.base / "mark"
        git(machines.base, "init", "--quiet", "--bare", str(evil))
        program = machines.base / "evil.sh"
        program.write_text(f"#!/bin/sh\ntouch {mark}\nexit 1\n")
        program.chmod(0o755)
        attack = "\n".join(
            [
                f"git config remote.origin.url {evil}",
                f"git config remote.origin.pushurl {evil}",
                f"git config url.{evil}.insteadOf {machines.remote}",
                *(f"git config {key} {program}" for key in ("core.sshCommand", "remote.origin.receivepack")),
                f"git config credential.helper '!{program}'",
                f"cp {program} .git/hooks/pre-push; cp {program} .git/hooks/reference-transaction",
                f"rm -rf .git/refs/remotes; mkdir {machines.base}/out; ln -s {machines.base}/out .git/refs/remotes",
            ]
        )
        script = TeamScript(
            lead=[tool("bash", command=attack), spawn(), text("asked"), MERGE, text("done")],
            alice=[write("new.txt"), text("ok")],
        )
        with machines.lead.against(script):
            machines.worker("box")
            machines.run("begin")
        assert (machines.lead.directory / "new.txt").exists()
        assert "new.txt" in git(machines.remote, "ls-tree", "--name-only", "team/alice")
        assert git(evil, "for-each-ref") == ""
        assert not mark.exists()
        assert list((machines.base / "out").iterdir()) == []
