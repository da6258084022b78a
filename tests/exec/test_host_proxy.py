from __future__ import annotations

import pytest

from teamcli.exec.sandbox.host_proxy import Destination, is_listed, read_request


@pytest.mark.parametrize(
    ("host", "hosts", "listed"),
    [
        ("example.org", ("example.org",), True),
        ("Example.Org.", ("example.org",), True),
        ("evil-example.org", ("example.org",), False),
        ("files.example.org", ("example.org",), False),
        ("files.example.org", ("*.example.org",), True),
        ("example.org", ("*.example.org",), False),
        ("evilexample.org", ("*.example.org",), False),
        ("example.org.evil.example", ("example.org", "*.example.org"), False),
        ("", ("*.example.org",), False),
        ("example.org", (), False),
    ],
)
def test_a_host_is_listed_by_its_name_or_as_one_below_it(host: str, hosts: tuple[str, ...], listed: bool) -> None:
    assert is_listed(host, hosts) is listed


@pytest.mark.parametrize(
    ("head", "wanted"),
    [
        (b"CONNECT a.example:443 HTTP/1.1\r\nHost: b\r\n\r\nx", Destination("a.example", 443, b"x", True)),
        (b"CONNECT a.example HTTP/1.1\r\n\r\n", Destination("a.example", 443, b"", True)),
        (b"CONNECT [::1]:8443 HTTP/1.1\r\n\r\n", Destination("::1", 8443, b"", True)),
        (b"GET / HTTP/1.1\r\nHost: a.example\r\n\r\n", None),
        (b"GET https://a.example/ HTTP/1.1\r\n\r\n", None),
        (b"CONNECT a.example:99999 HTTP/1.1\r\n\r\n", None),
        (b"CONNECT a.example:x HTTP/1.1\r\n\r\n", None),
        (b"\x00\xff\r\n\r\n", None),
        (b"", None),
    ],
)
def test_a_request_goes_where_its_head_says(head: bytes, wanted: Destination | None) -> None:
    assert read_request(head) == wanted


@pytest.mark.parametrize(
    ("target", "host", "port", "line"),
    [
        (b"http://a.example", "a.example", 80, b"GET / HTTP/1.1"),
        (b"http://a.example:81/p?q=http://b/", "a.example", 81, b"GET /p?q=http://b/ HTTP/1.1"),
        (b"http://listed.example@evil.example/", "evil.example", 80, b"GET / HTTP/1.1"),
    ],
)
def test_a_plain_request_asks_the_host_for_its_own_pages(target: bytes, host: str, port: int, line: bytes) -> None:
    found = read_request(b"GET " + target + b" HTTP/1.1\r\nHost: other.example\r\nA: 1\r\nProxy-B: 2\r\n\r\nbody")
    assert found is not None
    assert (found.host, found.port) == (host, port)
    asked = f"\r\nHost: {host}:{port}\r\nConnection: close\r\nA: 1\r\n\r\nbody"
    assert found.first_bytes == line + asked.encode()


@pytest.mark.parametrize(
    "fields",
    [
        b"A: 1\nHost: other.example",
        b"A: 1\rHost: other.example",
        b"A: 1\r\n Host: other.example",
        b"A: 1\r\n\tmore",
        b"Host : other.example",
        b" Host: other.example",
        b"A: 1\0Host: other.example",
        b"no colon",
        b": no name",
    ],
)
def test_a_head_that_a_server_might_read_differently_is_refused(fields: bytes) -> None:
    head = b"GET http://a.example/ HTTP/1.1\r\n" + fields + b"\r\n\r\n"
    assert read_request(head) is None
    assert read_request(head.replace(b"GET http://a.example/", b"CONNECT a.example:80")) is None


@pytest.mark.parametrize(
    "line", [b"GET http://a.example/\nHost:b HTTP/1.1", b"GET http://a.example/ HTTP/1.1\nHost: b"]
)
def test_a_request_line_with_a_line_feed_is_refused(line: bytes) -> None:
    assert read_request(line + b"\r\n\r\n") is None


def test_a_head_that_does_not_end_is_refused() -> None:
    assert read_request(b"GET http://a.example/ HTTP/1.1\r\nA: " + b"x" * 70_000) is None
