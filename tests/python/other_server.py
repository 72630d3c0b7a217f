"""A server of one file that behaves as a test tells it to, for copies from and to other servers."""

from __future__ import annotations

import ssl
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

__all__ = ["OtherServer", "other_server"]


@dataclass
class OtherServer:
    """A server's answers, and the requests that it received."""

    content: bytes
    url: str = ""
    adler32: str | None = None
    """The checksum that it tells; its own if there is none."""
    tells_checksums: bool = True
    cut_at: int | None = None
    """The connection breaks after as many bytes."""
    stop_at: int | None = None
    """No byte follows after as many, until `go_on`."""
    takes: int | None = None
    """It answers a PUT after as many bytes."""
    keeps: int | None = None
    """It keeps as many bytes of a PUT, and says nothing."""
    unwanted: int = 0
    """Bytes that came after its answer to a PUT."""
    redirect: str | None = None
    go_on: threading.Event = field(default_factory=threading.Event)
    asked: list[tuple[str, Message]] = field(default_factory=list)
    stored: bytes | None = None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    other: OtherServer

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def head(self, code: int, **headers: str) -> None:
        self.send_response(code)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def is_elsewhere(self) -> bool:
        self.other.asked.append((self.command, self.headers))
        if self.other.redirect is None or self.path == "/moved":
            return False
        self.head(307, Location=self.other.redirect, Content_Length="0")
        return True

    def do_HEAD(self) -> None:
        if self.is_elsewhere():
            return
        content = self.other.content if self.other.stored is None else self.other.stored
        headers = {"Content_Length": str(len(content))}
        if self.other.tells_checksums and self.headers["Want-Digest"]:
            headers["Digest"] = f"adler32={self.other.adler32 or f'{zlib.adler32(content):x}'}"
        self.head(200, **headers)

    def do_GET(self) -> None:
        if self.is_elsewhere():
            return
        if self.path == "/none":
            self.head(404, Content_Length="0")
            return
        content = self.other.content
        self.head(200, Content_Length=str(len(content)))
        for end, goes_on in ((self.other.stop_at, True), (self.other.cut_at, False)):
            if end is not None:
                self.wfile.write(content[:end])
                self.wfile.flush()
                content = content[end:]
                if not goes_on:
                    self.close_connection = True
                    return
                self.other.go_on.wait(60)
        self.wfile.write(content)

    def handle_expect_100(self) -> bool:
        return (self.other.redirect is not None and self.path != "/moved") or super().handle_expect_100()

    def do_PUT(self) -> None:
        if self.is_elsewhere():
            self.take_unwanted()
            return
        if self.other.takes is not None:
            self.rfile.read(self.other.takes)
            self.head(201, Content_Length="0")
            self.take_unwanted()
            return
        self.other.stored = self.rfile.read(int(self.headers["Content-Length"]))[: self.other.keeps]
        self.head(201, Content_Length="0")

    def take_unwanted(self) -> None:
        """Count what comes until the other side closes the connection."""
        self.close_connection = True
        with suppress(OSError):
            while part := self.rfile.read1(65_536):
                self.other.unwanted += len(part)


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Say nothing of connections that the other side has broken."""


@contextmanager
def other_server(content: bytes, tls: tuple[Path, Path] | None = None) -> Iterator[OtherServer]:
    """Serve a file, encrypted if there are a certificate and its key."""
    other = OtherServer(content)
    handler = type("OtherHandler", (Handler,), {"other": other})
    with Server(("127.0.0.1", 0), handler) as server:
        if tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*tls)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        scheme, host = ("http", "127.0.0.1") if tls is None else ("https", "localhost")
        other.url = f"{scheme}://{host}:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield other
        other.go_on.set()
        server.shutdown()
        thread.join(30)
