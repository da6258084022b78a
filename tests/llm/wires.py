"""What may be between a client and an endpoint: a proxy, a TLS front, an address that never answers, odd HTTP."""

from __future__ import annotations

import http.client
import shutil
import socket
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urlsplit

import pytest


class Proxy(ThreadingHTTPServer):
    """Forwards plain HTTP requests and remembers what it was asked for."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Forward)
        self.seen: list[str] = []
        self._thread = threading.Thread(target=self.serve_forever, args=(0.02,))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Forward(BaseHTTPRequestHandler):
    server: Proxy

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_POST(self) -> None:
        self.server.seen.append(self.path)
        target = urlsplit(self.path)
        body = self.rfile.read(int(self.headers["content-length"]))
        onward = http.client.HTTPConnection(target.netloc, timeout=30)
        onward.request("POST", target.path, body, dict(self.headers))
        answer = onward.getresponse()
        self.send_response(answer.status)
        self.send_header("content-type", answer.headers["content-type"])
        self.end_headers()
        self.wfile.write(answer.read())
        onward.close()


@contextmanager
def address_that_never_answers() -> Iterator[str]:
    """A listener whose queue is full: the kernel drops further attempts to connect, as a firewall would."""
    with ExitStack() as stack:
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(8):
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with suppress(BlockingIOError):
                filler.connect(listener.getsockname())
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def is_connecting_to(url: str) -> bool:
    """Whether this machine has a connect to `url` under way beyond those that fill the queue."""
    port = f":{urlsplit(url).port:04X}"
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    syn_sent = "02"
    return sum(row[2].endswith(port) and row[3] == syn_sent for row in rows) > 6


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signs itself, and its key."""
    if shutil.which("openssl") is None:
        pytest.skip("needs the openssl command to make a certificate")
    certificate, key = directory / "cert.pem", directory / "key.pem"
    options = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1", "-days", "2", "-nodes"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", *options, "-out", certificate, "-keyout", key]
    subprocess.run(command, check=True, capture_output=True)
    return certificate, key


class TlsFront:
    """Speaks TLS on its own port and passes everything on to a plain one."""

    def __init__(self, certificate: Path, key: Path, target_port: int) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._context.load_cert_chain(certificate, key)
        self._target = ("127.0.0.1", target_port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> TlsFront:
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._threads[0].join()
        for connection in self._open:
            with suppress(OSError):
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for connection in self._open:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                raw, _ = self._listener.accept()
            except OSError:
                return
            try:
                outer = self._context.wrap_socket(raw, server_side=True)
            except OSError:
                raw.close()
                continue
            inner = socket.create_connection(self._target)
            self._open += [outer, inner]
            for source, sink in ((outer, inner), (inner, outer)):
                self._threads.append(threading.Thread(target=_pump, args=(source, sink)))
                self._threads[-1].start()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            sink.sendall(data)
    with suppress(OSError):
        socket.socket.shutdown(sink, socket.SHUT_WR)


@contextmanager
def raw_answers(*answers: bytes) -> Iterator[str]:
    """The URL of a server that gives these bytes as answers, one request each, on one connection, and then hangs up."""

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, connection.makefile("rb") as requests:
            for answer in answers:
                head = b"".join(iter(requests.readline, b"\r\n")).lower()
                requests.read(int(head.partition(b"content-length:")[2].split()[0]))
                connection.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join()
