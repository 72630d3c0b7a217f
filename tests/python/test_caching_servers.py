"""Caches behind a redirector, ours and XRootD's: files that many clients read are read from them, too."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from data_servers import QUICK, DataServer, count_up, ours, served_process
from server_settings import QUICK_STOP
from waiting import free_port, wait_for, wait_for_port

import femtobarn as fb

CONTENT = np.random.default_rng(5).bytes(300_000)
SETTINGS = "[redirect]\nclients_per_copy = 2\n"
XCACHE = """all.export /data
oss.localroot {folder}/kept
ofs.osslib libXrdPss.so
pss.cachelib libXrdPfc.so
pss.origin {origin}
all.adminpath {folder}/admin
all.pidpath {folder}/admin
"""


@contextmanager
def our_cache(origin: DataServer, folder: Path, host: str) -> Iterator[str]:
    """A cache of ours; yields its URL."""
    with served_process("--cache-of", origin.url, folder, host=host) as (facts, _):
        yield f"root://{host}:{facts['port']}//data"


@contextmanager
def xcache(origin: DataServer, host: str) -> Iterator[str]:
    """A cache of XRootD's; yields its URL."""
    if shutil.which("xrootd") is None or not list(Path("/usr").glob("lib*/**/libXrdPfc*")):
        pytest.skip("XRootD's server with its caching proxy is not installed")
    with tempfile.TemporaryDirectory() as made:
        folder, log = Path(made), Path(made) / "log"
        port = free_port(host)
        (folder / "xcache.cfg").write_text(XCACHE.format(folder=folder, origin=origin.address))
        for each in (folder, folder / "kept", folder / "admin"):
            each.mkdir(exist_ok=True)
            each.chmod(0o777)
        # The server refuses to run as the superuser.
        user = ["-R", "nobody"] if os.geteuid() == 0 else []
        command = ["xrootd", *user, "-c", str(folder / "xcache.cfg"), "-p", str(port), "-l", str(log)]
        with subprocess.Popen(command, cwd=folder, stderr=subprocess.DEVNULL) as server:
            try:
                wait_for_port(server, port, log)
                yield f"root://{host}:{port}//data"
            finally:
                server.terminate()


@pytest.fixture
def origin(tmp_path: Path) -> Iterator[DataServer]:
    with ours(tmp_path / "origin", "127.0.0.1") as server:
        put(server, "run1.bin")
        yield server


def put(server: DataServer, name: str) -> None:
    """Put the content there, as of an hour ago: caches keep nothing of a file that may still change."""
    server.put(name, CONTENT)
    changed = time.time() - 3600
    os.utime(server.folder / name, (changed, changed))


@contextmanager
def redirector(folder: Path, *caches: str, to: tuple[str, ...] = (), port: int = 0) -> Iterator[fb.Server]:
    """A redirector that uses a cache more for every two clients, once it knows the servers."""
    config = folder / "redirector.toml"
    config.write_text(QUICK_STOP.read_text() + SETTINGS)
    with fb.serve(
        redirect_to=to, redirect_caches=caches, port=port, address="127.0.0.1", config=config
    ) as server:
        if not port:
            wait_for(lambda: count_up(server) == len(to) + len(caches))
        yield server


def read(server: fb.Server) -> None:
    """Read the file as a client of the redirector."""
    command = ["xrdcp", "--silent", f"root://127.0.0.1:{server.port}//data/run1.bin", "-"]
    assert subprocess.run(command, check=True, capture_output=True, timeout=60, env=QUICK).stdout == CONTENT


def redirects(server: fb.Server) -> list[int]:
    return [it["redirects"] for it in server.status()["data_servers"]]


def test_a_hot_file_is_read_from_caches(origin: DataServer, tmp_path: Path) -> None:
    with ExitStack() as stack:
        mine = stack.enter_context(our_cache(origin, tmp_path / "kept", "127.0.0.2"))
        theirs = stack.enter_context(xcache(origin, "127.0.0.3"))
        server = stack.enter_context(redirector(tmp_path, mine, theirs, to=(origin.url,)))
        caches = [it["is_cache"] for it in server.status()["data_servers"]]
        assert caches == [False, True, True]
        read(server)
        assert redirects(server)[1:] == [0, 0], "the server that has it is enough for one client"
        for _ in range(100):
            read(server)
            if min(redirects(server)) > 0:
                break
        assert min(redirects(server)) > 0
        listed = subprocess.run(
            ["xrdfs", f"127.0.0.1:{server.port}", "locate", "/data/run1.bin"],
            check=True,
            capture_output=True,
            text=True,
            env=QUICK,
        ).stdout
        assert len(listed.splitlines()) == 3


def test_a_cache_is_read_while_no_server_answers(origin: DataServer, tmp_path: Path) -> None:
    with ExitStack() as stack:
        mine = stack.enter_context(our_cache(origin, tmp_path / "kept", "127.0.0.2"))
        server = stack.enter_context(redirector(tmp_path, mine, to=(origin.url,)))
        subprocess.run(["xrdcp", "-s", f"{mine}/run1.bin", os.devnull, "-f"], check=True, env=QUICK)
        origin.kill()
        wait_for(lambda: count_up(server) == 1)
        read(server)
        refused = subprocess.run(
            ["xrdfs", f"127.0.0.1:{server.port}", "rm", "/data/run1.bin"], capture_output=True, env=QUICK
        )
        assert refused.returncode != 0


def test_the_redirector_may_be_the_origin_of_its_caches(origin: DataServer, tmp_path: Path) -> None:
    with ExitStack() as stack:
        port = free_port()
        self_named = DataServer("127.0.0.1", port, tmp_path, origin.process)
        mine = stack.enter_context(our_cache(self_named, tmp_path / "kept", "127.0.0.2"))
        theirs = stack.enter_context(xcache(self_named, "127.0.0.3"))
        server = stack.enter_context(redirector(tmp_path, mine, theirs, to=(origin.url,), port=port))
        wait_for(lambda: count_up(server) == 3)
        for _ in range(100):
            read(server)
            if min(redirects(server)) > 0:
                break
        assert min(redirects(server)) > 0
        missing = ["xrdfs", f"127.0.0.1:{port}", "stat", "/data/none.bin"]
        assert subprocess.run(missing, capture_output=True, timeout=60, env=QUICK).returncode == 54


def test_each_cache_keeps_its_files(origin: DataServer, tmp_path: Path) -> None:
    names = [f"run{number}.bin" for number in range(2, 22)]
    for name in names:
        put(origin, name)
    with ExitStack() as stack:
        urls = [
            stack.enter_context(our_cache(origin, tmp_path / f"kept{number}", f"127.0.0.{number}"))
            for number in (2, 3)
        ]
        for server in [stack.enter_context(redirector(tmp_path, *urls)) for _ in range(2)]:
            for name in names:
                url = f"root://127.0.0.1:{server.port}//data/{name}"
                subprocess.run(["xrdcp", "-s", "-f", url, os.devnull], check=True, timeout=60, env=QUICK)
    kept = [len(list((tmp_path / f"kept{number}").glob("*.bytes"))) for number in (2, 3)]
    assert min(kept) > 0
    assert sum(kept) == len(names), "both redirectors send readers of a file to the same cache"
