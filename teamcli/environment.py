"""The variables that name key, endpoint and model: the real environment first, then `.env`, as far as it is trusted.

A project's `.env` may bring a key and a model. An endpoint in it would receive the user's requests and key, so it
counts only once the user has trusted that very address; and a key that stands beside an endpoint goes nowhere else.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from io import StringIO
from pathlib import Path
from typing import NamedTuple

from teamcli.errors import ConfigError
from teamcli.files import cannot
from teamcli.masking import is_secret

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
ENDPOINT = "ANTHROPIC_BASE_URL"
MODEL = "MODEL_ID"
CUSTOM_HEADERS = "ANTHROPIC_CUSTOM_HEADERS"
SECRET_VARIABLES = frozenset(
    {
        *KEY_VARIABLES,
        CUSTOM_HEADERS,
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
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy")
LARGEST_DOTENV = 1_000_000
_hearing = threading.Lock()  # one logger for all
_FROM_DOTENV = (*KEY_VARIABLES, ENDPOINT, MODEL)


class Environment(NamedTuple):
    variables: Mapping[str, str]
    untrusted_endpoint: str = ""
    """An endpoint in `.env` that is not used because nobody has trusted it."""
    notes: tuple[str, ...] = ()
    """What the user should know about `.env`."""
    secrets: frozenset[str] = frozenset()
    """What must not leave in any text: keys that are used, and those that are only found."""

    def get(self, name: str) -> str:
        return self.variables.get(name, "")


def read_environment(real: Mapping[str, str], dotenv: Path, trusted_endpoint: str) -> Environment:
    """Raises: ConfigError."""
    found, notes = read_dotenv(dotenv)
    secrets = frozenset((*secret_values(real), *secret_values(found), *_proxy_passwords(real)))
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
    return Environment({**found, **set_for_real}, untrusted, notes, secrets)


def secret_values(variables: Mapping[str, str], hidden: Iterable[str] = ()) -> frozenset[str]:
    """The secrets themselves: of headers, the values alone. `hidden` are patterns of further names."""
    values = [value for name, value in variables.items() if is_hidden(name, hidden) and name != CUSTOM_HEADERS]
    headers = (line.partition(":")[2].strip() for line in variables.get(CUSTOM_HEADERS, "").splitlines())
    return frozenset(filter(is_secret, (*values, *headers)))


def is_hidden(name: str, hidden: Iterable[str] = ()) -> bool:
    """Whether commands must not see this variable."""
    return name in SECRET_VARIABLES or any(fnmatchcase(name, pattern) for pattern in hidden)


def visible_variables(variables: Mapping[str, str], hidden: Iterable[str] = ()) -> dict[str, str]:
    """What commands may see: nothing that is hidden, under no other name either."""
    hidden = tuple(hidden)
    secrets = secret_values(variables, hidden)
    return {
        name: value
        for name, value in variables.items()
        if not is_hidden(name, hidden) and not any(secret in value for secret in secrets)
    }


def _proxy_passwords(variables: Mapping[str, str]) -> list[str]:
    """`user:password`, as it stands in an address: commands need it for the network, but nobody needs to read it."""
    users = (variables.get(name, "").rpartition("@")[0].rpartition("//")[2] for name in _PROXIES)
    return [user for user in users if ":" in user]


def read_dotenv(path: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables of a `.env` that concern us, and what could not be understood.

    Raises: ConfigError
    """
    if not path.is_file():  # a FIFO would never end
        return {}, ()
    from dotenv import dotenv_values

    complaints = _Complaints()
    try:
        with _heard(complaints):
            # No interpolation: a project must not be able to weave the user's secrets into values that travel.
            values = dotenv_values(stream=StringIO(_text(path)), interpolate=False)
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


def _text(path: Path) -> str:
    with path.open("rb") as file:
        data = file.read(LARGEST_DOTENV + 1)
    if len(data) > LARGEST_DOTENV:
        raise ConfigError(f"{path} is larger than {LARGEST_DOTENV:,} bytes; mend or remove it")
    return data.decode()


class _Complaints(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage().replace("python-dotenv ", ""))
