"""What a LangChain chat model raises → one error of `teamcli.errors`."""

from __future__ import annotations

import re

from teamcli.errors import (
    AuthError,
    ConnectionLost,
    ContextTooLong,
    ModelError,
    ModelNotFound,
    Overloaded,
    RateLimited,
    RequestRejected,
    ServerFault,
)
from teamcli.text.escaping import one_line
from teamcli.text.redaction import redact

LONGEST_DETAIL = 300
_TOO_LONG = re.compile(
    r"(prompt|input) is too long|context[ _](window|length|limit|size)|maximum context|too many .{0,20}tokens", re.I
)
_BY_CLASS: dict[str, type[ModelError]] = {
    "ContextOverflowError": ContextTooLong,
    "ModelAuthenticationError": AuthError,
    "ModelPermissionDeniedError": AuthError,
    "ModelNotFoundError": ModelNotFound,
    "ModelRateLimitError": RateLimited,
    "ModelAPIError": ServerFault,
    "ModelConnectionError": ConnectionLost,
    "ModelTimeoutError": ConnectionLost,
}
"""LangChain's own classes. Compared by name: older versions lack some of them."""
_BY_STATUS: dict[int, type[ModelError]] = {
    401: AuthError,
    403: AuthError,
    404: ModelNotFound,
    413: ContextTooLong,
    429: RateLimited,
    529: Overloaded,
}
"""Providers' errors have a `status_code`."""


def explained(error: Exception, who: str) -> ModelError:
    """`who` is the class of the chat model."""
    if isinstance(error, ModelError):
        return type(error)(f"{who}: {error}")
    words = redact(one_line(str(error), LONGEST_DETAIL))
    return _kind_of(error)(f"{who} failed: {type(error).__name__}" + (f": {words}" if words else ""))


def _kind_of(error: Exception) -> type[ModelError]:
    status = getattr(error, "status_code", None)
    if (status is None or status in (400, 413, 422)) and _TOO_LONG.search(str(error)):
        return ContextTooLong
    for base in type(error).__mro__:
        if base.__name__ in _BY_CLASS:
            return _BY_CLASS[base.__name__]
    if not isinstance(status, int):
        return ModelError
    return _BY_STATUS.get(status) or (ServerFault if status >= 500 else RequestRejected)
