"""Text in files: encodings, line ends, and how to tell text from binary data.

Decoding and encoding are exact opposites for every file that is taken for text, so that an edit changes nothing else.
"""

from __future__ import annotations

import codecs
from typing import NamedTuple

from teamcli.errors import ToolError

HEAD_BYTES = 8192
"""How much of a file is examined to tell text from binary."""

_CONTROLS = bytes(set(range(32)) - set(b"\t\n\r\f\b\x1b"))
_MOST_CONTROLS = 0.3
_MOST_CONTROLS_UNLESS_UTF8 = 0.05  # bytes at random, without a single NUL, have twice as many

_MAGIC = (
    (b"\x89PNG", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF8", "a GIF image"),
    (b"%PDF-", "a PDF document"),
    (b"\x7fELF", "an ELF binary"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf", "a 7z archive"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"\0asm", "a WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O binary"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O binary"),
    (b"MZ", "a Windows executable"),
    (b"RIFF", "a RIFF file (WebP, WAV or AVI)"),
    (b"OggS", "an Ogg file"),
    (b"ID3", "an MP3 file"),
)

# As browsers read it: the five bytes that Windows-1252 leaves undefined stay as they are, so that no byte is lost.
_WINDOWS_1252 = "".join(bytes([code]).decode("cp1252", "ignore") or chr(code) for code in range(256))


class Encoding(NamedTuple):
    name: str
    codec: str
    """Python's name; empty for Windows-1252, because Python's codec rejects some bytes."""
    bom: bytes = b""

    def decode(self, data: bytes) -> str:
        """Raises: UnicodeDecodeError"""
        data = data.removeprefix(self.bom)
        return data.decode(self.codec) if self.codec else codecs.charmap_decode(data, "strict", _WINDOWS_1252)[0]

    def encode(self, text: str) -> bytes:
        """Raises: UnicodeEncodeError"""
        if self.codec:
            return self.bom + text.encode(self.codec)
        return codecs.charmap_encode(text, "strict", codecs.charmap_build(_WINDOWS_1252))[0]


UTF8 = Encoding("UTF-8", "utf-8")
WINDOWS_1252 = Encoding("Windows-1252", "")
_MARKED = (
    Encoding("UTF-8 with a byte order mark", "utf-8", codecs.BOM_UTF8),
    Encoding("UTF-16", "utf-16-le", codecs.BOM_UTF16_LE),
    Encoding("UTF-16", "utf-16-be", codecs.BOM_UTF16_BE),
)


class Text(NamedTuple):
    """A file's content, with its line ends as they are."""

    content: str
    encoding: Encoding


def marked_encoding(head: bytes) -> Encoding | None:
    """The encoding that a byte order mark names."""
    return next((encoding for encoding in _MARKED if head.startswith(encoding.bom)), None)


def refuse_binary(head: bytes, size: int, shown: str) -> None:
    """Raises: ToolError, if `head` is not the beginning of a text file."""
    if is_binary(head):
        kind = next((kind for magic, kind in _MAGIC if head.startswith(magic)), "a binary file")
        raise ToolError(f"{shown} is {kind} ({size:,} bytes), not text")


def is_binary(head: bytes) -> bool:
    if marked := marked_encoding(head):
        return "\0" in head.removeprefix(marked.bom).decode(marked.codec, "ignore")
    if b"\0" in head or head.startswith(b"%PDF-"):
        return True
    controls = len(head) - len(head.translate(None, _CONTROLS))
    return controls > len(head) * (_MOST_CONTROLS if _may_be_utf8(head) else _MOST_CONTROLS_UNLESS_UTF8)


def _may_be_utf8(head: bytes) -> bool:
    try:
        codecs.getincrementaldecoder("utf-8")().decode(head)  # a character may be cut off at the end
    except UnicodeDecodeError:
        return False
    return True


def decode_text(data: bytes, shown: str) -> Text:
    """Raises: ToolError, if `data` is not text."""
    refuse_binary(data[:HEAD_BYTES], len(data), shown)
    encoding = marked_encoding(data) or UTF8
    try:
        return Text(encoding.decode(data), encoding)
    except UnicodeDecodeError as e:
        if encoding is not UTF8:
            raise ToolError(
                f"{shown} begins like {encoding.name} but is not valid: {e.reason} at byte {e.start}"
            ) from e
        return Text(WINDOWS_1252.decode(data), WINDOWS_1252)


def encode_text(text: str, encoding: Encoding, shown: str) -> bytes:
    """Raises: ToolError"""
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as e:
        raise ToolError(
            f"{shown} is {encoding.name}, which cannot hold {text[e.start]!r}; "
            f"leave that character out, or convert the file with a command first"
        ) from e


def line_end(text: str) -> str:
    """The line end that most lines of `text` have, or an empty string if there is none."""
    ends = text.count("\n")
    if not ends:
        return ""
    return "\r\n" if text.count("\r\n") * 2 > ends else "\n"


def with_plain_ends(text: str) -> str:
    return text.replace("\r\n", "\n")


def with_line_ends(text: str, end: str) -> str:
    plain = with_plain_ends(text)
    return plain.replace("\n", end) if end else plain
