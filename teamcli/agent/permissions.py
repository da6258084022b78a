"""May this call run? A pure decision from the policy, what the tool would access, and nothing else.

Deny rules and the built-in denials win in every mode; `plan` refuses commands and changes; then ask rules ask, allow
rules allow, and the mode decides about the rest. Rules see what a line says, not what a program then does: they save
from accidents, the sandbox draws the border.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple

from teamcli.agent.dangerous import danger_of
from teamcli.agent.permission_rules import (
    READING_TOOLS,
    WRITING_TOOLS,
    Form,
    Match,
    Rule,
    allows_command,
    allows_line,
    hides_path,
    hits,
    matches_path,
    parse_rules,
    rule_for_command,
    rule_for_path,
)
from teamcli.agent.policy import Decision, Mode, Policy, Verdict
from teamcli.agent.shell_commands import read_commands
from teamcli.agent.shell_words import Script
from teamcli.agent.tool import Access, Calls, Executes, Harmless, Reads, Writes

__all__ = ["Decision", "Mode", "Policy", "Rule", "Verdict", "decide", "may_see", "parse_rules"]


class _Call(NamedTuple):
    tool: str
    access: Access
    root: Path
    script: Script | None
    """What a command line runs."""


def decide(policy: Policy, tool_name: str, access: Access, workspace_root: Path) -> Decision:
    """Whether the call may run, must be asked about, or is refused. Never raises."""
    script = read_commands(access.command) if isinstance(access, Executes) else None
    call = _Call(tool_name, access, workspace_root, script)
    return _refused(policy, call) or _settled(policy, call) or _by_mode(policy, call)


def may_see(policy: Policy, path: Path, workspace_root: Path) -> bool:
    """Whether `glob` and `grep`, allowed to look through a directory, may show this file of it."""
    call = _Call("read_file", Reads(path), workspace_root, None)
    return not any(_concerns(rule, call) for rule in policy.deny if rule.form is not Form.ANY)


def _refused(policy: Policy, call: _Call) -> Decision | None:
    danger = danger_of(call.script) if call.script else ""
    if danger:
        return Decision(Verdict.DENY, f"Dangerous command blocked: {danger}.")
    for rule in policy.deny:
        if _concerns(rule, call) is Match.YES:
            return Decision(Verdict.DENY, f"The rule {rule} denies this call.", str(rule))
    if policy.mode is Mode.PLAN and isinstance(call.access, Executes | Writes | Calls):
        return Decision(Verdict.DENY, f"The mode plan refuses {call.tool}: only reading is possible until it is left.")
    return _refused_unjudged(policy, call) if policy.mode is Mode.BYPASS_PERMISSIONS else None


def _refused_unjudged(policy: Policy, call: _Call) -> Decision | None:
    """Where nobody is asked, a deny rule that may concern a call refuses it: else an expansion would lift the rule."""
    if any(rule.tool == call.tool and _allows_text(rule, call) for rule in policy.allow):
        return None
    rule = _first(policy.deny, lambda rule: _concerns(rule, call) is Match.MAYBE)
    if rule is None:
        return None
    why = (call.script.problem if call.script else "") or "some of its words are known only when it runs"
    return Decision(
        Verdict.DENY,
        f"The rule {rule} may deny this call, and bypassPermissions asks nobody: {why}. "
        "Write the command out, without expansions in the words that the rule is about.",
        str(rule),
    )


def _settled(policy: Policy, call: _Call) -> Decision | None:
    if policy.mode is Mode.BYPASS_PERMISSIONS:
        return Decision(Verdict.ALLOW, "The mode bypassPermissions allows every call.")
    for rule in policy.ask:
        if _concerns(rule, call) is Match.YES:
            return Decision(Verdict.ASK, f"The rule {rule} asks before each such call.")
    rules = [rule for rule in policy.allow if rule.tool == call.tool]
    allowing = _allowing(rules, call, (*policy.ask, *policy.deny))
    return Decision(Verdict.ALLOW, f"The rule {allowing} allows it.", str(allowing)) if allowing else None


def _by_mode(policy: Policy, call: _Call) -> Decision:
    mode = policy.mode
    if isinstance(call.access, Reads | Harmless):
        return Decision(Verdict.ALLOW, f"{call.tool} changes nothing.")
    if isinstance(call.access, Writes):
        if mode is Mode.ACCEPT_EDITS:
            return Decision(Verdict.ALLOW, "The mode acceptEdits allows file changes.")
        rule = rule_for_path(call.tool, call.access.path, call.root)
        return Decision(Verdict.ASK, f"The mode {mode} asks before {call.tool} changes a file.", str(rule))
    if isinstance(call.access, Calls):
        return Decision(Verdict.ASK, f"The mode {mode} asks before {call.tool} is called.", call.tool)
    is_in_doubt = _may_concern((*policy.ask, *policy.deny), call)
    if policy.commands_are_confined and not is_in_doubt:
        return Decision(Verdict.ALLOW, "It runs in the sandbox, and the setting sandbox_allows_bash allows that.")
    why = f": {call.script.problem}" if call.script and call.script.problem else ""
    rule = rule_for_command(call.tool, call.access.command)
    reason = f"The mode {mode} asks before {call.tool} runs this command{why}."
    return Decision(Verdict.ASK, reason, str(rule), is_in_doubt)


def _concerns(rule: Rule, call: _Call) -> Match:
    """Whether a deny or ask rule is about the call. A path denied to one tool is denied to all that access it alike."""
    if rule.form is Form.ANY or isinstance(call.access, Calls | Harmless):
        return Match.YES if rule.tool == call.tool and rule.form is Form.ANY else Match.NO
    if isinstance(call.access, Executes):
        return hits(rule, call.access.command, call.script) if rule.tool == call.tool and call.script else Match.NO
    kin = READING_TOOLS if isinstance(call.access, Reads) else WRITING_TOOLS
    concerned = rule.tool in kin and hides_path(rule, call.access.path, call.root)
    return Match.YES if concerned else Match.NO


def _may_concern(restricting: Iterable[Rule], call: _Call) -> bool:
    return any(_concerns(rule, call) is Match.MAYBE for rule in restricting)


def _allowing(rules: Iterable[Rule], call: _Call, restricting: Iterable[Rule]) -> Rule | None:
    """The rule (of several that together allow a line: one) that allows the call."""
    if isinstance(call.access, Executes):
        return _first(rules, lambda rule: _allows_text(rule, call)) or _allowing_judged(rules, call, restricting)
    if isinstance(call.access, Calls | Harmless):
        return _first(rules, lambda rule: rule.form is Form.ANY)
    path = call.access.path
    return _first(rules, lambda rule: rule.form is Form.ANY or matches_path(rule, path, call.root))


def _allows_text(rule: Rule, call: _Call) -> bool:
    """A rule about exactly this line: who wrote it has seen every expansion in it."""
    return isinstance(call.access, Executes) and rule.form is not Form.ANY and allows_line(rule, call.access.command)


def _allowing_judged(rules: Iterable[Rule], call: _Call, restricting: Iterable[Rule]) -> Rule | None:
    """Broader rules do not cover what may turn out to be denied, or to be asked about."""
    if _may_concern(restricting, call):
        return None
    whole = _first(rules, lambda rule: rule.form is Form.ANY)
    script = call.script
    if whole or script is None or script.problem or not script.commands:
        return whole
    found = [next((rule for rule in rules if allows_command(rule, command)), None) for command in script.commands]
    return found[0] if all(found) else None


def _first(rules: Iterable[Rule], is_met: Callable[[Rule], bool]) -> Rule | None:
    return next((rule for rule in rules if is_met(rule)), None)
