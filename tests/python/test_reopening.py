"""A copy by XRootD's own client whose connection breaks is of one snapshot, or fails.

The client opens the file again under the same path, and continues at the same offset. Without `fb.csn` the
path shows the newest snapshot, so the copy was a mix of two snapshots, and `xrdcp` reported success.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import numpy as np
import pytest
from waiting import free_port

import femtobarn as fb

XRDCP = shutil.which("xrdcp")
pytestmark = pytest.mark.skipif(XRDCP is None, reason="xrdcp is not installed")

EVENTS = 3_000_000


@fb.persistent
class Number:
    number: fb.uint64


@pytest.fixture
def location(tmp_path: Path) -> Path:
    with fb.create(tmp_path / "lhc.fed") as fed:
        append(fed, 0, EVENTS)
    return tmp_path / "lhc.fed"


def append(fed: fb.Federation, first: int, count: int) -> None:
    with fed.transaction() as txn:
        events = txn.database("run7", create=True).container(
            "events", Number, create=True, compression="none"
        )
        events.extend({"number": np.arange(first, first + count, dtype="u8")})


class CuttingProxy:
    """Forwards bytes, and cuts the first connection whose answers exceed `bytes_max`.

    Between the cut and the end of `before_reconnect` no connection is closed, and none to the server opened:
    a client that connects while the server restarts is refused, and xrdcp does not try again.
    """

    def __init__(self, port: int, bytes_max: int) -> None:
        self.target, self.bytes_max, self.cut = port, bytes_max, threading.Event()
        self.is_open = threading.Event()
        self.is_open.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.sockets = [self.listener]
        self.threads: list[threading.Thread] = []
        self.start_thread(self.accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.sockets:
            with contextlib.suppress(OSError):
                # Threads wait in `accept` and `recv`, which a close does not end.
                each.shutdown(socket.SHUT_RDWR)
        for thread in self.threads:
            thread.join(60)
        for each in self.sockets:
            each.close()

    def start_thread(self, function: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=function, args=arguments, daemon=True)
        self.threads.append(thread)
        thread.start()

    def accept(self) -> None:
        while True:
            try:
                client = self.listener.accept()[0]
            except OSError:
                return
            self.sockets.append(client)
            self.is_open.wait(60)
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.shutdown(socket.SHUT_RDWR)
                continue
            self.sockets.append(server)
            self.start_thread(self.pump, client, server, False)
            self.start_thread(self.pump, server, client, True)

    def pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        passed = 0
        try:
            while chunk := source.recv(1 << 16):
                passed += len(chunk)
                if is_answer and passed > self.bytes_max and not self.cut.is_set():
                    self.is_open.clear()
                    self.cut.set()
                    self.before_reconnect()
                    self.is_open.set()
                    break
                sink.sendall(chunk)
        except OSError:
            pass
        self.is_open.wait(60)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def before_reconnect(self) -> None:
        """Called between the cut and the next connection; tests replace it."""


def copy(url: str, target: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        "XRD_CONNECTIONWINDOW": "1",
        "XRD_STREAMERRORWINDOW": "0",
        "XRD_CPCHUNKSIZE": "1048576",
    }
    assert XRDCP is not None
    command = [XRDCP, "--nopbar", "--force", url, str(target)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)


def snapshots(location: Path, folder: Path, head: int) -> list[bytes]:
    """Return the bytes of the file as of each commit."""
    with fb.serve(location, port=0, address="127.0.0.1") as server:
        found = []
        for csn in range(1, head + 1):
            target = folder / f"as-of-{csn}.root"
            copied = copy(server.url(f"/lhc.fed/run7.root?fb.csn={csn}"), target)
            assert copied.returncode == 0, copied.stderr
            found.append(target.read_bytes())
        return found


def test_a_copy_whose_connection_is_cut_is_of_the_snapshot_that_it_began_with(
    location: Path, tmp_path: Path
) -> None:
    with fb.open(location) as fed, fb.serve(location, port=0, address="127.0.0.1") as server:
        with CuttingProxy(int(server.url("/").split(":")[2].split("/")[0]), bytes_max=8 << 20) as proxy:
            proxy.before_reconnect = lambda: append(fed, EVENTS, 1000)  # type: ignore[method-assign]
            done = copy(f"root://127.0.0.1:{proxy.port}//lhc.fed/run7.root", tmp_path / "copy.root")
        assert done.returncode == 0, done.stderr
        assert proxy.cut.is_set()
        assert fed.head() == 2
    before, after = snapshots(location, tmp_path, 2)
    copied = (tmp_path / "copy.root").read_bytes()
    assert (copied == before, before != after) == (True, True)


@pytest.fixture
def port() -> int:
    return free_port()


def start(location: Path, port: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "femtobarn",
        "serve",
        str(location),
        "--port",
        str(port),
        "--address",
        "127.0.0.1",
    ]
    server = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 60
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        else:
            return server


@pytest.mark.parametrize("changes", [True, False])
def test_a_copy_from_a_server_that_is_killed_fails_if_the_database_changed_since(
    location: Path, tmp_path: Path, port: int, changes: bool
) -> None:
    # A server treats commits of the last two seconds as changes.
    time.sleep(2.1)
    server = start(location, port)
    servers = [server]

    def restart() -> None:
        server.send_signal(signal.SIGKILL)
        server.wait()
        if changes:
            with fb.open(location) as fed:
                append(fed, EVENTS, 1000)
        servers.append(start(location, port))

    with CuttingProxy(port, bytes_max=8 << 20) as proxy:
        proxy.before_reconnect = restart  # type: ignore[method-assign]
        done = copy(f"root://127.0.0.1:{proxy.port}//lhc.fed/run7.root", tmp_path / "copy.root")
    servers[-1].terminate()
    servers[-1].wait()
    assert proxy.cut.is_set()
    if changes:
        assert done.returncode != 0
        assert "start again" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "copy.root").read_bytes() == snapshots(location, tmp_path, 1)[0]
