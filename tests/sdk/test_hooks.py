"""Hooks that are functions."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from teamcli import ConfigError, Hook, HookEvent, HookResult, Outcome, events
from tests.mcp.servers import FAKE
from tests.sdk.conftest import Open
from tests.sdk.models import call, results, said, scripted
from tests.tools.shell import wait_until

BYPASS = {"permission_mode": "bypassPermissions"}


def bash_once(command: str = "echo ran") -> Any:
    return scripted(lead=[said("", call("bash", command=command)), "over"])


def test_a_hook_may_object_to_change_ask_about_and_allow_a_call(opened: Open, place: Path) -> None:
    def run_with(said_by_hook: HookResult | None, command: str = "echo ran", **options: Any) -> str:
        model = bash_once(command)
        session = opened(llm=model, hooks=[Hook("PreToolUse", lambda event: said_by_hook, "bash")], **options)
        session.run("go")
        session.close()
        return results(model.requests[1])[0]

    assert run_with(None, **BYPASS) == "ran"
    assert run_with(HookResult("not today"), **BYPASS) == "not today"
    assert run_with(HookResult(changed_input={"command": "echo other"}), **BYPASS) == "other"
    assert "Invalid input" in run_with(HookResult(changed_input={"cmd": "x"}), **BYPASS)
    assert run_with(HookResult(wish="allow"), "printf ran") == "ran"
    in_doubt = run_with(HookResult(wish="allow"), "X=echo; $(printf $X) ran", disallowed_tools="bash(echo:*)")
    assert "may deny this call" in in_doubt
    assert "nobody can be asked" in run_with(HookResult(wish="ask", reason="hm"), allowed_tools="bash")


def test_a_hook_receives_the_event_and_its_agent(opened: Open, place: Path) -> None:
    told: list[HookEvent] = []

    def note(event: HookEvent) -> None:
        told.append(event)

    names = ("UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionStart", "SessionEnd")
    session = opened(llm=bash_once(), hooks=[Hook(name, note) for name in names], **BYPASS)
    session.run("go")
    session.close()
    assert [event.name for event in told] == [
        "SessionStart", "UserPromptSubmit", "PreToolUse", "PostToolUse", "Stop", "SessionEnd",
    ]  # fmt: skip
    assert {event.agent for event in told} == {"lead"}
    before, after = told[2], told[3]
    assert (before.subject, before.fields["tool_input"]) == ("bash", {"command": "echo ran"})
    assert after.fields["tool_response"] == {"content": "ran", "is_error": False}
    assert before.fields["cwd"] == str(place)
    assert before.fields["session_id"] == session.id


def test_a_hook_may_add_to_a_result_and_to_a_line_or_block_the_line(opened: Open) -> None:
    model = bash_once()
    hooks = [
        Hook("PostToolUse", lambda event: HookResult(context="that was slow")),
        Hook("UserPromptSubmit", lambda event: HookResult(context="it is Monday")),
        Hook("UserPromptSubmit", lambda event: HookResult("no") if "secret" in event.fields["prompt"] else None),
    ]
    session = opened(llm=model, hooks=hooks, **BYPASS)
    session.run("go")
    assert "it is Monday" in str(model.requests[0].messages)
    assert "that was slow" in results(model.requests[1])[0]
    blocked = session.run("the secret")
    assert blocked.outcome is Outcome.FAILED
    assert str(blocked.error) == "no"
    assert "the secret" not in str(model.requests[-1].messages)


def test_a_hook_sends_an_agent_back_to_work_at_most_eight_times(opened: Open) -> None:
    model = scripted(lead=["done"] * 12)
    session = opened(llm=model, hooks=[Hook("Stop", lambda event: HookResult("more"))])
    assert session.run("go").is_done
    assert len(model.requests) == 9


def test_sub_agents_and_teammates_are_also_sent_back(opened: Open) -> None:
    ended: list[tuple[str, str]] = []

    def note(event: HookEvent) -> None:
        ended.append((event.name, event.agent))

    lead = [
        said("", call("agent", prompt="go", subagent_type="general")),
        said("", call("spawn_teammate", name="alice", role="coder", prompt="go")),
        "over",
    ]
    session = opened(llm=scripted(lead=lead), hooks=[Hook(name, note) for name in ("SubagentStop", "TeammateIdle")])
    session.run("go")
    assert set(ended) == {("SubagentStop", "sa-1"), ("TeammateIdle", "alice")}


def test_a_hook_that_fails_is_reported_and_blocks_nothing(opened: Open) -> None:
    def broken(event: HookEvent) -> None:
        raise SystemExit(3)

    hooks = [
        Hook("PreToolUse", broken),
        Hook("PreToolUse", lambda event: "no"),  # type: ignore[arg-type, return-value]
        Hook("PreToolUse", lambda event: HookResult(wish="maybe")),
        Hook("PreToolUse", lambda event: HookResult(changed_input="ls")),  # type: ignore[arg-type]
    ]
    model = bash_once()
    session = opened(llm=model, hooks=hooks, **BYPASS)
    notices = [event.text for event in session.submit("go") if isinstance(event, events.Notice)]
    assert results(model.requests[1]) == ["ran"]
    for words in ("`broken` failed and is ignored: SystemExit: 3", "not str", "'maybe'", "not a mapping"):
        assert any(words in notice for notice in notices), words


def test_a_hook_that_hangs_is_abandoned(opened: Open) -> None:
    began, end = threading.Event(), threading.Event()

    def hang(event: HookEvent) -> None:
        began.set()
        end.wait(60)

    model = bash_once()
    session = opened(llm=model, hooks=[Hook("PreToolUse", hang, timeout_seconds=0.01)], **BYPASS)
    notices = [event.text for event in session.submit("go") if isinstance(event, events.Notice)]
    assert any("took too long" in notice for notice in notices)
    assert results(model.requests[1]) == ["ran"]
    session.close()
    began.clear()
    session = opened(llm=bash_once(), hooks=[Hook("PreToolUse", hang)], **BYPASS)
    listening = session.submit("go")
    assert began.wait(30)
    assert session.interrupt()
    assert list(listening)[-1].outcome is Outcome.INTERRUPTED
    end.set()


def test_a_function_runs_after_the_commands_of_the_settings_and_sees_their_changes(opened: Open, place: Path) -> None:
    changed = json.dumps({"hookSpecificOutput": {"updatedInput": {"command": "echo changed"}}})
    command = {"matcher": "bash", "hooks": [{"type": "command", "command": f"echo '{changed}'"}]}
    seen: list[Any] = []

    def look(event: HookEvent) -> HookResult:
        seen.append(event.fields["tool_input"])
        return HookResult(changed_input={"command": f"{seen[-1]['command']} twice"})

    model = bash_once()
    hooks = [Hook("PreToolUse", look), Hook("PreToolUse", look)]
    opened(llm=model, hooks=hooks, settings={"hooks": {"PreToolUse": [command]}}, **BYPASS).run("go")
    assert [each["command"] for each in seen] == ["echo changed", "echo changed twice"]
    assert results(model.requests[1]) == ["changed twice twice"]


def test_matchers_work_as_in_the_settings(opened: Open) -> None:
    seen: list[str] = []
    hooks = [
        Hook("PreToolUse", lambda event: seen.append(event.subject), matcher)
        for matcher in ("bash", "Bash", "bas", "*", "read_file|bash")
    ]
    opened(llm=bash_once(), hooks=hooks, **BYPASS).run("go")
    assert seen == ["bash"] * 4


@pytest.mark.parametrize(
    ("hook", "words"),
    [
        (Hook("BeforeTool", print), "there is no event 'BeforeTool'; there are PreToolUse"),
        (Hook("Stop", print, "("), "is not a valid regular expression"),
        (Hook("Stop", None), "is not a teamcli.Hook"),  # type: ignore[arg-type]
        (("Stop", print), "is not a teamcli.Hook"),
    ],
)
def test_mistakes_in_hooks_are_explained(opened: Open, hook: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        opened(offline=True, hooks=[hook])


class TestQuestions:
    """`PermissionRequest` answers a question instead of the person, and `Notification` says that there is one."""

    @pytest.mark.parametrize(
        ("said_by_hook", "result", "is_asked"),
        [
            (None, "ran", True),
            (HookResult(wish="allow"), "ran", False),
            (HookResult("never"), "Error: never", False),
            (HookResult(wish="allow", changed_input={"command": "printf other"}), "other", False),
        ],
    )
    def test_a_hook_answers_a_question(
        self, opened: Open, said_by_hook: HookResult | None, result: str, is_asked: bool
    ) -> None:
        asked: list[str] = []
        model = bash_once("printf ran")
        hooks = [Hook("PermissionRequest", lambda event: said_by_hook, "bash")]
        opened(llm=model, hooks=hooks, ask=lambda question: asked.append(question.tool) or True).run("go")
        assert results(model.requests[1])[0] == result
        assert bool(asked) is is_asked

    def test_a_hook_answers_no_question_of_a_rule_and_none_that_nobody_could_be_asked(self, opened: Open) -> None:
        told: list[HookEvent] = []

        def allow(event: HookEvent) -> HookResult:
            told.append(event)
            return HookResult(wish="allow")

        asked: list[str] = []
        hooks, settings = [Hook("PermissionRequest", allow)], {"permissions": {"ask": ["bash(printf:*)"]}}
        session = opened(
            llm=bash_once("printf ran"),
            hooks=hooks,
            settings=settings,
            ask=lambda question: not asked.append(question.tool),
        )
        session.run("go")
        session.close()
        assert asked == ["bash"]
        assert len(told) == 1
        model = bash_once("printf ran")
        opened(llm=model, hooks=hooks).run("go")
        assert "nobody can be asked" in results(model.requests[1])[0]
        assert len(told) == 1

    def test_the_answer_may_allow_more_for_the_session(self, opened: Open) -> None:
        told: list[str] = []

        def allow(event: HookEvent) -> HookResult:
            told.append(event.subject)
            return HookResult(wish="allow", rules=("Bash(printf *)", "Nonsense(x)"), mode="acceptEdits")

        calls = [call("bash", command="printf 1"), call("bash", command="printf 2")]
        calls += [call("write_file", path="a", content="x"), call("bash", command="touch b")]
        model = scripted(lead=[*(said("", each) for each in calls), "over"])
        opened(llm=model, hooks=[Hook("PermissionRequest", allow)], ask=lambda question: False).run("go")
        assert told == ["bash", "bash"]  # for the first call and the last

    def test_a_changed_call_stays_denied(self, opened: Open) -> None:
        model = bash_once("printf ran")
        changes = HookResult(wish="allow", changed_input={"command": "rm -rf x"})
        hooks = [Hook("PermissionRequest", lambda event: changes)]
        opened(llm=model, hooks=hooks, ask=lambda question: True, disallowed_tools="bash(rm:*)").run("go")
        assert "denies this call" in results(model.requests[1])[0]

    def test_the_answer_may_change_a_call_of_a_tool_that_was_found_by_searching(self, opened: Open) -> None:
        found = call("call_tool", name="mcp__fake__echo", input={"text": "ran"})
        model = scripted(lead=[said("", found), "over"])
        servers = {"fake": {"command": sys.executable, "args": ["-I", "-S", FAKE, "many:50"]}}
        changes = HookResult(wish="allow", changed_input={"text": "other"})
        hooks = [Hook("PermissionRequest", lambda event: changes)]
        opened(llm=model, hooks=hooks, ask=lambda question: False, settings={"mcpServers": servers}).run("go")
        assert "other" in results(model.requests[1])[0]

    def test_a_question_is_a_notification(self, opened: Open) -> None:
        told: list[HookEvent] = []
        notified = threading.Event()

        def note(event: HookEvent) -> None:
            told.append(event)
            notified.set()

        hooks = [Hook("Notification", note, "permission_prompt"), Hook("Notification", note, "auth_success")]
        session = opened(llm=bash_once("printf ran"), hooks=hooks, ask=lambda question: notified.wait(30))
        session.run("go")
        assert [event.fields["notification_type"] for event in told] == ["permission_prompt"]
        assert told[0].fields["message"] == "Your permission is needed to use Bash"


def test_a_hook_ends_the_turn(opened: Open, place: Path) -> None:
    model = bash_once()
    hook = Hook("PostToolUse", lambda event: HookResult(stop="enough"))
    session = opened(llm=model, hooks=[hook], settings={"sandbox": "off"}, **BYPASS)
    told: list[str] = []
    session.subscribe(lambda event: told.append(event.text), events.Notice)
    assert session.run("go").is_done
    assert len(model.requests) == 1
    assert told == ["A hook has ended the turn: enough"]


def test_a_hook_replaces_a_result(opened: Open) -> None:
    model = bash_once()
    opened(llm=model, hooks=[Hook("PostToolUse", lambda event: HookResult(changed_output="short"))], **BYPASS).run("go")
    assert results(model.requests[1]) == ["short"]


def test_a_hook_in_the_background_wakes_an_idle_lead(opened: Open, place: Path) -> None:
    os.mkfifo(place / "go")
    hook = {"command": "cat go; echo the build broke >&2; exit 2", "raw": {"asyncRewake": True}}
    settings = {"hooks": {"PostToolUse": [{"hooks": [hook], "source": "~/.claude/settings.json"}]}}
    model = scripted(lead=[said("", call("bash", command="echo ran")), "over", "I see"])
    session = opened(llm=model, settings=settings, **BYPASS)
    assert session.run("go").text == "over"
    (place / "go").write_text("now")
    wait_until(lambda: len(model.requests) == 3)
    assert "the build broke" in str(model.requests[2].messages[-1])
