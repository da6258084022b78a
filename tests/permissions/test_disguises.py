"""No trick of quoting, wrapping or expanding makes a denied command an allowed one: real bash is the judge."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from teamcli.agent.tool import Executes
from teamcli.permissions.decide import decide
from teamcli.permissions.policy import Mode, Policy, Verdict
from teamcli.permissions.rules import parse_rules
from tests.permissions.disguises import BASH, Witness, disguised_lines

ROOT = Path("/work space/project")
IS_SOAK = "TEAMCLI_SOAK" in os.environ
needs_bash = pytest.mark.skipif(not BASH.exists(), reason="compares with the real bash")

PROGRAMS = (
    "echo ls cat true false env nice nohup timeout stdbuf setsid ionice command flock taskset setarch linux64 prlimit "
    "unshare xargs find exec time coproc bash sh dash eval builtin trap source . script mapfile shopt alias set read "
    "declare printf export wait test let break rev zzz f name"
)
ALLOWED = ", ".join(f"bash({name}:*)" for name in PROGRAMS.split()) + ", bash(git status:*)"
DENIED = parse_rules("bash(zap:*), bash(git push:*)")
POLICIES = {
    "many programs are allowed": Policy(Mode.DEFAULT, parse_rules(ALLOWED)),
    "many programs are allowed and two denied": Policy(Mode.ACCEPT_EDITS, parse_rules(ALLOWED), (), DENIED),
    "all commands are allowed and two denied": Policy(Mode.DEFAULT, parse_rules("bash"), (), DENIED),
    "nobody is asked and two are denied": Policy(Mode.BYPASS_PERMISSIONS, (), (), DENIED),
}


def allowing(line: str) -> list[str]:
    return [
        name
        for name, policy in POLICIES.items()
        if decide(policy, "bash", Executes(line), ROOT).verdict is Verdict.ALLOW
    ]


@pytest.fixture(scope="module")
def witness(tmp_path_factory: pytest.TempPathFactory) -> Witness:
    return Witness.made_in(tmp_path_factory.mktemp("witness"))


unhurried = settings(deadline=None, suppress_health_check=list(HealthCheck))


@needs_bash
@pytest.mark.soak
@pytest.mark.timeout(3000 if IS_SOAK else 300)
@settings(unhurried, max_examples=30_000 if IS_SOAK else 1000, derandomize=not IS_SOAK)
@given(disguised_lines())
def test_no_disguise_makes_a_denied_command_an_allowed_one(witness: Witness, line: str) -> None:
    """Bash is asked only about lines that some policy lets through: of those, none may run the marker."""
    allowed_by = allowing(line)
    if allowed_by:
        assert not witness.saw_denied(line), (line, allowed_by)


@needs_bash
def test_most_disguises_do_run_the_denied_command(witness: Witness) -> None:
    """Else the test above would prove nothing."""
    ran: list[bool] = []

    @settings(unhurried, max_examples=120, derandomize=True, phases=[Phase.generate], database=None)
    @given(disguised_lines())
    def look(line: str) -> None:
        ran.append(witness.saw_denied(line))

    look()
    assert sum(ran) > len(ran) * 0.6


@needs_bash
def test_the_witness_sees_the_marker_and_nothing_else(witness: Witness) -> None:
    assert witness.saw("zap a 'b c'; git push; echo zap") == ["zap a b c", "git push"]
    assert witness.saw("git status") == ["git status"]
    assert not witness.saw_denied("echo zap; git status; echo 'git push' > f")


@settings(unhurried, max_examples=5_000 if IS_SOAK else 300, derandomize=not IS_SOAK)
@given(disguised_lines(), st.integers(), st.binary(max_size=4))
def test_a_line_with_random_damage_is_still_decided(line: str, seed: int, noise: bytes) -> None:
    choose = random.Random(seed)
    data = bytearray(line.encode())
    for _ in range(choose.randint(1, 6)):
        at = choose.randrange(len(data) + 1)
        match choose.randrange(3):
            case 0:
                del data[at : at + choose.randint(1, 4)]
            case 1:
                data[at:at] = noise
            case _:
                data[at:at] = data[choose.randrange(len(data) + 1) :][:5]
    for damaged in (data.decode(errors="replace"), data.decode(errors="surrogateescape")):
        for policy in POLICIES.values():
            assert decide(policy, "bash", Executes(damaged), ROOT).reason


@pytest.mark.parametrize(
    "line",
    [
        "$(" * 5000,
        "(" * 20_000,
        "{" * 20_000,
        "`" * 20_000,
        "'\"" * 10_000,
        "$((" * 5000 + "1" + "))" * 5000,
        "eval " * 5000,
        "env " * 5000,
        "env -a " * 3000,
        "bash -c '" * 2000,
        "$(" * 1000 + "a" + ")" * 1000,
        "a;" * 10_000,
        "<<E " * 3000,
        "X=1 " * 6000,
        "{a,b}" * 3000,
        "\\" * 30_000,
        "$X" * 10_000,
        "uv run " * 3000,
        "parallel " * 3000,
        "git -c a=b " * 2000,
        "find " + "-exec a ; " * 2000,
        "xargs -I" * 3000,
        "X=$X$X; " * 3000,
        "sed " + "s/" * 10_000,
        "sed s/" + "a" * 30_000,
        "git config " + "a." * 10_000 + " b",
    ],
    ids=lambda line: repr(line[:12]),
)
def test_a_line_made_to_be_slow_is_decided_soon(line: str) -> None:
    line = line if IS_SOAK else line[:8_000]
    begin = time.process_time()
    decide(POLICIES["many programs are allowed and two denied"], "bash", Executes(line), ROOT)
    assert time.process_time() - begin < 10
