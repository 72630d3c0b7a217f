"""A copy whose connection breaks is of one snapshot, or fails: with XRootD's own client.

It opens the file again by the path that it had, and goes on where it was. Without `fb.csn` the path shows
the newest snapshot, so the copy was a mix of two, and `xrdcp` said that all was well.
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

import femtobarn as fb

XRDCP = shutil.which("xrdcp")
pytestmark = pytest.mark.skipif(XRDCP is None, reason="xrdcp is not installed")

EVENTS = 3_000_000


@fb.persistent
class Number:
    number: fb.uint64


@pytest.fixture
def place(tmp_path: Path) -> Path:
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
    """Passes bytes on, and closes the first connection that got `most` of them.

    Between the cut and the end of `before_coming_again` no end of a connection is closed and none is opened:
    a client that comes while the server restarts is refused, and xrdcp does not come again.
    """

    def __init__(self, port: int, most: int) -> None:
        self.target, self.most, self.cut = port, most, threading.Event()
        self.is_open = threading.Event()
        self.is_open.set()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.sockets = [self.listener]
        self.threads: list[threading.Thread] = []
        self.begin(self.accept)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for each in self.sockets:
            with contextlib.suppress(OSError):
                each.shutdown(
                    socket.SHUT_RDWR
                )  # Threads wait in `accept` and `recv`, which a close does not end.
        for thread in self.threads:
            thread.join(60)
        for each in self.sockets:
            each.close()

    def begin(self, function: Callable[..., None], *arguments: object) -> None:
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
            self.begin(self.pump, client, server, False)
            self.begin(self.pump, server, client, True)

    def pump(self, source: socket.socket, sink: socket.socket, is_answer: bool) -> None:
        passed = 0
        try:
            while chunk := source.recv(1 << 16):
                passed += len(chunk)
                if is_answer and passed > self.most and not self.cut.is_set():
                    self.is_open.clear()
                    self.cut.set()
                    self.before_coming_again()
                    self.is_open.set()
                    break
                sink.sendall(chunk)
        except OSError:
            pass
        self.is_open.wait(60)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def before_coming_again(self) -> None:
        """Do what happens meanwhile."""


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


def snapshots(place: Path, folder: Path, head: int) -> list[bytes]:
    """Return what the file is as of each commit."""
    with fb.serve(place, port=0, address="127.0.0.1") as server:
        found = []
        for csn in range(1, head + 1):
            target = folder / f"as-of-{csn}.root"
            copied = copy(server.url(f"/lhc.fed/run7.root?fb.csn={csn}"), target)
            assert copied.returncode == 0, copied.stderr
            found.append(target.read_bytes())
        return found


def test_a_copy_whose_connection_is_cut_is_of_the_snapshot_that_it_began_with(
    place: Path, tmp_path: Path
) -> None:
    with fb.open(place) as fed, fb.serve(place, port=0, address="127.0.0.1") as server:
        with CuttingProxy(int(server.url("/").split(":")[2].split("/")[0]), most=8 << 20) as proxy:
            proxy.before_coming_again = lambda: append(fed, EVENTS, 1000)  # type: ignore[method-assign]
            done = copy(f"root://127.0.0.1:{proxy.port}//lhc.fed/run7.root", tmp_path / "copy.root")
        assert done.returncode == 0, done.stderr
        assert proxy.cut.is_set()
        assert fed.head() == 2
    before, after = snapshots(place, tmp_path, 2)
    copied = (tmp_path / "copy.root").read_bytes()
    assert (copied == before, before != after) == (True, True)


@pytest.fixture
def port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def start(place: Path, port: int) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "femtobarn",
        "serve",
        str(place),
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
    place: Path, tmp_path: Path, port: int, changes: bool
) -> None:
    # What was committed less than two seconds before counts as changed.
    time.sleep(2.1)
    server = start(place, port)
    servers = [server]

    def restart() -> None:
        server.send_signal(signal.SIGKILL)
        server.wait()
        if changes:
            with fb.open(place) as fed:
                append(fed, EVENTS, 1000)
        servers.append(start(place, port))

    with CuttingProxy(port, most=8 << 20) as proxy:
        proxy.before_coming_again = restart  # type: ignore[method-assign]
        done = copy(f"root://127.0.0.1:{proxy.port}//lhc.fed/run7.root", tmp_path / "copy.root")
    servers[-1].terminate()
    servers[-1].wait()
    assert proxy.cut.is_set()
    if changes:
        assert done.returncode != 0
        assert "start again" in done.stderr
    else:
        assert done.returncode == 0, done.stderr
        assert (tmp_path / "copy.root").read_bytes() == snapshots(place, tmp_path, 1)[0]
