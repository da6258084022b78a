"""What went wrong with a model call → one error of `teamcli.errors`, with one sentence for the user.

Text from the endpoint is shortened, kept to one line and cleared of secrets before it is repeated.
"""

from __future__ import annotations

import json
import re
import socket
import time
import zlib
from collections.abc import Iterator, Mapping
from typing import Literal, Protocol

from teamcli.errors import (
    AuthError,
    ConnectionLost,
    ContextTooLong,
    MaxTokensRefused,
    ModelError,
    ModelLoading,
    ModelNotFound,
    Overloaded,
    RateLimited,
    RequestRejected,
    ServerFault,
    Unreachable,
    WrongEndpoint,
)
from teamcli.llm.credentials import BASE_URL, Endpoint
from teamcli.text.redaction import Redactor, redact

LONGEST_DETAIL, HEAD_OF_DETAIL = 380, 120
"""A longer text keeps its beginning and its end: template engines say at the end what is wrong."""
LONGEST_BODY = 65_536

_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
# Patterns are strings, which `re` compiles at first use: most runs have no faults.
_TOO_LONG = (
    r"(?i)prompt is too long|context[ _](window|length|limit|size)|maximum context|too many (input |prompt )?tokens"
)
_LOADING = r"(?i)loading\b.*\bmodel|model\b.*\bloading"
_NO_KEYS = r"(?i)no connected db"
"""What LiteLLM without a database says to any key except its master key."""
_PROVIDER_UNKNOWN = (
    r"(?i)provider\b.*\b(not provided|not found|not exist|not supported|not configured|unknown)"
    r"|(invalid|unknown) provider"
)
_ABOUT_OUTPUT = r"(?i)max_(completion_|output_|new_)?tokens|in the completion"
_WINDOW_AND_INPUT = (
    r"(?is)maximum context length is (?P<window>\d+).*?(?P<input>\d+) (?:input tokens|in the messages)",
    r"(?P<input>\d+) \+ \d+ > (?P<window>\d+)",
    r"(?s)must be <= (?P<window>\d+).*?(?P<input>\d+) `inputs`",
)
_MOST_OUTPUT = r"(?i)(?:> |at most |less than or equal to |must be <= )`?(\d+)"
_SMALLEST_ANSWER = 256
_MODEL_UNKNOWN = (
    r"(?i)^model: |model\b.*\b(not found|not exist|not supported|unknown|not available)|(invalid|unknown) model"
    r"|no such model|not a valid model"
)


Trouble = Literal["proxy", "no answer", "silence", "unreachable", "broken off", "nonsense"]


class CannotConnect(Exception):
    """Raised by a connection that could not be opened, from the OSError that says why."""


class HttpAnswer(Protocol):
    """An answer whose head has arrived, for any HTTP library."""

    @property
    def status_code(self) -> int: ...

    @property
    def headers(self) -> Mapping[str, str]: ...

    def iter_bytes(self) -> Iterator[bytes]: ...

    def close(self) -> None: ...


class Faults:
    """Explains the failures of calls to one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint

    def from_answer(self, status: int, headers: Mapping[str, str], body: str, model: str) -> ModelError:
        """An answer that is not a stream of events, whatever its status."""
        kind, detail = _kind_and_detail(body)
        # An error object under a status of success: its type says which status is meant.
        if kind and 200 <= status < 300:
            status = _STATUS_OF_TYPE.get(kind, 500)
        elif kind == "overloaded_error":
            status = 529
        return self._from_status(status, headers, self.clean(detail), kind, model)

    def from_event(self, event: Mapping[str, object], model: str) -> ModelError:
        """An `error` event in the middle of a stream."""
        kind, detail = _kind_and_detail(json.dumps({"type": "error", **event}))
        return self._from_status(_STATUS_OF_TYPE.get(kind, 500), {}, self.clean(detail), kind, model)

    def from_http_error(self, error: BaseException) -> ModelError:
        """An exception of the HTTP layer: the endpoint was not reached, or the connection was lost."""
        host, words = self.endpoint.host, self._words(error)
        match _trouble(error):
            case "proxy":
                return ConnectionLost(f"The proxy refused the connection to {host} ({words}): check HTTPS_PROXY")
            case "no answer":
                return Unreachable(
                    f"{host} does not answer: check the network{self._unless_official(f' and {BASE_URL}')}"
                )
            case "silence":
                return ConnectionLost(f"{host} sent nothing for too long")
            case "unreachable":
                return self._from_connect_error(error)
            case "broken off":
                return ConnectionLost(f"The connection to {host} broke off ({words})")
            case "nonsense":
                return ServerFault(f"The answer from {host} makes no sense ({words})")

    def clean(self, text: str) -> str:
        """The text as one short line without control characters and secrets."""
        text = Redactor((self.endpoint.secret, *(value for _, value in self.endpoint.headers))).redact(redact(text))
        line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
        if len(line) <= LONGEST_DETAIL:
            return line
        return f"{line[:HEAD_OF_DETAIL]} … {line[HEAD_OF_DETAIL + 3 - LONGEST_DETAIL :]}"

    def _from_status(self, status: int, headers: Mapping[str, str], detail: str, kind: str, model: str) -> ModelError:
        endpoint, host = self.endpoint, self.endpoint.host
        # LiteLLM without a database cannot look a key up, and calls that a bad request.
        if status == 401 or (status == 400 and re.search(_NO_KEYS, detail)):
            return AuthError(f"{host} rejected the credential: check {endpoint.source}{_in_brackets(detail)}")
        if status == 403:
            return AuthError(f"{host} does not allow this: check what {endpoint.source} may do{_in_brackets(detail)}")
        # Before the general checks: for a model that they do not have, servers answer any of these.
        if status in (400, 404, 422) and _names_unknown_model(status, kind, detail, model):
            return ModelNotFound(
                f"{host} does not know the model {self.clean(model)}: choose another with --model or MODEL_ID"
                f"{_in_brackets(detail if re.search(_PROVIDER_UNKNOWN, detail) else '')}"
            )
        # Before the check for a long conversation: these speak of the context length, too, but a shorter answer helps.
        if status in (400, 422) and (limit := output_limit(detail)):
            return MaxTokensRefused(
                f"{host} rejected max_tokens: set a lower value in the settings{_in_brackets(detail)}",
                *limit,
            )
        if status == 413 or (status < 500 and re.search(_TOO_LONG, detail)):
            return ContextTooLong(
                f"The conversation is too long for {self.clean(model)}: start a new one (/clear){_in_brackets(detail)}"
            )
        if status == 404:
            return WrongEndpoint(
                f"There is no Messages API at {host} (404){self._check_base_url}{_in_brackets(detail)}"
            )
        if status >= 400:
            return _by_status_class(status, host, detail, retry_after_seconds(headers))
        if status >= 300:
            target = self.clean(headers.get("location", "elsewhere"))
            return WrongEndpoint(f"{host} redirects to {target}: set {BASE_URL} to the real address of the API")
        received = self.clean(headers.get("content-type", "")) or "something else"
        return WrongEndpoint(f"{host} answers with {received}, not with an event stream{self._check_base_url}")

    @property
    def _check_base_url(self) -> str:
        return self._unless_official(f": {BASE_URL} looks wrong (it ends before /v1/messages)")

    def _unless_official(self, text: str) -> str:
        """Advice about the address, if it is not the API's own."""
        return "" if self.endpoint.is_official else text

    def _from_connect_error(self, error: BaseException) -> ModelError:
        import ssl  # late: it takes a while to load, and not every endpoint needs it

        host = self.endpoint.host
        for cause in _causes(error):
            if isinstance(cause, ssl.SSLCertVerificationError):
                return ModelError(
                    f"The certificate of {host} is not trusted ({self.clean(cause.verify_message)}):"
                    " name the CA bundle to use in SSL_CERT_FILE"
                )
            if isinstance(cause, socket.gaierror):
                return Unreachable(
                    f"The name {host} cannot be resolved: check the network{self._unless_official(f' and {BASE_URL}')}"
                )
            if isinstance(cause, ConnectionRefusedError):
                check = self._unless_official(f": start it, or check {BASE_URL}")
                return Unreachable(f"Nothing listens at {host} (connection refused){check}")
        return Unreachable(f"{host} cannot be reached ({self._words(error)})")

    def _words(self, error: BaseException) -> str:
        return self.clean(str(error)) or type(error).__name__


def _trouble(error: BaseException) -> Trouble:
    """What an exception of the standard library or of `httpx2` means."""
    if isinstance(error, CannotConnect):
        return "no answer" if isinstance(error.__cause__, TimeoutError) else "unreachable"
    if isinstance(error, zlib.error):
        return "nonsense"
    if isinstance(error, OSError):
        return "silence" if isinstance(error, TimeoutError) else "broken off"
    import httpx2

    kinds: tuple[tuple[type[Exception], Trouble], ...] = (
        (httpx2.ProxyError, "proxy"),
        (httpx2.ConnectTimeout, "no answer"),
        (httpx2.TimeoutException, "silence"),
        (httpx2.ConnectError, "unreachable"),
        (httpx2.TransportError, "broken off"),
    )
    return next((trouble for kind, trouble in kinds if isinstance(error, kind)), "nonsense")


def refuse_unless_stream(response: HttpAnswer, faults: Faults, model: str) -> None:
    """Raises: ModelError, for an answer whose body is not a stream of events. Then it is read and closed."""
    kind = response.headers.get("content-type", "")
    if response.status_code == 200 and ("event" in kind or not kind):
        return
    body = b""
    try:
        for piece in response.iter_bytes():
            body += piece
            if len(body) > LONGEST_BODY:
                break
    finally:
        response.close()
    raise faults.from_answer(response.status_code, response.headers, body.decode("utf-8", "replace"), model)


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """How long the endpoint asks to wait; None if it does not say, or nothing sensible."""
    value = headers.get("retry-after", "")
    try:
        # Not a standard header, but more exact; the SDK of the API prefers it, too.
        if milliseconds := headers.get("retry-after-ms"):
            seconds = float(milliseconds) / 1000
        elif re.fullmatch(r"[\d.]+", value):
            seconds = float(value)
        else:
            import email.utils  # late: it takes longer to load than a short run can spare

            seconds = email.utils.parsedate_to_datetime(value).timestamp() - time.time()
    except ValueError:
        return None
    return seconds if 0 < seconds < float("inf") else None


def _by_status_class(status: int, host: str, detail: str, retry_after: float | None) -> ModelError:
    said = f": {detail}" if detail else ""
    if status == 429:
        return RateLimited(f"Rate limit of {host} reached (429){said}", retry_after)
    if status == 529:
        return Overloaded(f"{host} is overloaded (529){said}", retry_after)
    if status == 503 and re.search(_LOADING, detail):
        return ModelLoading(f"{host} is loading its model (503)", retry_after)
    # As the SDK of the API does: a timeout or a conflict may be gone a moment later.
    if status >= 500 or status in (408, 409):
        return ServerFault(f"Server error at {host} ({status}){said}", retry_after)
    return RequestRejected(f"{host} rejected the request ({status}){said}")


def _kind_and_detail(body: str) -> tuple[str, str]:
    """The error's type and message. If it is not an API error, the readable part of the body is the message."""
    try:
        raw = json.loads(body)
    except ValueError:
        title = re.search(r"<title[^>]*>(.*?)</title>", body, re.I | re.S)
        return "", title.group(1) if title else re.sub(r"<[^>]*>", " ", body)
    error = raw.get("error", raw) if isinstance(raw, dict) else raw
    if not isinstance(error, dict):
        return "", str(error or "")
    kind = error.get("type") if isinstance(raw.get("error"), dict) else ""
    detail = error.get("message") or error.get("detail") or ("" if kind else body)
    return str(kind or ""), str(detail)


def output_limit(detail: str) -> tuple[int, int] | None:
    """What a rejection of `max_tokens` says: the tokens an answer may have, and the window it shares with the input.

    0 for what it does not say; None if it is about something else, or if the input alone is too long.
    """
    if not re.search(_ABOUT_OUTPUT, detail):
        return None
    # `200,000` is one number.
    numbers = re.sub(r"(?<=\d),(?=\d{3})", "", detail)
    for pattern in _WINDOW_AND_INPUT:
        if found := re.search(pattern, numbers):
            window = int(found["window"])
            allowed = window - int(found["input"])
            return (allowed, window) if allowed >= _SMALLEST_ANSWER else None
    if found := re.search(_MOST_OUTPUT, numbers):
        return int(found[1]), 0
    return (0, 0) if "too large" in detail else None


def _names_unknown_model(status: int, kind: str, detail: str, model: str) -> bool:
    if re.search(_MODEL_UNKNOWN, detail) or re.search(_PROVIDER_UNKNOWN, detail):
        return True
    return status == 404 and kind == "not_found_error" and (model in detail or "model" in detail.lower())


def _in_brackets(detail: str) -> str:
    return f" ({detail})" if detail else ""


def _causes(error: BaseException | None) -> list[BaseException]:
    # The connection pool cuts `__cause__`, so the original error is found through `__context__`.
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain
