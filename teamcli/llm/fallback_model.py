"""A model with others to fall back on: if it is overloaded or not available, the next one answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from teamcli.cancel import CancelScope
from teamcli.errors import ModelNotFound, TransientError
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
                return self._model.stream(_with_model(request, name), on_event, cancel)
            except (TransientError, ModelNotFound) as e:
                on_event(Retrying(0.0, 1, 0.0, f"{str(e).removesuffix('.')}. Now {following} is asked"))
        return self._model.stream(_with_model(request, names[-1]), on_event, cancel)

    def warm_up(self) -> None:
        self._model.warm_up()

    def close(self) -> None:
        self._model.close()


def _with_model(request: Request, name: str) -> Request:
    preamble = request.preamble
    return request if name == preamble.model else request._replace(preamble=replace(preamble, model=name))
