"""Files are copied between servers over `root://` without passing through the client (`xrdcp --tpc only`)."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
from copying_servers import copying, has_begun, left, xrootd
from file_server import CONTENT, FileServer, served_files

pytestmark = pytest.mark.skipif(shutil.which("xrdcp") is None, reason="XRootD's client is not installed")


@pytest.fixture
def near(tmp_path: Path) -> Iterator[FileServer]:
    with copying(tmp_path / "near") as served:
        yield served


def root(port: int, path: str) -> str:
    return f"root://127.0.0.1:{port}/{path}"


def xrdcp(*arguments: str, code: int = 0) -> str:
    """Let one server copy from the other; the client carries no bytes."""
    command = ["xrdcp", "--tpc", "only", "-N", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode == 0) == (code == 0), f"{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def test_files_are_copied_between_two_servers(tmp_path: Path, near: FileServer) -> None:
    with served_files(tmp_path) as far:
        there, here = far.server.port, near.server.port
        xrdcp("-C", "adler32", root(there, "/data/large.bin"), root(here, "/data/new/copied"))
        xrdcp(root(there, "/data/empty"), root(here, "/data/empty"))
        xrdcp(root(there, "/lhc.fed/run7.root"), root(here, "/data/newest.root"))
        # The client does not pass the commit on.
        old = root(there, "/lhc.fed/run7.root?fb.csn=1")
        assert "the client expects" in xrdcp(old, root(here, "/data/old.root"), code=1)
        assert not (near.folder / "data/old.root").exists()
        assert (near.folder / "data/newest.root").read_bytes()[:4] == b"root"
        (near.folder / "data/empty").write_bytes(b"old")
        assert "exists" in xrdcp(root(there, "/data/empty"), root(here, "/data/empty"), code=1)
        xrdcp("-f", root(there, "/data/large.bin"), root(here, "/data/empty"))
        refused = xrdcp(root(here, "/data/empty"), root(there, "/data/refused"), code=1)
        assert "not support" in refused
    assert (near.folder / "data/new/copied").read_bytes() == CONTENT
    assert (near.folder / "data/empty").read_bytes() == CONTENT


@pytest.mark.parametrize("direction", ["to XRootD", "from XRootD"])
def test_files_are_copied_between_xrootd_and_us(near: FileServer, direction: str) -> None:
    with xrootd() as far:
        source, destination = near.folder, far.folder
        ports = (near.server.port, far.port)
        if direction == "from XRootD":
            source, destination, ports = destination, source, ports[::-1]
        (source / "data/here").write_bytes(CONTENT)
        xrdcp("-C", "adler32", root(ports[0], "/data/here"), root(ports[1], "/data/there"))
        assert (destination / "data/there").read_bytes() == CONTENT


def test_sources_that_are_not_allowed_are_refused(tmp_path: Path, near: FileServer) -> None:
    (near.folder / "data/here").write_bytes(CONTENT)
    source = root(near.server.port, "/data/here")
    for hosts in ('"*.cern.ch"', '"*"', '"127.0.0.2"'):
        with copying(tmp_path / "closed", f"[copy]\nhosts = [{hosts}]\n") as closed:
            refused = xrdcp(source, root(closed.server.port, "/data/there"), code=1)
            assert "copy.hosts does not allow" in refused, hosts
            assert left(closed) == []


def test_the_server_with_the_file_decides_about_the_source(tmp_path: Path, near: FileServer) -> None:
    (near.folder / "data/here").write_bytes(CONTENT)
    with copying(tmp_path / "far") as far:
        there = f'path = "/data"\nservers = ["127.0.0.1:{far.server.port}"]\n'
        with copying(tmp_path / "front", f"[[redirect.replica]]\n{there}") as front:
            xrdcp(root(near.server.port, "/data/here"), root(front.server.port, "/data/there"))
            assert left(front) == []
        assert (far.folder / "data/there").read_bytes() == CONTENT


@dataclass
class SlowWay:
    """A way to a server of a large file that stops after six megabytes of each connection, until `go_on`."""

    port: int
    go_on: threading.Event


@pytest.fixture
def slow(near: FileServer) -> Iterator[SlowWay]:
    (near.folder / "data/large").write_bytes(CONTENT * 20)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        way = SlowWay(listener.getsockname()[1], threading.Event())
        threading.Thread(target=forward, args=(listener, near.server.port, way), daemon=True).start()
        yield way
        way.go_on.set()


def forward(listener: socket.socket, port: int, way: SlowWay) -> None:
    """Pass connections on."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        server = socket.create_connection(("127.0.0.1", port))
        threading.Thread(target=pump, args=(client, server), daemon=True).start()
        threading.Thread(target=pump, args=(server, client, way.go_on), daemon=True).start()


def pump(source: socket.socket, target: socket.socket, go_on: threading.Event | None = None) -> None:
    passed = 0
    with source, target, suppress(OSError):
        while part := source.recv(65_536):
            target.sendall(part)
            passed += len(part)
            if go_on is not None and passed >= 6_000_000:
                go_on.wait(60)
        # Wakes the thread of the other direction.
        target.shutdown(socket.SHUT_RDWR)


def test_copies_end_with_their_client(tmp_path: Path, slow: SlowWay) -> None:
    with copying(tmp_path / "far") as far:
        command = [
            "xrdcp",
            "--tpc",
            "only",
            "-N",
            root(slow.port, "/data/large"),
            root(far.server.port, "/data/x"),
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
            assert has_begun(far)
            assert not (far.folder / "data/x").exists()
            client.send_signal(signal.SIGKILL)
        assert left(far) == []


def test_sources_that_change_are_not_copied(tmp_path: Path, near: FileServer, slow: SlowWay) -> None:
    with copying(tmp_path / "far") as far, ThreadPoolExecutor(1) as pool:
        ends = (root(slow.port, "/data/large"), root(far.server.port, "/data/x"))
        copied = pool.submit(xrdcp, *ends, code=1)
        assert has_begun(far)
        os.utime(near.folder / "data/large", (1, 1))
        slow.go_on.set()
        assert "changed while it was copied" in copied.result(100)
        assert left(far) == []


CANCEL = """
import sys, threading, time
from pathlib import Path
from XRootD import client
from XRootD.client.flags import AccessMode, OpenFlags

url, source, other = sys.argv[1:]
url += f"?tpc.key=1&tpc.src={source}&tpc.lfn=/data/large"
new = OpenFlags.NEW | OpenFlags.UPDATE

file = client.File()
assert not file.open(url, OpenFlags.UPDATE)[0].ok
file = client.File()
assert file.open(url, new)[0].ok
assert file.fcntl("ofs.tpc cancel")[0].ok
assert not file.sync()[0].ok
assert not file.close()[0].ok

file = client.File()
assert file.open(url + "&oss.asize=1", new)[0].ok
assert file.sync()[0].ok
status, _ = file.sync()
assert not status.ok and "the client expects 1" in status.message, status

file = client.File()
assert file.open(url, new, AccessMode.UR | AccessMode.UW)[0].ok
assert file.sync()[0].ok
ended = []
waiting = threading.Thread(target=lambda: ended.append(file.sync()[0]))
waiting.start()
time.sleep(1)
assert not ended
[part] = (Path(other).parent / ".femtobarn-uploads").iterdir()
assert part.stat().st_mode & 0o777 == 0o600
with open(other, "w") as made:
    made.write("of somebody else")
assert file.stat(force=True)[0].ok
status, _ = file.fcntl("ofs.tpc cancel")
assert status.ok, status
waiting.join(30)
assert not ended[0].ok and "cancelled" in ended[0].message, ended
assert not file.close()[0].ok
"""


def test_a_copy_is_watched_and_cancelled(tmp_path: Path, slow: SlowWay) -> None:
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import XRootD"], capture_output=True, check=False).returncode != 0:
        pytest.skip("python3-xrootd is not installed")
    with copying(tmp_path / "far") as far:
        made = far.folder / "data/x"
        command = [
            python,
            "-c",
            CANCEL,
            root(far.server.port, "/data/x"),
            f"127.0.0.1:{slow.port}",
            str(made),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert made.read_text() == "of somebody else"
        assert left(far) == ["x"]
