"""The models of a program's agents: their clients, how requests begin, and how much fits into the context."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from teamcli.agent.context_window import ContextWindow
from teamcli.app.choices import Choices
from teamcli.config.settings import Settings
from teamcli.errors import ToolError
from teamcli.llm.backoff import Backoff
from teamcli.llm.credentials import Endpoint
from teamcli.llm.pricing import context_tokens, is_window_known
from teamcli.llm.redacted_model import RedactedModel
from teamcli.llm.types import LLM, Preamble, Usage
from teamcli.tools.catalog import ToolDefinition

NOT_REPEATABLE = frozenset(("read_inbox", "wait_for_message"))
"""Their results hold mail, which a second call would not return again: compaction keeps them."""


class Models:
    def __init__(self, choices: Choices) -> None:
        self._choices = choices
        settings = choices.settings
        # One for all agents: when the endpoint is overloaded, they back off together.
        self._backoff = Backoff(patience_seconds=60 * settings.retry_minutes, max_calls=settings.max_concurrent_calls)

    def connect(self) -> LLM:
        """A client for one agent."""
        choices = self._choices
        if choices.embedding.llm is not None:
            return RedactedModel(choices.embedding.llm())
        if choices.endpoint is not None:
            from teamcli.llm.client import connect  # late: the embedded model and a host program's do without it

            if choices.fallback_models:
                return RedactedModel(self._with_fallback(choices.endpoint, choices.fallback_models))
            return RedactedModel(connect(choices.endpoint, self._backoff, choices.settings.retries))
        from teamcli.llm.embedded.model import EmbeddedModel  # late: most starts do without it

        return EmbeddedModel()

    def _with_fallback(self, endpoint: Endpoint, others: Sequence[str]) -> LLM:
        from teamcli.llm.client import connect
        from teamcli.llm.fallback_model import RETRIES, FallbackModel  # late: few runs need it

        retries = self._choices.settings.retries
        return FallbackModel(connect(endpoint, self._backoff, RETRIES if retries is None else retries), others)

    def preamble(self, model: str, system: str, tools: tuple[ToolDefinition, ...]) -> Preamble:
        settings = self._choices.settings
        return Preamble(
            model,
            system,
            tuple(tool.spec for tool in tools),
            settings.max_tokens,
            settings.prompt_caching,
            self._extra(settings),
        )

    def _extra(self, settings: Settings) -> dict[str, Any]:
        thinking = {"thinking": settings.thinking} if settings.thinking else {}
        effort = self._choices.effort
        return {**thinking, "output_config": {"effort": effort}} if effort else thinking

    def context_window(self, pinned_facts: Callable[[], Sequence[str]], mail_is_work: bool = False) -> ContextWindow:
        choices = self._choices
        chosen = choices.settings.context_tokens
        return ContextWindow(
            lambda model: chosen or context_tokens(model),
            lambda model: chosen is not None or is_window_known(model),
            choices.settings.compact_at,
            choices.endpoint is not None or choices.embedding.llm is not None,  # the embedded one cannot summarize
            NOT_REPEATABLE,
            mail_is_work,
            pinned_facts,
        )

    def check_price(self, model: str) -> None:
        """Raises: ToolError, for a model whose calls no budget in dollars could count."""
        if self._choices.price(Usage(), model) is None:
            raise ToolError(f"model: no price is known for {model}, and there is a budget in dollars; use another")

    def close(self) -> None:
        self._backoff.close()
