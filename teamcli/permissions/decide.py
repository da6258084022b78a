"""May this call run? Decided from the policy and from what the tool would touch.

Rules that deny and the built-in denials win in every mode; `plan` refuses commands and changes; rules that ask ask;
then `bypassPermissions`, rules that allow, and the mode decide. Rules see what a line says, not what a program does:
the sandbox is the real boundary.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType
from typing import Any

from teamcli.permissions.access import Access, Calls, Executes, Merges, Reads, Writes
from teamcli.permissions.command_rules import OPEN_ENDED, covers, hits, is_line
from teamcli.permissions.dangerous import danger_of
from teamcli.permissions.fields import has_value, path_as_given
from teamcli.permissions.form import Form
from teamcli.permissions.policy import Decision, Mode, Policy, Verdict
from teamcli.permissions.rules import (
    READING_TOOLS,
    WRITING_TOOLS,
    Rule,
    hides_path,
    matches_member,
    matches_path,
    rule_for_command,
    rule_for_path,
)
from teamcli.permissions.shell.commands import read_commands
from teamcli.permissions.shell.files_read import files_read
from teamcli.permissions.shell.forms import SHELLS, never_covered, unwrapped
from teamcli.permissions.shell.scanner import names
from teamcli.permissions.shell.steps import Step, steps
from teamcli.permissions.shell.strict import Command, NotUnderstood, read_line
from teamcli.permissions.suggest import rule_for_directory, rules_for_commands
from teamcli.workspace.bounds import Workspace

CanChange = Callable[[Path], bool]
Given = Mapping[str, Any]
_NOTHING: Given = MappingProxyType({})
_WRITE = "write_file"
"""A redirection to a file is judged as a call of this tool."""
_PROTECTED = names(
    ".git .claude .team .vscode .idea .husky .devcontainer .mcp.json .claude.json .gitconfig .gitmodules .npmrc "
    ".yarnrc .bashrc .bash_profile .profile .zshrc .zprofile .zshenv .envrc"
)
"""Names that rules in Claude Code's form never allow to change, nor anything below them."""


def decide(
    policy: Policy,
    tool: str,
    access: Access,
    workspace_root: Path,
    can_change: CanChange | None = None,
    given: Given = MappingProxyType({}),
) -> Decision:
    """Whether the call may run, must be asked about, or is refused. Never raises.

    `can_change` says whether file tools may change a file at all. The same applies to redirections. `given` is the
    input of the call, which some rules are about.
    """
    if isinstance(access, Executes):
        can_change = can_change or Workspace(workspace_root).can_change
        return _CommandLine(policy, tool, access, workspace_root, can_change, given).decide()
    return (
        _refused(policy, tool, access, workspace_root, given)
        or _settled(policy, tool, access, workspace_root, given)
        or _by_mode(policy.mode, tool, access, workspace_root)
    )


def may_see(policy: Policy, path: Path, workspace_root: Path) -> bool:
    """Whether tools that search a directory or change a file may show the content of this one."""
    patterns = [rule for rule in policy.deny if rule.form is not Form.ANY]
    return not any(_concerns(rule, "read_file", Reads(path), workspace_root) for rule in patterns)


def _refused(policy: Policy, tool: str, access: Access, root: Path, given: Given = _NOTHING) -> Decision | None:
    for rule in policy.deny:
        if _concerns(rule, tool, access, root, given):
            return _denied(rule)
    return _by_plan(policy.mode, tool) if isinstance(access, Writes | Calls | Merges) else None


def _settled(policy: Policy, tool: str, access: Access, root: Path, given: Given = _NOTHING) -> Decision | None:
    if isinstance(access, Writes) and access.path in policy.hook_files:
        why = f"A hook or MCP server runs {access.path.name}: changing it always asks."
        return Decision(Verdict.ASK, why, is_asked_by_rule=True)
    for rule in policy.ask:
        if _concerns(rule, tool, access, root, given):
            return _asked(rule)
    if policy.mode is Mode.BYPASS_PERMISSIONS:
        return _BYPASSED
    return next((_allowed(rule) for rule in policy.allow if _allows(rule, tool, access, root, given)), None)


def _allows(rule: Rule, tool: str, access: Access, root: Path, given: Given) -> bool:
    if not rule.is_about(tool):
        return False
    if isinstance(access, Merges):
        return rule.form is Form.ANY or matches_member(rule, access.member)
    if not isinstance(access, Reads | Writes):
        return rule.form is Form.ANY
    if rule.written and isinstance(access, Writes) and _is_protected(access.path, root):
        return False  # Claude Code asks about these whatever its rules allow
    # A rule in its form has to allow a link as well as what the link leads to.
    paths = {access.path, path_as_given(given, root, access.path)} if rule.written else {access.path}
    return rule.form is Form.ANY or all(matches_path(rule, path, root) for path in paths)


def _is_protected(path: Path, root: Path) -> bool:
    inside = path.relative_to(root) if path.is_relative_to(root) else path
    return not _PROTECTED.isdisjoint(inside.parts)


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


def _concerns(rule: Rule, tool: str, access: Access, root: Path, given: Given = _NOTHING) -> bool:
    """Whether a rule that denies or asks applies. A path rule applies to every tool with the same kind of access."""
    if rule.form is Form.ANY or rule.form is Form.FIELD:
        return rule.is_about(tool) and (rule.form is Form.ANY or has_value(rule.pattern, tool, given))
    if isinstance(access, Merges):
        return rule.tool == tool and matches_member(rule, access.member)
    if not isinstance(access, Reads | Writes):
        return False
    paths = {access.path, path_as_given(given, root, access.path)}
    tools = READING_TOOLS if isinstance(access, Reads) else WRITING_TOOLS
    return rule.tool in tools and any(hides_path(rule, path, root) for path in paths)


@dataclass(frozen=True)
class _CommandLine:
    """A command line, and everything that its decision depends on."""

    policy: Policy
    tool: str
    access: Executes
    root: Path
    can_change: CanChange
    given: Given

    def decide(self) -> Decision:
        if danger := danger_of(self.access.command):
            return Decision(Verdict.DENY, f"Dangerous command blocked: {danger}.", by="a built-in rule")
        if self.policy.lets_everything_run:  # reading a long line takes a while, and nothing would depend on it
            return _BYPASSED
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
        if not rule.is_about(self.tool) or rule.form is Form.ANY:
            return rule.is_about(self.tool)
        if rule.form is Form.FIELD:
            return has_value(rule.pattern, self.tool, self.given)
        if rule.form is Form.READS:
            return any(hides_path(rule, path, self.root) for path in self._files_read)
        return hits(rule, line, read_commands(line))

    @cached_property
    def _files_read(self) -> set[Path]:
        return files_read(self.access.command, self._start)

    @property
    def _start(self) -> Path:
        return self.access.directory or self.root

    def _doubt(self, rule: Rule) -> str:
        line = self.access.command
        is_certain = rule.form in (Form.ANY, Form.FIELD, Form.READS) or is_line(rule, line)
        return "" if is_certain else read_commands(line).doubt

    def _changes(self) -> list[Writes]:
        """The files that its redirections certainly write."""
        try:
            commands = read_line(self.access.command)
            # Most lines write no file. Then where they run does not matter, and finding out costs system calls.
            found = self._steps(commands) if any(command.writes for command in commands) else ()
            return [Writes(path) for step in found for path in step.written]
        except NotUnderstood:  # where it would run is not certain: what it names is taken from where it starts
            written = (word for command in read_commands(self.access.command).commands for word in command.writes)
            names = [word.value for word in written if not word.source and "\0" not in word.value]
            return [Writes(Path(os.path.realpath(self._start / name))) for name in names]

    def _steps(self, commands: Sequence[Command]) -> list[Step]:
        return steps(commands, self._start)

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
        if rule := self._covering_as_written(step, self._rules()):
            return rule
        words = tuple(unwrapped(step.command.words))
        inner = step._replace(command=step.command._replace(words=words))
        theirs = (rule for rule in self._rules() if rule.written)
        return None if words == step.command.words else self._covering_as_written(inner, theirs)

    def _covering_as_written(self, step: Step, rules: Iterable[Rule]) -> Rule | None:
        name = step.command.words[0]
        if "/" in name and not name.startswith("/") and not step.is_at_start:
            return None  # after a `cd`, `./build` may be a different program
        covering = [rule for rule in rules if covers(rule, step.command)]
        # so is `cd elsewhere && sh build`, though a rule for `sh build` exists
        if name.rsplit("/", 1)[-1] in SHELLS and not step.is_at_start:
            return None
        is_other = not step.is_at_start and (bool(step.command.writes) or bool(never_covered(step.command.words)))
        return next((rule for rule in covering if rule.form in OPEN_ENDED or not is_other), None)

    def _problem(self, step: Step, rule: Rule | None) -> str:
        """Why this command of the line must be asked about; empty if it need not."""
        if rule is None and not step.needs_no_rule(self.root):
            return never_covered(step.command.words) or f"no rule allows `{' '.join(step.command.words)}`"
        if rule is None or rule.form in OPEN_ENDED:
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
        wider = replace(self, policy=self.policy._replace(allow=(*self.policy.allow, *rules)))
        is_enough = not any(wider._problem(step, wider._covering(step)) for step in found)
        return tuple(map(str, rules)) if rules and is_enough else ()

    def _ask(self, advice: str, rule: str = "", broader: tuple[str, ...] = ()) -> Decision:
        reason = f"The mode {self.policy.mode} asks before {self.tool} runs this command: {advice}."
        return Decision(Verdict.ASK, reason, rule, advice, broader=broader)

    def _rules(self) -> Iterator[Rule]:
        return (rule for rule in self.policy.allow if rule.is_about(self.tool))


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
