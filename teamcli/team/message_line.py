"""A message as one line of an inbox: written and signed by us, or by any program that can append to a file.

The signature is the last field and covers every byte before it. A line without a valid signature for this inbox is
foreign: its content is delivered, but nothing that it says about itself is trusted.
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
from teamcli.team.message import OWN_ID, Message, MessageType, message_id
from teamcli.team.message_ids import LineIds
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
_decode = json.JSONDecoder(strict=False).decode  # other programs may write a raw tab in a text


class Origin(NamedTuple):
    """The inbox that lines are read from, and when."""

    name: str
    """The owner of the inbox."""
    seen_at: float
    ids: LineIds
    incarnation: int = 0
    """The incarnation of its owner. Messages to an earlier one are void."""


class ParsedMessage(NamedTuple):
    message: Message
    end: int
    """Where the next line begins in the file."""


def too_long(origin: Origin, offset: int, beginning: bytes) -> BadLine:
    """A line that is longer than a message may be. `beginning` is all that was read of it."""
    reason = f"longer than {MAX_LINE_BYTES:,} bytes; this is its beginning"
    return BadLine(offset, beginning, reason, origin.ids.of_bad_line(beginning.strip(), offset))


class BadLine(NamedTuple):
    """A line that is not a message, and why not."""

    offset: int
    line: bytes
    reason: str
    id: str
    """Stays the same if the line moves in its file."""


class _Undeliverable(Exception):
    """The line is not a message; the text is the reason."""


class LineCodec:
    """Writes and reads lines with one user's key."""

    def __init__(self, key: bytes) -> None:
        self._keyed = hashlib.blake2b(key=key, digest_size=_SIGNATURE_BYTES)

    def write(self, message: Message, incarnation: int = 0) -> bytes:
        """The line for this incarnation of the recipient.

        Raises: MessageTooLong
        """
        kind, sender, to, content, timestamp, own_id, fields, *_ = redact_value(message)
        text = (  # by hand: building a JSON encoder for each message would be most of its cost
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

    def read(self, origin: Origin, data: bytes, start: int) -> Iterator[ParsedMessage | BadLine]:
        """The finished lines in `data`, which begins at `start` in the file."""
        *lines, _unfinished = data.split(b"\n")
        offset = start
        for line in lines:
            end = offset + len(line) + 1
            if text := line.strip():
                yield from self._read_line(origin, text, offset, end)
            offset = end

    def with_id(self, line: bytes, own_id: str) -> bytes:
        """A foreign line without an id gets `own_id`. Any other line is returned as it is."""
        try:
            row = _parse(line)
        except _Undeliverable:
            return line
        return line if self._is_signed(line) or _given_id(row.get("id")) else encode_line({**row, "id": own_id})[:-1]

    def holds(self, line: bytes, to: str, wanted: str) -> bool:
        """Whether `line` is our signed message to `to` with the id `wanted`."""
        line = line.strip()
        try:
            row = _parse(line)
        except _Undeliverable:
            return False
        return row.get("id") == wanted and row.get("to") == to and self._is_signed(line)

    def sign_again(self, line: bytes, codec: LineCodec | None) -> bytes:
        """A line that `codec` has signed, signed by this one instead, in the same length. Any other line is returned as
        it is. Without a codec, everything that looks signed counts."""
        text = line.strip()
        start = line.find(text)
        message = text
        if not _looks_signed(text, codec) and (whole := _whole_part(text)) < len(text):
            start, message = start + whole, text[whole:]
        if not _looks_signed(message, codec):
            return line
        signature = start + len(message) + _SIGNATURE_START
        after = signature + 2 * _SIGNATURE_BYTES
        return line[:signature] + self._sign(message[:_BODY_END]) + line[after:]

    def signed_id(self, line: bytes) -> str:
        """The id of a line that this codec has signed; empty for any other."""
        text = line.strip()
        if not self._is_signed(text):
            return ""
        return str(_parse(text).get("id", ""))

    def _read_line(self, origin: Origin, line: bytes, offset: int, end: int) -> Iterator[ParsedMessage | BadLine]:
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
            yield ParsedMessage(message, end)
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


def _looks_signed(line: bytes, codec: LineCodec | None) -> bool:
    return codec._is_signed(line) if codec else line[_BODY_END:_SIGNATURE_START] == _BEFORE_SIGNATURE


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
    """Where a complete message begins after the torn beginning that a killed writer left; else the end."""
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
    """The id stays empty if the line has none."""
    kind, sender, content = (_text(row, name) for name in ("type", "from", "content"))
    if kind not in _FOREIGN_TYPES:
        raise _Undeliverable(
            f"type {kind!r} without a valid signature: a foreign line can only be a message or broadcast"
        )
    own_id = _given_id(row.get("id")) or ""
    # If a foreign program reuses an id for another text, that text must not be dropped as a repeat.
    key = message_id("outside", own_id, kind, sender, content) if own_id else ""
    given = row.get("timestamp")
    seconds = float(given) if isinstance(given, int | float) and 0 <= given <= _MAX_TIMESTAMP else origin.seen_at
    return Message(MessageType(kind), sender, origin.name, content, seconds, own_id, is_foreign=True, key=key)


def _given_id(value: object) -> str | None:
    """The id of a foreign line, but never one that looks like ours: it could make our message look like a repeat."""
    if not isinstance(value, str) or value.startswith(OWN_ID):
        return None
    return value if value.isprintable() and len(value) <= _MAX_FOREIGN_ID else None


def _text(row: Json, name: str) -> str:
    value = row.get(name)
    if not isinstance(value, str):
        raise _Undeliverable(f"`{name}` must be a text" if name in row else f"`{name}` is missing")
    return value.encode("utf-8", "replace").decode()  # half a surrogate pair cannot be encoded
