"""A server that keeps what is read of another server's files, between real clients and real origins."""

from __future__ import annotations

import http.client
import json
import os
import random
import resource
import signal
import socket
import subprocess
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uproot
from copying_servers import xrootd
from file_server import run
from server_settings import QUICK_STOP
from waiting import wait_for

import femtobarn as fb
from femtobarn.cli import EXIT_CODES, main

SIZE = 5_000_000
PAGE = 4096


@fb.persistent
class Hit:
    number: fb.int64


@pytest.fixture
def content() -> bytes:
    return np.random.default_rng(5).bytes(SIZE)


@pytest.fixture
def site(tmp_path: Path, content: bytes) -> Iterator[Site]:
    (tmp_path / "store").mkdir()
    put(tmp_path / "store" / "run1.bin", content)
    with Site(tmp_path) as site:
        yield site


class Site:
    """An origin of plain files, and a cache of it, each in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[str]] = {}
        self.ports = {"origin": 0, "cache": 0}

    def __enter__(self) -> Site:
        self.start_origin()
        self.start_cache()
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.processes):
            self.kill(name)

    def start_origin(self) -> None:
        self._start("origin", self.folder / "store", "--writable")

    def start_cache(self, *options: str, before: Callable[[], None] | None = None) -> None:
        url = f"root://127.0.0.1:{self.ports['origin']}//store"
        self._start("cache", self.folder / "kept", "--cache-of", url, *options, before=before)

    def _start(
        self, name: str, folder: Path, *options: str, before: Callable[[], None] | None = None
    ) -> None:
        command = [sys.executable, "-m", "femtobarn", "serve", str(folder), "-c", str(QUICK_STOP)]
        command += ["-p", str(self.ports[name]), "--address", "127.0.0.1", "--json", *options]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=before)
        assert process.stdout is not None
        self.processes[name] = process
        self.ports[name] = json.loads(process.stdout.readline())["port"]

    def kill(self, name: str, number: int = signal.SIGKILL) -> None:
        process = self.processes.pop(name)
        process.send_signal(number)
        process.wait()
        assert process.stdout is not None
        process.stdout.close()

    def restart_cache(self, *options: str, before: Callable[[], None] | None = None) -> None:
        self.kill("cache")
        self.start_cache(*options, before=before)

    def status(self) -> dict[str, Any]:
        """The status that the cache reports."""
        _, body = self.ask("/api/status")
        (cache,) = json.loads(body)["caches"]
        assert cache["name"] == "/store"
        found: dict[str, Any] = cache
        return found

    def ask(self, path: str, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.ports["cache"], timeout=60)
        with closing(connection):
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read()

    def read(self, start: int = 0, end: int = SIZE, name: str = "run1.bin") -> bytes:
        code, body = self.ask(f"/store/{name}", Range=f"bytes={start}-{end - 1}")
        assert code in (200, 206), body
        return body

    def url(self, name: str = "run1.bin") -> str:
        return f"root://127.0.0.1:{self.ports['cache']}//store/{name}"

    def copy(self, target: Path, name: str = "run1.bin") -> bytes:
        """Copy a file with XRootD's client."""
        run("xrdcp", "--silent", "--force", self.url(name), target)
        return target.read_bytes()


def test_cached_bytes_are_not_fetched_again(site: Site, content: bytes, tmp_path: Path) -> None:
    for _ in range(2):
        assert site.copy(tmp_path / "copy.bin") == content
        status = site.status()
        assert status["fetched_bytes"] == SIZE
    assert status["read_bytes"] == 2 * SIZE
    assert SIZE <= status["used_bytes"] < SIZE + 100_000
    assert site.read() == content
    assert site.status()["fetched_bytes"] == SIZE


def test_many_readers_share_one_fetch(site: Site, content: bytes, tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        copies = pool.map(site.copy, [tmp_path / f"copy{number}" for number in range(8)])
        assert all(copy == content for copy in copies)
    assert site.status()["fetched_bytes"] == SIZE


def test_sparse_reads_fetch_their_pages_alone(site: Site, content: bytes) -> None:
    chosen = random.Random(1)
    pages = set()
    for _ in range(50):
        start = chosen.randrange(SIZE - 16_000)
        assert site.read(start, start + 16_000) == content[start : start + 16_000]
        pages |= set(range(start // PAGE, (start + 16_000 + PAGE - 1) // PAGE))
    assert site.status()["fetched_bytes"] == len(pages) * PAGE


READ_IN_ORDER = """
import sys, zlib
from XRootD import client
url, end = sys.argv[1], int(sys.argv[2])
file = client.File()
status, _ = file.open(url)
assert status.ok, status
crc = 0
for start in range(0, end, 16_000):
    status, part = file.read(start, min(16_000, end - start))
    assert status.ok, status
    crc = zlib.crc32(part, crc)
print(crc)
"""


@pytest.mark.parametrize(
    ("access", "least", "most"),
    [
        ("", 2_000_000 + PAGE, 2_000_000 * 7 // 6 + PAGE),
        ("fb.access=random", 2_000_000, 2_000_000 + PAGE),
        ("fb.access=sequential", SIZE, SIZE),
    ],
)
def test_sequential_reads_are_fetched_ahead(
    site: Site, content: bytes, access: str, least: int, most: int
) -> None:
    done = run(sys.executable, "-c", READ_IN_ORDER, f"{site.url()}?{access}", "2000000")
    assert int(done) == zlib.crc32(content[:2_000_000])
    wait_for(lambda: site.status()["fetched_bytes"] >= least)
    assert site.read(2_000_000, 2_000_000 + 4000) == content[2_000_000 : 2_000_000 + 4000]
    assert site.status()["fetched_bytes"] <= most + 2 * PAGE


def test_vector_reads_through_xrootds_client(site: Site, content: bytes) -> None:
    chosen = random.Random(2)
    pieces = [(chosen.randrange(SIZE - 5000), chosen.randrange(1, 5000)) for _ in range(500)]
    code = (
        "import json, sys, zlib; from XRootD import client; f = client.File(); s, _ = f.open(sys.argv[1]);"
        "assert s.ok, s; s, v = f.vector_read([tuple(p) for p in json.load(sys.stdin)]); assert s.ok, s;"
        "print([zlib.crc32(c.buffer) for c in v.chunks])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, site.url()], input=json.dumps(pieces), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    expected = [zlib.crc32(content[start : start + size]) for start, size in pieces]
    assert json.loads(done.stdout) == expected


def test_a_killed_cache_keeps_its_pages(site: Site, content: bytes) -> None:
    assert site.read(0, 2_000_000, "run1.bin?fb.access=random") == content[:2_000_000]
    wait_for(lambda: site.status()["used_bytes"] >= 2_000_000)
    site.restart_cache()
    assert site.read() == content
    status = site.status()
    assert SIZE - 2_000_000 - PAGE < status["fetched_bytes"] <= SIZE - 2_000_000 + PAGE
    assert status["damaged_pages"] == 0


def test_damage_on_the_disk_is_noticed_and_mended(site: Site, content: bytes) -> None:
    assert site.read() == content
    wait_for(lambda: site.status()["used_bytes"] >= SIZE)
    (kept,) = (site.folder / "kept").glob("*.bytes")
    (table,) = (site.folder / "kept").glob("*.pages")
    chosen = random.Random(3)
    flip(kept, [chosen.randrange(SIZE) for _ in range(20)])
    flip(table, [PAGE + chosen.randrange(table.stat().st_size - PAGE) for _ in range(20)])
    assert site.read() == content
    fetched = site.status()["fetched_bytes"]
    assert 20 * PAGE < fetched - SIZE <= 40 * PAGE
    assert site.status()["damaged_pages"] >= 20
    assert site.read() == content
    assert site.status()["fetched_bytes"] == fetched
    os.truncate(kept, 1_000_000)
    assert site.read() == content
    flip(table, [17])
    site.restart_cache()
    assert site.read() == content


def test_a_file_that_changes_at_the_origin_is_read_anew(site: Site, content: bytes) -> None:
    assert site.read() == content
    other = content[::-1]
    put(site.folder / "new.bin", other)
    (site.folder / "new.bin").replace(site.folder / "store" / "run1.bin")
    assert site.read() == other
    assert site.status()["fetched_bytes"] == 2 * SIZE


def test_a_file_that_is_written_over_gives_an_error_rather_than_a_mixture(site: Site, content: bytes) -> None:
    long = content * 10
    put(site.folder / "store" / "long.bin", long)
    with http_reader(site, "long.bin") as reader:
        assert reader.read(1_000_000) == long[:1_000_000]
        # Until the sockets are full, and what was compared at the begin does not count any more.
        time.sleep(1.5)
        with (site.folder / "store" / "long.bin").open("r+b") as file:
            file.write(bytes(len(long)))
        rest = b""
        with suppress(OSError):
            try:
                rest = reader.read()
            except http.client.IncompleteRead as cut:
                rest = cut.partial
    assert len(rest) < len(long) - 1_000_000
    assert long[1_000_000:].startswith(rest)
    for _ in range(2):
        assert site.read(0, len(long), "long.bin") == bytes(len(long))


def test_reads_past_the_end(site: Site, content: bytes) -> None:
    put(site.folder / "store" / "small.bin", content[:5000])
    put(site.folder / "store" / "empty.bin", b"")
    code = (
        "import sys; from XRootD import client; f = client.File(); s, _ = f.open(sys.argv[1])\n"
        "assert s.ok, s\n"
        "for offset in (0, 100, 4999, 5000, 5001, 6000, 9000, 1 << 40):\n"
        "    s, data = f.read(offset, 3000); assert s.ok, s; print(len(data), end=' ')"
    )
    for name, expected in (("small.bin", "3000 3000 1 0 0 0 0 0"), ("empty.bin", "0 0 0 0 0 0 0 0")):
        for _ in range(2):
            command = [sys.executable, "-c", code, site.url(name)]
            done = subprocess.run(command, capture_output=True, text=True, timeout=60)
            assert done.stdout.strip() == expected, done.stderr


def test_a_name_with_a_question_mark_is_refused(site: Site) -> None:
    code, text = site.ask("/store/run1.bin%3Ffb.raw=1")
    assert (code, b"the name has a '?'" in text) == (400, True), text


def test_a_folder_is_that_of_one_cache(site: Site) -> None:
    with pytest.raises(fb.StorageError, match="another server keeps files in it"):
        cache_of("root://127.0.0.1:1//store", site.folder / "kept")


def test_a_size_without_an_origin_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(fb.InvalidError, match="cache_bytes needs cache_of"):
        fb.serve(tmp_path, cache_bytes=1_000_000, port=0, address="127.0.0.1")
    assert main(["serve", str(tmp_path), "--cache-size", "1 MB"]) == EXIT_CODES["invalid"]
    assert "--cache-size needs --cache-of" in capsys.readouterr().err


def test_cached_bytes_are_read_while_the_origin_is_offline(site: Site, content: bytes) -> None:
    put(site.folder / "store" / "run2.bin", content)
    assert site.read() == content
    assert site.read(0, 100_000, "run2.bin") == content[:100_000]
    wait_for(lambda: site.status()["used_bytes"] >= SIZE + 100_000)
    site.kill("origin")
    site.restart_cache()
    assert site.read() == content
    assert site.read(0, 100_000, "run2.bin") == content[:100_000]
    begun = time.monotonic()
    code, text = site.ask("/store/run2.bin", Range="bytes=200000-300000")
    assert code >= 500 or len(text) < 100_001
    code, text = site.ask("/store/run3.bin")
    assert (code, b"the origin does not answer" in text) == (500, True), text
    assert time.monotonic() - begun < 60
    site.start_origin()
    wait_for(lambda: site.ask("/store/run2.bin") == (200, content))


def test_the_files_used_the_longest_ago_leave(site: Site, content: bytes) -> None:
    names = [f"run{number}.bin" for number in range(2, 8)]
    for name in names:
        put(site.folder / "store" / name, content)
    notes = site.folder / "kept" / "notes.bytes"
    notes.write_text("not ours")
    site.restart_cache("--cache-size", f"{3.5 * SIZE / 1e6} MB")
    for name in names:
        assert site.read(name=name) == content
    status = site.status()
    assert status["evicted_bytes"] >= 2 * SIZE
    wait_for(lambda: site.status()["used_bytes"] <= status["limit_bytes"])
    fetched = site.status()["fetched_bytes"]
    assert site.read(name=names[-1]) == content
    assert site.status()["fetched_bytes"] == fetched
    assert site.read(name=names[0]) == content
    assert site.status()["fetched_bytes"] == fetched + SIZE
    assert notes.read_text() == "not ours"


def test_idle_files_are_evicted_after_a_time(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "store").mkdir()
    put(tmp_path / "store" / "run1.bin", content)
    with fb.serve(tmp_path / "store", port=0, address="127.0.0.1", config=QUICK_STOP) as origin:
        url = f"root://127.0.0.1:{origin.port}//store"
        config = tmp_path / "cache.toml"
        export = (
            f"[[export]]\nfolder = {str(tmp_path / 'kept')!r}\ncache = {{ of = {url!r}, idle_seconds = 2 }}\n"
        )
        config.write_text(QUICK_STOP.read_text() + export)
        with fb.serve(port=0, address="127.0.0.1", config=config) as cache:
            command = ["xrdcp", "--silent", f"root://127.0.0.1:{cache.port}//store/run1.bin", "-"]
            assert subprocess.run(command, check=True, capture_output=True).stdout == content
            wait_for(lambda: not list((tmp_path / "kept").glob("*.bytes")))
            (told,) = cache.status()["caches"]
            assert (told["used_bytes"], told["evicted_bytes"] > 0) == (0, True)
            assert subprocess.run(command, check=True, capture_output=True).stdout == content


def test_a_disk_that_takes_nothing_fails_no_reader(site: Site, content: bytes) -> None:
    small = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (1_000_000, 1_000_000))
    site.restart_cache(before=small)
    for _ in range(2):
        assert site.read() == content
    assert 2 * SIZE <= site.status()["fetched_bytes"] < 2.2 * SIZE


def test_nothing_is_changed_through_a_cache(site: Site, tmp_path: Path) -> None:
    site.restart_cache("--writable")
    (tmp_path / "new.bin").write_bytes(b"new")
    command = ["xrdcp", "--silent", "--force", str(tmp_path / "new.bin"), site.url("new.bin")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "this server is a cache; change it at the origin" in done.stderr
    host = f"root://127.0.0.1:{site.ports['cache']}"
    assert "run1.bin" in run("xrdfs", host, "ls", "-l", "/store")
    assert "read-only file system" in run("xrdfs", host, "rm", "/store/run1.bin", code=54)


def test_evicting_removes_the_cached_pages(site: Site, content: bytes) -> None:
    assert site.read() == content
    site.restart_cache("--writable")
    run("xrdfs", f"root://127.0.0.1:{site.ports['cache']}", "prepare", "-e", "/store/run1.bin")
    assert site.status()["used_bytes"] == 0
    assert site.read() == content
    assert site.status()["fetched_bytes"] == SIZE


def test_a_federation_is_read_as_of_its_commits(tmp_path: Path) -> None:
    with (
        fb.create(tmp_path / "lhc.fed") as fed,
        fb.serve(fed.path, port=0, address="127.0.0.1", config=QUICK_STOP) as origin,
        cache_of(origin.url("/lhc.fed"), tmp_path / "kept") as cache,
    ):
        assert cache.exports == ["/lhc.fed"]
        url = cache.url("/lhc.fed/run7.root")
        for count in (1, 2):
            with fed.transaction() as txn:
                hits = txn.database("run7", create=True).container("hits", Hit, create=True)
                hits.extend({"number": np.arange(1000)})
            for csn in range(1, count + 1):
                with uproot.open({f"{url}?fb.csn={csn}": "hits"}) as read:
                    assert read.num_entries == 1000 * csn
            with uproot.open({f"{url}?round={count}": "hits"}) as read:
                assert read["number"].array().to_list() == count * list(range(1000))


def test_an_origin_of_xrootds(tmp_path: Path, content: bytes) -> None:
    with xrootd() as site:
        put(site.folder / "data" / "run1.bin", content)
        with cache_of(f"root://127.0.0.1:{site.port}//data", tmp_path / "kept") as cache:
            for _ in range(2):
                copy = tmp_path / "copy.bin"
                run("xrdcp", "--silent", "--force", cache.url("/data/run1.bin"), copy)
                assert copy.read_bytes() == content
            (status,) = cache.status()["caches"]
            assert (status["fetched_bytes"], status["read_bytes"]) == (SIZE, 2 * SIZE)


@contextmanager
def http_reader(site: Site, name: str) -> Iterator[http.client.HTTPResponse]:
    """A reader that has begun to read the whole file."""
    with closing(http.client.HTTPConnection("127.0.0.1", site.ports["cache"], timeout=60)) as connection:
        connection.connect()
        # Little is on its way, so that the rest is read later.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        connection.request("GET", f"/store/{name}")
        yield connection.getresponse()


def cache_of(url: str, folder: Path) -> fb.Server:
    return fb.serve(folder, cache_of=url, port=0, address="127.0.0.1", config=QUICK_STOP)


def put(path: Path, content: bytes) -> None:
    """Write a file that was changed long ago, as far as its time tells."""
    path.write_bytes(content)
    os.utime(path, (1e9, 1e9))


def flip(path: Path, places: list[int]) -> None:
    """Flip a bit of each of these bytes."""
    with path.open("r+b") as file:
        for place in set(places):
            file.seek(place)
            byte = file.read(1)[0]
            file.seek(place)
            file.write(bytes([byte ^ 16]))
