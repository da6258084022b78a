"""Any LangChain chat model as an `LLM`. `teamcli[langchain]` installs what it needs.

Nothing of LangChain is loaded before `langchain_model` is called: a program with a chat model has loaded it already.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from teamcli.cancel import CancelScope, run_abandonable
from teamcli.errors import Cancelled, ConfigError, StreamInterrupted
from teamcli.llm.estimate import counted
from teamcli.llm.langchain_faults import explained
from teamcli.llm.langchain_reply import KEPT_BLOCKS, Arriving
from teamcli.llm.types import Block, Message, OnEvent, Preamble, Reply, Request, ToolSpec, encode
from teamcli.text.redaction import register_secrets

Chat = Any
"""A `BaseChatModel`, or anything else that has `stream` and `bind_tools` as it has."""
_NEEDED = ("stream", "bind_tools")


class LangChainModels:
    """Makes the model of each agent. They share the chat model, which may be called in several threads at once."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        self.model_name = _name_of(chat)
        """As the provider knows it; empty if the chat model does not say."""
        self._has_tools = _can_bind_tools(chat)
        self.notes = () if self._has_tools else (f"{type(chat).__name__} cannot call tools: its agents can only talk",)

    def __call__(self) -> LangChainModel:
        return LangChainModel(self._chat, self.model_name, self._has_tools)


def langchain_model(chat_model: Any) -> LangChainModels:
    """For `Session(llm=langchain_model(ChatOpenAI(…)))`: any LangChain chat model, tools included.

    Raises: ConfigError, for anything else
    """
    if isinstance(chat_model, type) or not all(callable(getattr(chat_model, name, None)) for name in _NEEDED):
        what = f"the class {chat_model.__name__}" if isinstance(chat_model, type) else type(chat_model).__name__
        raise ConfigError(f"langchain_model: {what} is not a LangChain chat model; pass one, as in ChatOpenAI(model=…)")
    register_secrets(_secrets_of(chat_model))
    return LangChainModels(chat_model)


class LangChainModel:
    """An `LLM` for one agent."""

    def __init__(self, chat: Chat, name: str, has_tools: bool) -> None:
        self._chat = chat
        self._name = name
        self._has_tools = has_tools
        self._bound: tuple[Preamble, Chat] | None = None

    def stream(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        request = request.text_in_results  # many providers refuse a user message between tool results and an answer
        arriving, who = Arriving(on_event), type(self._chat).__name__

        def pull() -> None:
            stream = self._bind(request.preamble).stream(to_messages(request))
            try:
                for chunk in stream:
                    if cancel.cancelled:
                        return
                    arriving.take(chunk)
            finally:
                getattr(stream, "close", lambda: None)()  # gives up the connection, in the thread that reads from it

        try:
            # In a thread of its own: a read that hangs is left behind, and does not keep the next call waiting.
            run_abandonable(pull, cancel, f"model {who}")
            return _counted(arriving.reply(), request)
        except Cancelled as e:
            partial = arriving.partial()
            raise StreamInterrupted(cancel.reason, partial and _counted(partial, request, is_whole=False)) from e
        except Exception as e:  # boundary: each provider has its own
            raise explained(e, who) from e

    def warm_up(self) -> None:
        """There is nothing to load: the chat model is there."""

    def close(self) -> None:
        """The chat model belongs to the program that made it."""

    def _bind(self, preamble: Preamble) -> Chat:
        """The chat model with these tools; the same for all calls of an agent."""
        if self._bound is None or self._bound[0] is not preamble:
            chat = self._chat
            if preamble.tools and self._has_tools:
                chat = chat.bind_tools([to_openai_tool(tool) for tool in preamble.tools])
            if self._name and preamble.model != self._name:
                chat = chat.bind(model=preamble.model)
            self._bound = preamble, chat
        return self._bound[1]


def _counted(reply: Reply, request: Request, is_whole: bool = True) -> Reply:
    """With an estimate where the provider does not count: a budget must not be blind."""
    return counted(reply, request, lambda: len(encode(list(reply.content))), is_whole)


def to_openai_tool(tool: ToolSpec) -> dict[str, Any]:
    """The form that `bind_tools` of every provider knows."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.input_schema}
    return {"type": "function", "function": function}


def to_messages(request: Request) -> list[Any]:
    """The conversation as LangChain's messages."""
    from langchain_core.messages import HumanMessage, SystemMessage

    preamble = request.preamble
    messages: list[Any] = [SystemMessage(preamble.system + preamble.addendum)] if preamble.system else []
    for each in request.messages:
        for message in _from_assistant(each) if each.role == "assistant" else _from_user(each):
            if messages and isinstance(message, HumanMessage) and isinstance(messages[-1], HumanMessage):
                messages[-1] = HumanMessage(f"{messages[-1].content}\n\n{message.content}")  # some refuse two in a row
            else:
                messages.append(message)
    return messages


def _from_user(message: Message) -> Iterator[Any]:
    from langchain_core.messages import HumanMessage, ToolMessage

    for block in message.content:
        if block["type"] == "tool_result":
            status = "error" if block.get("is_error") else "success"
            content = _text_of(block.get("content", ""))
            yield ToolMessage(content, tool_call_id=block["tool_use_id"], status=status)
    if text := _text_of(message.content, "\n\n"):
        yield HumanMessage(text)


def _from_assistant(message: Message) -> Iterator[Any]:
    from langchain_core.messages import AIMessage

    calls = [
        {"name": block["name"], "args": block["input"], "id": block["id"], "type": "tool_call"}
        for block in message.content
        if block["type"] == "tool_use"
    ]
    kept = [block for block in message.content if block["type"] in KEPT_BLOCKS]
    text = _text_of(message.content)
    content = [*kept, *([{"type": "text", "text": text}] if text else [])] if kept else text
    if content or calls:
        yield AIMessage(content, tool_calls=calls)


def _text_of(content: str | Iterable[Block], between: str = "") -> str:
    if isinstance(content, str):
        return content
    return between.join(block["text"] for block in content if block.get("type") == "text")


def _name_of(chat: Chat) -> str:
    names = (getattr(chat, field, None) for field in ("model_name", "model", "model_id"))
    return next((name for name in names if isinstance(name, str) and name), "")


def _can_bind_tools(chat: Chat) -> bool:
    try:
        chat.bind_tools([])
    except NotImplementedError:
        return False
    except Exception:  # noqa: BLE001 - it can, and does not like to have none
        return True
    return True


def _secrets_of(chat: Chat) -> list[str]:
    """The keys in its fields: no text of ours may show them."""
    fields = getattr(type(chat), "model_fields", {})
    values: Iterable[Any] = (getattr(chat, name, None) for name in fields)
    return [value.get_secret_value() for value in values if hasattr(value, "get_secret_value")]
