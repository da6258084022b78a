"""Removes the user's keys from all text on its way to a model, a file, a screen or another program.

A process has one user, so the keys are global: every writer calls `redact`, and no caller can forget to pass them on. A
key is recognized as it is, in URLs, JSON, base64 and hex, and when it is broken over several lines.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeVar
from urllib.parse import quote

MASK = "[the API key]"
SHORTEST_SECRET, LONGEST_WORD = 8, 19
T = TypeVar("T")


class Redactor:
    """A set of secrets and the forms in which they can appear."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = frozenset(secret for secret in secrets if len(secret) >= SHORTEST_SECRET)
        forms = {form for secret in self.secrets for form in _forms(secret)}
        self._forms = sorted(forms, key=len, reverse=True)
        self._longest = max(map(len, forms), default=0)
        self._shortest = min(map(len, forms), default=0)
        self._firsts = frozenset(form[0] for form in forms)

    def redact(self, text: str) -> str:
        if len(text) < self._shortest:  # most texts in events are short names and ids
            return text
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        if not self._forms or "\n" not in text:
            return text
        # `base64`, `fold` and mail programs break long text over several lines.
        joined = text.replace("\n", "").replace("\r", "")
        for form in self._forms:
            if form in joined:
                text = re.sub(r"[\r\n]*".join(map(re.escape, form)), MASK, text)
        return text

    def unfinished(self, text: str) -> int:
        """How many characters at the end of the text may be the beginning of a secret."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start] in self._firsts and any(form.startswith(text[start:]) for form in self._forms):
                return len(text) - start
        return 0


class RedactedStream:
    """Text that arrives in pieces. A piece that may end in the beginning of a secret waits for the next one."""

    def __init__(self) -> None:
        self._rest = ""

    def feed(self, text: str) -> str:
        text = _known.redact(self._rest + text)
        kept = len(text) - _known.unfinished(text)
        self._rest = text[kept:]
        return text[:kept]

    def end(self) -> str:
        rest, self._rest = self._rest, ""
        return rest


_known = Redactor()


def is_secret(value: str) -> bool:
    """Whether this value of a key variable is a real key, not a placeholder such as `ollama` or `not-needed`, which
    people set for a server on their own machine. Redacting a placeholder would garble ordinary text."""
    has_digit = any(character.isdigit() for character in value)
    return len(value) >= SHORTEST_SECRET and (has_digit or len(value) > LONGEST_WORD)


def register_secrets(secrets: Iterable[str]) -> None:
    """From now on `redact` removes these too."""
    global _known
    _known = Redactor(_known.secrets.union(secrets))


def redact(text: str) -> str:
    return _known.redact(text)


def holds_secret(text: str) -> bool:
    return _known.redact(text) != text


def redact_value(value: T) -> T:
    """The same value with all text in it redacted, including the keys of objects."""
    return _redacted(value) if _known.secrets else value


def redact_pieces(take: Callable[[str], None]) -> tuple[Callable[[str], None], Callable[[], None]]:
    """Wraps `take` for text that arrives in pieces: a function to call with each piece, and one to call at the end."""
    stream = RedactedStream()
    return lambda text: take(stream.feed(text)), lambda: take(stream.end())


_PLAIN = (str, int, float, type(None))
"""Never redacted: a subclass of str is an enumeration."""


def _redacted(value: Any) -> Any:
    if type(value) is str:
        return _known.redact(value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, dict):
        return {_redacted(name): _redacted(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_redacted(item) for item in value]
    if isinstance(value, tuple):
        items = [_redacted(item) for item in value]
        return type(value)._make(items) if hasattr(value, "_make") else tuple(items)
    return value


def _forms(secret: str) -> Iterator[str]:
    data = secret.encode("utf-8", "replace")
    yield secret
    yield quote(secret, safe="", errors="replace")
    yield json.dumps(secret)[1:-1]
    yield data.hex()
    yield data.hex().upper()
    for shift in range(3):
        # The characters that do not depend on the bytes around it, if it begins `shift` bytes into a group of three.
        encoded = binascii.b2a_base64(bytes(shift) + data, newline=False).decode()
        plain = encoded[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]
        yield plain
        yield plain.replace("+", "-").replace("/", "_")
