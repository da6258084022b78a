"""A message as one line of an inbox: written and signed by us, or by anybody who can append to a file.

The signature is the last field and covers every byte before it. A line without one that is valid, in the inbox it was
written for, is foreign: it may say something, but nothing that it says about itself counts.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

from teamcli.errors import MessageTooLong
from teamcli.storage.files import Json, encode_line
from teamcli.team.line_ids import LineIds
from teamcli.team.message import OWN_ID, Message, MessageType, message_id
from teamcli.text.redaction import redact_value

MAX_LINE_BYTES = 256 * 1024

_ALWAYS_STAMPED = ("type", "from", "to", "content", "timestamp", "id", "sig")
_INCARNATION = "incarnation"
_STAMPED = frozenset((*_ALWAYS_STAMPED, _INCARNATION))
_TYPES = {kind.value: kind for kind in MessageType}
_FOREIGN_TYPES = (MessageType.MESSAGE, MessageType.BROADCAST)
_SIGNATURE_BYTES = 20
_BEFORE_SIGNATURE, _AFTER_SIGNATURE = b',"sig":"', b'"}'
_SIGNATURE_START = -(2 * _SIGNATURE_BYTES + len(_AFTER_SIGNATURE))
_BODY_END = _SIGNATURE_START - len(_BEFORE_SIGNATURE)
_OBJECT_START = re.compile(rb'\{\s*"')
_MAX_STARTS = 64
_MAX_FOREIGN_ID = 100
_MAX_TIMESTAMP = 1e11

_quote = json.encoder.encode_basestring
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_decode = json.JSONDecoder(strict=False).decode  # a tab that somebody typed inside a text is no reason to lose it


class Origin(NamedTuple):
    """Where lines are read from, and when."""

    name: str
    """Whose inbox it is."""
    seen_at: float
    ids: LineIds
    incarnation: int = 0
    """Of its owner; what was written for an earlier one does not count."""


class Reading(NamedTuple):
    message: Message
    end: int
    """Where in the file the line after it begins."""


def too_long(origin: Origin, offset: int, beginning: bytes) -> BadLine:
    """A line of which only the beginning was read."""
    reason = f"longer than {MAX_LINE_BYTES:,} bytes; this is its beginning"
    return BadLine(offset, beginning, reason, origin.ids.of_bad_line(beginning.strip(), offset))


class BadLine(NamedTuple):
    """What is no message, and why not."""

    offset: int
    line: bytes
    reason: str
    id: str
    """The same for the same line, wherever in its file it is found again."""


class _Undeliverable(Exception):
    """A line is no message; the text is the reason."""


class LineCodec:
    """Writes and reads lines with one user's key."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=_SIGNATURE_BYTES)

    def write(self, message: Message, incarnation: int = 0) -> bytes:
        """The line for this incarnation of the recipient.

        Raises: MessageTooLong
        """
        kind, sender, to, content, timestamp, own_id, fields, *_ = redact_value(message)
        text = (  # by hand, because most of the cost of a message would be building an encoder for each
            f'{{"type":{_quote(kind)},"from":{_quote(sender)},"to":{_quote(to)},"content":{_quote(content)},'
            f'"timestamp":{timestamp!r},"id":{_quote(own_id)}'
        )
        if incarnation:
            text = f'{text},"{_INCARNATION}":{incarnation}'
        if fields and (more := {name: value for name, value in fields.items() if name not in _STAMPED}):
            text = f"{text},{_encode(more)[1:-1]}"
        body = text.encode("utf-8", "replace")
        line = b"".join((body, _BEFORE_SIGNATURE, self._sign(body), _AFTER_SIGNATURE, b"\n"))
        if len(line) > MAX_LINE_BYTES:
            raise MessageTooLong(
                f"the message to '{message.to}' takes {len(line):,} bytes and an inbox accepts {MAX_LINE_BYTES:,} "
                f"({MAX_LINE_BYTES // 1024} KB): write it to a file and send the path"
            )
        return line

    def read(self, origin: Origin, data: bytes, start: int) -> Iterator[Reading | BadLine]:
        """What the finished lines in `data` hold; `data` stands at `start` in the file."""
        *lines, _unfinished = data.split(b"\n")
        offset = start
        for line in lines:
            end = offset + len(line) + 1
            if text := line.strip():
                yield from self._read_line(origin, text, offset, end)
            offset = end

    def with_id(self, line: bytes, own_id: str) -> bytes:
        """A foreign line that brings no id of its own, with this one; any other as it is."""
        try:
            row = _parse(line)
        except _Undeliverable:
            return line
        return line if self._is_signed(line) or _given_id(row.get("id")) else encode_line({**row, "id": own_id})[:-1]

    def holds(self, line: bytes, to: str, wanted: str) -> bool:
        """Whether `line` is the message with the id `wanted`, written by us and for `to`."""
        line = line.strip()
        try:
            row = _parse(line)
        except _Undeliverable:
            return False
        return row.get("id") == wanted and row.get("to") == to and self._is_signed(line)

    def _read_line(self, origin: Origin, line: bytes, offset: int, end: int) -> Iterator[Reading | BadLine]:
        text = line
        try:
            row = _parse(text)
        except _Undeliverable as e:
            whole = _whole_part(text)
            yield BadLine(offset, text[:whole].rstrip(), str(e), origin.ids.of_bad_line(line, offset))
            if whole == len(text):
                return
            text = text[whole:]
            row = _parse(text)
        try:
            is_own = row.get("to") == origin.name and self._is_signed(text)
            message = _own(row, origin) if is_own else _foreign(row, origin)
            if not message.id:
                message = message._replace(id=origin.ids.of_message(line, offset))
            yield Reading(message, end)
        except _Undeliverable as e:
            start = offset + len(line) - len(text)
            yield BadLine(start, text, str(e), origin.ids.of_bad_line(line, offset) + ("" if text is line else "+"))

    def _is_signed(self, line: bytes) -> bool:
        return line[_BODY_END:_SIGNATURE_START] == _BEFORE_SIGNATURE and hmac.compare_digest(
            line[_SIGNATURE_START : -len(_AFTER_SIGNATURE)], self._sign(line[:_BODY_END])
        )

    def _sign(self, body: bytes) -> bytes:
        digest = self._keyed.copy()
        digest.update(body)
        return digest.hexdigest().encode()


def _parse(text: bytes) -> Json:
    if len(text) > MAX_LINE_BYTES:
        raise _Undeliverable(f"longer than {MAX_LINE_BYTES:,} bytes")
    try:
        row = _decode(text.decode())
    except UnicodeDecodeError as e:
        raise _Undeliverable("not UTF-8") from e
    except (ValueError, RecursionError) as e:
        raise _Undeliverable("torn, or not JSON") from e
    if not isinstance(row, dict):
        raise _Undeliverable("not a JSON object")
    return row


def _whole_part(text: bytes) -> int:
    """Where, behind what a killed writer left of its line, another one begins that is whole; else the end."""
    for start in islice(_OBJECT_START.finditer(text, 1), _MAX_STARTS):
        try:
            _parse(text[start.start() :])
        except _Undeliverable:
            continue
        return start.start()
    return len(text)


def _own(row: Json, origin: Origin) -> Message:
    kind = _TYPES.get(row["type"])
    if row.get(_INCARNATION, 0) < origin.incarnation:
        raise _Undeliverable(f"written for an earlier incarnation of '{origin.name}'")
    if kind is None:
        raise _Undeliverable(f"of a type that this teamcli does not know: {row['type']!r}")
    fields = (
        {name: value for name, value in row.items() if name not in _STAMPED} if len(row) > len(_ALWAYS_STAMPED) else {}
    )
    return Message(kind, row["from"], row["to"], row["content"], row["timestamp"], row["id"], fields)


def _foreign(row: Json, origin: Origin) -> Message:
    """Without an id, if it brings none."""
    kind, sender, content = (_text(row, name) for name in ("type", "from", "content"))
    if kind not in _FOREIGN_TYPES:
        raise _Undeliverable(f"type {kind!r} without a valid signature: from outside only a message counts")
    own_id = _given_id(row.get("id")) or ""
    # An id that somebody uses again for other words must not make these words disappear.
    key = message_id("outside", own_id, kind, sender, content) if own_id else ""
    timestamp = _given_time(row.get("timestamp"))
    seconds = origin.seen_at if timestamp is None else timestamp
    return Message(MessageType(kind), sender, origin.name, content, seconds, own_id, is_foreign=True, key=key)


def _given_id(value: object) -> str | None:
    """Never one that looks like ours: it could make us take a message for a repeat of this line."""
    if not isinstance(value, str) or value.startswith(OWN_ID):
        return None
    return value if value.isprintable() and len(value) <= _MAX_FOREIGN_ID else None


def _given_time(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and 0 <= value <= _MAX_TIMESTAMP else None


def _text(row: Json, name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise _Undeliverable(f"`{name}` must be a text" if name in row else f"`{name}` is missing")
    return value.encode("utf-8", "replace").decode()  # half a surrogate pair could not be written anywhere
