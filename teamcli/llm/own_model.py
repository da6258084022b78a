"""An `LLM` of the program that has teamcli built in. Whatever it does wrong is a failed model call, and no more.

Each call runs in a thread of its own, so that an interruption takes effect at once even where the model does not look
at `cancel`; the next call then waits until that one has returned.
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
        """`turns` lets one call in at a time; who `is_ours` is closed by us."""
        self._model = model
        self._turns = turns
        self._is_ours = is_ours

    def stream(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        heard: list[str] = []

        def tell(event: StreamEvent) -> None:
            if cancel.cancelled:  # nobody waits for it any more
                return
            if isinstance(event, TextDelta):
                heard.append(event.text)
            on_event(event)

        def call() -> Reply:
            with self._turns.turn(cancel):
                return self._model.stream(request, tell, cancel)

        on_event(RequestSent())  # its own thread is none in which the agent's state may change
        try:
            return _checked(run_abandonable(call, cancel, f"model {type(self._model).__name__}"))
        except BaseException as e:  # boundary: a bug in a model is a failed call, not the end of the agent
            if cancel.cancelled and not isinstance(e, StreamInterrupted):
                raise StreamInterrupted(cancel.reason, _partial("".join(heard))) from e
            if cancel.cancelled or isinstance(e, ModelError | ConfigError):
                raise
            raise ModelError(f"{type(self._model).__name__} failed: {type(e).__name__}: {e}") from e

    def warm_up(self) -> None:
        self._model.warm_up()

    def close(self) -> None:
        if self._is_ours:
            self._model.close()


def _partial(text: str) -> Reply | None:
    return Reply(({"type": "text", "text": text},), "interrupted", Usage()) if text else None


def _checked(reply: object) -> Reply:
    """The reply, if it is one that the conversation can hold.

    Raises: TypeError
    """
    if not isinstance(reply, Reply):
        raise TypeError(f"stream must return a teamcli.Reply, not {type(reply).__name__}")
    if not isinstance(reply.usage, Usage) or not isinstance(reply.stop_reason, str):
        raise TypeError("a Reply needs a stop_reason that is a text, and a teamcli.Usage")
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
    """Makes the model of each agent: from a factory one for each, which is ours to close; one instance serves all.

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
        raise ConfigError(f"llm: what makes models has returned {type(model).__name__}, which has no stream")
    return OwnModel(cast(LLM, model), Backoff(max_calls=1), is_ours=True)


def _refuse_langchain(llm: object) -> None:
    """Raises: ConfigError. It has a `stream` of its own, which takes and returns something else."""
    runnables = sys.modules.get("langchain_core.runnables.base")  # who has such a model has loaded this
    kind = llm if isinstance(llm, type) else type(llm)
    if runnables is not None and issubclass(kind, runnables.Runnable):
        name = kind.__name__
        raise ConfigError(f"llm: {name} is LangChain's; wrap it: Session(llm=teamcli.langchain_model({name}(…)))")
