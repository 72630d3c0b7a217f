"""Files move between servers over `root://` without going through the client (`xrdcp --tpc only`)."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from time import sleep

import pytest
from copying_servers import copying, left, xrootd
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
        xrdcp(root(there, "/lhc.fed/run7.root?fb.csn=1"), root(here, "/data/newest.root"))
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


def test_sources_that_are_not_allowed_are_not_asked(tmp_path: Path, near: FileServer) -> None:
    (near.folder / "data/here").write_bytes(CONTENT)
    source = root(near.server.port, "/data/here")
    for hosts, said in (
        ('"*.cern.ch"', "copy.hosts does not allow"),
        ('"*"', "copy.hosts does not allow"),
        ('"127.0.0.2"', "copy.hosts does not allow"),
    ):
        with copying(tmp_path / "closed", f"[copy]\nhosts = [{hosts}]\n") as closed:
            refused = xrdcp(source, root(closed.server.port, "/data/there"), code=1)
            assert said in refused, hosts
            assert left(closed) == []


@pytest.fixture
def slow(near: FileServer) -> Iterator[int]:
    """A way to a server of a large file that stops after a megabyte; the port."""
    (near.folder / "data/large").write_bytes(CONTENT * 20)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=forward, args=(listener, near.server.port), daemon=True).start()
        yield listener.getsockname()[1]


def forward(listener: socket.socket, port: int) -> None:
    """Pass connections on, and of each answer no more than a megabyte."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        server = socket.create_connection(("127.0.0.1", port))
        threading.Thread(target=pump, args=(client, server, None), daemon=True).start()
        threading.Thread(target=pump, args=(server, client, 1_000_000), daemon=True).start()


def pump(source: socket.socket, target: socket.socket, most: int | None) -> None:
    passed = 0
    while most is None or passed < most:
        try:
            part = source.recv(65_536)
            target.sendall(part)
        except OSError:
            return
        if not part:
            target.close()
            return
        passed += len(part)


def appears(path: Path) -> bool:
    """Tell whether a file appears within a while."""
    for _ in range(400):
        if path.exists():
            return True
        sleep(0.05)
    return False


def vanishes(path: Path) -> bool:
    """Tell whether a file vanishes within a while."""
    for _ in range(400):
        if not path.exists():
            return True
        sleep(0.05)
    return False


def test_copies_end_with_their_client(tmp_path: Path, slow: int) -> None:
    with copying(tmp_path / "far") as far:
        command = [
            "xrdcp",
            "--tpc",
            "only",
            "-N",
            root(slow, "/data/large"),
            root(far.server.port, "/data/x"),
        ]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as client:
            assert appears(far.folder / "data/x")
            sleep(1)
            assert (far.folder / "data/x").exists()
            client.send_signal(signal.SIGKILL)
        assert vanishes(far.folder / "data/x")


CANCEL = """
import sys, threading, time
from XRootD import client
from XRootD.client.flags import OpenFlags

url, source = sys.argv[1:]
file = client.File()
url += f"?tpc.key=1&tpc.src={source}&tpc.lfn=/data/large"
status, _ = file.open(url, OpenFlags.NEW | OpenFlags.UPDATE)
assert status.ok, status
assert file.sync()[0].ok
ended = []
waiting = threading.Thread(target=lambda: ended.append(file.sync()[0]))
waiting.start()
time.sleep(1)
assert not ended
assert file.stat(force=True)[0].ok
status, _ = file.fcntl("ofs.tpc cancel")
assert status.ok, status
waiting.join(30)
assert not ended[0].ok and "cancelled" in ended[0].message, ended
file.close()
"""


def test_a_copy_is_watched_and_cancelled(tmp_path: Path, slow: int) -> None:
    python = "/usr/bin/python3"
    if subprocess.run([python, "-c", "import XRootD"], capture_output=True, check=False).returncode != 0:
        pytest.skip("python3-xrootd is not installed")
    with copying(tmp_path / "far") as far:
        command = [python, "-c", CANCEL, root(far.server.port, "/data/x"), f"127.0.0.1:{slow}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert not (far.folder / "data/x").exists()
