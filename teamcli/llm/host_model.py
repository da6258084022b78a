"""An `LLM` that the program using teamcli as a library brings along. Any fault of it is just a failed model call.

Each call runs in its own thread, so that an interruption takes effect at once even if the model ignores `cancel`. The
next call then waits until that one has returned.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import cast

from teamcli.cancel import CancelScope, run_abandonable
from teamcli.errors import ConfigError, ModelError, StreamInterrupted
from teamcli.llm.backoff import Backoff
from teamcli.llm.types import LLM, Block, OnEvent, Reply, Request, RequestSent, StreamEvent, TextDelta, Usage

_NEEDED = {"text": ("text",), "tool_use": ("id", "name", "input")}


class OwnModel:
    def __init__(self, model: LLM, turns: Backoff, is_ours: bool) -> None:
        """`turns` lets one call run at a time. `is_ours`: the model was made for us, so we close it."""
        self._model = model
        self._turns = turns
        self._is_ours = is_ours

    def stream(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        arrived: list[str] = []

        def report(event: StreamEvent) -> None:
            if cancel.cancelled:  # the call was abandoned
                return
            if isinstance(event, TextDelta):
                arrived.append(event.text)
            on_event(event)

        def call() -> Reply:
            with self._turns.turn(cancel):
                return self._model.stream(request, report, cancel)

        on_event(RequestSent())  # here, because the agent's state must not change in the model's thread
        try:
            return _checked(run_abandonable(call, cancel, f"model {type(self._model).__name__}"))
        except BaseException as e:  # boundary: a bug in a model is a failed call, not the end of the agent
            if cancel.cancelled and not isinstance(e, StreamInterrupted):
                text: Block = {"type": "text", "text": "".join(arrived)}
                partial = Reply((text,), "interrupted", Usage()) if text["text"] else None
                raise StreamInterrupted(cancel.reason, partial) from e
            if cancel.cancelled or isinstance(e, ModelError | ConfigError):
                raise
            raise ModelError(f"{type(self._model).__name__} failed: {type(e).__name__}: {e}") from e

    def warm_up(self) -> None:
        self._model.warm_up()

    def close(self) -> None:
        if self._is_ours:
            self._model.close()


def _checked(reply: object) -> Reply:
    """The reply, if the conversation can hold it.

    Raises: TypeError
    """
    if not isinstance(reply, Reply):
        raise TypeError(f"stream must return a teamcli.Reply, not {type(reply).__name__}")
    if not isinstance(reply.usage, Usage) or not isinstance(reply.stop_reason, str):
        raise TypeError("a Reply needs a stop_reason that is a string, and a teamcli.Usage")
    content = tuple(map(_checked_block, reply.content))
    ids = [block["id"] for block in content if block["type"] == "tool_use"]
    if len(set(ids)) != len(ids):
        raise TypeError("two tool_use blocks of a Reply have the same id")
    return reply._replace(content=content)


def _checked_block(block: object) -> Block:
    if not isinstance(block, dict) or not isinstance(block.get("type"), str):
        raise TypeError('each block of a Reply must be a dictionary such as {"type": "text", "text": "…"}')
    missing = [name for name in _NEEDED.get(block["type"], ()) if name not in block]
    if missing:
        raise TypeError(f"a {block['type']} block of a Reply has no {missing[0]}")
    return block


def model_factory(llm: object) -> Callable[[], LLM] | None:
    """Makes the model of each agent. A factory makes one for each, which we close; a single instance serves all.

    Raises: ConfigError
    """
    if llm is None:
        return None
    _refuse_langchain(llm)
    if hasattr(llm, "stream") and not isinstance(llm, type):
        shared, turns = cast(LLM, llm), Backoff(max_calls=1)
        return lambda: OwnModel(shared, turns, is_ours=False)
    if not callable(llm):
        raise ConfigError(f"llm: {type(llm).__name__} has no stream; give a teamcli.LLM, or a function that makes one")
    return lambda: _make(llm)


def _make(factory: Callable[[], object]) -> LLM:
    model = factory()
    _refuse_langchain(model)
    if not hasattr(model, "stream"):
        raise ConfigError(f"llm: the factory returned {type(model).__name__}, which has no stream")
    return OwnModel(cast(LLM, model), Backoff(max_calls=1), is_ours=True)


def _refuse_langchain(llm: object) -> None:
    """Raises: ConfigError, because the `stream` of a LangChain model takes and returns something else"""
    runnables = sys.modules.get("langchain_core.runnables.base")  # loaded by any program that has such a model
    kind = llm if isinstance(llm, type) else type(llm)
    if runnables is not None and issubclass(kind, runnables.Runnable):
        name = kind.__name__
        raise ConfigError(f"llm: {name} is LangChain's; wrap it: Session(llm=teamcli.langchain_model({name}(…)))")
