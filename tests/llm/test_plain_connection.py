"""How answers are read from a socket, wherever the network cuts them."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from teamcli.llm.plain_connection import PlainAnswer

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def answer() -> Iterator[Callable[..., PlainAnswer]]:
    plain, theirs = socket.socketpair()
    with _Dripping(fileno=plain.detach()) as ours, theirs:

        def make(*pieces: bytes, on_finish: Callable[[bool], None] = lambda is_reusable: None) -> PlainAnswer:
            for piece in pieces:
                theirs.sendall(piece)
            theirs.shutdown(socket.SHUT_WR)
            ours.recv_size = 1 if len(pieces) > 1 else None
            return PlainAnswer(ours, on_finish)

        yield make


class _Dripping(socket.socket):
    """Can receive one byte at a time."""

    recv_size: int | None = None

    def recv(self, size: int, flags: int = 0) -> bytes:
        return super().recv(self.recv_size or size, flags)


@pytest.mark.parametrize("parts", [1, 2])
def test_chunks_are_joined_wherever_they_are_cut(answer: Callable[..., PlainAnswer], parts: int) -> None:
    wire = CHUNKED + b"5;note=1\r\nhello\r\n1\r\n \r\nA\r\n\r\n0123456\n\r\n0\r\ntrailer: x\r\n\r\n"
    reading = answer(*([wire] if parts == 1 else [wire[:7], wire[7:]]))
    assert b"".join(reading.iter_bytes()) == b"hello \r\n0123456\n"


@pytest.mark.parametrize("size", [b"-5", b"0x5", b"", b"five", b"5" * 17])
def test_a_chunk_without_a_valid_size_breaks_the_answer_off(answer: Callable[..., PlainAnswer], size: bytes) -> None:
    reading = answer(CHUNKED + size + b"\r\nhello\r\n0\r\n\r\n")
    with pytest.raises(ConnectionError):
        list(reading.iter_bytes())


def test_the_size_of_a_chunk_ends_somewhere(answer: Callable[..., PlainAnswer]) -> None:
    reading = answer(CHUNKED + b"1" * 100_000)
    with pytest.raises(ConnectionError, match="no size"):
        list(reading.iter_bytes())


def test_an_answer_that_ends_between_two_chunks_breaks_off(answer: Callable[..., PlainAnswer]) -> None:
    reading = answer(CHUNKED + b"5\r\nhello\r\n")
    with pytest.raises(ConnectionError, match="in the middle"):
        list(reading.iter_bytes())


@pytest.mark.parametrize(
    ("head", "is_reusable"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2", True),
        (b"HTTP/1.1 200 OK\ncontent-length:2", True),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2", False),
        (b"HTTP/1.0 200 OK\r\nContent-Length: 2\r\nConnection: Keep-Alive", True),
        (b"HTTP/1.1 200 OK", False),
        (b"HTTP/1.1 200 OK\r\nContent-Length: two", False),
        (b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2", True),
    ],
)
def test_a_connection_is_kept_when_the_end_of_its_answer_is_certain(
    answer: Callable[..., PlainAnswer], head: bytes, is_reusable: bool
) -> None:
    kept: list[bool] = []
    reading = answer(head + b"\r\n\r\nhi", on_finish=kept.append)
    body = b"".join(reading.iter_bytes())
    reading.close()
    assert (body, kept) == (b"hi", [is_reusable])


def test_an_answer_that_was_not_read_to_its_end_costs_the_connection(answer: Callable[..., PlainAnswer]) -> None:
    kept: list[bool] = []
    answer(CHUNKED + b"5\r\nhello\r\n0\r\n\r\n", on_finish=kept.append).close()
    assert kept == [False]


@pytest.mark.parametrize("head", [b"220 mail.example.com ESMTP\r\n\r\n", b"HTTP/2 200\r\n\r\n", b"\r\n\r\n"])
def test_another_protocol_is_not_an_answer(answer: Callable[..., PlainAnswer], head: bytes) -> None:
    with pytest.raises(ConnectionError, match="does not speak HTTP"):
        answer(head)


def test_hanging_up_is_not_an_answer() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.close()
        with pytest.raises(ConnectionError, match="without an answer"):
            PlainAnswer(ours, lambda is_reusable: None)
