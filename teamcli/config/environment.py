"""The variables that name the key, the endpoint and the model, from the user's environment and the project's `.env`.

`choose` is the only place that decides which credential goes where. Every connection gets its variables from there.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from io import StringIO
from pathlib import Path
from typing import Literal, NamedTuple

from teamcli.errors import ConfigError
from teamcli.storage.files import cannot, read_regular
from teamcli.text.redaction import is_secret

KEY_VARIABLES = ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN")
ENDPOINT = "ANTHROPIC_BASE_URL"
OFFICIAL_URL = "https://api.anthropic.com"
MODEL = "MODEL_ID"
Platform = Literal["bedrock", "vertex", "foundry"]
PLATFORM_SWITCHES: Mapping[str, Platform] = {
    "CLAUDE_CODE_USE_BEDROCK": "bedrock",
    "CLAUDE_CODE_USE_VERTEX": "vertex",
    "CLAUDE_CODE_USE_FOUNDRY": "foundry",
}
"""With one of these the user selects a cloud platform instead of an address."""
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
"""Variables that no command may see."""
STORE, STORE_PASSWORD = "TEAMCLI_STORE", "PGPASSWORD"
"""Where the team's database is, and its password. Commands see neither: they could read everything that agents of all
teams have said. Only the password is redacted; others than that of the database are the user's business."""
_KEPT_BACK = ("ANTHROPIC_", "CLAUDE_CODE_USE_", "LD_", "DYLD_", "GCONV_PATH")
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "https_proxy", "http_proxy", "all_proxy")
LARGEST_DOTENV = 1_000_000
_capturing = threading.Lock()  # the parser has one logger for the whole process
_FROM_DOTENV = (*KEY_VARIABLES, ENDPOINT, MODEL)


class Environment(NamedTuple):
    variables: Mapping[str, str]
    """All variables that may decide where requests go and with which credential."""
    untrusted_endpoint: str = ""
    """An endpoint in `.env` that is not used because the user has not trusted it."""
    projects_endpoint: str = ""
    """An endpoint in `.env` that is used."""
    has_projects_key: bool = False
    """Whether the key or token in `variables` comes from `.env`."""
    keeps_key_back: bool = False
    """Whether `.env` has a key that is not used, because it belongs to an endpoint there that is not used."""
    notes: tuple[str, ...] = ()
    """What the user should know about `.env`."""
    secrets: frozenset[str] = frozenset()
    """Values to redact from all text: keys that are used, and keys that were only found."""

    def get(self, name: str) -> str:
        return self.variables.get(name, "")

    @property
    def no_credential(self) -> str:
        """The error message if the endpoint has no credential."""
        key, token = KEY_VARIABLES
        if self.projects_endpoint:
            return (
                f"{self.projects_endpoint}, named in .env, has no credential, and yours is never sent to an address"
                f" that a project names: put {key} into .env, or set {ENDPOINT} in your environment"
            )
        aside = " (the key in .env is for the endpoint in .env)" if self.keeps_key_back else ""
        return f"{ENDPOINT} is set but there is no credential for it{aside}: set {key} or {token}"


def read_environment(real: Mapping[str, str], dotenv: Path, trusted_endpoint: str) -> Environment:
    """Raises: ConfigError."""
    found, notes = read_dotenv(dotenv)
    secrets = frozenset((*secret_values(real), *secret_values(found), *_proxy_passwords(real)))
    return choose(real, found, trusted_endpoint)._replace(notes=notes, secrets=secrets)


def choose(users: Mapping[str, str], projects: Mapping[str, str], trusted_endpoint: str) -> Environment:
    """Decide which endpoint and which credential to use, from the user's variables and the project's `.env`.

    - The user's endpoint wins. The project's is used only if the user has trusted that address.
    - The project's endpoint gets nothing from the user: no key, no token, no profile, no header.
    - The project's credential goes to the project's endpoint, or if it names none to the one in use, unless the user
      has a key or token.
    """
    users = {name: value for name, value in users.items() if value}
    endpoint = projects.get(ENDPOINT, "")
    if endpoint.strip().rstrip("/") == users.get(ENDPOINT, OFFICIAL_URL).strip().rstrip("/"):
        endpoint = ""  # it names the address in use
    model = {name: source[name] for source in (projects, users) for name in (MODEL,) if source.get(name)}
    keys = {name: projects[name] for name in KEY_VARIABLES if projects.get(name)}
    is_users_choice = ENDPOINT in users or any(is_switched_on(users, name) for name in PLATFORM_SWITCHES)
    if endpoint and not is_users_choice and endpoint == trusted_endpoint:
        # An explicit list: anything else that a client may read from the environment is the user's.
        variables = {ENDPOINT: endpoint, **keys, **model}
        return Environment(variables, projects_endpoint=endpoint, has_projects_key=bool(keys))
    # A key next to an endpoint belongs to that endpoint: if the endpoint is not used, neither is the key.
    is_used = bool(keys) and not endpoint and not any(name in users for name in KEY_VARIABLES)
    return Environment(
        {**(keys if is_used else {}), **users, **model},
        untrusted_endpoint="" if is_users_choice else endpoint,
        has_projects_key=is_used,
        keeps_key_back=bool(keys and endpoint),
    )


def is_switched_on(variables: Mapping[str, str], name: str) -> bool:
    return variables.get(name, "") not in ("", "0", "false")


def secret_values(variables: Mapping[str, str], hidden: Iterable[str] = ()) -> frozenset[str]:
    """The secrets among the variables; of headers, only the values. `hidden` are patterns of further names."""
    names = [name for name in variables if is_hidden(name, hidden) and name not in (CUSTOM_HEADERS, STORE)]
    values = [variables[name] for name in names]
    headers = (line.partition(":")[2].strip() for line in variables.get(CUSTOM_HEADERS, "").splitlines())
    return frozenset(filter(is_secret, (*values, *headers)))


def is_kept_back(name: str) -> bool:
    """Whether settings must not set this variable: it names an endpoint or a key, or acts on the sandbox itself."""
    return name.startswith(_KEPT_BACK)


def is_hidden(name: str, hidden: Iterable[str] = ()) -> bool:
    """Whether commands must not see this variable."""
    return name in SECRET_VARIABLES or name == STORE or any(fnmatchcase(name, pattern) for pattern in hidden)


def visible_variables(variables: Mapping[str, str], hidden: Iterable[str] = ()) -> dict[str, str]:
    """The variables that commands may see: none that is hidden, and none that contains the value of a hidden one."""
    hidden = tuple(hidden)
    secrets = secret_values(variables, hidden)
    return {
        name: value
        for name, value in variables.items()
        if not is_hidden(name, hidden) and not any(secret in value for secret in secrets)
    }


def _proxy_passwords(variables: Mapping[str, str]) -> list[str]:
    """`user:password` in the addresses of proxies. Commands need it for the network, but it must not be printed."""
    users = (variables.get(name, "").rpartition("@")[0].rpartition("//")[2] for name in _PROXIES)
    return [user for user in users if ":" in user]


def read_dotenv(path: Path) -> tuple[dict[str, str], tuple[str, ...]]:
    """The variables in a `.env` that teamcli uses, and notes about lines that could not be parsed.

    Raises: ConfigError
    """
    if not path.is_file():  # reading a FIFO would never end
        return {}, ()
    from dotenv import dotenv_values

    complaints = _Complaints()
    try:
        with _captured(complaints):
            # No interpolation: a project must not be able to put the user's secrets into values that are sent.
            values = dotenv_values(stream=StringIO(read_regular(path, LARGEST_DOTENV).decode()), interpolate=False)
    except OSError as e:
        raise ConfigError(cannot("read", path, e)) from e
    except UnicodeDecodeError as e:
        raise ConfigError(f"{path} is not UTF-8 text; save it as UTF-8") from e
    except ValueError as e:
        raise ConfigError(f"{path} is {e}; fix or delete it") from e
    notes = tuple(f"{path.name}: {text}; that line is ignored" for text in complaints.texts)
    found = {name: (values.get(name) or "").strip() for name in _FROM_DOTENV}
    return {name: value for name, value in found.items() if value}, notes


@contextmanager
def _captured(complaints: _Complaints) -> Iterator[None]:
    """Collect the parser's warnings, then restore its logger: the process may belong to a host program."""
    parser_log = logging.getLogger("dotenv.main")
    with _capturing:
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
