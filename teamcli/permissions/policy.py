"""What may run, as values: the mode, the rules, and what was decided about a call.

Separate from deciding, which has to read command lines: most starts do not need to load that.
"""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from teamcli.config.options import Mode as Mode  # listed there, next to the option that chooses it

if TYPE_CHECKING:
    from teamcli.permissions.rules import Rule


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
    """Commands run in a sandbox, and the user wants no questions about them."""
    hook_files: tuple[Path, ...] = ()
    """Files that hooks and MCP servers run, outside the sandbox: changing one asks in every mode."""

    @property
    def lets_everything_run(self) -> bool:
        """Whether no rule and no file could stop a call, or make it a question. Built-in denials still can."""
        return self.mode is Mode.BYPASS_PERMISSIONS and not (self.deny or self.ask or self.hook_files)


class Decision(NamedTuple):
    verdict: Verdict
    reason: str
    """One sentence that names the rule or mode that decided."""
    rule: str = ""
    """For ASK the narrowest rule that would allow exactly this call, if there is one; else the rule that decided."""
    advice: str = ""
    """For ASK: why no rule for a program covers the command, and how to write it so that one does."""
    is_asked_by_rule: bool = False
    """An ask rule or the file itself asks, and nothing but the user's answer lets the call through."""
    broader: tuple[str, ...] = ()
    """For ASK: rules that together allow this call and those like it, if it is sensible to offer them."""
    by: str = ""
    """For DENY: what refuses the call, in a few words."""
