"""Hints of clients reach the layer that acts on them, and change no byte of an answer."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from file_server import run
from server_settings import QUICK_STOP
from stored_points import VALUES, Point

import femtobarn as fb

CONTENT = np.random.default_rng(8).bytes(16 << 20)
SEEKING = (
    "throttle = { bytes_per_second = 4_000_000_000, seeks_per_second = 4_000, cache_bytes = 67_108_864 }"
)
"""A disk that is fast, and counts its seeks."""
TERABYTES = 2 << 40

READ_IN_TURN = """
import sys, zlib
from XRootD import client
from XRootD.client.flags import OpenFlags
flag, *urls = sys.argv[1:]
files = [client.File() for _ in urls]
for file, url in zip(files, urls):
    status, _ = file.open(url, OpenFlags.READ | int(flag))
    assert status.ok, status
sums, at = [0] * len(urls), 0
while True:
    parts = [file.read(at, 65_536)[1] for file in files]
    if not any(parts):
        break
    sums = [zlib.crc32(part, crc) for part, crc in zip(parts, sums)]
    at += 65_536
print(*sums)
"""
SEQUENTIAL = 0x4000
"""The flag of an open that says what `fb.access=sequential` does."""

MAKE = """
import sys
from XRootD import client
from XRootD.client.flags import OpenFlags
status, _ = client.File().open(sys.argv[1], OpenFlags.NEW)
print(status.errno, status.message)
"""


@contextmanager
def seeking(folder: Path) -> Iterator[fb.Server]:
    """A server of a folder on a disk that counts its seeks."""
    settings = folder.parent / "seeking.toml"
    export = f'[[export]]\nfolder = "{folder}"\nname = "/data"\n{SEEKING}\n'
    settings.write_text(QUICK_STOP.read_text() + export)
    with fb.serve(port=0, address="127.0.0.1", anonymous="all", config=settings) as server:
        yield server


def seeks(server: fb.Server) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request("GET", "/api/status")
        (disk,) = json.loads(connection.getresponse().read())["disks"]
    return int(disk["seeks"])


def seeks_of_two(server: fb.Server, names: list[str], hint: str, flag: int = 0) -> tuple[int, list[int]]:
    """Read two files in turn; return the seeks, and the checksums of what was read."""
    pytest.importorskip("XRootD")
    before = seeks(server)
    urls = [f"root://127.0.0.1:{server.port}//data/{name}?{hint}" for name in names]
    sums = run(sys.executable, "-c", READ_IN_TURN, str(flag), *urls)
    return seeks(server) - before, [int(crc) for crc in sums.split()]


@pytest.mark.parametrize(
    ("hint", "flag", "is_told"),
    [
        ("", 0, False),
        ("fb.access=random", SEQUENTIAL, False),
        ("x.y=1&fb.access=sequential", 0, True),
        ("", SEQUENTIAL, True),
    ],
)
def test_a_disk_seeks_less_for_clients_that_read_in_order(
    tmp_path: Path, hint: str, flag: int, is_told: bool
) -> None:
    (tmp_path / "data").mkdir()
    for name in ("a", "b"):
        (tmp_path / "data" / name).write_bytes(CONTENT)
    with seeking(tmp_path / "data") as server:
        count, sums = seeks_of_two(server, ["a", "b"], hint, flag)
    assert sums == [zlib.crc32(CONTENT)] * 2
    # One for each piece, or for each 4 MiB.
    assert count < 30 if is_told else count > 400


@pytest.mark.parametrize("is_sealed", [False, True])
def test_hints_go_through_a_federation_to_the_disk(tmp_path: Path, is_sealed: bool) -> None:
    fed = fb.create(tmp_path / "lhc.fed")
    for name in ("run6", "run7"):
        with fed.transaction() as txn:
            points = txn.database(name, create=True).container("points", Point, create=True)
            points.extend({"x": VALUES})
        if is_sealed:
            fed.seal(name)
    counts, sums = [], []
    for hint in ("fb.access=random", "fb.access=sequential"):
        with seeking(Path(fed.path)) as server:
            count, found = seeks_of_two(server, ["run6.root", "run7.root"], hint)
            counts.append(count)
            sums.append(found)
    assert sums[0] == sums[1]
    assert counts[1] < counts[0] / 3, counts


def test_hints_of_a_federations_url_are_those_of_its_files(tmp_path: Path) -> None:
    with fb.create(tmp_path / "lhc.fed") as fed:
        for name in ("run6", "run7"):
            with fed.transaction() as txn:
                points = txn.database(name, create=True).container("points", Point, create=True)
                points.extend({"x": VALUES})
    counts = []
    for hint in ("fb.access=random", "fb.access=sequential"):
        with seeking(tmp_path / "lhc.fed") as server:
            before = seeks(server)
            with fb.open(f"{server.url('/data')}?{hint}", read_ahead_bytes=0, cache_bytes=0) as fed:
                views = [fed[f"{name}/points"] for name in ("run6", "run7")]
                for start in range(0, len(VALUES), 8192):
                    for view in views:
                        part = view[start : start + 8192].arrays("x", library="np")["x"]
                        assert np.array_equal(part, VALUES[start : start + 8192])
            counts.append(seeks(server) - before)
    assert counts[1] < counts[0] / 3, counts


@pytest.mark.parametrize(
    "hint",
    [
        "fb.access=",
        "fb.access=%FF&fb.priority=-1",
        f"fb.deadline={'9' * 5000}&fb.size=x",
        "fb.access&&=&fb.deadline",
    ],
)
def test_hints_do_not_change_the_bytes_that_are_read(tmp_path: Path, hint: str) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a").write_bytes(CONTENT[:100_000])
    with seeking(tmp_path / "data") as server:
        _, sums = seeks_of_two(server, ["a"], hint)
    assert sums == [zlib.crc32(CONTENT[:100_000])]


@pytest.mark.parametrize("key", ["oss.asize", "fb.size"])
def test_a_file_larger_than_the_disk_is_refused_before_its_bytes(tmp_path: Path, key: str) -> None:
    pytest.importorskip("XRootD")
    (tmp_path / "data").mkdir()
    with seeking(tmp_path / "data") as server:
        url = f"root://127.0.0.1:{server.port}//data/run7.root?{key}={TERABYTES}"
        said = run(sys.executable, "-c", MAKE, url)
        assert said.startswith("3009 ")
        assert f"it will have {TERABYTES} bytes" in said
        sparse = tmp_path / "large"
        sparse.touch()
        os.truncate(sparse, TERABYTES)
        copy = ["xrdcp", "-s", str(sparse), f"root://127.0.0.1:{server.port}//data/run8.root"]
        done = subprocess.run(copy, capture_output=True, text=True, timeout=60, check=False)
        assert (done.returncode != 0, f"it will have {TERABYTES} bytes" in done.stderr) == (True, True)
        assert list((tmp_path / "data").iterdir()) == []
