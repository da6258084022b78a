"""May this call run? Decided from the policy and from what the tool would touch.

Rules that deny and the built-in denials win in every mode; `plan` refuses commands and changes; rules that ask ask;
then `bypassPermissions`, rules that allow, and the mode decide. Rules see what a line says, not what a program does:
the sandbox is the real boundary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from teamcli.permissions.access import Access, Calls, Executes, Merges, Reads, Writes
from teamcli.permissions.dangerous import danger_of
from teamcli.permissions.policy import Decision, Mode, Policy, Verdict
from teamcli.permissions.rules import (
    READING_TOOLS,
    WRITING_TOOLS,
    Form,
    Rule,
    covers,
    hides_path,
    hits,
    is_line,
    matches_member,
    matches_path,
    rule_for_command,
    rule_for_path,
)
from teamcli.permissions.shell.commands import read_commands
from teamcli.permissions.shell.forms import never_covered
from teamcli.permissions.shell.steps import Step, steps
from teamcli.permissions.shell.strict import Command, NotUnderstood, read_line
from teamcli.permissions.suggest import rule_for_directory, rules_for_commands
from teamcli.workspace.bounds import Workspace

CanChange = Callable[[Path], bool]
_WRITE = "write_file"
"""A redirection to a file is judged as a call of this tool."""


def decide(
    policy: Policy, tool: str, access: Access, workspace_root: Path, can_change: CanChange | None = None
) -> Decision:
    """Whether the call may run, must be asked about, or is refused. Never raises.

    `can_change` says whether file tools may change a file at all. The same applies to redirections.
    """
    if isinstance(access, Executes):
        can_change = can_change or Workspace(workspace_root).can_change
        return _CommandLine(policy, tool, access, workspace_root, can_change).decide()
    return (
        _refused(policy, tool, access, workspace_root)
        or _settled(policy, tool, access, workspace_root)
        or _by_mode(policy.mode, tool, access, workspace_root)
    )


def may_see(policy: Policy, path: Path, workspace_root: Path) -> bool:
    """Whether tools that search a directory or change a file may show the content of this one."""
    patterns = [rule for rule in policy.deny if rule.form is not Form.ANY]
    return not any(_concerns(rule, "read_file", Reads(path), workspace_root) for rule in patterns)


def _refused(policy: Policy, tool: str, access: Access, root: Path) -> Decision | None:
    for rule in policy.deny:
        if _concerns(rule, tool, access, root):
            return _denied(rule)
    return _by_plan(policy.mode, tool) if isinstance(access, Writes | Calls | Merges) else None


def _settled(policy: Policy, tool: str, access: Access, root: Path) -> Decision | None:
    if isinstance(access, Writes) and access.path in policy.hook_files:
        return Decision(Verdict.ASK, f"A hook runs {access.path.name}: changing it always asks.", is_asked_by_rule=True)
    for rule in policy.ask:
        if _concerns(rule, tool, access, root):
            return _asked(rule)
    if policy.mode is Mode.BYPASS_PERMISSIONS:
        return _BYPASSED
    for rule in policy.allow:
        is_any = rule.form is Form.ANY
        if rule.tool == tool and (
            is_any
            or (isinstance(access, Reads | Writes) and matches_path(rule, access.path, root))
            or (isinstance(access, Merges) and matches_member(rule, access.member))
        ):
            return _allowed(rule)
    return None


def _by_mode(mode: Mode, tool: str, access: Access, root: Path) -> Decision:
    if isinstance(access, Calls):
        return Decision(Verdict.ASK, f"The mode {mode} asks before {tool} is called.", tool)
    if not isinstance(access, Writes | Merges):
        return Decision(Verdict.ALLOW, f"{tool} changes nothing.")
    if mode is Mode.ACCEPT_EDITS:
        return Decision(Verdict.ALLOW, "The mode acceptEdits allows file changes.")
    if isinstance(access, Merges):
        return Decision(Verdict.ASK, f"The mode {mode} asks before each merge.", f"{tool}({access.member})")
    rule = rule_for_path(tool, access.path, root)
    broader = rule_for_directory(tool, access.path, root)
    reason = f"The mode {mode} asks before {tool} changes a file."
    return Decision(Verdict.ASK, reason, str(rule), broader=(str(broader),) if broader else ())


def _concerns(rule: Rule, tool: str, access: Access, root: Path) -> bool:
    """Whether a rule that denies or asks applies. A path rule applies to every tool with the same kind of access."""
    if isinstance(access, Merges):
        return rule.tool == tool and (rule.form is Form.ANY or matches_member(rule, access.member))
    if rule.form is Form.ANY or not isinstance(access, Reads | Writes):
        return rule.tool == tool and rule.form is Form.ANY
    return rule.tool in (READING_TOOLS if isinstance(access, Reads) else WRITING_TOOLS) and hides_path(
        rule, access.path, root
    )


class _CommandLine(NamedTuple):
    """A command line, and everything that its decision depends on."""

    policy: Policy
    tool: str
    access: Executes
    root: Path
    can_change: CanChange

    def decide(self) -> Decision:
        if danger := danger_of(self.access.command):
            return Decision(Verdict.DENY, f"Dangerous command blocked: {danger}.", by="a built-in rule")
        files = self._changes()
        # The order is the promise: denials first, then questions, and only then what allows.
        return self._refused(files) or self._asked(files) or self._settled() or self._judged()

    def _refused(self, files: Sequence[Writes]) -> Decision | None:
        for rule in self.policy.deny:
            if self._is_hit(rule):
                return _denied(rule, self._doubt(rule))
        by_file = next(filter(None, (_refused(self.policy, _WRITE, file, self.root) for file in files)), None)
        return by_file or _by_plan(self.policy.mode, self.tool)

    def _asked(self, files: Sequence[Writes]) -> Decision | None:
        for rule in self.policy.ask:
            if self._is_hit(rule):
                return _asked(rule, self._doubt(rule))
        found = (_settled(self.policy, _WRITE, file, self.root) for file in files)
        return next((decision for decision in found if decision and decision.is_asked_by_rule), None)

    def _is_hit(self, rule: Rule) -> bool:
        line = self.access.command
        return rule.tool == self.tool and (rule.form is Form.ANY or hits(rule, line, read_commands(line)))

    def _doubt(self, rule: Rule) -> str:
        line = self.access.command
        return "" if rule.form is Form.ANY or is_line(rule, line) else read_commands(line).doubt

    def _changes(self) -> list[Writes]:
        """The files that its redirections certainly write."""
        try:
            commands = read_line(self.access.command)
            # Most lines write no file. Then where they run does not matter, and finding out costs system calls.
            found = self._steps(commands) if any(command.writes for command in commands) else ()
            return [Writes(path) for step in found for path in step.written]
        except NotUnderstood:  # its targets are unknown: only rules about commands apply
            return []

    def _steps(self, commands: Sequence[Command]) -> list[Step]:
        return steps(commands, self.access.directory or self.root)

    def _settled(self) -> Decision | None:
        if self.policy.mode is Mode.BYPASS_PERMISSIONS:
            return _BYPASSED
        if whole := next((rule for rule in self._rules() if rule.form is Form.ANY), None):
            return _allowed(whole)
        if self.policy.commands_are_confined:
            return Decision(Verdict.ALLOW, "It runs in the sandbox, and the setting sandbox_allows_bash allows that.")
        return None

    def _judged(self) -> Decision:
        line = self.access.command
        try:
            found = self._steps(read_line(line))
            if exact := next((rule for rule in self._rules() if is_line(rule, line)), None):
                return _allowed(exact)
            covering = [self._covering(step) for step in found]
            problem = next(filter(None, map(self._problem, found, covering)), "")
        except NotUnderstood as e:
            return self._ask(f"no rule for a program covers this line, because {e}")
        if problem:
            return self._ask(problem, str(rule_for_command(self.tool, line)), self._broader(found, covering))
        rule = next(filter(None, covering), None)
        return _allowed(rule) if rule else Decision(Verdict.ALLOW, "`echo`, `true` and `cd` need no rule.")

    def _covering(self, step: Step) -> Rule | None:
        name = step.command.words[0]
        if "/" in name and not name.startswith("/") and not step.is_at_start:
            return None  # after a `cd`, `./build` may be a different program
        covering = [rule for rule in self._rules() if covers(rule, step.command)]
        # so is `cd elsewhere && sh build`, though a rule for exactly `sh build` exists
        is_other = not step.is_at_start and (bool(step.command.writes) or bool(never_covered(step.command.words)))
        return next((rule for rule in covering if rule.form is Form.PREFIX or not is_other), None)

    def _problem(self, step: Step, rule: Rule | None) -> str:
        """Why this command of the line must be asked about; empty if it need not."""
        if rule is None and not step.needs_no_rule(self.root):
            return never_covered(step.command.words) or f"no rule allows `{' '.join(step.command.words)}`"
        if rule is None or rule.form is Form.PREFIX:
            closed = next((path for path in step.written if not self._may_write(path)), None)
            return f"it changes {closed}, as {_WRITE} would" if closed else ""
        return ""

    def _may_write(self, path: Path) -> bool:
        return self.can_change(path) and decide(self.policy, _WRITE, Writes(path), self.root).verdict is Verdict.ALLOW

    def _broader(self, found: Sequence[Step], covering: Sequence[Rule | None]) -> tuple[str, ...]:
        """Rules that would allow this line and others like it. They are offered only if they really do."""
        needed = [
            s.command for s, rule in zip(found, covering, strict=True) if not rule and not s.needs_no_rule(self.root)
        ]
        rules = rules_for_commands(self.tool, needed)
        wider = self._replace(policy=self.policy._replace(allow=(*self.policy.allow, *rules)))
        is_enough = not any(wider._problem(step, wider._covering(step)) for step in found)
        return tuple(map(str, rules)) if rules and is_enough else ()

    def _ask(self, advice: str, rule: str = "", broader: tuple[str, ...] = ()) -> Decision:
        reason = f"The mode {self.policy.mode} asks before {self.tool} runs this command: {advice}."
        return Decision(Verdict.ASK, reason, rule, advice, broader=broader)

    def _rules(self) -> Iterator[Rule]:
        return (rule for rule in self.policy.allow if rule.tool == self.tool)


def _denied(rule: Rule, doubt: str = "") -> Decision:
    reason = f"The rule {rule} denies this call."
    if doubt:
        reason = (
            f"The rule {rule} may deny this call, and so does: {doubt}. "
            "Write the command out, without expansions in the words that the rule is about."
        )
    return Decision(Verdict.DENY, reason, str(rule), by=f"the rule {rule}")


def _asked(rule: Rule, doubt: str = "") -> Decision:
    why = f", and may be about this one: {doubt}" if doubt else ""
    return Decision(Verdict.ASK, f"The rule {rule} asks before each such call{why}.", is_asked_by_rule=True)


def _allowed(rule: Rule) -> Decision:
    return Decision(Verdict.ALLOW, f"The rule {rule} allows it.", str(rule))


def _by_plan(mode: Mode, tool: str) -> Decision | None:
    if mode is not Mode.PLAN:
        return None
    reason = f"The mode plan refuses {tool}: only reading is possible until it is left."
    return Decision(Verdict.DENY, reason, by="plan mode")


_BYPASSED = Decision(Verdict.ALLOW, "The mode bypassPermissions allows every call.")
