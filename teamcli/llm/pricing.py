"""What models cost and how much they can read, as far as it is public. An unknown model has no price."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from teamcli.claude_code.names import is_model_alias, model_id
from teamcli.config.settings import Price as Price
from teamcli.llm.types import Usage

DEFAULT_MODEL = "claude-opus-5-5"
DEFAULT_CONTEXT_TOKENS = 200_000

CACHE_WRITE = 1.25
CACHE_READ = 0.1
"""The price of a token that is written to or read from the prompt cache, as a share of the input price."""


class PriceList(NamedTuple):
    date: str
    """When these prices were looked up."""
    prices: Mapping[str, Price]


@cache
def built_in_prices() -> PriceList:
    """The prices in `prices.json`, next to this module."""
    raw = json.loads(Path(__file__).with_name("prices.json").read_bytes())
    return PriceList(raw["date"], {model: Price(**price) for model, price in raw["prices"].items()})


_MILLION_TOKEN_MODELS = frozenset(
    {
        "claude-fable-5-1",
        "claude-fable-5",
        "claude-opus-5-5",
        "claude-opus-5",
        "claude-opus-4-8",
        "claude-opus-4-7",
        "claude-opus-4-6",
        "claude-sonnet-5-5",
        "claude-sonnet-5",
        "claude-haiku-5-5",
    }
)


@lru_cache(maxsize=64)
def family(model: str) -> str:
    """The name without date and platform: `us.anthropic.claude-opus-4-5-20251101-v1:0` → `claude-opus-4-5`."""
    name = re.sub(r"^.*(?=claude-)", "", model)
    return re.sub(r"([-@]\d{8})?(-v\d+(:\d+)?)?$", "", name)


def context_tokens(model: str) -> int:
    """How many tokens the model can read; a cautious guess for unknown models."""
    return 1_000_000 if family(model) in _MILLION_TOKEN_MODELS else DEFAULT_CONTEXT_TOKENS


def is_window_known(model: str) -> bool:
    """Whether `context_tokens` is more than a guess."""
    return family(model).startswith("claude-")


def price_of(model: str, prices: Mapping[str, Price] | None = None) -> Price | None:
    """`prices` are the user's, by exact name; they win over the built-in list."""
    own = prices or {}
    return own.get(model) or own.get(family(model)) or built_in_prices().prices.get(family(model))


def meant_model(name: str, parent: str = DEFAULT_MODEL) -> str:
    """The id of the model that a name means: an alias such as `sonnet`, or an id. `parent` is the agent's that says it.

    An endpoint with models of other makers has none of these families: there, an alias means the parent's model.
    """
    if name and not is_model_alias(name):
        return name
    has_families = is_window_known(parent)
    known = built_in_prices().prices if has_families else ()
    return model_id(name, parent, DEFAULT_MODEL if has_families else parent, known, os.environ)


def cost(usage: Usage, model: str, prices: Mapping[str, Price] | None = None) -> float | None:
    """The cost in dollars; None if the model's price is unknown."""
    price = price_of(model, prices)
    if price is None:
        return None
    cached = usage.cache_creation_input_tokens * CACHE_WRITE + usage.cache_read_input_tokens * CACHE_READ
    return ((usage.input_tokens + cached) * price.input + usage.output_tokens * price.output) / 1_000_000
