"""Hooks written for Claude Code: real commands that read its payload, and what they say has the effect it has there."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from teamcli.agent.events import Notice
from teamcli.agent.hooks import HookEvent, HookResult
from teamcli.agent.tool import Display, PreparedCall
from teamcli.cancel import CancelScope
from teamcli.config.settings import HookCommand, HookGroup
from teamcli.errors import Cancelled
from teamcli.exec.command_host import CommandHost
from teamcli.exec.shell_prelude import SessionLines
from teamcli.hooks.background import Background, Wake
from teamcli.hooks.commands import Ports, command_hooks
from teamcli.hooks.conditions import is_about
from teamcli.hooks.long_output import LongOutput
from teamcli.hooks.matching import matcher_of
from teamcli.hooks.runner import HookRunner
from teamcli.permissions.access import Executes, Writes
from tests.tools.shell import wait_until

SOURCE = ".claude/settings.json"
needs_jq = pytest.mark.skipif(shutil.which("jq") is None, reason="jq is not installed")


@pytest.fixture(scope="module")
def host() -> Iterator[CommandHost]:
    host = CommandHost(os.environ)
    yield host
    host.close()


class Hooked:
    """Runs hooks for one event after another, in `root`."""

    def __init__(self, host: CommandHost, root: Path) -> None:
        self.root = root
        self.notices: list[str] = []
        self.cancel = CancelScope()
        self.lines = SessionLines(root / "hooks")
        self.ports = Ports(
            host,
            root,
            self._note,
            long_output=LongOutput(root / "hooks"),
            lines=self.lines,
            is_about=lambda rule, event: is_about(rule, event, root),
            lingering=threading.Semaphore(1),
        )

    @property
    def free(self) -> int:
        """How many hooks may still leave something running."""
        assert self.ports.lingering
        if not self.ports.lingering.acquire(blocking=False):
            return 0
        self.ports.lingering.release()
        return 1

    def _note(self, event: Any) -> None:
        assert isinstance(event, Notice)
        self.notices.append(event.text)

    def runner(
        self,
        event: str,
        *handlers: Mapping[str, Any],
        matcher: str = "",
        source: str = SOURCE,
        wake: Wake = lambda agent, text: False,
    ) -> HookRunner:
        hooks = tuple(HookCommand(each["command"], each.get("timeout"), raw=each) for each in handlers)
        groups = {event: (HookGroup(hooks, matcher, source),)}
        facts = {"cwd": str(self.root), "session_id": "s-1", "permission_mode": "default"}
        return HookRunner(
            command_hooks(groups, self.ports), self._note, lambda agent: facts, Background(self.cancel, wake)
        )

    def run(self, command: str, event: HookEvent, **handler: Any) -> HookResult:
        return self.runner(event.name, {"command": command, **handler}).run(event, self.cancel)


@pytest.fixture
def hooked(host: CommandHost, tmp_path: Path) -> Hooked:
    return Hooked(host, tmp_path)


def before(tool: str, name: str = "PreToolUse", **given: Any) -> HookEvent:
    fields = {"tool_name": tool, "tool_input": given, "tool_use_id": "toolu_1"}
    return HookEvent(name, "lead", fields, tool)


def after(tool: str, content: str, /, is_error: bool = False, name: str = "PostToolUse", **given: Any) -> HookEvent:
    event = before(tool, name, **given)
    response = {"content": content, "is_error": is_error}
    return event._replace(fields={**event.fields, "tool_response": response, "duration_ms": 5})


def prepared(event: HookEvent, root: Path) -> HookEvent:
    """The event with what the call would touch, as the pipeline has it."""
    given = event.fields["tool_input"]
    access = Executes(given["command"], root) if event.subject == "bash" else Writes(root / given["path"])
    call = PreparedCall(Display(event.subject), access, lambda *_: None, given)  # type: ignore[arg-type, return-value]
    return event._replace(prepared=call)


def python(code: str) -> str:
    return f"{shlex.quote(sys.executable)} -c {shlex.quote(code)}"


# The shapes of safety hooks in public repositories


class Guard(NamedTuple):
    command: str
    blocked: HookEvent
    free: HookEvent
    says: str


_READ = "import json,sys; d=json.load(sys.stdin); t=d['tool_input']; "
GUARDS = {
    "reads file_path and exits 2": Guard(
        python(_READ + "p=t.get('file_path',''); '.env' in p and (print('protected', file=sys.stderr), sys.exit(2))"),
        before("write_file", path=".env", content="x"),
        before("write_file", path="a.py", content="x"),
        "protected",
    ),
    "wants an absolute path below the project": Guard(
        python(_READ + "import os; sys.exit(0 if t['file_path'].startswith(os.environ['CLAUDE_PROJECT_DIR']) else 2)"),
        before("read_file", path="/etc/passwd"),
        before("read_file", path="sub/../a.py"),
        "A PreToolUse hook blocks this.",
    ),
    "compares tool_name with Bash": Guard(
        python(_READ + "d['tool_name']=='Bash' and 'rm -rf' in t['command'] and sys.exit('no') or None")
        + " 2>&1 >/dev/null | grep . >&2 && exit 2; exit 0",
        before("bash", command="rm -rf build"),
        before("bash", command="ls"),
        "no",
    ),
    "reads old_string and new_string": Guard(
        python(_READ + "'assert' in t['old_string'] and 'assert' not in t['new_string'] and sys.exit(2)"),
        before("edit_file", path="t.py", old_text="assert x", new_text="pass"),
        before("edit_file", path="t.py", old_text="assert x", new_text="assert y"),
        "A PreToolUse hook blocks this.",
    ),
    "denies with JSON": Guard(
        python(
            _READ + "'main' in t['command'] and print(json.dumps({'hookSpecificOutput': {'hookEventName': 'PreToolUse',"
            "'permissionDecision': 'deny', 'permissionDecisionReason': 'not on main'}}))"
        ),
        before("bash", command="git push origin main"),
        before("bash", command="git push origin x"),
        "not on main",
    ),
    "says block in the old form": Guard(
        python(_READ + "'curl' in t['command'] and print(json.dumps({'decision': 'block', 'reason': 'offline'}))"),
        before("bash", command="curl x"),
        before("bash", command="ls"),
        "offline",
    ),
    "denies with JSON and a failing exit code": Guard(
        python(_READ + "print(json.dumps({'decision': 'block', 'reason': 'odd'})) if 'x' in t['command'] else 0")
        + "; exit 1",
        before("bash", command="x"),
        before("bash", command="y"),
        "odd",
    ),
    "exits 2 although its JSON allows": Guard(
        'grep -q forbidden && { echo \'{"decision":"approve"}\'; echo never >&2; exit 2; }; exit 0',
        before("bash", command="forbidden"),
        before("bash", command="free"),
        "never",
    ),
    "uses tests of bash": Guard(
        'input=$(cat); if [[ "$input" =~ "--no-verify" ]]; then echo "no skipping" >&2; exit 2; fi',
        before("bash", command="git commit --no-verify"),
        before("bash", command="git commit"),
        "no skipping",
    ),
    "reads an undocumented variable": Guard(
        '[[ "$CLAUDE_TOOL_FILE_PATH" == *.lock ]] && { echo locked >&2; exit 2; }; exit 0',
        before("edit_file", path="a.lock", old_text="a", new_text="b"),
        before("edit_file", path="a.py", old_text="a", new_text="b"),
        "locked",
    ),
    "searches the text of its input": Guard(
        'grep -q \'"command":"git push\' && { echo unpushable >&2; exit 2; }; exit 0',
        before("bash", command="git push origin"),
        before("bash", command="git pull"),
        "unpushable",
    ),
    "cuts the path out of the text": Guard(
        """f=$(sed -n 's/.*"file_path":"\\([^"]*\\)".*/\\1/p'); [[ $f == */größe.sql ]] && exit 2; exit 0""",
        before("write_file", path="größe.sql", content="x"),
        before("write_file", path="a.sql", content="größe.sql"),
        "A PreToolUse hook blocks this.",
    ),
    "stops everything": Guard(
        'grep -q forbidden && echo \'{"continue": false, "stopReason": "ask Ada"}\'; exit 0',
        before("bash", command="forbidden"),
        before("bash", command="free"),
        "ask Ada",
    ),
}
JQ_GUARDS = {
    "jq reads file_path": Guard(
        "jq -r '.tool_input.file_path // empty' | grep -q '\\.env$' && { echo secret >&2; exit 2; }; exit 0",
        before("read_file", path=".env"),
        before("read_file", path="a"),
        "secret",
    ),
    "jq -e decides on the tool": Guard(
        'if jq -e \'.tool_name == "Bash" and (.tool_input.command | test("sudo"))\' >/dev/null; then exit 2; fi',
        before("bash", command="sudo ls"),
        before("bash", command="ls"),
        "A PreToolUse hook blocks this.",
    ),
}


@pytest.mark.parametrize("name", GUARDS)
def test_a_guard_blocks_what_it_blocks_there_and_nothing_else(hooked: Hooked, name: str) -> None:
    guard = GUARDS[name]
    assert hooked.run(guard.command, guard.blocked).objection == guard.says
    assert hooked.run(guard.command, guard.free).objection is None


@needs_jq
@pytest.mark.parametrize("name", JQ_GUARDS)
def test_a_guard_with_jq_does_too(hooked: Hooked, name: str) -> None:
    guard = JQ_GUARDS[name]
    assert hooked.run(guard.command, guard.blocked).objection == guard.says
    assert hooked.run(guard.command, guard.free).objection is None


# What hooks read


def payload(hooked: Hooked, event: HookEvent, source: str = SOURCE) -> dict[str, Any]:
    hooked.runner(event.name, {"command": "cat > told.json"}, source=source).run(event, hooked.cancel)
    told: dict[str, Any] = json.loads((hooked.root / "told.json").read_text())
    return told


def test_the_payload_is_in_claude_codes_words_with_ours_in_addition(hooked: Hooked) -> None:
    told = payload(hooked, before("edit_file", path="a.py", old_text="1", new_text="2"))
    file = str(hooked.root / "a.py")
    assert told["tool_name"] == "Edit"
    assert told["tool_input"] == {
        "file_path": file, "old_string": "1", "new_string": "2", "path": "a.py", "old_text": "1", "new_text": "2",
    }  # fmt: skip
    common = ("session_id", "cwd", "hook_event_name", "permission_mode", "tool_use_id", "agent")
    assert [told[name] for name in common] == ["s-1", str(hooked.root), "PreToolUse", "default", "toolu_1", "lead"]


def test_a_hook_of_ours_keeps_our_words_with_claude_codes_in_addition(hooked: Hooked) -> None:
    told = payload(hooked, before("write_file", path="a.py", content="x"), source="")
    assert told["tool_name"] == "write_file"
    assert told["tool_input"] == {"path": "a.py", "content": "x", "file_path": str(hooked.root / "a.py")}
    told = payload(hooked, after("bash", "hi", command="echo hi"), source="")
    assert told["tool_response"]["content"] == "hi"
    assert told["tool_response"]["stdout"] == "hi"


def test_results_have_the_shape_that_they_have_there(hooked: Hooked) -> None:
    shell = payload(hooked, after("bash", "hi", command="echo hi"))["tool_response"]
    assert (shell["stdout"], shell["stderr"], shell["interrupted"]) == ("hi", "", False)
    written = payload(hooked, after("write_file", "Wrote", path="a", content="x")._replace(original="old"))
    response = written["tool_response"]
    assert (response["filePath"], response["type"], response["success"]) == (str(hooked.root / "a"), "update", True)
    assert response["originalFile"] == "old"
    assert written["duration_ms"] == 5


@pytest.mark.parametrize(
    ("event", "fields"),
    [
        (HookEvent("Stop", "lead", {"stop_hook_active": False}), {"stop_hook_active": False, "background_tasks": []}),
        (HookEvent("SessionEnd", "lead", {"reason": "exit"}, "exit"), {"reason": "other"}),
        (HookEvent("SubagentStop", "sa-1", {"agent_type": "general"}), {"agent_type": "general-purpose"}),
        (HookEvent("StopFailure", "lead", {"error": ValueError("x")}), {"error": "unknown"}),
        (
            HookEvent("Notification", "lead", {"message": "Your permission is needed to use Bash"}),
            {"message": "Claude needs your permission to use Bash"},
        ),
        (
            HookEvent("Notification", "lead", {"message": "The lead waits for your input"}),
            {"message": "Claude is waiting for your input"},
        ),
    ],
)
def test_events_without_a_tool_use_claude_codes_words(hooked: Hooked, event: HookEvent, fields: dict[str, Any]) -> None:
    assert fields.items() <= payload(hooked, event).items()


def test_input_that_is_not_an_object_breaks_nothing(hooked: Hooked) -> None:
    odd = {"tool_name": "bash", "tool_input": "rm", "tool_use_id": "toolu_1", "tool_response": "Error"}
    assert (
        payload(hooked, HookEvent("PostToolBatch", "lead", {"tool_calls": [odd]}))["tool_calls"][0]["tool_input"] == {}
    )
    assert payload(hooked, HookEvent("PreToolUse", "lead", odd, "bash"))["tool_input"] == {}


def test_text_that_is_not_valid_unicode_breaks_nothing(hooked: Hooked) -> None:
    assert payload(hooked, before("bash", command="echo \udc80"))["tool_input"]["command"] == "echo \udc80"


def test_the_environment_is_the_one_that_scripts_expect(hooked: Hooked) -> None:
    hooked.run("env > env.txt", before("read_file", path="a.py"))
    seen = dict(line.split("=", 1) for line in (hooked.root / "env.txt").read_text().splitlines() if "=" in line)
    file = str(hooked.root / "a.py")
    expected = {
        "CLAUDE_PROJECT_DIR": str(hooked.root),
        "CLAUDE_CODE_SESSION_ID": "s-1",
        "CLAUDE_SESSION_ID": "s-1",
        "CLAUDECODE": "1",
        "CLAUDE_TOOL_FILE_PATH": file,
        "CLAUDE_TOOL_INPUT_FILE_PATH": file,
    }
    assert expected.items() <= seen.items()


def test_paths_in_the_command_are_replaced_even_in_single_quotes_and_in_arguments(hooked: Hooked) -> None:
    event = before("bash", command="true")
    hooked.run("echo '${CLAUDE_PROJECT_DIR}' > quoted", event)
    assert (hooked.root / "quoted").read_text() == f"{hooked.root}\n"
    arguments = ["-c", 'echo "$0" "$1" > "$2"', "a b; touch evil", "$HOME", "${CLAUDE_PROJECT_DIR}/arguments"]
    hooked.run("bash", event, args=arguments)
    assert (hooked.root / "arguments").read_text() == "a b; touch evil $HOME\n"
    assert not (hooked.root / "evil").exists()


def test_a_plugins_hook_finds_its_folder(hooked: Hooked) -> None:
    command = 'echo "${CLAUDE_PLUGIN_ROOT}" > plugin; touch "$CLAUDE_PLUGIN_DATA/kept"'
    group = HookGroup((HookCommand(command),), "", SOURCE, "/plugins/p")
    hooks = command_hooks({"PreToolUse": (group,)}, hooked.ports._replace(plugin_data=hooked.root / "data"))
    runner = HookRunner(hooks, hooked._note, lambda agent: {"cwd": str(hooked.root)})
    runner.run(before("bash", command="true"), hooked.cancel)
    assert (hooked.root / "plugin").read_text() == "/plugins/p\n"
    assert (hooked.root / "data/p/kept").exists()


# Which hooks run


@pytest.mark.parametrize(
    ("matcher", "tool", "is_matched"),
    [
        ("", "bash", True),
        ("*", "bash", True),
        ("Bash", "bash", True),
        ("bash", "bash", True),
        ("Bas", "bash", False),
        ("Edit|Write", "write_file", True),
        ("Edit, Write", "write_file", True),
        ("Edit , Read", "write_file", False),
        ("MultiEdit", "edit_file", True),
        ("Edit.*", "edit_file", True),
        ("^(Edit|Write)$", "write_file", True),
        ("^Write", "edit_file", False),
        ("Ba.h", "bash_output", True),
        ("^(?!Bash$).*", "bash", False),
        ("^(?!Bash$).*", "read_file", True),
        ("[^B].*", "grep", True),
        ("Task", "agent", True),
        ("Agent", "spawn_teammate", True),
        ("mcp__memory", "mcp__memory__store", False),
        ("mcp__memory__.*", "mcp__memory__store", True),
        ("mcp__.*__write.*", "mcp__disk__write_all", True),
        ("Bash(git:*)", "bash", False),
        ("bash", "", True),
    ],
)
def test_matchers_mean_what_they_mean_there(matcher: str, tool: str, is_matched: bool) -> None:
    assert matcher_of("PreToolUse", matcher, is_claudes=True)(tool) is is_matched


@pytest.mark.parametrize(
    ("event", "matcher", "subject", "is_matched"),
    [
        ("SessionStart", "startup|clear", "startup", True),
        ("SessionStart", "compact", "startup", False),
        ("SessionEnd", "prompt_input_exit", "exit", True),
        ("SessionEnd", "other", "exit", True),
        ("SessionEnd", "logout", "exit", False),
        ("SubagentStop", "general-purpose", "general", True),
        ("SubagentStop", "code-reviewer", "code-reviewer", True),
        ("SubagentStop", "code-reviewer", "tester", False),
        ("Notification", "permission_prompt", "idle_prompt", False),
    ],
)
def test_matchers_of_other_events_do_too(event: str, matcher: str, subject: str, is_matched: bool) -> None:
    assert matcher_of(event, matcher, is_claudes=True)(subject) is is_matched


def test_a_matcher_of_ours_still_means_the_whole_name() -> None:
    assert not matcher_of("PreToolUse", "ba.h")("bash_output")
    assert matcher_of("PreToolUse", "ba.h")("bash")


@pytest.mark.parametrize(
    ("rule", "event", "runs"),
    [
        ("Bash(git push *)", before("bash", command="git push origin"), True),
        ("Bash(git push *)", before("bash", command="ls && git push origin"), True),
        ("Bash(git push *)", before("bash", command="git status"), False),
        ("Bash(git push *)", before("write_file", path="git", content=""), False),
        ("Edit(*.ts)", before("edit_file", path="a.ts", old_text="", new_text=""), True),
        ("Edit(*.ts)", before("edit_file", path="a.py", old_text="", new_text=""), False),
        ("Bash(", before("bash", command="ls"), True),
    ],
)
def test_a_hook_with_a_rule_runs_only_for_calls_that_the_rule_is_about(
    hooked: Hooked, rule: str, event: HookEvent, runs: bool
) -> None:
    result = hooked.run("exit 2", prepared(event, hooked.root), **{"if": rule})
    assert (result.objection is not None) is runs


def test_a_hook_with_a_rule_never_runs_for_another_kind_of_event(hooked: Hooked) -> None:
    assert hooked.run("exit 2", HookEvent("Stop", "lead"), **{"if": "Bash"}).objection is None


def test_identical_hooks_run_once(hooked: Hooked) -> None:
    same = {"command": "echo x >> heard"}
    other = {"command": "echo y >> heard"}
    hooked.runner("PreToolUse", same, other, same).run(before("bash", command="true"), hooked.cancel)
    assert sorted((hooked.root / "heard").read_text().split()) == ["x", "y"]


def test_hooks_of_one_event_run_at_the_same_time(hooked: Hooked) -> None:
    """Each waits until the other has started, so one after the other they would never end."""
    pair = [
        f"touch {own}; until [ -e {other} ]; do sleep 0.01; done; echo {own} >&2; exit 2" for own, other in ("ab", "ba")
    ]
    runner = hooked.runner("PreToolUse", *({"command": command} for command in pair))
    assert runner.run(before("bash", command="make"), hooked.cancel).objection == "a\nb"


def test_each_of_them_sees_the_call_as_it_was(hooked: Hooked) -> None:
    change = specific(updatedInput={"command": "changed"})
    runner = hooked.runner("PreToolUse", {"command": change}, {"command": "cat > told.json"})
    assert runner.run(before("bash", command="make"), hooked.cancel).changed_input == {"command": "changed"}
    assert json.loads((hooked.root / "told.json").read_text())["tool_input"]["command"] == "make"


def test_a_cancelled_event_ends_all_of_its_hooks(hooked: Hooked) -> None:
    pair = [{"command": f"touch {name}; sleep 600"} for name in "ab"]
    thread = threading.Thread(
        target=lambda: (wait_until(lambda: all((hooked.root / name).exists() for name in "ab")), hooked.cancel.cancel())
    )
    thread.start()
    with pytest.raises(Cancelled):
        hooked.runner("Stop", *pair).run(HookEvent("Stop", "lead"), hooked.cancel)
    thread.join()


def test_a_failed_call_is_a_failure_and_not_a_result(hooked: Hooked) -> None:
    failed = after("bash", "oops\n[exit code 3]", command="make")
    assert hooked.run("exit 2", failed).objection is None
    assert hooked.run("exit 2", after("bash", "(no output)\n[exit code 1]", command="grep x a")).objection is not None
    told = payload(hooked, failed._replace(name="PostToolUseFailure"))
    assert told["error"] == "Exit code 3\noops"
    assert told["is_interrupt"] is False
    fine = after("bash", "fine", name="PostToolUseFailure", command="make")
    assert hooked.run("exit 2", fine).objection is None


# What hooks say


def says(**fields: Any) -> str:
    return f"echo {shlex.quote(json.dumps(fields))}"


def specific(**fields: Any) -> str:
    return says(hookSpecificOutput={"hookEventName": "PreToolUse", **fields})


BASH = before("bash", command="make", timeout_seconds=5)
UPDATES: list[Any] = [
    {
        "type": "addRules",
        "rules": [{"toolName": "Bash", "ruleContent": "make *"}, {"toolName": "Edit"}, {}, 1],
        "behavior": "allow",
        "destination": "session",
    },
    {"type": "addRules", "rules": [{"toolName": "Read"}], "behavior": "deny"},
    {"type": "setMode", "mode": "acceptEdits", "destination": "session"},
    {"type": "setMode", "mode": "bypassPermissions", "destination": "session"},
    "nonsense",
]


@pytest.mark.parametrize(
    ("command", "event", "expected"),
    [
        (specific(permissionDecision="allow"), BASH, HookResult(wish="allow")),
        (
            specific(permissionDecision="ask", permissionDecisionReason="why"),
            BASH,
            HookResult(wish="ask", reason="why"),
        ),
        (specific(permissionDecision="defer"), BASH, HookResult(wish="ask")),
        (says(decision="approve"), BASH, HookResult(wish="allow")),
        (specific(additionalContext="mind"), BASH, HookResult(context="mind")),
        (says(suppressOutput=True), BASH, HookResult()),
        ("echo plain text", BASH, HookResult()),
        ("echo plain text", HookEvent("UserPromptSubmit", "lead"), HookResult(context="plain text")),
        ("echo plain text", HookEvent("SessionStart", "lead", {}, "startup"), HookResult(context="plain text")),
        ("echo plain text", HookEvent("Stop", "lead"), HookResult()),
        (says(decision="block", reason="more"), HookEvent("Stop", "lead"), HookResult("more")),
        (
            says(**{"continue": False}, stopReason="enough", decision="block", reason="more"),
            HookEvent("Stop", "lead"),
            HookResult("more", stop="enough"),
        ),
        (says(**{"continue": False}, stopReason="no"), HookEvent("UserPromptSubmit", "lead"), HookResult("no")),
        ("exit 2", HookEvent("Notification", "lead", {}, "permission_prompt"), HookResult()),
        (
            specific(updatedInput={"command": "make -s", "timeout": 9000}),
            BASH,
            HookResult(changed_input={"command": "make -s", "timeout_seconds": 9}),
        ),
        (
            specific(updatedToolOutput={"stdout": "short", "stderr": ""}),
            after("bash", "long", command="make"),
            HookResult(changed_output="short"),
        ),
        (
            says(hookSpecificOutput={"decision": {"behavior": "allow"}}),
            before("bash", "PermissionRequest", command="make"),
            HookResult(wish="allow"),
        ),
        (
            says(hookSpecificOutput={"decision": {"behavior": "allow", "updatedPermissions": UPDATES}}),
            before("bash", "PermissionRequest", command="make"),
            HookResult(wish="allow", rules=("Bash(make *)", "Edit"), mode="acceptEdits"),
        ),
        (
            says(hookSpecificOutput={"decision": {"behavior": "deny", "message": "never", "interrupt": True}}),
            before("bash", "PermissionRequest", command="make"),
            HookResult("never", stop="never"),
        ),
        ("exit 2", before("bash", "PermissionRequest", command="make"), HookResult()),
        ("exit 1", BASH, HookResult()),
        ("echo '{\"decision\":'", BASH, HookResult()),
        ("echo '[1]'; head -c 100000 /dev/urandom; exit 1", BASH, HookResult()),
    ],
)
def test_what_a_hook_prints_means_what_it_means_there(
    hooked: Hooked, command: str, event: HookEvent, expected: HookResult
) -> None:
    assert hooked.run(command, event) == expected


def test_a_changed_file_path_is_mapped_back(hooked: Hooked) -> None:
    file = str(hooked.root / "b.txt")
    code = _READ + f"print(json.dumps({{'hookSpecificOutput': {{'updatedInput': {{**t, 'file_path': {file!r}}}}}}}))"
    result = hooked.run(python(code), before("write_file", path="a.txt", content="x"))
    assert result.changed_input == {"path": "b.txt", "content": "x"}


def test_paths_of_an_agent_in_a_subdirectory_are_those_that_it_means(hooked: Hooked) -> None:
    event = before("write_file", path="a.py", content="x")
    given = event.fields["tool_input"]
    call = PreparedCall(Display("x"), Writes(hooked.root / "sub/a.py"), lambda *_: None, given)  # type: ignore[arg-type, return-value]
    event = event._replace(prepared=call)
    file = str(hooked.root / "sub/a.py")
    assert payload(hooked, event)["tool_input"]["file_path"] == file
    same = hooked.run(specific(updatedInput={"file_path": file, "content": "y"}), event)
    assert same.changed_input == {"path": "a.py", "content": "y"}
    other = hooked.run(specific(updatedInput={"file_path": f"{file}.txt", "content": "y"}), event)
    assert other.changed_input == {"path": f"{file}.txt", "content": "y"}


def test_deny_wins_over_ask_and_ask_over_allow(hooked: Hooked) -> None:
    handlers = [{"command": specific(permissionDecision=each)} for each in ("allow", "defer", "ask", "deny")]
    result = hooked.runner("PreToolUse", *handlers).run(BASH, hooked.cancel)
    assert (result.objection, result.wish) == ("A PreToolUse hook blocks this.", "ask")
    assert hooked.runner("PreToolUse", *handlers[:3]).run(BASH, hooked.cancel).wish == "ask"


def test_the_user_reads_a_system_message(hooked: Hooked) -> None:
    hooked.run(says(systemMessage="look here"), BASH)
    assert hooked.notices == ["look here"]


def test_a_failure_blocks_only_if_the_hook_says_so(hooked: Hooked) -> None:
    assert hooked.run("exit 7", BASH, onFailure="continue").objection is None
    assert "exit code 7" in str(hooked.run("exit 7", BASH, onFailure="block").objection)
    slow = hooked.run("sleep 60", BASH, onFailure="block", timeout=0.1)
    assert "took too long" in str(slow.objection)


def test_what_is_too_long_goes_to_a_file(hooked: Hooked) -> None:
    result = hooked.run(python("print('x' * 50_000)"), HookEvent("UserPromptSubmit", "lead"))
    assert len(result.context) < 3_000
    assert "48,000 more characters" in result.context
    assert (hooked.root / "hooks/output-1.txt").read_text() == "x" * 50_000


def test_long_json_is_not_cut_before_it_is_read(hooked: Hooked) -> None:
    code = "import json; print(json.dumps({'decision': 'block', 'reason': 'no', 'x': 'y' * 500_000}))"
    assert hooked.run(python(code), BASH).objection == "no"


# In the background


def test_an_async_hook_delays_nothing_and_its_context_arrives_later(hooked: Hooked) -> None:
    os.mkfifo(hooked.root / "go")
    command = f"cat go >/dev/null; {specific(additionalContext='tests are green')}; exit 0"
    runner = hooked.runner("PostToolUse", {"command": command, "async": True})
    event = after("bash", "hi", command="make")
    assert runner.run(event, hooked.cancel) == HookResult()
    assert not runner.wants("UserPromptSubmit")
    (hooked.root / "go").write_text("now")
    wait_until(lambda: runner.wants("UserPromptSubmit"))
    assert runner.run(HookEvent("UserPromptSubmit", "lead"), hooked.cancel).context == "tests are green"
    assert not runner.wants("UserPromptSubmit")
    hooked.cancel.cancel()


def test_a_hook_that_says_so_is_not_waited_for(hooked: Hooked) -> None:
    context = specific(additionalContext="late news")
    command = f"echo '{{\"async\": true}}'; until [ -e go ]; do sleep 0.01; done; {context}; touch said"
    runner = hooked.runner("PostToolUse", {"command": command})
    event = after("bash", "hi", command="echo hi")
    assert runner.run(event, hooked.cancel) == HookResult()
    (hooked.root / "go").touch()
    wait_until(lambda: (hooked.root / "said").exists())
    wait_until(lambda: runner.wants("UserPromptSubmit"))
    assert runner.run(HookEvent("UserPromptSubmit", "lead", {"prompt": "x"}), hooked.cancel).context == "late news"


def test_what_a_hook_leaves_running_continues_without_it(hooked: Hooked) -> None:
    os.mkfifo(hooked.root / "go")
    command = "(cat go >/dev/null; touch done) >/dev/null 2>&1 & echo blocked >&2; exit 2"
    assert hooked.run(command, before("bash", command="make")).objection == "blocked"
    (hooked.root / "go").write_text("now")
    wait_until((hooked.root / "done").exists)
    wait_until(lambda: hooked.free == 1)


def test_it_ends_with_the_program_and_there_are_not_too_many(hooked: Hooked) -> None:
    command = "sh -c 'echo $$ >> ids; exec sleep 600' >/dev/null 2>&1 & until [ -s ids ]; do :; done"
    hooked.run(command, before("bash", command="make"))
    assert hooked.free == 0
    hooked.run("sleep 600 & exit 0", before("bash", command="make"))  # ended, because one lingers already
    (id,) = (hooked.root / "ids").read_text().split()
    hooked.cancel.cancel()
    wait_until(lambda: not Path(f"/proc/{id}").exists())
    assert hooked.notices == []


def test_what_a_hook_that_fails_leaves_running_is_ended(hooked: Hooked) -> None:
    hooked.run("(sleep 600; touch done) >/dev/null 2>&1 & exit 1", before("bash", command="make"))
    assert (len(hooked.notices), hooked.free) == (1, 1)


def test_an_async_hook_that_hangs_ends_with_the_program(hooked: Hooked) -> None:
    runner = hooked.runner("PostToolUse", {"command": "touch began; sleep 100", "async": True})
    runner.run(after("bash", "hi", command="make"), hooked.cancel)
    wait_until((hooked.root / "began").exists)
    hooked.cancel.cancel()
    wait_until(lambda: not [each for each in threading.enumerate() if each.name.startswith("hook touch began")])
    assert not runner.wants("UserPromptSubmit")


def test_a_hook_that_may_wake_its_agent_does_so_only_with_exit_2(hooked: Hooked) -> None:
    woken: list[str] = []
    runner = hooked.runner(
        "PostToolUse",
        {"command": "touch quiet; exit 0", "asyncRewake": True},
        {"command": "echo the build broke >&2; exit 2", "asyncRewake": True},
        wake=lambda agent, text: not woken.append(f"{agent}: {text}"),  # type: ignore[func-returns-value]
    )
    runner.run(after("bash", "hi", command="make"), hooked.cancel)
    wait_until(lambda: bool(woken) and (hooked.root / "quiet").exists())
    assert woken == ["lead: <note>\nThe user's PostToolUse hook says:\nthe build broke\n</note>"]
    assert not runner.wants("UserPromptSubmit")


# CLAUDE_ENV_FILE


def test_lines_for_each_command_come_from_session_start_hooks_only(hooked: Hooked) -> None:
    write = "echo 'export NODE_ENV=test' >> \"${CLAUDE_ENV_FILE:-/dev/null}\""
    hooked.run(write, BASH)
    assert hooked.lines.text == ""
    for _ in range(2):  # a session that begins again says the same
        hooked.run(write, HookEvent("SessionStart", "lead", {"source": "startup"}, "startup"))
    assert hooked.lines.text == "export NODE_ENV=test\n"
    assert list((hooked.root / "hooks").iterdir()) == []
