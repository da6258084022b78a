"""`decide`, case by case: `permission_cases.toml` says what is allowed, asked about and denied, and by what."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from teamcli.agent.permissions import Mode, Policy, Verdict, decide, parse_rules
from teamcli.agent.tool import Access, Executes, Harmless, Reads, Writes

ROOT = Path("/work space/project")
GROUPS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("permission_cases.toml").read_text())["group"]


def cases() -> Iterator[Any]:
    for group in GROUPS:
        for case in group["cases"]:
            yield pytest.param(group, *case[:2], *(case[2:] or [""]), id=f"{group['id']}: {case[1]!r}")


def access(tool: str, what: str) -> Access:
    match tool:
        case "bash":
            return Executes(what)
        case "edit_file" | "write_file":
            return Writes(ROOT / what)
        case "read_file" | "glob" | "grep":
            return Reads(ROOT / what)
        case _:
            return Harmless()


@pytest.mark.parametrize(("group", "verdict", "what", "by"), list(cases()))
def test_a_call_is_decided_as_the_table_says(group: dict[str, Any], verdict: str, what: str, by: str) -> None:
    rules = {kind: parse_rules(group.get(kind, "")) for kind in ("allow", "ask", "deny")}
    tool = group.get("tool", "bash")
    decision = decide(Policy(Mode(group.get("mode", "default")), **rules), tool, access(tool, what), ROOT)
    assert decision.verdict == verdict, decision.reason
    assert by in decision.reason


@pytest.mark.parametrize(("group", "verdict", "what", "by"), [case for case in cases() if case.values[1] == "ask"])
def test_the_rule_that_an_ask_names_lets_that_very_call_through(
    group: dict[str, Any], verdict: str, what: str, by: str
) -> None:
    rules = {kind: parse_rules(group.get(kind, "")) for kind in ("allow", "ask", "deny")}
    tool = group.get("tool", "bash")
    policy = Policy(Mode(group.get("mode", "default")), **rules)
    named = decide(policy, tool, access(tool, what), ROOT).rule
    if not named:
        assert policy.ask  # a rule of the user's own asks every time
        return
    widened = policy._replace(allow=(*policy.allow, *parse_rules(named)))
    assert decide(widened, tool, access(tool, what), ROOT).verdict is Verdict.ALLOW


def test_there_are_several_hundred_cases_of_every_verdict() -> None:
    verdicts = [case[0] for group in GROUPS for case in group["cases"]]
    assert all(verdicts.count(verdict) >= 100 for verdict in Verdict)
