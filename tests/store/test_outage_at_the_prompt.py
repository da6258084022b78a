"""A database that is away while a person types and leaves, with real processes, a real server and a real terminal."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.store.machines import BYPASS, Machines, ProgramMaker, machines_in
from tests.store.test_steering import spawn, until
from tests.support.answers import text, tool
from tests.support.postgres import Server
from tests.support.proxy import Proxy
from tests.support.screen import Screen
from tests.support.team_script import TeamScript
from tests.support.waiting import wait_until

SOON = 15.0
"""Within seconds, on a machine that is busy. Without a bound it takes a minute and more."""


@pytest.fixture
def machines(tmp_path: Path, own_postgres: Server, store_program: ProgramMaker) -> Iterator[Machines]:
    with machines_in(tmp_path, own_postgres.url("migrated"), store_program) as machines:
        yield machines


@pytest.fixture
def network(own_postgres: Server) -> Iterator[Proxy]:
    with Proxy(own_postgres.socket) as proxy:
        yield proxy


def test_the_user_leaves_at_once_although_a_line_waits_for_the_database(
    machines: Machines, own_postgres: Server
) -> None:
    script = TeamScript(lead=[spawn("begin"), text("asked"), text("heard")], alice=[text("first result")])
    with machines.lead.against(script):
        machines.worker("box")
        with Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice begin\r")
            screen.wait_for("heard")
            own_postgres.stop()
            try:
                screen.wait_for("The database cannot be reached")
                screen.type("@alice once more\r")
                began = time.monotonic()
                screen.type("q\r")
                assert screen.wait_for_end() == 0
                took = time.monotonic() - began
            finally:
                own_postgres.start()
    assert took < SOON
    assert "Not carried out:\n  @alice once more\n" in screen.text_with_scrollback
    assert "Resume with: teamcli --continue" in screen.text_with_scrollback


def test_the_screen_goes_on_while_the_database_is_away(machines: Machines, own_postgres: Server) -> None:
    script = TeamScript(lead=[text("heard"), text("heard more")])
    with machines.lead.against(script), Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
        screen.wait_for("team >>")
        screen.type("begin\r")
        screen.wait_for("heard")
        own_postgres.stop()
        try:
            screen.wait_for("The database cannot be reached")
            screen.type("once more\r")  # a turn begins, for which the screen looks for mail
            screen.type("\x14")  # Ctrl-T: the board
            screen.type("\x0f")  # Ctrl-O
            screen.wait_for("Nothing is folded")
        finally:
            own_postgres.start()
        screen.wait_for("heard more")
        screen.wait_for("Tasks: none yet")


def test_a_worker_leaves_soon_while_the_database_is_away_and_says_whom_it_could_not_hand_over(
    machines: Machines, own_postgres: Server
) -> None:
    script = TeamScript(
        lead=[spawn("begin"), text("asked"), text("heard"), text("heard more")],
        alice=[tool("wait_for_message", timeout_seconds=600), text("result"), text("another result")],
    )
    with machines.lead.against(script):
        worker = machines.worker("box")
        with Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
            screen.wait_for("team >>")
            screen.type("have alice begin\r")
            worker.wait_for("alice: working (message)")
            screen.wait_for("on box")  # or the lead would not know that she moves
            own_postgres.stop()
            try:
                worker.wait_for("The database cannot be reached")
                began = time.monotonic()
                worker.process.send_signal(signal.SIGTERM)
                code = worker.process.wait(60)
                took = time.monotonic() - began
            finally:
                own_postgres.start()
            assert (code, took < SOON) == (0, True)
            worker.join()
            assert worker.says("leaves without handing over alice.")
            # Nothing is lost: the next host continues.
            screen.wait_for("alice continues on the host")
            screen.type("@alice hello\r")
            screen.wait_for("result")


@pytest.mark.soak_only  # the connection has to time out
def test_a_worker_leaves_soon_while_the_network_to_the_database_is_stalled(machines: Machines, network: Proxy) -> None:
    script = TeamScript(
        lead=[spawn("begin"), text("asked"), text("heard")], alice=[until(machines.base / "never"), text("result")]
    )
    with machines.lead.against(script):
        worker = machines.worker("box", variables={"TEAMCLI_STORE": network.url("migrated")})
        lead = machines.lead.start("-p", "begin", *BYPASS)
        try:
            wait_until(lambda: len(script.requests["alice"]) == 1)
            worker.wait_for("alice: working")
            network.stall()
            began = time.monotonic()
            worker.process.send_signal(signal.SIGTERM)
            assert worker.process.wait(60) == 0
            took = time.monotonic() - began
        finally:
            network.restore()
            lead.kill()
            lead.communicate()
    assert took < SOON
    worker.join()
    assert worker.says("leaves without handing over alice.")


def test_a_headless_run_ends_soon_while_the_database_is_away(machines: Machines, own_postgres: Server) -> None:
    script = TeamScript(lead=[until(machines.base / "never"), text("never said")])
    with machines.lead.against(script):
        lead = machines.lead.start("-p", "begin", *BYPASS)
        wait_until(lambda: len(script.requests["lead"]) == 1)
        own_postgres.stop()
        try:
            began = time.monotonic()
            lead.send_signal(signal.SIGTERM)
            _, err = lead.communicate(timeout=60)
            took = time.monotonic() - began
        finally:
            own_postgres.start()
    assert (lead.returncode, took < SOON) == (143, True), err
    assert b"Interrupted: lead." in err
    assert b"Traceback" not in err


def test_the_prompt_answers_while_a_wait_for_mail_waits_for_the_database(
    machines: Machines, own_postgres: Server
) -> None:
    script = TeamScript(lead=[tool("wait_for_message", timeout_seconds=600), text("never said")])
    with machines.lead.against(script), Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
        screen.wait_for("team >>")
        screen.type("wait for mail\r")
        screen.wait_for("wait for messages")
        own_postgres.stop()
        try:
            screen.wait_for("The database cannot be reached")
            screen.type("something else\r")
            screen.wait_for("queued: something else")
            screen.type("\x1b")
            screen.wait_for("team >> something else")  # it is not sent
            began = time.monotonic()
            screen.type("\x15q\r")
            assert screen.wait_for_end() == 0
            took = time.monotonic() - began
        finally:
            own_postgres.start()
    assert took < SOON


def test_a_command_ends_when_the_user_stops_its_member_while_the_database_is_away(
    machines: Machines, own_postgres: Server
) -> None:
    beat = machines.base / "beat"
    script = TeamScript(
        lead=[tool("spawn_teammate", name="alice", role="coder", prompt="begin"), text("asked")],
        alice=[
            tool("bash", command=f"trap 'touch {beat}.ended; exit' TERM; touch {beat}; while :; do sleep 0.1; done")
        ],
    )
    with machines.lead.against(script), Screen(machines.lead, *BYPASS, columns=120, lines=60) as screen:
        screen.wait_for("team >>")
        screen.type("have alice begin\r")
        screen.wait_for("asked")
        wait_until(beat.exists)
        own_postgres.stop()
        try:
            screen.wait_for("The database cannot be reached")
            screen.type("/stop alice\r")
            wait_until(machines.base.joinpath("beat.ended").exists)
        finally:
            own_postgres.start()
