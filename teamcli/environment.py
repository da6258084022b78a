"""The variables that name key, endpoint and model: the real environment first, then `.env`, as far as it is trusted.

A project's `.env` may bring a key and a model. An endpoint in it would receive the user's requests and key, so it
counts only once the user has trusted that very address; and a key that stands beside an endpoint goes nowhere else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import ConfigError
from teamcli.files import cannot

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
ENDPOINT = "ANTHROPIC_BASE_URL"
MODEL = "MODEL_ID"
SECRET_VARIABLES = frozenset(
    {
        *KEY_VARIABLES,
        "ANTHROPIC_CUSTOM_HEADERS",
        "ANTHROPIC_IDENTITY_TOKEN",
        "ANTHROPIC_FOUNDRY_API_KEY",
        "ANTHROPIC_AWS_API_KEY",
        "ANTHROPIC_ENVIRONMENT_KEY",
        "ANTHROPIC_WORK_SECRET",
        "ANTHROPIC_WEBHOOK_SIGNING_KEY",
        "AWS_BEARER_TOKEN_BEDROCK",
    }
)
"""What no command may see."""
_hearing = threading.Lock()  # one logger for all
_FROM_DOTENV = (*KEY_VARIABLES, ENDPOINT, MODEL)


class Environment(NamedTuple):
    variables: Mapping[str, str]
    untrusted_endpoint: str = ""
    """An endpoint in `.env` that is not used because nobody has trusted it."""
    notes: tuple[str, ...] = ()
    """What the user should know about `.env`."""

    def get(self, name: str) -> str:
        return self.variables.get(name, "")


def read_environment(real: Mapping[str, str], dotenv: Path, trusted_endpoint: str) -> Environment:
    """Raises: ConfigError."""
    found, notes = read_dotenv(dotenv)
    endpoint = found.get(ENDPOINT, "")
    use_endpoint = not real.get(ENDPOINT) and bool(endpoint) and endpoint == trusted_endpoint
    if endpoint and not use_endpoint:
        for name in (ENDPOINT, *KEY_VARIABLES):
            found.pop(name, None)
    set_for_real = {name: value for name, value in real.items() if value}
    if any(name in set_for_real for name in KEY_VARIABLES):
        for name in KEY_VARIABLES:
            found.pop(name, None)
    untrusted = endpoint if endpoint and not use_endpoint and not real.get(ENDPOINT) else ""
    return Environment({**found, **set_for_real}, untrusted, notes)


def read_dotenv(path: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables of a `.env` that concern us, and what could not be understood.

    Raises: ConfigError
    """
    if not path.is_file():
        return {}, ()
    from dotenv import dotenv_values

    complaints = _Complaints()
    try:
        with _heard(complaints):
            # No interpolation: a project must not be able to weave the user's secrets into values that travel.
            values = dotenv_values(path, interpolate=False, encoding="utf-8")
    except OSError as e:
        raise ConfigError(cannot("read", path, e)) from e
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path} is not UTF-8 text; save it as UTF-8") from e
    notes = tuple(f"{path.name}: {text}; that line is ignored" for text in complaints.texts)
    return {name: values[name] or "" for name in _FROM_DOTENV if values.get(name)}, notes


@contextmanager
def _heard(complaints: _Complaints) -> Iterator[None]:
    """The parser's complaints go there and nowhere else; its logger is then as it was, whosever process this is."""
    parser_log = logging.getLogger("dotenv.main")
    with _hearing:
        propagates = parser_log.propagate
        parser_log.addHandler(complaints)
        parser_log.propagate = False
        try:
            yield
        finally:
            parser_log.propagate = propagates
            parser_log.removeHandler(complaints)


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage().replace("python-dotenv ", ""))
