"""Reads in threads, as `asyncio` programs make them: they wait for data in parallel, without Python's GIL."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from contextlib import ExitStack, closing
from pathlib import Path

from server_settings import QUICK_STOP

import femtobarn as fb

OBJECTS = 1000


class Relay:
    """Forwards connections to a server; when it is armed, the next request waits at a barrier."""

    def __init__(self, port: int, barrier: threading.Barrier) -> None:
        self._server = ("127.0.0.1", port)
        self._barrier = barrier
        self._armed = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._opened: list[socket.socket] = []
        self._forwarding: list[threading.Thread] = []
        self._accepting = threading.Thread(target=self._run)
        self._accepting.start()

    def arm(self) -> None:
        self._armed.set()

    def _run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server)
                self._opened += [client, server]
                for ends in ((client, server, True), (server, client, False)):
                    self._forwarding.append(threading.Thread(target=self._forward, args=ends))
                    self._forwarding[-1].start()

    def _forward(self, source: socket.socket, target: socket.socket, is_request: bool) -> None:
        with contextlib.suppress(OSError):
            while part := source.recv(1 << 16):
                if is_request and self._armed.is_set():
                    self._armed.clear()
                    self._barrier.wait(timeout=30)
                target.sendall(part)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close all connections."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        for each in self._opened:
            with contextlib.suppress(OSError):  # The other side has closed it.
                each.shutdown(socket.SHUT_RDWR)
        for forwarding in self._forwarding:
            forwarding.join()
        for each in (self._listener, *self._opened):
            each.close()


def test_reads_in_threads_of_asyncio_wait_side_by_side(fed: fb.Federation) -> None:
    """Each request waits until the other read has sent one, too; this process forwards both in Python."""
    form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
    with fed.transaction() as txn:
        numbers = txn.database("d", create=True).container("numbers", form, create=True)
        numbers.extend({"n": range(OBJECTS)})
    barrier = threading.Barrier(2)
    with ExitStack() as stack:
        server = stack.enter_context(fb.serve(fed.path, port=0, address="127.0.0.1", config=QUICK_STOP))
        relays = [stack.enter_context(closing(Relay(server.port, barrier))) for _ in range(2)]
        views = [
            stack.enter_context(fb.open(f"root://127.0.0.1:{each.port}//{Path(fed.path).name}"))["d/numbers"]
            for each in relays
        ]

        async def read_both() -> list[int]:
            reads = (asyncio.to_thread(view.arrays, library="np") for view in views)
            return [int(columns["n"].sum()) for columns in await asyncio.gather(*reads)]

        for each in relays:
            each.arm()
        assert asyncio.run(read_both()) == [sum(range(OBJECTS))] * 2
    assert not barrier.broken
