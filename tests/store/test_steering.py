"""What a user sees and does of members on other machines, with real processes and a real terminal."""

from __future__ import annotations

import json
import re
import signal
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from teamcli.cancel import CancelScope
from teamcli.errors import UsageError
from teamcli.store.postgres.database import Database
from teamcli.store.postgres.teams import open_team
from tests.cli.test_mcp import fake
from tests.store.machines import BYPASS, Machines, Worker
from tests.store.slow_remote import SlowRemote
from tests.support.answers import text, tool
from tests.support.running import Running
from tests.support.screen import Screen
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until
from tests.team.test_stopping import respond


def spawn(prompt: str, **terms: Any) -> Any:
    return tool("spawn_teammate", name="alice", role="coder", prompt=prompt, **{"host": "box", **terms})


def until(path: Path) -> Any:
    """A call that ends when the file is there."""
    return tool("bash", command=f"while ! test -e {path}; do sleep 0.05; done")


def test_a_member_on_another_host_is_steered_from_the_prompt(machines: Machines) -> None:
    go = machines.base / "go"
    script = TeamScript(
        lead=[spawn("begin"), text("asked"), text("heard"), tool("list_teammates"), text("listed")],
        alice=[
            text("first result"),
            text("second result"),
            until(go),
            text("third result"),
            until(machines.base / "never"),
            text("never said"),
        ],
    )
    with machines.lead.against(script):
        machines.worker("box")
        with Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice begin\r")
            screen.wait_for("heard")
            screen.wait_for("first result")
            screen.type("@alice once more\r")
            screen.wait_for("second result")
            screen.type("/team\r")
            screen.wait_for("Host box: runs 1 member")
            assert re.search(r"alice +box +coder +idle +\d+ \w+ +0 +2", screen.text), screen.text
            screen.type("/send alice a third time\r")
            wait_until(lambda: len(script.requests["alice"]) == 3)
            screen.wait_for("● alice working on box 0s")
            screen.type("/pause alice\r")
            screen.wait_for("Paused 'alice'")
            screen.wait_for("alice interrupted, paused")
            go.touch()
            screen.type("/resume alice\r")
            screen.wait_for("third result")
            screen.type("/send alice go on for ever\r")
            wait_until(lambda: len(script.requests["alice"]) == 5)
            screen.type("/stop alice\r")
            screen.wait_for("Stopped 'alice'")
            screen.wait_for("alice interrupted")
            screen.type("/shutdown alice\r")
            screen.wait_for("is shut down now")


def test_questions_of_another_host_are_answered_at_the_prompt(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("begin"), text("asked"), text("heard"), text("heard more"), text("and more")],
        alice=[
            tool("bash", command="touch one"),
            tool("bash", command="touch two"),
            tool("bash", command="touch three"),
            text("first result"),
            tool("bash", command="touch three"),
            tool("bash", command="touch four"),
            tool("bash", command="touch five"),
            text("second result"),
        ],
    )
    with machines.lead.against(script):
        worker = machines.worker("box", permissions=())
        with Screen(machines.lead, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice begin\r")
            screen.wait_for("touch one")
            screen.wait_for("allow? >>")
            screen.type("y\r")
            screen.wait_for("touch two")
            screen.type("n not that\r")
            screen.wait_for("touch three")
            screen.type("a\r")
            screen.wait_for("rule? >>")
            screen.type("1\r")
            screen.wait_for("first result")
            assert "says: not that" in str(script.requests["alice"][2]["messages"])
            place = machines.base / "box/.team/worktrees/alice"
            assert sorted(each.name for each in place.iterdir() if each.name != ".git") == ["one", "start.txt", "three"]
            # The rule is known on the host that asked.
            screen.type("@alice again\r")
            screen.wait_for("touch four")
            machines.worker("second", permissions=())
            worker.kill()
            # Only one question is shown at a time: the first one was withdrawn, or this would wait behind it.
            screen.wait_for("touch five")
        # The lead has gone without a word, and comes back: what is open is asked again.
        with Screen(machines.lead, "--continue", columns=120, lines=60) as screen:
            screen.wait_for("touch five")
            screen.wait_for("▲ alice asks on second ")
            screen.type("y\r")
            screen.wait_for("second result")


def test_a_question_says_where_it_comes_from_and_is_withdrawn_with_its_host(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("begin"), text("asked"), text("heard")],
        alice=[tool("bash", command="touch one"), tool("bash", command="touch two"), text("second result")],
    )
    with machines.lead.against(script):
        worker = machines.worker("box", permissions=())
        with Screen(machines.lead, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice begin\r")
            screen.wait_for_all("alice on box wants to use bash:", "allow? >>", "▲ alice asks on box ")
            second = machines.worker("second", permissions=())
            # Answered while its host can no longer take the answer, and nobody knows that yet.
            worker.freeze()
            screen.type("y\r")
            screen.wait_for("Allowed alice once: $ touch one")
            worker.kill()
            screen.wait_for_all(
                "question ($ touch one) is withdrawn, and your answer was not used:", "who may ask again"
            )
            screen.wait_for("alice on second wants to use bash:")
            second.kill()
            screen.wait_for("question ($ touch two) is withdrawn: its host 'second' is gone")
    assert not (machines.base / "box/.team/worktrees/alice/one").exists()


def test_a_plan_is_answered_although_its_host_has_died(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("do it", plan=True), text("asked"), text("the user decides"), text("heard"), text("and more")],
        alice=[
            tool("submit_plan", plan="touch late"),
            text("submitted"),
            tool("bash", command="touch late"),
            text("first result"),
        ],
    )
    with machines.lead.against(script):
        worker = machines.worker("box")
        with Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice do it\r")
            screen.wait_for_all("alice on box has a plan", "approve? >>")
            screen.wait_for("the user decides")
            # Ready before the other is gone, or the lead's host may take her.
            machines.worker("second")
            worker.kill()
            screen.type("y\r")
            screen.wait_for("Approved the plan of 'alice'")
            screen.wait_for("first result")
    assert (machines.base / "second/.team/worktrees/alice/late").exists()


def test_a_host_that_leaves_does_not_wait_for_an_answer(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("begin"), text("asked"), text("heard")],
        alice=[tool("bash", command="touch one"), tool("bash", command="touch two"), text("result")],
    )
    with machines.lead.against(script):
        worker = machines.worker("box", permissions=())
        with Screen(machines.lead, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice begin\r")
            screen.wait_for("alice on box wants to use bash:")
            machines.worker("second", permissions=())
            worker.process.send_signal(signal.SIGTERM)
            screen.wait_for("question ($ touch one) is withdrawn: the call was stopped")
            screen.wait_for("alice on second wants to use bash:")
            assert worker.process.wait(60) == 0


def test_a_member_on_another_host_is_watched_from_its_record(machines: Machines) -> None:
    go = machines.base / "go"
    script = TeamScript(
        lead=[spawn("begin"), text("asked"), text("heard")],
        alice=[
            tool("bash", command="echo first step"),
            until(go),
            tool("bash", command="echo last step"),
            text("done"),
        ],
    )
    with machines.lead.against(script):
        machines.worker("box")
        with Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice begin\r")
            wait_until(lambda: len(script.requests["alice"]) == 2)
            screen.wait_for("● alice")
            screen.type("\x1b[1;2B")  # Shift-Down
            screen.wait_for_all("coder · on box", "not as it streams", "$ echo first step")
            go.touch()
            screen.wait_for_all("$ echo last step", "done")
            screen.type("\x1b")
            screen.wait_for("heard")
            assert screen.text.count("$ echo last step") == 1


def test_a_server_of_a_member_on_another_host_asks_at_the_prompt(machines: Machines) -> None:
    machines.lead.settings(sandbox="off", lease_seconds=2.0, mcpServers={"fake": fake()})
    script = TeamScript(
        lead=[spawn("begin"), text("asked"), text("heard")],
        alice=[tool("mcp__fake__form"), text("the form is filled in")],
    )
    with machines.lead.against(script):
        machines.worker("box")
        with Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice begin\r")
            screen.wait_for("answer? >>")
            screen.wait_for_all("MCP server fake on box asks:", "Name?", "It wants to know: name")
            screen.type("y\r")
            screen.wait_for("name >>")
            screen.type("carol\r")
            screen.wait_for("the form is filled in")
        wait_until(lambda: machines.rows("select count(*) from question") == [(0,)])
    assert '"content": {"name": "carol"}' in str(script.requests["alice"][1]["messages"][-1])


def test_an_idle_member_on_another_host_gets_work_on_other_terms_and_broadcasts(machines: Machines) -> None:
    script = TeamScript(
        lead=[
            spawn("one"),
            text("asked"),
            spawn("two", model="other-model"),
            text("asked again"),
            tool("broadcast", content="three"),
            text("told"),
            text("the end"),
        ],
        alice=[text("first"), text("second"), text("third")],
    )
    with machines.lead.against(script):
        machines.worker("box")
        ran = machines.run("begin")
    assert ran.out.strip() == "the end", ran.err
    assert [request["model"] for request in script.requests["alice"]] == ["test-model", "other-model", "other-model"]
    assert "three" in str(script.requests["alice"][2]["messages"][-1])


def test_a_plan_of_a_member_on_another_host_is_reviewed_by_the_lead(machines: Machines) -> None:
    def review(request: dict[str, Any]) -> Any:
        (id,) = set(re.findall(r"req-\w+", str(request["messages"][-1])))
        return tool("plan_review", request_id=id, approve=True)

    script = TeamScript(
        lead=[spawn("do it", plan=True), text("asked"), review, text("approved"), text("the end")],
        alice=[
            tool("bash", command="touch early"),
            tool("submit_plan", plan="touch late"),
            text("submitted"),
            tool("bash", command="touch late"),
            text("done"),
        ],
    )
    with machines.lead.against(script):
        machines.worker("box")
        ran = machines.run("begin")
    assert ran.out.strip() == "the end", (ran.err, script.requests["lead"][-1]["messages"])
    place = machines.base / "box/.team/worktrees/alice"
    assert not (place / "early").exists()
    assert (place / "late").exists()


def test_a_headless_run_ends_although_a_member_on_another_host_waits_for_a_message(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("wait"), text("asked"), text("the end")],
        alice=[tool("wait_for_message", timeout_seconds=600), text("nobody wrote")],
    )
    with machines.lead.against(script):
        machines.worker("box")
        ran = machines.run("begin")
    assert ran.out.strip() == "the end", ran.err
    assert "nobody is left who could write to you" in str(script.requests["alice"][1]["messages"][-1])


def test_a_limit_of_a_member_on_another_host_is_raised_and_a_working_one_is_shut_down(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("begin"), text("asked"), text("heard"), text("heard more")],
        alice=[
            text("first result"),
            tool("bash", command="true"),
            text("second result"),
            until(machines.base / "never"),
        ],
    )
    with machines.lead.against(script):
        machines.worker("box")
        with Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice begin\r")
            screen.wait_for("heard")
            screen.type("/budget alice 2 calls\r")
            screen.wait_for("1 model call left")
            screen.type("@alice once more\r")
            screen.wait_for("is paused")
            screen.type("/budget alice +5 calls\r")
            screen.wait_for("resumes alice if that is enough")
            screen.wait_for("second result")
            # A working one is asked first, and stopped if the user insists.
            screen.type("@alice for ever\r")
            wait_until(lambda: len(script.requests["alice"]) == 4)
            screen.wait_for("● alice")
            screen.type("/shutdown alice\r")
            screen.wait_for("Asked 'alice' to shut down")
            screen.type("/shutdown alice\r")
            screen.wait_for("Stopped 'alice'; it is shut down")


def test_a_worker_for_a_repository_without_a_team_says_how_to_begin(postgres_url: str) -> None:
    words = "ffff: start teamcli with this store in a clone first"
    with (
        closing(Database(postgres_url, CancelScope(), waits=False)) as database,
        pytest.raises(UsageError, match=words),
    ):
        open_team(postgres_url, "f" * 40, "", create=False, database=database)


@pytest.mark.parametrize("worker", ["", "box"])
def test_a_spawn_waits_until_the_last_member_of_that_name_is_cleaned_up_and_can_be_interrupted(
    machines: Machines, worker: str
) -> None:
    ready = machines.base / "ready"
    slow = SlowRemote(machines, worker or "lead")
    script = TeamScript(
        lead=[
            spawn("one", host="any"),
            text("asked"),
            text("heard"),
            until(ready),
            spawn("two", host=worker),
            spawn("three", host=worker),
            text("asked again"),
            text("heard again"),
        ],
        alice=[text("first result"), text("last result")],
    )
    with ExitStack() as stack:
        stack.enter_context(machines.lead.against(script))
        if worker:
            machines.worker(worker)
        screen = stack.enter_context(Screen(machines.lead, *BYPASS, columns=120, lines=60))
        screen.wait_for("team >>")
        screen.type("have alice begin\r")
        screen.wait_for("heard")
        screen.type("wait\r")
        wait_until(lambda: len(script.requests["lead"]) == 4)
        slow.hold_next()
        screen.type("/shutdown alice\r")
        wait_until(slow.asked.exists)
        ready.touch()
        screen.wait_for("● lead spawn alice (coder)")
        screen.type("\x03")
        screen.wait_for("interrupted")
        assert len(script.requests["alice"]) == 1
        slow.answer()
        screen.type("once more\r")
        screen.wait_for("last result")
    assert "still cleaning up" not in str(script.requests["lead"][5]["messages"])
    (words,) = [str(request["messages"]) for request in script.requests["alice"][1:]]
    assert "three" in words
    assert "two" not in words


def test_a_member_that_no_host_runs_is_shut_down_by_the_next_one(machines: Machines) -> None:
    machines.lead.settings(sandbox="off", lease_seconds=2.0, limits={"shutdown_seconds": 0.5})
    team = machines.lead.directory / ".team"
    team.mkdir()
    (team / "team.toml").write_text('[[member]]\nname = "alice"\nrole = "coder"\nhost = "box"\n')
    with machines.lead.against(TeamScript(lead=[text("I see")])):
        with Screen(machines.lead, *BYPASS, "--trust", columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("/shutdown alice\r")
            screen.wait_for("no host runs it now: it answers when one does")
            screen.type("/shutdown alice\r")
            screen.wait_for("no host runs 'alice' now; try again when /team shows one that does")
            wait_until(
                lambda: machines.rows("select 1 from message where body like '%and the next one shuts it down%'")
            )
        machines.worker("box")
        wait_until(lambda: machines.rows('select 1 from member where doc like \'%"status": "shutdown"%\''))


def test_a_host_that_cleans_up_after_one_member_obeys_orders_to_others(machines: Machines) -> None:
    slow = SlowRemote(machines, "box")
    pid = machines.base / "pid"
    bob = tool("spawn_teammate", name="bob", role="coder", prompt="begin", host="box")
    script = TeamScript(
        lead=[spawn("begin"), bob, text("asked"), text("heard"), text("heard more")],
        alice=[text("first result")],
        bob=[tool("bash", command=f"echo $$ > {pid}.new; mv {pid}.new {pid}; sleep 600")],
    )
    with machines.lead.against(script):
        machines.worker("box")
        with Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have them begin\r")
            screen.wait_for("heard")
            wait_until(pid.exists)
            slow.hold_next()
            screen.type("/shutdown alice\r")
            wait_until(slow.asked.exists)
            screen.type("/stop bob\r")
            screen.wait_for("Stopped 'bob'")
            wait_until(lambda: not Path(f"/proc/{pid.read_text().strip()}").exists())
            slow.answer()


def test_what_a_member_that_leaves_another_host_has_not_read_goes_back_to_its_senders(machines: Machines) -> None:
    go, ready = machines.base / "go", machines.base / "ready"

    def approve_late(request: dict[str, Any]) -> Any:
        assert machines.lead.run("send", "alice", "from the user").code == 0
        ready.touch()
        wait_until(lambda: machines.rows("select 1 from message where inbox = 'alice' and body like '%from bob%'"))
        return respond(request, approve=True)

    bob = tool("spawn_teammate", name="bob", role="coder", prompt="begin")
    script = TeamScript(
        lead=[spawn("begin"), bob, *[text("heard")] * 4],
        alice=[until(go), approve_late],
        bob=[until(ready), tool("send_message", to="alice", content="from bob"), *[text("sent")] * 2],
    )
    with machines.lead.against(script):
        machines.worker("box")
        with Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have them begin\r")
            wait_until(lambda: script.requests["alice"])
            screen.wait_for("● alice")
            screen.type("/shutdown alice\r")
            screen.wait_for("Asked 'alice' to shut down")
            go.touch()
            screen.wait_for("alice was shut down before it read your message: from the user")
            wait_until(
                lambda: machines.rows("select 1 from message where inbox = 'bob' and body like '%before it read your%'")
            )


def test_a_refusal_to_shut_down_on_another_host_is_shown_to_the_user(machines: Machines) -> None:
    go = machines.base / "go"
    script = TeamScript(
        lead=[spawn("begin"), *[text("heard")] * 3],
        alice=[until(go), lambda request: respond(request, approve=False, reason="tests are running"), text("done")],
    )
    with machines.lead.against(script):
        machines.worker("box")
        with Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice begin\r")
            wait_until(lambda: script.requests["alice"])
            screen.wait_for("● alice")
            screen.type("/shutdown alice\r")
            screen.wait_for("Asked 'alice' to shut down")
            go.touch()
            screen.wait_for("alice refuses to shut down: tests are running; /shutdown alice again stops it.")


@pytest.mark.soak_only  # two orders wait for their time limits
def test_an_order_waits_until_the_host_has_brought_the_member_up(machines: Machines) -> None:
    """As long as that takes: its branch may have to be fetched over a slow line."""
    go, asked = machines.base / "go", machines.base / "asked"
    slow = machines.base / "slow"
    slow.write_text(
        f"#!/bin/sh\ncase $PWD in */box-*) touch {asked}; while ! test -e {go}; do sleep 0.05; done ;; esac\n"
        'exec git-upload-pack "$@"\n'
    )
    slow.chmod(0o755)
    with (machines.lead.home / ".gitconfig").open("a") as config:
        config.write(f'[remote "teamcli"]\n\tuploadpack = {slow}\n')
    script = TeamScript(lead=[spawn("begin"), text("asked"), text("heard")], alice=[text("never said")])
    with machines.lead.against(script):
        machines.worker("box")
        with Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice begin\r")
            wait_until(asked.exists)
            screen.type("/shutdown alice\r")
            screen.wait_for("Asked 'alice' to shut down")
            screen.type("/shutdown alice\r")
            screen.wait_for("'alice' is stopping; /team shows when it is shut down")
            go.touch()
            wait_until(lambda: machines.rows('select 1 from member where doc like \'%"status": "shutdown"%\''))
    assert not script.requests.get("alice")


LAPSED_AT_ONCE = {"shutdown_seconds": 1e-9}


def ask_to_shut_down_and_leave(machines: Machines, script: TeamScript) -> Worker:
    """alice works on box, was asked to shut down and has not answered; there is no lead."""
    worker = machines.worker("box")
    with Running(machines.lead, *BYPASS) as repl:
        repl.type("go")
        wait_until(lambda: len(script.requests["alice"]) == 1)
        repl.wait_for("asked")
        repl.type("/shutdown alice")
        repl.wait_for("answers when it can")
        repl.leave()
    return worker


def status(machines: Machines) -> str:
    ((doc,),) = machines.rows("select doc from member where name = 'alice'")
    return str(json.loads(doc)["status"])


def requests(machines: Machines) -> list[str]:
    return [json.loads(doc)["state"] for (doc,) in machines.rows("select doc from request where doc <> ''")]


def test_a_request_to_shut_down_that_has_lapsed_keeps_no_worker_from_starting(machines: Machines) -> None:
    script = TeamScript(lead=[spawn("begin"), text("asked")], alice=[until(machines.base / "never")])
    with machines.lead.against(script):
        ask_to_shut_down_and_leave(machines, script)
        machines.lead.settings(sandbox="off", lease_seconds=2.0, limits=LAPSED_AT_ONCE)
        late = machines.worker("late")
        assert requests(machines) == ["open"]
        assert late.kill(signal.SIGTERM) == 0
        # The next lead does what the user asked for.
        with Running(machines.lead, *BYPASS) as repl:
            wait_until(lambda: status(machines) == "shutdown")
            repl.leave()
    assert not late.says("alice")


def test_a_host_that_takes_a_member_over_closes_the_request_to_shut_it_down(machines: Machines) -> None:
    script = TeamScript(
        lead=[spawn("begin", host="any"), text("asked")], alice=[until(machines.base / "never"), text("never said")]
    )
    with machines.lead.against(script):
        box = ask_to_shut_down_and_leave(machines, script)
        machines.lead.settings(sandbox="off", lease_seconds=2.0, limits=LAPSED_AT_ONCE)
        machines.worker("late")
        box.kill()
        wait_until(lambda: status(machines) == "shutdown")
    mail = [json.loads(body) for (body,) in machines.rows("select body from message where inbox = 'lead'")]
    assert "it was stopped" in mail[-1]["content"]


def test_the_tip_after_the_first_hire_names_no_file_that_is_not_there(machines: Machines) -> None:
    carol = tool("spawn_teammate", name="carol", role="coder", prompt="begin")
    script = TeamScript(lead=[carol, *[text("hired")] * 2], carol=[text("done")])
    with machines.lead.against(script), Screen(machines.lead, *BYPASS, columns=120) as screen:
        screen.wait_for("team >>")
        screen.type("hire carol\r")
        screen.wait_for("Tip: /inbox carol shows carol's mail")
