"""LangChain: any chat model as the model of a session, any tool as a tool."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import pytest
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel
from langchain_core.language_models.fake_chat_models import FakeListChatModel, GenericFakeChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCallChunk,
    ToolMessage,
)
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool, InjectedToolCallId, ToolException
from langchain_core.tools import tool as langchain_tool
from pydantic import BaseModel, SecretStr

from teamcli import ConfigError, Outcome, Usage, errors, events, langchain_model, tool
from tests.sdk.conftest import Open
from tests.sdk.models import call, results, said, scripted
from tests.support.fake_completions import Answer, Refusal, deltas, fake_completions
from tests.support.program import ROOT
from tests.support.waiting import DEADLINE_SECONDS, wait_until

if TYPE_CHECKING:
    from langchain_openai import ChatOpenAI

BYPASS = {"permission_mode": "bypassPermissions"}
Speak = Callable[[list[BaseMessage], dict[str, Any]], Iterable[AIMessageChunk]]


class Chat(BaseChatModel):
    """A chat model that streams what a function says, and remembers what it was asked."""

    speak: Speak
    asked: list[list[BaseMessage]]
    bound: list[dict[str, Any]]
    closed: list[bool]
    """One for each stream that has ended or was given up."""

    def __init__(self, speak: Speak, **more: Any) -> None:
        super().__init__(speak=speak, asked=[], bound=[], closed=[], **more)

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
        return self.bind(tools=tools, **kwargs)

    def _generate(self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any) -> ChatResult:
        raise AssertionError("it streams")

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **kwargs: Any
    ) -> Iterator[ChatGenerationChunk]:
        self.asked.append(messages)
        self.bound.append(kwargs)
        try:
            for chunk in self.speak(messages, kwargs):
                yield ChatGenerationChunk(message=chunk)
        finally:
            self.closed.append(True)


class Named(Chat):
    model_name: str = "big-1"


def saying(*answers: Iterable[AIMessageChunk]) -> Speak:
    """One answer after the other; then it has nothing to say."""
    left = iter(answers)
    return lambda messages, kwargs: next(left, [AIMessageChunk("nothing more")])


def part(args: str, index: int | None = 0, name: str | None = None, id: str | None = None) -> AIMessageChunk:
    return AIMessageChunk("", tool_call_chunks=[ToolCallChunk(name=name, args=args, id=id, index=index)])


def ended(reason: str = "stop", key: str = "finish_reason", **more: Any) -> AIMessageChunk:
    return AIMessageChunk("", response_metadata={key: reason}, **more)


def poke(where: str) -> str:
    """Poke something."""
    if where == "hard":
        raise ValueError("ouch")
    return f"poked {where}"


POKE = tool(poke, harmless=True)


class TestAnswers:
    def test_answers_are_streamed_and_their_tokens_counted(self, opened: Open) -> None:
        details = {"cache_read": 50, "cache_creation": 20}
        used = {"input_tokens": 100, "output_tokens": 9, "total_tokens": 109, "input_token_details": details}
        chat = Chat(saying([AIMessageChunk("hello "), AIMessageChunk("you"), ended(usage_metadata=used)]))
        session = opened(llm=langchain_model(chat))
        happened = list(session.submit("hi"))
        assert [event.text for event in happened if isinstance(event, events.TextArrived)] == ["hello ", "you"]
        assert (happened[-1].outcome, happened[-1].text) == (Outcome.DONE, "hello you")
        assert session.usage == Usage(30, 9, 20, 50)
        assert session.notes == ()

    def test_tokens_that_the_model_does_not_count_are_estimated(self, opened: Open) -> None:
        session = opened(llm=langchain_model(Chat(saying([AIMessageChunk("hello " * 100), ended()]))))
        used = session.run("hi").usage
        assert used.is_estimated
        assert used.input_tokens > 1_000
        assert used.output_tokens > 100

    def test_requests_contain_the_conversation_so_far(self, opened: Open) -> None:
        chat = Chat(saying([AIMessageChunk("one"), ended()], [AIMessageChunk("two"), ended()]))
        session = opened(llm=langchain_model(chat))
        session.run("first")
        session.run("second")
        system, *rest = chat.asked[1]
        assert isinstance(system, SystemMessage)
        assert "You are teamcli" in str(system.content)
        assert [type(message) for message in rest] == [HumanMessage, AIMessage, HumanMessage]
        assert "first" in str(rest[0].content)
        assert rest[1].content == "one"
        assert "second" in str(rest[2].content)

    def test_answers_call_tools_whose_input_arrives_in_pieces(self, opened: Open) -> None:
        calls = [
            AIMessageChunk("I poke."),
            *(part("", 0, "poke", "a"), part('{"whe', 0), part("", 1, "poke", "b"), part('re":"left"}', 0)),
            *(part('{"where":', 1), part(' "hard"}', 1), ended("stop")),  # some say so although they call
        ]
        chat = Chat(saying(calls, [AIMessageChunk("done"), ended()]))
        session = opened(llm=langchain_model(chat), tools=[POKE])
        happened = list(session.submit("go"))
        assert happened[-1].text == "done"
        assert [event.tool for event in happened if isinstance(event, events.CallStarted)] == ["poke", "poke"]
        offered = {each["function"]["name"]: each["function"] for each in chat.bound[0]["tools"]}
        assert offered["poke"]["parameters"]["required"] == ["where"]
        assert "bash" in offered
        asked, left, hard = chat.asked[1][-3:]
        assert isinstance(asked, AIMessage)
        assert [made["args"] for made in asked.tool_calls] == [
            {"where": "left"},
            {"where": "hard"},
        ]
        assert isinstance(left, ToolMessage)
        assert isinstance(hard, ToolMessage)
        assert (left.tool_call_id, left.content, left.status) == ("a", "poked left", "success")
        assert (hard.tool_call_id, hard.content, hard.status) == ("b", "Error: ValueError: ouch", "error")

    def test_tool_calls_may_lack_ids_and_indices(self, opened: Open) -> None:
        calls = [part('{"where":', None, "poke"), part('"a"}', None), part('{"where":"b"}', None, "poke"), ended()]
        chat = Chat(saying(calls, [AIMessageChunk("done"), ended()]))
        opened(llm=langchain_model(chat), tools=[POKE]).run("go")
        answered = [message for message in chat.asked[1] if isinstance(message, ToolMessage)]
        assert [message.content for message in answered] == ["poked a", "poked b"]
        assert len({message.tool_call_id for message in answered}) == 2

    def test_a_call_that_is_cut_off_does_not_run(self, opened: Open) -> None:
        """LangChain completes such JSON by itself."""
        calls = [part('{"where":"a', 0, "poke", "a"), ended("length")]
        chat = Chat(saying(calls, [part("[1]", 0, "poke", "b"), ended()], [AIMessageChunk("done"), ended()]))
        opened(llm=langchain_model(chat), tools=[POKE]).run("go")
        answered = [message for message in chat.asked[2] if isinstance(message, ToolMessage)]
        assert [message.status for message in answered] == ["error", "error"]
        assert "poked" not in str(answered)

    def test_thinking_is_shown_and_signed_thinking_is_sent_back(self, opened: Open) -> None:
        thought = [
            AIMessageChunk([{"type": "thinking", "thinking": "Let me ", "index": 0}]),
            AIMessageChunk([{"type": "thinking", "thinking": "see.", "index": 0}]),
            AIMessageChunk([{"type": "thinking", "signature": "abc", "index": 0}]),
            AIMessageChunk([{"type": "text", "text": "I poke.", "index": 1}]),
            part('{"where":"left"}', 2, "poke", "a"),
            ended("tool_use", "stop_reason"),
        ]
        chat = Chat(saying(thought, [AIMessageChunk("done"), ended("end_turn", "stop_reason")]))
        session = opened(llm=langchain_model(chat), tools=[POKE])
        happened = list(session.submit("go"))
        assert [event.text for event in happened if isinstance(event, events.ThinkingArrived)] == ["Let me ", "see."]
        asked = next(message for message in chat.asked[1] if isinstance(message, AIMessage))
        assert asked.content == [
            {"type": "thinking", "thinking": "Let me see.", "signature": "abc"},
            {"type": "text", "text": "I poke."},
        ]

    @pytest.mark.parametrize(
        ("key", "reason", "outcome"),
        [
            ("finish_reason", "content_filter", Outcome.REFUSED),
            ("finish_reason", "SAFETY", Outcome.REFUSED),
            ("stop_reason", "refusal", Outcome.REFUSED),
            ("stop_reason", "model_context_window_exceeded", Outcome.CONTEXT_FULL),
            ("done_reason", "stop", Outcome.DONE),
            ("stopReason", "end_turn", Outcome.DONE),
        ],
    )
    def test_stop_reasons_of_many_providers_are_known(
        self, opened: Open, key: str, reason: str, outcome: Outcome
    ) -> None:
        chat = Chat(saying(*([AIMessageChunk("so"), ended(reason, key), ended(reason, key)] for _ in range(3))))
        assert opened(llm=langchain_model(chat)).run("go").outcome is outcome

    def test_an_answer_that_is_cut_is_continued(self, opened: Open) -> None:
        answers = [[AIMessageChunk("one "), ended("MAX_TOKENS")], [AIMessageChunk("two"), ended("STOP")]]
        assert opened(llm=langchain_model(Chat(saying(*answers)))).run("go").text == "one two"

    def test_a_model_that_does_not_stream_answers_at_once(self, opened: Open) -> None:
        class Whole(GenericFakeChatModel):
            def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, Any]:
                return self.bind(tools=tools)

            def _stream(self, *args: Any, **kwargs: Any) -> Any:
                raise NotImplementedError

            def _should_stream(self, **kwargs: Any) -> bool:
                return False

        made = {"name": "poke", "args": {"where": "left"}, "id": "a", "type": "tool_call"}
        chat = Whole(messages=iter([AIMessage("I poke.", tool_calls=[made]), AIMessage("done")]))
        session = opened(llm=langchain_model(chat), tools=[POKE])
        happened = list(session.submit("go"))
        assert happened[-1].text == "done"
        assert [event.content for event in happened if isinstance(event, events.ToolFinished)] == ["poked left"]

    def test_a_model_without_tools_only_answers_text_and_a_note_says_so(self, opened: Open) -> None:
        session = opened(llm=langchain_model(FakeListChatModel(responses=["hello there"])))
        assert session.run("hi").text == "hello there"
        assert session.notes == ("FakeListChatModel cannot call tools: its agents can only talk",)


class TestTeam:
    def test_agents_call_the_same_chat_model_concurrently(self, opened: Open) -> None:
        met = threading.Barrier(2)

        def speak(messages: list[BaseMessage], kwargs: dict[str, Any]) -> Iterable[AIMessageChunk]:
            met.wait(DEADLINE_SECONDS)  # both are inside at the same time
            return [AIMessageChunk("done"), ended()]

        session = opened(llm=langchain_model(Chat(speak)))
        for name in ("alice", "bob"):
            session.spawn(name, "coder", "go")
        assert session.wait(DEADLINE_SECONDS)
        assert sorted(mail.message.content for mail in session.inbox()) == ["done", "done"]

    def test_each_may_have_another_model_of_the_same_provider(self, opened: Open) -> None:
        chat = Named(saying())
        session = opened(llm=langchain_model(chat))
        assert session.model == "big-1"
        session.run("go")
        session.agents.run("go", subagent_type="general", model="small-1")
        assert [bound.get("model") for bound in chat.bound] == [None, "small-1"]

    def test_mail_that_arrives_during_a_call_is_part_of_its_result(self, opened: Open) -> None:
        def wait() -> str:
            """Wait."""
            session.submit("hurry up")
            return "waited"

        chat = Chat(saying([part("{}", 0, "wait", "a"), ended()]))
        session = opened(llm=langchain_model(chat), tools=[tool(wait, harmless=True)])
        session.run("go")
        assert isinstance(chat.asked[1][-1], ToolMessage)
        assert "waited" in str(chat.asked[1][-1].content)
        assert "hurry up" in str(chat.asked[1][-1].content)


class Limit(Exception):
    status_code = 429


class TestWhatGoesWrong:
    @pytest.mark.parametrize(
        ("error", "kind", "words"),
        [
            (KeyError("oops"), errors.ModelError, "Chat failed: KeyError: 'oops'"),
            (Limit("slow down"), errors.RateLimited, "Chat failed: Limit: slow down"),
            (ContextOverflowError("full"), errors.ContextTooLong, "Chat failed: ContextOverflowError: full"),
            (ValueError("prompt is too long: 9 > 8"), errors.ContextTooLong, "prompt is too long"),
            (TimeoutError("it took too long"), errors.ModelError, "it took too long"),
        ],
    )
    def test_a_model_error_is_a_failed_turn_and_the_session_continues(
        self, opened: Open, error: Exception, kind: type[Exception], words: str
    ) -> None:
        def speak(messages: list[BaseMessage], kwargs: dict[str, Any]) -> Iterable[AIMessageChunk]:
            if not failed:
                failed.append(error)
                raise error
            return [AIMessageChunk("well again"), ended()]

        failed: list[Exception] = []
        session = opened(llm=langchain_model(Chat(speak)))
        result = session.run("go")
        assert result.outcome is Outcome.FAILED
        assert type(result.error) is kind
        assert words in str(result.error)
        assert session.run("again").text == "well again"

    def test_an_empty_answer_is_a_failure(self, opened: Open) -> None:
        result = opened(llm=langchain_model(Chat(saying([])))).run("go")
        assert result.outcome is Outcome.FAILED
        assert "Chat" in str(result.error)

    def test_an_interruption_leaves_a_read_that_hangs_and_the_next_call_does_not_wait(self, opened: Open) -> None:
        began, go_on = threading.Event(), threading.Event()

        def hang() -> Iterator[AIMessageChunk]:
            yield AIMessageChunk("half of it")
            began.set()
            go_on.wait(DEADLINE_SECONDS)
            yield AIMessageChunk("too late")

        chat = Chat(saying(hang(), [AIMessageChunk("the whole of it"), ended()]))
        session = opened(llm=langchain_model(chat))
        listening = session.submit("go")
        assert began.wait(DEADLINE_SECONDS)
        assert session.interrupt()
        assert list(listening)[-1].outcome is Outcome.INTERRUPTED
        assert session.run("again").text == "the whole of it"
        assert "half of it" in str(chat.asked[1])
        assert len(chat.closed) == 1
        go_on.set()
        wait_until(lambda: len(chat.closed) == 2)
        assert "too late" not in str(session.run("and now?")) + str(chat.asked)

    @pytest.mark.parametrize(
        "llm",
        [
            Chat(saying()),
            Chat,
            lambda: Chat(saying()),
            Chat(saying()).bind_tools([]),
            FakeListChatModel(responses=["x"]),
        ],
    )
    def test_one_without_the_adapter_is_refused_and_the_adapter_named(self, opened: Open, llm: Any) -> None:
        with pytest.raises(ConfigError, match=r"is LangChain's; wrap it: .*langchain_model"):
            opened(llm=llm)

    @pytest.mark.parametrize("value", [5, "gpt-5", Chat, object()])
    def test_the_adapter_takes_nothing_else(self, value: Any) -> None:
        with pytest.raises(ConfigError, match="is not a LangChain chat model"):
            langchain_model(value)

    def test_its_key_is_shown_nowhere(self, opened: Open) -> None:
        class Keyed(Chat):
            api_key: SecretStr = SecretStr("lc-secret-0123456789")

        def speak(messages: list[BaseMessage], kwargs: dict[str, Any]) -> Iterable[AIMessageChunk]:
            raise ValueError("the key lc-secret-0123456789 is wrong")

        result = opened(llm=langchain_model(Keyed(speak))).run("go")
        assert "is wrong" in str(result.error)
        assert "lc-secret" not in str(result.error)


class LookInput(BaseModel):
    what: str
    tool_call_id: Annotated[str, InjectedToolCallId]


class TestTools:
    def run(self, opened: Open, made: Any, **given: Any) -> str:
        """What a call of the tool returns."""
        model = scripted(lead=[said("", call(made.name, **given)), "over"])
        session = opened(llm=model, tools=[made], **BYPASS)
        session.run("go")
        session.close()
        return results(model.requests[1])[0]

    def test_a_decorated_function_is_a_tool(self, opened: Open) -> None:
        @langchain_tool
        def add(a: int, b: int = 2) -> int:
            """Add two numbers."""
            return a + b

        model = scripted(lead=[said("", call("add", a=1), call("add", a=1, b=None), call("add", a="x")), "over"])
        opened(llm=model, tools=[add], **BYPASS).run("go")
        (spec,) = [spec for spec in model.requests[0].preamble.tools if spec.name == "add"]
        assert spec.description == "Add two numbers."
        assert spec.input_schema["properties"] == {"a": {"type": "integer"}, "b": {"default": 2, "type": "integer"}}
        assert spec.input_schema["required"] == ["a"]
        whole, null, wrong = results(model.requests[1])
        assert (whole, null) == ("3", "3")
        assert wrong.startswith("Error: Invalid input for add: a: Input should be")

    def test_an_async_tool_runs_in_its_own_loop(self, opened: Open) -> None:
        @langchain_tool
        async def fetch(where: str) -> str:
            """Fetch something."""
            return f"fetched {where}"

        assert self.run(opened, fetch, where="it") == "fetched it"

    def test_a_class_with_injected_arguments_and_artifacts_is_a_tool(self, opened: Open) -> None:
        class Look(BaseTool):
            name: str = "look"
            description: str = "Look at something."
            args_schema: type[BaseModel] = LookInput
            response_format: str = "content_and_artifact"

            def _run(self, what: str, tool_call_id: str) -> tuple[Any, Any]:
                assert tool_call_id.startswith("call_")
                return [{"type": "text", "text": f"saw {what}"}], {"raw": 1}

        assert self.run(opened, Look(), what="a bird") == "saw a bird"

    def test_what_it_raises_is_an_error_result(self, opened: Open) -> None:
        @langchain_tool
        def fail(how: str) -> str:
            """Fail."""
            raise ToolException("use another") if how == "kindly" else KeyError("oops")

        assert self.run(opened, fail, how="kindly") == "Error: use another"
        assert self.run(opened, fail, how="badly") == "Error: KeyError: 'oops'"
        fail.handle_tool_error = "so be it"
        assert self.run(opened, fail, how="kindly") == "Error: so be it"

    def test_a_langchain_tool_needs_permission_unless_it_is_harmless(self, opened: Open) -> None:
        @langchain_tool
        def look(what: str) -> str:
            """Look at something."""
            return f"saw {what}"

        for made, seen in ((look, False), (tool(look, harmless=True), True)):
            model = scripted(lead=[said("", call("look", what="it")), "over"])
            session = opened(llm=model, tools=[made])
            result = session.run("go")
            assert (results(model.requests[1])[0] == "saw it") is seen
            assert bool(result.denials) is not seen
            session.close()

    def test_a_langchain_tool_can_be_renamed_but_not_to_a_built_in_name(self, opened: Open) -> None:
        @langchain_tool
        def bash(command: str) -> str:
            """Run something."""
            return f"ran {command}"

        with pytest.raises(ConfigError, match="this name is taken"):
            opened(llm=scripted(), tools=[bash])
        assert self.run(opened, tool(bash, name="shell"), command="ls") == "ran ls"


class TestOpenAI:
    """A real chat model over a real socket."""

    def chat(self, url: str, **more: Any) -> ChatOpenAI:
        given = {"model": "gpt-test", "base_url": url, "api_key": SecretStr("sk-test-0123456789"), "max_retries": 0}
        from langchain_openai import ChatOpenAI  # not where all workers collect this module: it takes half a second

        return ChatOpenAI(**{**given, "stream_usage": True, **more})

    def test_a_real_chat_model_works_on_a_task_with_tools_mail_and_a_history(self, opened: Open, place: Path) -> None:
        def hurry() -> str:
            """Be hurried."""
            session.submit("hurry up")
            return "hurried"

        write = ("call_1", "write_file", '{"path": "a.txt", "content": "hello"}')
        answers = [
            Answer(deltas("I write.", write, ("call_2", "hurry", "")), "tool_calls"),
            Answer(deltas("done")),
            Answer(deltas("again")),
        ]
        with fake_completions(answers) as (url, requests):
            session = opened(llm=langchain_model(self.chat(url)), tools=[tool(hurry, harmless=True)], **BYPASS)
            assert session.model == "gpt-test"
            assert session.run("write it").text == "done"
            assert (place / "a.txt").read_text() == "hello"
            assert session.run("and again").text == "again"
            session.close()
        assert session.usage == Usage(120, 21, 0, 180)
        first, second, third = requests
        assert "write_file" in {each["function"]["name"] for each in first["tools"]}
        assert first["model"] == "gpt-test"
        assert [message["role"] for message in second["messages"]] == ["system", "user", "assistant", "tool", "tool"]
        assert "hurry up" in second["messages"][-1]["content"]
        assert third["messages"][: len(second["messages"])] == second["messages"]  # a prefix that stays the same

    def test_a_real_chat_model_hires_a_team(self, opened: Open) -> None:
        spawn = ("call_1", "spawn_teammate", '{"name": "alice", "role": "coder", "prompt": "go"}')
        answers = [Answer(deltas("", spawn)), *(Answer(deltas("done")) for _ in range(3))]
        with fake_completions(answers) as (url, requests):
            session = opened(llm=langchain_model(self.chat(url)))
            assert session.run("hire alice").is_done
            assert [member.status for member in session.team] == ["idle"]
            session.close()
        assert any("You are alice" in str(request["messages"][0]["content"]) for request in requests)

    @pytest.mark.parametrize(
        ("refusal", "kind"),
        [
            (Refusal(401, "Incorrect API key provided: sk-test-0123456789"), errors.AuthError),
            (Refusal(404, "The model does not exist", "model_not_found"), errors.ModelNotFound),
            (Refusal(429, "Rate limit reached"), errors.RateLimited),
            (Refusal(500, "oops"), errors.ServerFault),
            (Refusal(400, "This model's maximum context length is 8 tokens", "context_length_exceeded"), None),
        ],
    )
    def test_a_refusal_has_its_kind_and_shows_no_key(
        self, opened: Open, refusal: Refusal, kind: type[Exception] | None
    ) -> None:
        with fake_completions([refusal] * 3) as (url, _):
            result = opened(llm=langchain_model(self.chat(url))).run("go")
        assert type(result.error) is (kind or errors.ContextTooLong)
        assert str(result.error).startswith("ChatOpenAI failed: ")
        assert "sk-test" not in str(result.error)


def test_nothing_of_langchain_is_loaded_before_it_is_used(place: Path, clean_environment: Path) -> None:
    use = f"from teamcli import Session, langchain_model; Session({str(place)!r}, offline=True).close()"
    code = f"import sys; {use}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT).stdout.split()
    assert "teamcli.sdk.session" in loaded
    assert not [name for name in loaded if name.startswith("langchain")]
