"""Plain typed functions as tools."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from teamcli import ConfigError, Outcome, ToolContext, ToolError, events, tool
from tests.sdk.conftest import Open
from tests.sdk.models import Model, call, results, said, scripted
from tests.support.fake_api import FakeAPI, answer, tool_results
from tests.support.fake_api import tool as uses
from tests.support.team_script import TeamScript


def count_words(path: str, limit: int = 10) -> str:
    """Count the words
    of a file.

    What stands down here is for people.
    """
    return f"{len(path.split('/'))} of {limit}"


class Point(BaseModel):
    x: int
    y: int = 0


@dataclass
class Area:
    width: int
    height: int


def everything(
    kind: Literal["a", "b"],
    many: Annotated[int, "how many", Field(ge=1, le=5)],
    points: list[Point],
    json: dict[str, float] | None,
    copy: bool = False,
) -> Any:
    """Take all kinds."""
    return [kind, many, points, json, copy]


def spec_of(function: Callable[..., Any], **more: Any) -> dict[str, Any]:
    return tool(function, **more).spec.to_dict()


def outcome_of(opened: Open, function: Any, given: dict[str, Any], **options: Any) -> tuple[str, bool]:
    """What the model reads of one call, and whether it is an error."""
    name = getattr(function, "__name__", getattr(function, "name", ""))
    model = scripted(lead=[said("", call(name, **given)), "over"])
    session = opened(llm=model, tools=[function], **{"allowed_tools": [name], **options})
    assert session.run("go").outcome is Outcome.DONE
    session.close()
    block = model.requests[1].messages[-1].content[0]
    return str(block["content"]), bool(block.get("is_error"))


class TestSchema:
    def test_the_signature_is_the_schema_and_the_first_paragraph_the_description(self) -> None:
        assert spec_of(count_words) == {
            "name": "count_words",
            "description": "Count the words of a file.",
            "input_schema": {
                "type": "object",
                "additionalProperties": False,
                "properties": {"path": {"type": "string"}, "limit": {"type": "integer", "default": 10}},
                "required": ["path"],
            },
        }

    def test_the_schema_has_descriptions_bounds_choices_and_models(self) -> None:
        schema = spec_of(everything)["input_schema"]
        fields = schema["properties"]
        assert fields["many"] == {"type": "integer", "minimum": 1, "maximum": 5, "description": "how many"}
        assert fields["kind"]["enum"] == ["a", "b"]
        assert fields["points"]["items"] == {"$ref": "#/$defs/Point"}
        assert list(fields) == ["kind", "many", "points", "json", "copy"]
        assert schema["required"] == ["kind", "many", "points"]

    def test_name_and_description_can_be_given(self) -> None:
        spec = spec_of(lambda: "x", name="the_x", description="Says x.")
        assert (spec["name"], spec["description"]) == ("the_x", "Says x.")

    def test_tool_works_as_a_decorator(self, opened: Open) -> None:
        @tool
        def plain() -> str:
            """Be plain."""
            return "plain"

        @tool(harmless=True, name="quiet")
        def other() -> str:
            """Be quiet."""
            return "quiet"

        assert outcome_of(opened, plain, {}) == ("plain", False)
        assert outcome_of(opened, other, {}, allowed_tools=()) == ("quiet", False)

    def test_methods_and_callable_objects_are_functions_too(self, opened: Open) -> None:
        class Counter:
            """Counts."""

            def __init__(self) -> None:
                self.sum = 0

            def add(self, by: int) -> int:
                """Add to it."""
                self.sum += by
                return self.sum

            def __call__(self, by: int) -> int:
                """Add to it."""
                return self.add(by)

        counter = Counter()
        assert outcome_of(opened, counter.add, {"by": 2}) == ("2", False)
        assert outcome_of(opened, tool(counter, name="counter"), {"by": 3}) == ("5", False)

    def test_a_function_that_cannot_be_a_tool_is_explained(self) -> None:
        def untyped(path) -> str:  # type: ignore[no-untyped-def]
            """Doc."""
            return ""

        def undocumented(path: str) -> str:
            return ""

        def variadic(*paths: str) -> str:
            """Doc."""
            return ""

        def unreadable(path: NoSuchType) -> str:  # type: ignore[name-defined]  # noqa: F821
            """Doc."""
            return ""

        def inexpressible(thread: threading.Thread) -> str:
            """Doc."""
            return ""

        mistakes = {
            untyped: "untyped: the parameter path has no type",
            undocumented: "undocumented: .* docstring",
            variadic: r"variadic: the parameter \*paths",
            unreadable: "unreadable: its types cannot be read",
            inexpressible: "inexpressible: a parameter has a type that JSON cannot express",
        }
        for function, words in mistakes.items():
            with pytest.raises(ConfigError, match=words):
                tool(function)
        with pytest.raises(ConfigError, match="tool '<lambda>'"):
            tool(lambda: "x")

    def test_a_tool_name_cannot_be_used_twice(self, opened: Open) -> None:
        for functions in ([tool(count_words, name="bash")], [tool(count_words, name="Read")], [count_words] * 2):
            with pytest.raises(ConfigError, match="this name is taken"):
                opened(offline=True, tools=functions)


class TestCalls:
    def test_input_is_validated_and_arrives_as_typed(self, opened: Open) -> None:
        given = {"kind": "a", "many": 3, "points": [{"x": 1}], "json": None}
        seen: list[Any] = []

        def look(kind: str, many: int, points: list[Point], json: dict[str, float] | None) -> None:
            """Look at it."""
            seen.append((kind, many, points, json))

        assert outcome_of(opened, look, given) == ("(no output)", False)
        assert seen == [("a", 3, [Point(x=1)], None)]
        content, is_error = outcome_of(opened, everything, {"kind": "c", "many": 9, "points": [], "more": 1})
        assert is_error
        assert "kind: Input should be 'a' or 'b'" in content
        assert "many: Input should be less than or equal to 5" in content
        assert "more: Extra inputs" in content

    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ("as it is", "as it is"),
            (None, "(no output)"),
            ({"a": [1, None]}, '{"a":[1,null]}'),
            (Area(1, 2), '{"width":1,"height":2}'),
            (Point(x=1), '{"x":1,"y":0}'),
            (Path("a/b"), '"a/b"'),
        ],
    )
    def test_results_are_text_or_json(self, opened: Open, value: Any, text: str) -> None:
        def give() -> Any:
            """Give it."""
            return value

        assert outcome_of(opened, give, {}) == (text, False)

    @pytest.mark.parametrize(
        ("error", "text"),
        [
            (KeyError("x"), "Error: KeyError: 'x'"),
            (ToolError("path: is no file; use another"), "Error: path: is no file; use another"),
            (SystemExit(3), "Error: SystemExit: 3"),
            (asyncio.CancelledError(), "Error: CancelledError"),
        ],
    )
    def test_an_exception_is_an_error_result(self, opened: Open, error: BaseException, text: str) -> None:
        def fail() -> str:
            """Fail."""
            raise error

        assert outcome_of(opened, fail, {}) == (text, True)

    def test_a_result_that_is_not_json_is_an_error_result(self, opened: Open) -> None:
        def give() -> object:
            """Give it."""
            return sys

        content, is_error = outcome_of(opened, give, {})
        assert is_error
        assert "give returned a value that is not text" in content

    def test_coroutines_are_awaited(self, opened: Open) -> None:
        async def later(text: str) -> str:
            """Say it later."""
            await asyncio.sleep(0)
            return text

        assert outcome_of(opened, later, {"text": "now"}) == ("now", False)

    def test_the_context_names_the_caller_and_takes_progress(self, opened: Open, place: Path) -> None:
        seen: list[ToolContext] = []

        def look(word: str, about: ToolContext) -> str:
            """Look around."""
            seen.append(about)
            about.progress(f"{word}…")
            return "seen"

        assert list(spec_of(look)["input_schema"]["properties"]) == ["word"]
        session = opened(
            llm=scripted(lead=[said("", call("look", word="hm")), "over"]), tools=[tool(look, harmless=True)]
        )
        shown = [event.text for event in session.submit("go") if isinstance(event, events.ToolProgress)]
        assert shown == ["hm…"]
        assert (seen[0].agent, seen[0].directory) == ("lead", place)

    def test_an_interruption_abandons_a_function_that_ignores_it(self, opened: Open) -> None:
        began, end = threading.Event(), threading.Event()

        def hang() -> str:
            """Hang."""
            began.set()
            end.wait(60)
            return "too late"

        model = scripted(lead=[said("", call("hang")), "over"])
        session = opened(llm=model, tools=[tool(hang, harmless=True)])
        listening = session.submit("go")
        assert began.wait(30)
        assert session.interrupt()
        assert list(listening)[-1].outcome is Outcome.INTERRUPTED
        assert session.run("again").text == "over"
        assert "too late" not in str(model.requests[-1].messages)
        end.set()

    def test_an_interruption_ends_a_coroutine_and_a_function_that_checks_cancel(self, opened: Open) -> None:
        began, ended = threading.Barrier(3), threading.Barrier(3)

        async def sleep() -> None:
            """Sleep."""
            try:
                await asyncio.to_thread(began.wait, 30)
                await asyncio.sleep(60)
            finally:
                ended.wait(30)

        def watch(about: ToolContext) -> None:
            """Watch."""
            began.wait(30)
            about.cancel.wait(60)
            ended.wait(30)

        tools = [tool(sleep, harmless=True), tool(watch, harmless=True)]
        session = opened(llm=scripted(lead=[said("", call("sleep"), call("watch"))]), tools=tools)
        listening = session.submit("go")
        began.wait(30)
        assert session.interrupt()
        ended.wait(30)
        assert list(listening)[-1].outcome is Outcome.INTERRUPTED


def test_a_key_that_the_program_gave_is_masked_as_one_from_the_environment(opened: Open, place: Path) -> None:
    def leak() -> str:
        """Say too much."""
        return "it is test-key-0123456789"

    with FakeAPI([uses("leak"), answer("done")]) as api:
        assert opened(api, tools=[leak], allowed_tools=["leak"]).run("go").outcome is Outcome.DONE
    assert [block["content"] for block in tool_results(api.requests[1])] == ["it is [the API key]"]
    assert "test-key" not in (place / ".team/transcripts/lead.jsonl").read_text()


class TestPermissions:
    def run_with(self, opened: Open, **options: Any) -> str:
        model = scripted(lead=[said("", call("count_words", path="a")), "over"])
        session = opened(llm=model, **{"tools": [count_words], **options})
        session.run("go")
        session.close()
        return results(model.requests[1])[0]

    def test_a_function_needs_permission_like_a_command(self, opened: Open) -> None:
        assert "the rule that would allow it: count_words" in self.run_with(opened)
        asked: list[Any] = []
        ran = self.run_with(opened, ask=lambda question: asked.append(question) or True)
        assert ran == "1 of 10"
        assert asked[0].display.title == 'count_words {"path":"a"}'
        assert asked[0].rule == "count_words"

    def test_rules_can_name_a_function(self, opened: Open) -> None:
        assert self.run_with(opened, allowed_tools="count_words") == "1 of 10"
        assert self.run_with(opened, settings={"permissions": {"allow": ["count_words"]}}) == "1 of 10"
        denied = self.run_with(opened, permission_mode="bypassPermissions", disallowed_tools="count_words")
        assert "The rule count_words denies" in denied

    def test_a_harmless_function_needs_no_permission_and_plan_allows_only_it(self, opened: Open) -> None:
        harmless = [tool(count_words, harmless=True)]
        assert self.run_with(opened, tools=harmless, permission_mode="plan") == "1 of 10"
        assert "The mode plan refuses" in self.run_with(opened, permission_mode="plan", allowed_tools="count_words")

    def test_always_is_not_written_to_settings_that_teamcli_would_reject(self, opened: Open, place: Path) -> None:
        from teamcli import Consent

        assert self.run_with(opened, ask=lambda question: Consent.ALWAYS) == "1 of 10"
        assert not (place / ".team/settings.local.json").exists()
        opened(offline=True)  # no rule about a tool that is not there

    def test_a_teammate_without_an_approved_plan_is_refused(self, opened: Open) -> None:
        spawned = call("spawn_teammate", name="alice", role="coder", prompt="go", plan=True)
        model = scripted(lead=[said("", spawned), "hired"], alice=[said("", call("count_words", path="a")), "over"])
        opened(llm=model, tools=[count_words], permission_mode="bypassPermissions").run("go")
        assert "until a plan of yours is approved" in str([request.messages for request in model.requests])


class TestOffer:
    def test_every_agent_has_it_after_the_built_in_tools_in_the_given_order(self, opened: Open) -> None:
        def other() -> str:
            """Do something else."""
            return "other"

        script = TeamScript(
            lead=[
                uses("spawn_teammate", name="alice", role="coder", prompt="go"),
                uses("agent", prompt="fresh", subagent_type="general"),
                answer(uses("agent", prompt="fork")),
                "over",
                "heard",
            ],
            alice=[uses("count_words", path="x/y"), "done"],
            **{"sa-1": [uses("other"), "done"], "sa-2": [uses("count_words", path="x"), "done"]},
        )
        with FakeAPI(script) as api:
            session = opened(api, tools=[other, count_words], permission_mode="bypassPermissions")
            session.run("go")
            session.close()
            for name in ("lead", "alice", "sa-1", "sa-2"):
                offered = [each["name"] for each in script.requests[name][0]["tools"]]
                assert offered[-2:] == ["other", "count_words"], name
                assert "bash" in offered, name
            assert tool_results(script.requests["alice"][1])[0]["content"] == "2 of 10"
            assert tool_results(script.requests["sa-1"][1])[0]["content"] == "other"
            assert tool_results(script.requests["sa-2"][1])[-1]["content"] == "1 of 10"
            api.assert_prefix_stable(lambda body: "You are alice" in str(body["system"]))

    def test_roles_and_spawns_can_include_or_exclude_it(self, opened: Open, clean_environment: Path) -> None:
        roles = clean_environment / ".teamcli" / "agents"
        roles.mkdir(parents=True)
        (roles / "counter.md").write_text("---\nname: counter\ntools: count_words\n---\nCount.")
        (roles / "reader.md").write_text("---\nname: reader\ndisallowedTools: count_words\n---\nRead.")
        lead = [
            said("", *(call("agent", prompt="go", subagent_type=role) for role in ("counter", "reader"))),
            said("", call("spawn_teammate", name="alice", role="coder", prompt="go", tools=["count_words"])),
            "over",
        ]
        model = Model(scripted(lead=lead)._say)
        opened(llm=model, tools=[count_words]).run("go")
        offered = {
            name: [spec.name for spec in request.preamble.tools]
            for request in model.requests
            for name in ("Count.", "Read.", "You are alice")
            if name in request.preamble.system
        }
        assert offered["Count."] == ["count_words"]
        assert "count_words" not in offered["Read."]
        assert "count_words" in offered["You are alice"]
        assert "bash" not in offered["You are alice"]
