"""A way to a server on which what passes is counted, and what comes back can be held up."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress

__all__ = ["Relay", "relay"]


class Relay:
    """Listens on a port of its own, and passes on what clients and the server send."""

    def __init__(self, port: int) -> None:
        self._server = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._flows = threading.Event()
        self._flows.set()
        self._lock = threading.Lock()
        self._bytes = {True: 0, False: 0}
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._accept)
        self._accepting.start()

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    @property
    def bytes(self) -> int:
        """The bytes that the server has sent."""
        with self._lock:
            return self._bytes[True]

    @property
    def asked(self) -> int:
        """The bytes that the server was sent."""
        with self._lock:
            return self._bytes[False]

    def hold(self) -> None:
        """Let nothing come back, without telling anybody."""
        self._flows.clear()

    def let_go(self) -> None:
        self._flows.set()

    def close(self) -> None:
        """Refuse clients, and end their connections."""
        self.let_go()
        # A thread that waits for the next client does not notice that its socket is closed.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join()
        for each in self._sockets:
            each.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                self._sockets.append(client)
                server = socket.create_connection(("127.0.0.1", self._server))
                self._sockets.append(server)
                for ends in ((client, server, False), (server, client, True)):
                    thread = threading.Thread(target=self._pass_on, args=ends)
                    self._threads.append(thread)
                    thread.start()

    def _pass_on(self, source: socket.socket, target: socket.socket, comes_back: bool) -> None:
        with suppress(OSError):
            while piece := source.recv(1 << 16):
                if comes_back:
                    self._flows.wait()
                with self._lock:
                    self._bytes[comes_back] += len(piece)
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)


@contextmanager
def relay(port: int) -> Iterator[Relay]:
    """A relay to a port of this machine."""
    made = Relay(port)
    try:
        yield made
    finally:
        made.close()
