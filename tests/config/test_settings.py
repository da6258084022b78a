"""Settings files: what each key may hold, and how the files add up."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from teamcli.config.settings import Allowance, Price, Settings, load_settings, read_settings_file, settings_problem
from teamcli.errors import ConfigError

PAGE = (Path(__file__).parents[2] / "docs/settings.md").read_text(encoding="utf-8")


def loaded(path: Path, values: object) -> Settings:
    path.write_text(json.dumps(values))
    return load_settings(path)


def test_the_documented_example_is_understood_whole(tmp_path: Path) -> None:
    match = re.search(r"```json\n(.*?)```", PAGE, re.DOTALL)
    assert match
    example = json.loads(match[1])
    found = loaded(tmp_path / "settings.json", example)
    assert found.permissions.allow == tuple(example["permissions"]["allow"])
    assert found.prices == {"my-model": Price(0.5, 1.5)}
    assert found.limits.teammate_turns == 100
    assert found.subagents._asdict() == example["subagents"]
    assert found.budgets.session == Allowance(usd=10)
    assert found.budgets.teammate == Allowance(**example["budgets"]["teammate"])
    nested = ("permissions", "prices", "limits", "subagents", "budgets")
    simple = {name: _frozen(value) for name, value in example.items() if name not in nested}
    assert {name: getattr(found, name) for name in simple} == simple


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def test_null_means_the_default_and_unknown_keys_are_ignored(tmp_path: Path) -> None:
    values = {"model": None, "platform": None, "thinking": None, "max_concurrent_calls": None, "of_tomorrow": 1}
    assert loaded(tmp_path / "settings.json", values) == Settings()


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"model": 5}, "model: should be a text"),
        ({"client": "Direct"}, "client: should be one of auto, direct, sdk"),
        ({"client": None}, "client: should be one of"),
        ({"platform": ["vertex"]}, "platform: should be one of bedrock, vertex, foundry"),
        ({"permissions": []}, "permissions: should be an object"),
        ({"permissions": {"mode": "yolo"}}, "permissions.mode: should be one of default"),
        ({"permissions": {"deny": ["bash", 1]}}, "permissions.deny.1: should be a text"),
        ({"max_tokens": 0}, "max_tokens: should be a whole number from 1 up"),
        ({"max_tokens": True}, "max_tokens: should be a whole number"),
        ({"retries": 21}, "retries: should be a whole number from 0 to 20"),
        ({"retries": "3"}, "retries: should be a whole number"),
        ({"retry_minutes": -1}, "retry_minutes: should be a number of minutes from 0 to 1440"),
        ({"thinking": "adaptive"}, "thinking: should be an object"),
        ({"durable": 1}, "durable: should be true or false"),
        ({"stuck_after_seconds": 0}, "stuck_after_seconds: should be a number of seconds above 0"),
        ({"limits": {"shutdown_seconds": "1"}}, "limits.shutdown_seconds: should be a number of seconds above 0"),
        (
            {"budgets": {"session": {"dollars": 1}}},
            "budgets.session.dollars: should be one of usd, tokens, calls, seconds",
        ),
        (
            {"budgets": {"teammates": {"usd": 1}}},
            "budgets.teammates: should be one of session, team, lead, teammate, subagent, agents",
        ),
        ({"budgets": {"agents": {"alice": {"calls": 0}}}}, "budgets.agents.alice.calls: should be a whole number from"),
        ({"limits": {"teammates": 0}}, "limits.teammates: should be a whole number from 1 up"),
        ({"limits": {"teammate_turns": 0}}, "limits.teammate_turns: should be a whole number from 1 up"),
        ({"subagents": {"max_concurrent": -1}}, "subagents.max_concurrent: should be a whole number from 1 up"),
        ({"subagents": {"timeout_seconds": 0}}, "subagents.timeout_seconds: should be a number of seconds above 0"),
        ({"prices": {"m": {"input": 1}}}, "prices.m.output: should be given"),
        ({"prices": {"m": {"input": -1, "output": 1}}}, "prices.m.input: should be a number from 0 up"),
        ({"prices": {"m": {"input": 1, "output": 10**400}}}, "prices.m.output: should be a number"),
    ],
)
def test_a_value_that_makes_no_sense_is_named_with_what_it_should_be(tmp_path: Path, values: Any, said: str) -> None:
    path = tmp_path / "settings.json"
    path.write_text(json.dumps(values))
    with pytest.raises(ConfigError) as caught:
        read_settings_file(path)
    assert str(caught.value).startswith(f"{path}: {said}")
    assert str(caught.value).endswith("; fix it there")


@pytest.mark.parametrize("name", Settings._fields)
def test_each_setting_is_checked(name: str) -> None:
    assert settings_problem({name: object()}).startswith(f"{name}: should be ")
