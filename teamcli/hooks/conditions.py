"""The permission rule in a hook's `if`: the hook runs only for calls that the rule is about. Loaded if one is used."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from teamcli.agent.hooks import HookEvent
from teamcli.errors import ConfigError
from teamcli.permissions.decide import decide
from teamcli.permissions.policy import Mode, Policy, Verdict
from teamcli.permissions.rules import Rule, parse_rules


def is_about(rule: str, event: HookEvent, root: Path) -> bool:
    """Whether the rule is about the call. If it cannot be read, the hook runs: it may be there for safety."""
    if event.prepared is None:  # not about a tool
        return False
    rules = _read(rule)
    if not rules:
        return True
    # A call that nothing else can refuse, and that only this rule asks about.
    policy, call = Policy(Mode.BYPASS_PERMISSIONS, ask=rules), event.prepared
    return decide(policy, event.subject, call.access, root, given=call.given).verdict is not Verdict.ALLOW


@cache
def _read(rule: str) -> tuple[Rule, ...]:
    try:
        return parse_rules([rule], kind="ask")
    except ConfigError:
        return ()
