"""The user's keys, redacted in all text on its way to a model, a file, a screen or another program.

A program has one user, so the keys are known to the whole process: whoever writes or shows something asks here, and
nobody can forget to hand them on. Known again are a key as it is, in URLs, JSON, base64 and hex, and broken over lines.
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


class Masks:
    """A set of secrets and the forms in which they may turn up."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        self.secrets = frozenset(secret for secret in secrets if len(secret) >= SHORTEST_SECRET)
        forms = {form for secret in self.secrets for form in _forms(secret)}
        self._forms = sorted(forms, key=len, reverse=True)
        self._longest = max(map(len, forms), default=0)
        self._shortest = min(map(len, forms), default=0)
        self._firsts = frozenset(form[0] for form in forms)

    def redact(self, text: str) -> str:
        """The text without them."""
        if len(text) < self._shortest:  # as names and ids are, of which events are full
            return text
        for form in self._forms:
            if form in text:
                text = text.replace(form, MASK)
        return self._without_broken(text) if self._forms and "\n" in text else text

    def holds(self, text: str) -> bool:
        return self.redact(text) != text

    def unfinished(self, text: str) -> int:
        """How many characters at the end of a text may be the beginning of a secret."""
        for start in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[start] in self._firsts and any(form.startswith(text[start:]) for form in self._forms):
                return len(text) - start
        return 0

    def _without_broken(self, text: str) -> str:
        """`base64`, `fold` and mail programs break what is long over several lines."""
        joined = text.replace("\n", "").replace("\r", "")
        for form in self._forms:
            if form in joined:
                text = re.sub(r"[\r\n]*".join(map(re.escape, form)), MASK, text)
        return text


class MaskedStream:
    """Text that comes in pieces, wherever it is cut. What may be the beginning of a secret waits for the next piece."""

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


_known = Masks()


def is_secret(value: str) -> bool:
    """Not what people write where a server on their own machine wants any key at all: `ollama`, `not-needed`. To mask
    that would garble ordinary text."""
    has_digit = any(character.isdigit() for character in value)
    return len(value) >= SHORTEST_SECRET and (has_digit or len(value) > LONGEST_WORD)


def register_secrets(secrets: Iterable[str]) -> None:
    """From now on none of them leaves this program in a text."""
    global _known
    _known = Masks(_known.secrets.union(secrets))


def knows_secrets() -> bool:
    return bool(_known.secrets)


def redact(text: str) -> str:
    return _known.redact(text)


def holds_secret(text: str) -> bool:
    return _known.holds(text)


def redact_value(value: T) -> T:
    """The same value, with all text in it redacted, keys of objects included."""
    return _walk(value, _known.redact) if _known.secrets else value


def passes_on(take: Callable[[str], None]) -> tuple[Callable[[str], None], Callable[[], None]]:
    """`take`, for text in pieces: what to call with each piece, and what to call at the end."""
    stream = MaskedStream()

    def feed(text: str) -> None:
        take(stream.feed(text))

    return feed, lambda: take(stream.end())


_WITHOUT_SECRETS = (str, int, float, type(None))
"""Texts among them are enumerations."""


def _walk(value: Any, change: Callable[[str], str]) -> Any:
    if type(value) is str:
        return change(value)
    if isinstance(value, _WITHOUT_SECRETS):
        return value
    if isinstance(value, dict):
        return {_walk(name, change): _walk(item, change) for name, item in value.items()}
    if isinstance(value, list):
        return [_walk(item, change) for item in value]
    if isinstance(value, tuple):
        items = [_walk(item, change) for item in value]
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
        plain = _base64_core(data, shift)
        yield plain
        yield plain.replace("+", "-").replace("/", "_")


def _base64_core(data: bytes, shift: int) -> str:
    """What is the same of its base64 whatever stands around it, `shift` bytes after the beginning of a group."""
    encoded = binascii.b2a_base64(bytes(shift) + data, newline=False).decode()
    return encoded[-(-shift * 8 // 6) : (shift + len(data)) * 8 // 6]
