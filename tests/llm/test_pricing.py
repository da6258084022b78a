from __future__ import annotations

from datetime import UTC, date, datetime

import pytest

from teamcli.llm.pricing import DEFAULT_MODEL, Price, built_in_prices, context_tokens, cost, family, price_of
from teamcli.llm.types import Usage


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("claude-opus-4-5", "claude-opus-4-5"),
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("claude-haiku-4-5@20251001", "claude-haiku-4-5"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("anthropic/claude-sonnet-5-5", "claude-sonnet-5-5"),
        ("qwen3:30b", "qwen3:30b"),
    ],
)
def test_a_family_is_the_name_without_decoration(model: str, name: str) -> None:
    assert family(model) == name


def test_the_default_model_has_a_price_and_a_window() -> None:
    assert price_of(DEFAULT_MODEL) == Price(4, 20)
    assert context_tokens(DEFAULT_MODEL) == 1_000_000


def test_the_built_in_list_has_a_date() -> None:
    assert date.fromisoformat(built_in_prices().date) <= datetime.now(UTC).date()
    assert all(0 < price.input < price.output for price in built_in_prices().prices.values())


def test_each_kind_of_token_has_its_price() -> None:
    million = 1_000_000
    assert cost(Usage(million, 0), "claude-opus-4-5") == 5
    assert cost(Usage(0, million), "claude-opus-4-5") == 25
    assert cost(Usage(0, 0, million, 0), "claude-opus-4-5") == 6.25
    assert cost(Usage(0, 0, 0, million), "claude-opus-4-5") == 0.5


def test_an_unknown_model_has_no_price_unless_the_user_gives_one() -> None:
    assert cost(Usage(1, 1), "qwen3:30b") is None
    assert context_tokens("qwen3:30b") == 200_000
    assert cost(Usage(1_000_000), "qwen3:30b", {"qwen3:30b": Price(2, 3)}) == 2


def test_the_users_price_wins() -> None:
    own = {"claude-opus-4-5": Price(1, 1)}
    assert price_of("claude-opus-4-5-20251101", own) == Price(1, 1)
