"""Reading the answer to one HTTP request."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from teamcli.errors import McpError
from teamcli.mcp.messages import LARGEST_MESSAGE, decode
from teamcli.mcp.server import Json
from teamcli.mcp.sse import EventReader

if TYPE_CHECKING:
    import httpx2

EVENT_STREAM = "text/event-stream"
LONGEST_DETAIL = 2_000


def messages(response: httpx2.Response, reader: EventReader) -> Iterator[Json]:
    """Raises: McpError"""
    reader.begin()
    for chunk in response.iter_bytes():
        for data in reader.feed(chunk):
            # The first event may be empty: it is there only for its id, from which the stream can be resumed.
            if (message := decode(data)) is not None:
                yield message


def read_body(response: httpx2.Response) -> bytes:
    """Raises: McpError"""
    parts, size = [], 0
    for chunk in response.iter_bytes():
        size += len(chunk)
        if size > LARGEST_MESSAGE:
            raise McpError(f"an answer over HTTP has more than {LARGEST_MESSAGE:,} bytes")
        parts.append(chunk)
    return b"".join(parts)


def detail(response: httpx2.Response) -> str:
    """The beginning of its body, which has not been read yet."""
    for chunk in response.iter_bytes():
        return text_of(chunk)
    return ""


def text_of(data: bytes) -> str:
    return data[: 4 * LONGEST_DETAIL].decode("utf-8", "replace")[:LONGEST_DETAIL]


def is_stream(response: httpx2.Response) -> bool:
    return bool(response.headers.get("content-type", "").strip().lower().startswith(EVENT_STREAM))


def wants_login(response: httpx2.Response) -> bool:
    challenge = response.headers.get("www-authenticate", "")
    return response.status_code == 401 or (response.status_code == 403 and "insufficient_scope" in challenge)


def origin_of(url: str) -> str:
    parts = urlsplit(url)
    port = parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    return f"{parts.scheme}://{parts.hostname}:{port}"


def drop(response: httpx2.Response) -> None:
    """Whatever it says."""
