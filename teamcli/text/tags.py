"""Frames around text that others wrote, so that a model knows whose words it reads: nothing in the text ends its frame.

Mail has a stricter one of its own, in `team/message.py`.
"""

from __future__ import annotations

import re


def tagged(tag: str, text: str, before: str = "\n", after: str = "\n") -> str:
    """`text` inside `<tag>`, as it is but for what would end that frame."""
    return f"<{tag}>{before}{without_end(tag, text)}{after}</{tag}>"


def without_end(tag: str, text: str) -> str:
    """`</tag` in any spelling a model might take for the end becomes `<\\/tag`."""
    if "<" not in text:
        return text
    return re.sub(rf"<(?=\s*[/\u2044\u2215\uff0f]\s*{re.escape(tag)}\b)", "<\\\\", text, flags=re.IGNORECASE)


def without_tag(tag: str, text: str) -> str:
    """The same for `<tag` and `</tag`: nothing in the text can pass for the beginning or the end of that frame."""
    if tag not in text.lower():
        return text
    return re.sub(rf"<(?=\s*(?:[/\u2044\u2215\uff0f]\s*)?{re.escape(tag)}\b)", "<\\\\", text, flags=re.IGNORECASE)


def one_fact(text: str, limit: int = 200) -> str:
    """A name that others chose, as part of a line of ours: no line breaks, no tags, and not too long."""
    flat = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return flat[:limit].replace("<", "&lt;").replace(">", "&gt;")
