"""What may run, as values: the mode, the rules, and what was decided about a call.

Apart from the deciding, which reads command lines as bash does: most starts do without all that this takes.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from teamcli.agent.permission_rules import Rule


class Mode(StrEnum):
    DEFAULT = "default"
    ACCEPT_EDITS = "acceptEdits"
    PLAN = "plan"
    BYPASS_PERMISSIONS = "bypassPermissions"


class Verdict(StrEnum):
    ALLOW = "allow"
    ASK = "ask"
    DENY = "deny"


class Policy(NamedTuple):
    mode: Mode = Mode.DEFAULT
    allow: tuple[Rule, ...] = ()
    ask: tuple[Rule, ...] = ()
    deny: tuple[Rule, ...] = ()
    commands_are_confined: bool = False
    """They run in a sandbox, and the user wants no questions about what does."""


class Decision(NamedTuple):
    verdict: Verdict
    reason: str
    """One sentence that names the rule or mode at fault."""
    rule: str = ""
    """For ASK the narrowest rule that would allow it (none where an ask rule asks each time), else what decided."""
    is_in_doubt: bool = False
    """An ask or deny rule may be about the call: only a person lets it through."""
