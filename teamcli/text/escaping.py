"""Makes text from models, tools and messages safe for a terminal: control characters become visible symbols."""

from __future__ import annotations

import os
import re
from typing import TextIO

from teamcli.text.redaction import redact

_KEPT = "\n\t"
# C0 controls have visible counterparts at U+2400. Other characters that control a terminal, reorder text or are
# invisible are shown as their code: DEL and C1 controls, bidirectional marks and overrides, line separators, fillers,
# format characters. The two joiners and a single variation selector stay: several scripts and many emoji need them.
_SIGNS = {code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in _KEPT}
_CODED = (
    *range(0x7F, 0xA0),
    *(0xAD, 0x34F, 0x61C, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180E, 0x200B, 0x200E, 0x200F, 0x3164, 0xFEFF, 0xFFA0),
    *range(0x2028, 0x202F),
    *range(0x2060, 0x2070),
    *range(0xFFF9, 0xFFFC),
    *range(0x13430, 0x13440),
    *range(0x1BCA0, 0x1BCA4),
    *range(0x1D173, 0x1D17B),
    *range(0xE0000, 0xE0080),
)
_SIGNS |= {code: f"<{code:02x}>" for code in _CODED}
# Marks that stack on one character. Some languages need a few; dozens of them cover the lines above and below.
_STACKING = r"[\u0300-\u036f\u0483-\u0489\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe20-\ufe2f]"
_TOO_MANY_STACKED = rf"({_STACKING}{{6}}){_STACKING}+"
# One selects a glyph. Several in a row can only carry hidden text: there are 256 of them, one for each byte.
_SELECTOR = r"[\ufe00-\ufe0f\U000e0100-\U000e01ef]"
_TOO_MANY_SELECTORS = rf"({_SELECTOR}){_SELECTOR}+"


def escape_controls(text: str) -> str:
    """Redacted text in which nothing can move the cursor, set the title or look like another line."""
    text = redact(text).replace("\r\n", "\n")
    if text.isascii() and text.isprintable():
        return text
    text = re.sub(_TOO_MANY_SELECTORS, r"\1", text.translate(_SIGNS))
    return re.sub(_TOO_MANY_STACKED, r"\1", text)


def escape_piece(before: str, text: str) -> tuple[str, str]:
    """The next piece of streamed text, escaped, and what to pass as `before` with the piece after it: marks can stack
    across pieces too."""
    whole = escape_controls(before + text)
    end = re.search(rf"(?:{_STACKING}|{_SELECTOR})*\Z", whole)
    return whole[len(before) :], end[0] if end else ""


def one_line(text: str, limit: int = 200) -> str:
    """The text on one line, shortened to `limit`, safe to print."""
    flat = " ".join(escape_controls(text).split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def has_color(stream: TextIO) -> bool:
    """Whether text written there may have colors."""
    return stream.isatty() and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
