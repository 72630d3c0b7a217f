"""A cache of another server that keeps files on several disks, of which some fail."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from data_servers import DataServer, ours, served_process
from server_settings import QUICK_STOP
from waiting import wait_for

import femtobarn as fb

SIZE = 300_000
NAMES = [f"run{number}.bin" for number in range(24)]
CONTENTS = {name: np.random.default_rng(number).bytes(SIZE) for number, name in enumerate(NAMES)}


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DataServer]:
    with ours(tmp_path_factory.mktemp("site") / "origin", "127.0.0.1") as server:
        for name, content in CONTENTS.items():
            server.put(name, content)
            # Of a file that may still change nothing is kept.
            os.utime(server.folder / name, (1e9, 1e9))
        yield server


@dataclass
class Cache:
    """A cache of the origin."""

    port: int

    def ask(self, path: str) -> bytes:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("GET", path)
            answer = connection.getresponse()
            body = answer.read()
        assert answer.status == 200, body
        return body

    def check_reads(self, names: list[str] = NAMES) -> None:
        """Read files as a client, and compare them."""
        for name in names:
            assert self.ask(f"/data/{name}") == CONTENTS[name]

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask("/api/status"))
        return found

    def disks(self) -> dict[str, str]:
        """The name of each folder, and why it failed."""
        (cache,) = self.status()["caches"]
        return {Path(disk["folder"]).name: disk["why_failed"] for disk in cache["disks"]}

    def fetched(self) -> int:
        (cache,) = self.status()["caches"]
        return int(cache["fetched_bytes"])


@contextmanager
def cache_on(origin: DataServer, *folders: Path) -> Iterator[Cache]:
    with fb.serve(*folders, cache_of=origin.url, port=0, address="127.0.0.1", config=QUICK_STOP) as server:
        yield Cache(server.port)


def kept(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*.bytes")}


def added(folder: Path, work: Callable[[], object]) -> set[str]:
    """The files that a cache's folder has after some work, and had not before."""
    before = kept(folder)
    work()
    return kept(folder) - before


def test_each_file_is_kept_on_one_disk_and_a_new_disk_gets_its_share(
    origin: DataServer, tmp_path: Path
) -> None:
    one, two, three = folders = [tmp_path / name for name in ("one", "two", "three")]
    with cache_on(origin, one, two) as cache:
        cache.check_reads()
        cache.check_reads()
        assert cache.fetched() == SIZE * len(NAMES)
    before = [kept(folder) for folder in (one, two)]
    # By chance, one time in a hundred thousand, a disk has fewer of its half.
    assert min(map(len, before)) > 2
    assert not before[0] & before[1]
    with cache_on(origin, *folders) as cache:
        cache.check_reads()
        moved = kept(three)
        # A third is expected; by chance, one time in ten thousand, there are none, or three quarters.
        assert 0 < len(moved) < len(NAMES) * 3 / 4
        assert cache.fetched() == SIZE * len(moved), "all others are where they were"
        assert [kept(folder) for folder in (one, two)] == before


def test_a_vanished_disk_costs_its_files_and_no_read_fails(origin: DataServer, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    with cache_on(origin, one, two) as cache:
        cache.check_reads()
        lost = kept(one)
        shutil.rmtree(one)
        cache.check_reads()
        assert cache.fetched() == SIZE * (len(NAMES) + len(lost))
        assert kept(two) >= lost
        cache.check_reads()
        assert cache.fetched() == SIZE * (len(NAMES) + len(lost)), "they are kept on the other disk"
        assert cache.disks() == {"one": "No such file or directory (os error 2)", "two": ""}
        assert 'femtobarn_cache_failed_disks{export="/data"} 1' in cache.ask("/metrics").decode()
        (alert,) = [it for it in cache.status()["alerts"] if it["name"] == "FemtobarnCacheDiskFailed"]
        assert f"{one} of the cache /data failed: No such file" in alert["summary"]
        shown = subprocess.run(
            ["femtobarn", "top", f"127.0.0.1:{cache.port}", "-n", "1"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert "failed: No such file" in shown
    with cache_on(origin, one, two) as cache:
        assert cache.disks() == {"one": "", "two": ""}, "after a restart it is used again"
        cache.check_reads()
        assert kept(one) == lost


def test_a_file_that_is_open_on_a_failed_disk_is_cached_again(origin: DataServer, tmp_path: Path) -> None:
    client = pytest.importorskip("XRootD.client")
    one, two = tmp_path / "one", tmp_path / "two"
    with cache_on(origin, one, two) as cache, client.File() as file:
        held = next(name for name in NAMES if not added(two, partial(cache.check_reads, [name])))
        url = f"root://127.0.0.1:{cache.port}//data/{held}"
        assert file.open(url)[0].ok
        shutil.rmtree(one)
        cache.check_reads()
        assert cache.disks()["one"]
        with client.File() as other:
            assert len(added(two, partial(other.open, url))) == 1, "a file is made for it when it is opened"
            assert other.read()[1] == CONTENTS[held]
        assert file.read(1000, 2000)[1] == CONTENTS[held][1000:3000], "from the origin"


MOUNT = 'mount -t tmpfs -o size=4m,mode=700 none "$0" || exit 77; exec "$@"'


@dataclass
class Mounted:
    """A cache whose small disk is seen by its process alone."""

    cache: Cache
    process: int

    def run(self, *command: str) -> None:
        """Run a command that sees the disk."""
        enter = ["nsenter", "-t", str(self.process), "--user", "--mount", "--preserve-credentials"]
        subprocess.run([*enter, *command], check=True, capture_output=True)


@contextmanager
def cache_with_small_disk(origin: DataServer, small: Path, other: Path) -> Iterator[Mounted]:
    """A cache with a disk of 4 MiB, and one more."""
    small.mkdir()
    unshare = ("unshare", "--map-root-user", "--mount", "sh", "-c", MOUNT, str(small))
    tried = subprocess.run([*unshare, "true"], capture_output=True, check=False)
    if tried.returncode:
        pytest.skip(f"nothing can be mounted: {tried.stderr!r}")
    options = ("--cache-of", origin.url, "--cache-size", "1 GB")
    with served_process(small, other, *options, before=unshare) as (facts, process):
        yield Mounted(Cache(facts["port"]), process.pid)


def test_a_disk_full_of_foreign_files_is_given_up(origin: DataServer, tmp_path: Path) -> None:
    small, other = tmp_path / "small", tmp_path / "other"
    with cache_with_small_disk(origin, small, other) as mounted:
        cache = mounted.cache
        cache.check_reads()
        # The cache evicts its files as long as that makes room.
        assert cache.disks() == {"small": "", "other": ""}
        fill = f"cat /dev/zero > {small}/notes"
        mounted.run("sh", "-c", f"{fill}; rm {small}/*.bytes; {fill}; true")

        def is_given_up() -> bool:
            cache.check_reads()
            return bool(cache.disks()["small"])

        # For a second after files have left, the disk is not taken for one that has too little of them.
        wait_for(is_given_up)
        cache.check_reads()
        failed = cache.disks()
        assert (failed["small"], failed["other"]) == ("No space left on device (os error 28)", "")
        fetched = cache.fetched()
        cache.check_reads()
        assert (cache.fetched(), len(kept(other))) == (fetched, len(NAMES))


def test_a_disk_that_becomes_read_only_is_given_up(origin: DataServer, tmp_path: Path) -> None:
    small, other = tmp_path / "small", tmp_path / "other"
    with cache_with_small_disk(origin, small, other) as mounted:
        cache = mounted.cache
        cache.check_reads(NAMES[:4])
        mounted.run("mount", "-o", "bind,ro", str(small), str(small))
        cache.check_reads()
        assert cache.disks() == {"small": "Read-only file system (os error 30)", "other": ""}
        cache.check_reads()
        assert len(kept(other)) == len(NAMES)


def test_a_disk_that_is_not_there_at_the_start_is_missing(origin: DataServer, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    missing, other = tmp_path / "file" / "cache", tmp_path / "other"
    with cache_on(origin, missing, other) as cache:
        cache.check_reads()
        assert cache.disks()["cache"] == "Not a directory (os error 20)"
        assert len(kept(other)) == len(NAMES)


def test_the_folders_of_a_cache_have_one_name_and_are_its_own(tmp_path: Path) -> None:
    def cache_in(*folders: str) -> fb.Server:
        return fb.serve(
            *folders, cache_of="root://127.0.0.1:1//data", port=0, address="127.0.0.1", config=QUICK_STOP
        )

    one, two = str(tmp_path / "one"), str(tmp_path / "two")
    with pytest.raises(fb.InvalidError, match="nothing to serve: name a folder"):
        cache_in()
    with pytest.raises(fb.InvalidError, match="give it to the first"):
        cache_in(one, f"{two}=/other")
    with pytest.raises(fb.StorageError, match="another server keeps files in it"):
        cache_in(one, two, one)
    with cache_in(f"{one}=/store", two) as server:
        assert server.exports == ["/store"]
