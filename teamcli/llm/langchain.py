"""Any LangChain chat model as an `LLM`. `teamcli[langchain]` installs what it needs.

This loads LangChain only when it is called: a program with a chat model has loaded it already.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

from teamcli.cancel import CancelScope, run_abandonable
from teamcli.errors import (
    AuthError,
    Cancelled,
    ConfigError,
    ConnectionLost,
    ContextTooLong,
    ModelError,
    ModelNotFound,
    Overloaded,
    RateLimited,
    RequestRejected,
    ServerFault,
    StreamInterrupted,
)
from teamcli.llm.estimate import counted
from teamcli.llm.langchain_reply import KEPT_BLOCKS, Arriving
from teamcli.llm.types import Block, Message, OnEvent, Preamble, Reply, Request, ToolSpec, encode
from teamcli.text.escaping import one_line
from teamcli.text.redaction import redact, register_secrets

Chat = Any
"""A `BaseChatModel`, or anything else with the same `stream` and `bind_tools`."""
_NEEDED = ("stream", "bind_tools")
LONGEST_DETAIL = 300
_TOO_LONG = re.compile(
    r"(prompt|input) is too long|context[ _](window|length|limit|size)|maximum context|too many .{0,20}tokens", re.I
)
_BY_CLASS: dict[str, type[ModelError]] = {
    "ContextOverflowError": ContextTooLong,
    "ModelAuthenticationError": AuthError,
    "ModelPermissionDeniedError": AuthError,
    "ModelNotFoundError": ModelNotFound,
    "ModelRateLimitError": RateLimited,
    "ModelAPIError": ServerFault,
    "ModelConnectionError": ConnectionLost,
    "ModelTimeoutError": ConnectionLost,
}
"""LangChain's own classes, compared by name: older versions lack some of them."""
_BY_STATUS: dict[int, type[ModelError]] = {
    401: AuthError,
    403: AuthError,
    404: ModelNotFound,
    413: ContextTooLong,
    429: RateLimited,
    529: Overloaded,
}
"""The errors of providers have a `status_code`."""


class LangChainModels:
    """Makes the model of each agent. They share the chat model, which several threads may call at once."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat
        names = (getattr(chat, field, None) for field in ("model_name", "model", "model_id"))
        self.model_name: str = next((name for name in names if isinstance(name, str) and name), "")
        """The provider's name for it; empty if the chat model does not say."""
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
                getattr(stream, "close", lambda: None)()  # closes the connection, in the thread that reads from it

        try:
            # In its own thread: a read that hangs is abandoned, and does not delay the next call.
            run_abandonable(pull, cancel, f"model {who}")
            return _counted(arriving.reply(), request)
        except Cancelled as e:
            partial = arriving.partial()
            raise StreamInterrupted(cancel.reason, partial and _counted(partial, request, is_whole=False)) from e
        except Exception as e:  # boundary: each provider has its own exceptions
            raise _explained(e, who) from e

    def warm_up(self) -> None:
        """There is nothing to load: the chat model is loaded already."""

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
    """With estimates for missing counts: a budget needs some number."""
    return counted(reply, request, lambda: len(encode(list(reply.content))), is_whole)


def to_openai_tool(tool: ToolSpec) -> dict[str, Any]:
    """The form that `bind_tools` of every provider accepts."""
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
                # Some providers refuse two in a row.
                messages[-1] = HumanMessage(f"{messages[-1].content}\n\n{message.content}")
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


def _can_bind_tools(chat: Chat) -> bool:
    try:
        chat.bind_tools([])
    except NotImplementedError:
        return False
    except Exception:  # noqa: BLE001 - it supports tools, but refuses an empty list
        return True
    return True


def _secrets_of(chat: Chat) -> list[str]:
    """The keys in its fields: teamcli must never show them."""
    fields = getattr(type(chat), "model_fields", {})
    values: Iterable[Any] = (getattr(chat, name, None) for name in fields)
    return [value.get_secret_value() for value in values if hasattr(value, "get_secret_value")]


def _explained(error: Exception, who: str) -> ModelError:
    """What a chat model of the class `who` raised, as one of our errors."""
    if isinstance(error, ModelError):
        return type(error)(f"{who}: {error}")
    words = redact(one_line(str(error), LONGEST_DETAIL))
    return _kind_of(error)(f"{who} failed: {type(error).__name__}" + (f": {words}" if words else ""))


def _kind_of(error: Exception) -> type[ModelError]:
    status = getattr(error, "status_code", None)
    if (status is None or status in (400, 413, 422)) and _TOO_LONG.search(str(error)):
        return ContextTooLong
    for base in type(error).__mro__:
        if base.__name__ in _BY_CLASS:
            return _BY_CLASS[base.__name__]
    if not isinstance(status, int):
        return ModelError
    return _BY_STATUS.get(status) or (ServerFault if status >= 500 else RequestRejected)
