"""`decide`, case by case: `permission_cases.toml` says what is allowed, asked about and denied, and by what."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from teamcli.agent.tool import Access, Executes, Harmless, Reads, Writes
from teamcli.permissions.decide import decide
from teamcli.permissions.policy import Mode, Policy, Verdict
from teamcli.permissions.rules import parse_rules

ROOT = Path("/work space/project")
GROUPS: list[dict[str, Any]] = tomllib.loads(Path(__file__).with_name("permission_cases.toml").read_text())["group"]


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


each_group = pytest.mark.parametrize("group", GROUPS, ids=lambda group: group["id"])


def policy_of(group: dict[str, Any]) -> Policy:
    rules = {kind: parse_rules(group.get(kind, "")) for kind in ("allow", "ask", "deny")}
    return Policy(Mode(group.get("mode", "default")), **rules)


@each_group
def test_calls_are_decided_as_the_table_says(group: dict[str, Any]) -> None:
    policy, tool = policy_of(group), group.get("tool", "bash")
    wrong = []
    for verdict, what, *by in group["cases"]:
        decision = decide(policy, tool, access(tool, what), ROOT)
        if decision.verdict != verdict or not all(each in decision.reason for each in by):
            wrong.append((what, f"should be {verdict} {by}", decision))
    assert wrong == []


@each_group
def test_the_rule_that_an_ask_names_lets_that_very_call_through(group: dict[str, Any]) -> None:
    policy, tool = policy_of(group), group.get("tool", "bash")
    asked = [what for verdict, what, *_ in group["cases"] if verdict == "ask"]
    named = {what: decide(policy, tool, access(tool, what), ROOT).rule for what in asked}
    for what, rule in named.items():
        if not rule:  # a rule of the user's own asks every time, or no rule but bash covers it
            whole = policy._replace(allow=(*policy.allow, *parse_rules(tool)))
            by_rule = decide(policy, tool, access(tool, what), ROOT).is_asked_by_rule
            assert by_rule or decide(whole, tool, access(tool, what), ROOT).verdict is Verdict.ALLOW, what
            continue
        widened = policy._replace(allow=(*policy.allow, *parse_rules(rule)))
        verdict = decide(widened, tool, access(tool, what), ROOT).verdict
        assert verdict is Verdict.ALLOW, what


def test_there_are_several_hundred_cases_of_every_verdict() -> None:
    verdicts = [case[0] for group in GROUPS for case in group["cases"]]
    assert all(verdicts.count(verdict) >= 100 for verdict in Verdict)
