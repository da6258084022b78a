"""A model with others to fall back on: if it is overloaded or not available, the next one answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from teamcli.cancel import CancelScope
from teamcli.errors import ModelNotFound, StreamInterrupted, TransientError
from teamcli.llm.types import LLM, OnEvent, Reply, Request, Retrying

RETRIES = 2
"""Of each model, before the next one is asked."""


class FallbackModel:
    """Wraps another `LLM`. Every call begins with the model that was chosen: it may be back."""

    def __init__(self, model: LLM, others: Sequence[str]) -> None:
        self._model = model
        self._others = tuple(others)

    def stream(self, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        names = list(dict.fromkeys((request.preamble.model, *self._others)))
        for name, following in pairwise(names):
            try:
                return self._ask(name, request, on_event, cancel)
            except (TransientError, ModelNotFound) as e:
                on_event(Retrying(0.0, 1, 0.0, f"{str(e).removesuffix('.')}. Now {following} is asked"))
        return self._ask(names[-1], request, on_event, cancel)

    def _ask(self, name: str, request: Request, on_event: OnEvent, cancel: CancelScope) -> Reply:
        preamble = request.preamble
        if name == preamble.model:
            return self._model.stream(request, on_event, cancel)
        other = request._replace(preamble=replace(preamble, model=name))
        try:
            return self._model.stream(other, on_event, cancel)._replace(asked=name)
        except StreamInterrupted as e:
            raise StreamInterrupted(str(e), e.partial and e.partial._replace(asked=name)) from e

    def warm_up(self) -> None:
        self._model.warm_up()

    def close(self) -> None:
        self._model.close()
