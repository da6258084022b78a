"""The scenes: what the user types, what the model says, and the moment of the picture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pictures.shot import Shot
from pictures.stage import Gate, bar_time, hire, played, stage
from tests.support.fake_api import answer, stall_after, stall_before_headers, text, tool
from tests.support.team_script import TeamScript

OLD = """\
    rounded = [round(price * (1 - discount), 2) for price in prices]
    return sum(rounded)
"""
NEW = """\
    return round(sum(prices) * (1 - discount), 2)
"""
FILES = {
    "cart.py": f'def total(prices, discount=0):\n    """What the customer pays."""\n{OLD}',
    "checkout.py": "from cart import total\n",
    "tests/test_cart.py": "from cart import total\n",
    "README.md": "# shop\n",
}
PYTEST = 'if [ -e .failed ]; then exec sleep 600; fi; touch .failed; echo "1 failed, 11 passed"; exit 1'
SLOW_PYTEST = "exec sleep 600"
USAGE = {
    "input_tokens": 900,
    "output_tokens": 420,
    "cache_read_input_tokens": 38000,
    "cache_creation_input_tokens": 2600,
}
"""Typical for answers of this kind."""
EDIT = tool("edit_file", path="cart.py", old_text=OLD, new_text=NEW)
READ = tool("read_file", path="cart.py")
TEST = tool("bash", command="pytest -q")


def say(*parts: Any) -> Any:
    return answer(*parts, usage=USAGE)


def mail(to: str, words: str) -> Any:
    return say(tool("send_message", to=to, content=words))


THINKS_ON = say("This text never arrives.", stall_before_headers())


def team() -> Shot:
    """Two teammates at work, while the user types."""
    sent, edited, reviewed = Gate(), Gate(), Gate()
    script = TeamScript(
        lead=[
            mail("alice", "Our totals are off by a cent. Find out why and fix cart.py."),
            mail("bob", "alice fixes the totals in cart.py. Review it when she is done."),
            say("**alice** looks for the cent in `cart.py`, **bob** reviews what she changes."),
        ],
        alice=[
            sent.holds(say(READ)),
            say(TEST),
            say(EDIT),
            mail("bob", "It rounded each price; now it rounds once, the sum. Please look at cart.py."),
            reviewed.holds(say(TEST)),
        ],
        bob=[
            edited.holds(say(READ)),
            mail("alice", "Good. round(0.125, 2) goes down, though: do we want halves to go up?"),
            THINKS_ON,
        ],
    )
    with stage(files=FILES, commands={"pytest": PYTEST}) as program:
        hire(program, alice="coder", bob="reviewer")
        program.settings(permissions={"mode": "acceptEdits", "allow": ["bash(pytest:*)"]})
        with played(program, script) as camera:
            camera.type("our totals are off by a cent: let alice fix it, and bob review\r")
            camera.wait_for("what she changes.")
            sent.open()
            camera.wait_for("alice → bob")
            edited.open()
            camera.wait_for("bob → alice")
            camera.type("then look at the shipp")
            camera.wait_for("the shipp")
            reviewed.open()
            camera.wait_for("● alice $ pytest")
            camera.wait_for("● bob   thinking")
            return camera.shot(bar_time("alice", "8s"), bar_time("bob", "3s"))


def question() -> Shot:
    """A teammate asks, while the lead writes and another works."""
    written = Gate()
    words = (
        "In the meantime I read `checkout.py`:\n\n"
        "- it rounds **again**, after shipping\n"
        "- `total` is called twice for each order\n\n"
        "Neither costs a cent by itself. Together with a discount th"
    )
    script = TeamScript(
        lead=[
            mail("alice", "Our totals are off by a cent. Find out why and fix cart.py."),
            mail("bob", "Run the tests, and tell alice what fails."),
            say(text(words, pieces=len(words)), stall_after(len(words) + 2)),
        ],
        alice=[written.holds(say(READ)), say(EDIT)],
        bob=[written.holds(say(TEST))],
    )
    with stage(files=FILES, commands={"pytest": SLOW_PYTEST}) as program:
        hire(program, alice="coder", bob="tester")
        program.settings(permissions={"allow": ["bash(pytest:*)"]})
        with played(program, script) as camera:
            camera.type("our totals are off by a cent\r")
            camera.wait_for("with a discount th")
            written.open()
            camera.wait_for("allow? >>")
            camera.wait_for("● bob   $ pytest")
            return camera.shot(bar_time("lead", "6s"), bar_time("alice", "3s"), bar_time("bob", "4s"))


def watching() -> Shot:
    """The user watches a teammate, while the lead and another work."""
    asked, written = Gate(), Gate()
    words = (
        "The cent is lost in `total`:\n\n"
        "1. each price is rounded **before** it is added\n"
        "2. twelve items at 0.125 make 1.44 instead of 1.50\n\n"
        "I round once, after the sum. Then I loo"
    )
    script = TeamScript(
        lead=[
            mail("alice", "Our totals are off by a cent. Find out why and fix cart.py."),
            mail("bob", "Run the tests, and tell alice what fails."),
            THINKS_ON,
        ],
        alice=[
            asked.holds(say(READ)),
            say(EDIT),
            mail("bob", "Fixed in cart.py: it rounds once now. Do the tests agree?"),
            written.holds(say(text(words, pieces=len(words)), stall_after(len(words) + 2))),
        ],
        bob=[asked.holds(say(TEST))],
    )
    with stage(files=FILES, commands={"pytest": SLOW_PYTEST}) as program:
        hire(program, alice="coder", bob="tester")
        program.settings(permissions={"mode": "acceptEdits", "allow": ["bash(pytest:*)"]})
        with played(program, script) as camera:
            camera.type("our totals are off by a cent\r")
            camera.wait_for("lead → bob")
            camera.wait_for("● lead thinking")
            asked.open()
            camera.wait_for("alice → bob")
            camera.type("\x1b[1;2B")
            camera.wait_for("alice >>")
            camera.type("look at the vouchers, too\r")
            camera.wait_for("alice >> look at the vouchers")
            written.open()
            camera.wait_for("Then I loo")
            camera.wait_for("$ pytest")
            camera.type("and tell b")
            camera.wait_for("and tell b")
            times = bar_time("lead", "9s"), bar_time("alice", "2s"), bar_time("bob", "7s")
            return camera.shot(*times, top="── alice")


def board() -> Shot:
    """The task board, live above the status bar."""
    planned, started = Gate(), Gate()
    script = TeamScript(
        lead=[
            say(tool("task_create", subject="Round once, after the sum")),
            say(tool("task_create", subject="Test vouchers and shipping")),
            say(tool("task_create", subject="Release 1.4", blocked_by=[1, 2])),
            mail("alice", "Please take task 1."),
            mail("bob", "Please take task 2."),
            say("**alice** and **bob** take a task each. The release waits for both."),
        ],
        alice=[planned.holds(say(tool("task_update", id=1, status="in_progress"))), say(TEST)],
        bob=[started.holds(say(tool("task_update", id=2, status="in_progress"))), THINKS_ON],
    )
    with stage(files=FILES, commands={"pytest": SLOW_PYTEST}) as program:
        hire(program, alice="coder", bob="tester")
        program.settings(permissions={"mode": "acceptEdits", "allow": ["bash(pytest:*)"]})
        with played(program, script) as camera:
            camera.type("plan the release of 1.4 and get going\r")
            camera.wait_for("waits for both.")
            planned.open()
            camera.wait_for("alice task 1 claimed")
            started.open()
            camera.type("\x14")
            camera.wait_for("Tasks:")
            camera.wait_for("● alice $ pytest")
            camera.wait_for("● bob   thinking")
            return camera.shot(bar_time("alice", "8s"), bar_time("bob", "3s"))


def tables() -> Shot:
    """The team and an inbox as tables."""
    sent, tested = Gate(), Gate()
    script = TeamScript(
        lead=[
            mail("alice", "Our totals are off by a cent. Find out why and fix cart.py."),
            mail("bob", "alice fixes the totals in cart.py. Review it when she is done."),
            say("Both are on it."),
        ],
        alice=[
            sent.holds(say(EDIT)),
            mail("bob", "It rounded each price; now it rounds once. Please look."),
            say(TEST),
        ],
        bob=[
            tested.holds(say(READ)),
            mail("alice", "Good. round(0.125, 2) goes down, though: do we want halves to go up?"),
            THINKS_ON,
        ],
    )
    with stage(files=FILES, commands={"pytest": SLOW_PYTEST}) as program:
        hire(program, alice="coder", bob="reviewer", carol="tester")
        program.settings(permissions={"mode": "acceptEdits", "allow": ["bash(pytest:*)"]})
        with played(program, script) as camera:
            camera.type("our totals are off by a cent: let alice fix it, and bob review\r")
            camera.wait_for("Both are on it.")
            sent.open()
            camera.wait_for("● alice $ pytest")
            tested.open()
            camera.wait_for("bob → alice")
            camera.wait_for("● bob   thinking")
            camera.type("/pause carol\r")
            camera.wait_for("Paused 'carol'")
            camera.type("/team\r")
            camera.wait_for("NAME")
            camera.type("/inbox alice\r")
            camera.wait_for("messages for alice")
            return camera.shot(
                bar_time("alice", "8s"),
                bar_time("bob", "3s"),
                (r"(?:idle|working) +( \d s|\d\d s) ", ["14 s", "12 s", " 5 s", "21 s"]),
                (r"\d\d:\d\d:\d\d  (\d s)", ["9 s", "4 s"]),
                (r"(\d\d:\d\d:\d\d)", ["14:05:28", "14:05:33"]),
                top="team >> /team",
            )


def completion() -> Shot:
    """What `@` offers."""
    with stage(files=FILES) as program:
        hire(program, alice="coder", bob="reviewer", carol="tester")
        with played(program, TeamScript()) as camera:
            camera.type("explain @ca")
            camera.wait_for("test_cart.py")
            camera.type("\t\t")
            camera.wait_for("explain @cart.py")
            return camera.shot()


SCENES: dict[str, tuple[str, Callable[[], Shot]]] = {
    "team": ("teamcli: a lead and two teammates", team),
    "question": ("teamcli: a teammate asks", question),
    "watching": ("teamcli: watching a teammate", watching),
    "board": ("teamcli: the task board", board),
    "tables": ("teamcli: /team and /inbox", tables),
    "completion": ("teamcli: completion", completion),
}
