"""Checks of the values in a settings file.

By hand: loading pydantic would take as long as everything else at the start.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

Check = Callable[[Any, str], Any]
"""Takes a value and the name of its field. Returns the value for the settings, or raises ValueError."""


def refuse(field: str, wanted: str) -> NoReturn:
    raise ValueError(f"{field}: should be {wanted}")


def text(value: Any, field: str) -> Any:
    return value if isinstance(value, str) else refuse(field, "a text")


def flag(value: Any, field: str) -> Any:
    return value if isinstance(value, bool) else refuse(field, "true or false")


def mapping(value: Any, field: str) -> Any:
    return value if isinstance(value, dict) else refuse(field, "an object in braces")


def pattern(value: Any, field: str) -> Any:
    try:
        re.compile("" if value == "*" else text(value, field))
    except (re.error, OverflowError, RecursionError) as e:
        refuse(field, f"a regular expression ({e})")
    return value


def number(wanted: str, accepts: Callable[[float], bool]) -> Check:
    def check(value: Any, field: str) -> Any:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return float(value) if is_number and accepts(value) else refuse(field, f"a number {wanted}")

    return check


def whole_number(least: int, most: float = float("inf")) -> Check:
    bounds = f"from {least} up" if most == float("inf") else f"from {least} to {most}"

    def check(value: Any, field: str) -> Any:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return value if is_whole and least <= value <= most else refuse(field, f"a whole number {bounds}")

    return check


def one_of(*words: str) -> Check:
    return lambda value, field: value if value in words else refuse(field, f"one of {', '.join(words)}")


def or_nothing(check: Check) -> Check:
    return lambda value, field: None if value is None else check(value, field)


def list_of(check: Check) -> Check:
    def check_all(value: Any, field: str) -> Any:
        if not isinstance(value, list):
            refuse(field, "a list in brackets")
        return tuple(check(item, f"{field}.{position}") for position, item in enumerate(value))

    return check_all


_HOST = r"(?i)(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*"


def network(value: Any, field: str) -> Any:
    wanted = "on, off, or a list of host names such as example.org or *.example.org"
    hosts = value if isinstance(value, list) else [] if value in ("on", "off") else refuse(field, wanted)
    if not all(isinstance(host, str) and re.fullmatch(_HOST, host) for host in hosts):
        refuse(field, wanted)
    return tuple(host.lower() for host in value) if isinstance(value, list) else value


def each_value(check: Check) -> Check:
    return lambda value, field: {name: check(item, f"{field}.{name}") for name, item in mapping(value, field).items()}


def made_of(kind: Callable[..., Any], needed: tuple[str, ...] = (), is_strict: bool = False, **checks: Check) -> Check:
    """An object with these fields. Unknown keys are ignored, since a file may be written for a newer teamcli. If the
    object is a bound that people rely on (`is_strict`), an unknown key is an error."""

    def check(value: Any, field: str) -> Any:
        values = mapping(value, field)
        for name in needed:
            if name not in values:
                refuse(f"{field}.{name}", "given")
        if is_strict and (unknown := [name for name in values if name not in checks]):
            refuse(f"{field}.{unknown[0]}", f"one of {', '.join(checks)}")
        prefix = f"{field}." if field else ""
        return kind(**{name: checks[name](item, prefix + name) for name, item in values.items() if name in checks})

    return check
