"""Caches between a job and the server: whatever happens to them, a job reads the federation's own values.

The server and memcached are the real ones; faults are put into their files and values.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from condition_samples import Gain, Level, Plain
from faulty_tiers import GARBLED, MEMCACHED, Memcached, flip_bits
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from server_settings import QUICK_STOP
from tier_reads import INTERVALS, look_up, read
from waiting import stop_process

import femtobarn as fb

END = 30


@pytest.fixture
def memcached() -> Iterator[Memcached]:
    """A memcached on a free port."""
    if MEMCACHED is None:
        pytest.skip("memcached is not installed")
    running = Memcached()
    yield running
    running.stop()


def fill(path: Path, shift: float = 0.0) -> fb.Federation:
    """Make a federation with a series of several windows, and with events."""
    fed = fb.create(path)
    with fed.transaction(message="conditions and events") as txn:
        gains = txn.series("tpc/gain", Gain, create=True)
        since = np.arange(INTERVALS) * 10
        for channel in (0, 1):
            values = {"value": since / 7 + channel + shift, "status": np.zeros(INTERVALS, int)}
            gains.extend(values, since=since, until=since + 8, channel=channel)
        events = txn.database("run7", create=True).container("events", Level, create=True)
        events.extend({"value": np.random.default_rng(int(shift)).random(200_000)})
    return fed


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[fb.Federation, fb.Server]]:
    """That federation, which no test changes, and a server of it."""
    with (
        fill(tmp_path_factory.mktemp("served") / "lhc.fed") as fed,
        fb.serve(fed.path, port=0, address="127.0.0.1", anonymous="all", config=QUICK_STOP) as server,
    ):
        yield fed, server


@pytest.fixture
def changed(
    served: tuple[fb.Federation, fb.Server], tmp_path: Path
) -> Iterator[tuple[fb.Federation, fb.Server]]:
    """A copy of it for a test that changes it, and a server of the copy."""
    shutil.copytree(served[0].path, tmp_path / "lhc.fed")
    with (
        fb.open(tmp_path / "lhc.fed") as fed,
        fb.serve(fed.path, port=0, address="127.0.0.1", anonymous="all", config=QUICK_STOP) as server,
    ):
        yield fed, server


@pytest.fixture(scope="module")
def expected(served: tuple[fb.Federation, fb.Server]) -> list[float | None]:
    """The values in the federation itself."""
    return look_up(served[0])


SCRIPT = """
import json, sys
import tier_reads
found, statistics = tier_reads.read(sys.argv[1], **json.loads(sys.argv[2]))
print(json.dumps([found, {name: tier.bytes for name, tier in statistics.items()}]))
"""


def test_second_process_reads_no_page_from_the_server(
    served: tuple[fb.Federation, fb.Server],
    expected: list[float | None],
    memcached: Memcached,
    tmp_path: Path,
) -> None:
    _, server = served

    def run(folder: str) -> tuple[dict[str, int], int]:
        """Look up in another process; return the bytes by tier, and those that the server read."""
        options = {"disk_cache": str(tmp_path / folder), "memcached": memcached.address}
        before = server.status()["totals"]["bytes_read"]
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, server.url("/lhc.fed"), json.dumps(options)],
            cwd=Path(__file__).parent, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found, read = json.loads(done.stdout)
        assert found == expected
        return read, server.status()["totals"]["bytes_read"] - before

    first, from_server = run("first")
    assert from_server >= first["server"] > 1 << 20
    for folder, is_disk_new in (("first", False), ("second", True), ("second", False)):
        later, from_server = run(folder)
        # The server counts its answers to logins and to the opening of files, too.
        assert (later["server"], from_server < 2_000) == (0, True)
        assert (later["memcached"] > 1 << 20) == is_disk_new
        assert is_disk_new or later["memcached"] == 0, "the disk has all"


@pytest.mark.parametrize("streams", [0, 2])
@pytest.mark.parametrize("read_ahead", [0, 1 << 20])
def test_objects_read_one_by_one_are_in_the_tiers_afterwards(
    served: tuple[fb.Federation, fb.Server],
    memcached: Memcached,
    tmp_path: Path,
    streams: int,
    read_ahead: int,
) -> None:
    _, server = served
    for tiers in ({"memcached": memcached.address}, {"disk_cache": tmp_path / "kept"}):
        for is_first in (True, False):
            with fb.open(
                server.url("/lhc.fed"), streams=streams, read_ahead_bytes=read_ahead, **tiers
            ) as fed:
                for _ in fed["run7/events"]:
                    pass
                *_, server_statistics = fed.read_statistics()
            assert (server_statistics.bytes > 0) == is_first


def test_damaged_bytes_of_the_disk_cache_are_read_again_and_replaced(
    served: tuple[fb.Federation, fb.Server], expected: list[float | None], tmp_path: Path
) -> None:
    _, server = served
    url, kept = server.url("/lhc.fed"), tmp_path / "kept"
    assert read(url, disk_cache=kept)[0] == expected
    files = list(tmp_path.rglob("*.bytes"))
    assert len(files) == 2

    def flip(path: Path) -> None:
        flip_bits(path, 100)

    def zero(path: Path) -> None:
        path.write_bytes(bytes(path.stat().st_size))

    def truncate(path: Path) -> None:
        os.truncate(path, path.stat().st_size // 2)

    for damage in (flip, zero, truncate):
        for path in files:
            damage(path)
        found, statistics = read(url, disk_cache=kept)
        assert found == expected, damage.__name__
        assert statistics["disk cache"].damaged > 0, damage.__name__
        assert statistics["server"].bytes > 0, damage.__name__
        found, statistics = read(url, disk_cache=kept)
        assert found == expected
        assert (statistics["disk cache"].damaged, statistics["server"].bytes) == (0, 0), damage.__name__


def test_damage_at_the_server_is_an_error_and_no_fault_of_the_caches(
    changed: tuple[fb.Federation, fb.Server], memcached: Memcached, tmp_path: Path
) -> None:
    fed, server = changed
    (file,) = Path(fed.path).rglob("run7.root")
    content = bytearray(file.read_bytes())
    pattern = fed["run7/events"].arrays("value").value.to_numpy()[50_000:50_002].tobytes()
    at = content.find(pattern)
    if at < 0:
        at = len(content) // 2
    content[at] ^= 1
    file.write_bytes(content)
    kept = tmp_path / "kept"
    for _ in range(2):
        with fb.open(server.url("/lhc.fed"), disk_cache=kept, memcached=memcached.address) as remote:
            with pytest.raises(fb.CorruptError, match="checksum"):
                remote["run7/events"].arrays("value")
            assert all(tier.damaged == 0 for tier in remote.read_statistics())


@pytest.mark.parametrize("kind", GARBLED)
def test_garbled_values_of_memcached_are_a_miss_and_are_counted(
    served: tuple[fb.Federation, fb.Server], expected: list[float | None], memcached: Memcached, kind: str
) -> None:
    _, server = served
    url = server.url("/lhc.fed")
    read(url, memcached=memcached.address)
    values = memcached.values()
    assert len(values) > 20
    memcached.set(GARBLED[kind](values, random.Random(7)))
    found, statistics = read(url, memcached=memcached.address)
    assert found == expected
    assert statistics["memcached"].damaged >= len(values) / 2
    found, statistics = read(url, memcached=memcached.address)
    assert found == expected
    assert (statistics["memcached"].damaged, statistics["server"].bytes) == (0, 0)


def test_values_of_another_federation_are_refused(
    served: tuple[fb.Federation, fb.Server],
    expected: list[float | None],
    memcached: Memcached,
    tmp_path: Path,
) -> None:
    _, server = served
    url = server.url("/lhc.fed")
    read(url, memcached=memcached.address)
    own = memcached.values()
    with fill(tmp_path / "other" / "sps.fed", shift=1.0) as other, fb.serve(other.path, port=0) as beside:
        read(beside.url("/sps.fed"), memcached=memcached.address)
    foreign = {key: value for key, value in memcached.values().items() if key not in own}
    by_number = {key.rpartition(":")[2]: value for key, value in foreign.items()}
    memcached.set(
        {key: by_number[key.rpartition(":")[2]] for key in own if key.rpartition(":")[2] in by_number}
    )
    found, statistics = read(url, memcached=memcached.address)
    assert found == expected
    assert statistics["memcached"].damaged > len(own) / 2


def test_values_of_a_copy_with_another_history_are_not_used(
    changed: tuple[fb.Federation, fb.Server], memcached: Memcached, tmp_path: Path
) -> None:
    fed, server = changed
    shutil.copytree(fed.path, tmp_path / "copy" / "lhc.fed")
    with fb.open(tmp_path / "copy" / "lhc.fed") as copy:
        for each, value in ((fed, 1.0), (copy, 2.0)):
            with each.transaction() as txn:
                txn.series("tpc/gain").put(Gain(value=value), since=0, until=1_000)
        with fb.serve(copy.path, port=0) as other:
            for reader, url in ((copy, other.url("/lhc.fed")), (fed, server.url("/lhc.fed"))):
                found, _ = read(url, memcached=memcached.address)
                assert found == look_up(reader)


def test_memcached_may_die_and_return(
    served: tuple[fb.Federation, fb.Server], expected: list[float | None], memcached: Memcached
) -> None:
    _, server = served
    with fb.open(server.url("/lhc.fed"), memcached=memcached.address, cache_bytes=1 << 20) as remote:
        assert look_up(remote) == expected
        memcached.stop()
        for _ in range(3):
            assert remote["run7/events"].arrays("value").value.to_list() == expected[6_000:-1]
        statistics = {tier.name: tier for tier in remote.read_statistics()}
        assert statistics["memcached"].failures == 1
        memcached.start()
        end = time.monotonic() + 60
        while not memcached.values():
            assert time.monotonic() < end, "it is not used again"
            remote["run7/events"].arrays("value")
            time.sleep(0.2)


@pytest.mark.parametrize("state", ["stopped", "absent"])
def test_silent_or_absent_memcached_is_left_out_after_one_time_out(
    served: tuple[fb.Federation, fb.Server], expected: list[float | None], memcached: Memcached, state: str
) -> None:
    _, server = served
    read(server.url("/lhc.fed"), memcached=memcached.address)
    if state == "stopped":
        stop_process(memcached.process)
    else:
        memcached.stop()
    found, statistics = read(server.url("/lhc.fed"), memcached=memcached.address, streams=0)
    assert found == expected
    assert (statistics["memcached"].hits, statistics["memcached"].failures) == (0, 1)


def test_full_memcached_only_forgets_values(
    served: tuple[fb.Federation, fb.Server], expected: list[float | None]
) -> None:
    if MEMCACHED is None:
        pytest.skip("memcached is not installed")
    (_, server), full = served, Memcached(megabytes=1)
    try:
        for _ in range(3):
            found, statistics = read(server.url("/lhc.fed"), memcached=full.address)
            assert found == expected
            assert (statistics["memcached"].damaged, statistics["memcached"].failures) == (0, 0)
        assert statistics["memcached"].misses > 0
    finally:
        full.stop()


def test_one_of_several_servers_may_die(
    served: tuple[fb.Federation, fb.Server], expected: list[float | None], memcached: Memcached
) -> None:
    (_, server), second = served, Memcached()
    try:
        addresses = [memcached.address, second.address]
        read(server.url("/lhc.fed"), memcached=addresses)
        shares = [len(each.values()) for each in (memcached, second)]
        assert min(shares) > sum(shares) / 10
        second.stop()
        found, statistics = read(server.url("/lhc.fed"), memcached=addresses)
        assert found == expected
        assert statistics["memcached"].hits > 0
    finally:
        second.stop()


def test_addresses_of_another_form_are_refused(served: tuple[fb.Federation, fb.Server]) -> None:
    fed, server = served
    with pytest.raises(fb.InvalidError, match=r'memcached "cache1:": give .* as "host:port"'):
        fb.open(server.url("/lhc.fed"), memcached=["cache1:"])
    assert fed.read_statistics() == []


# ---- against a plain model


CHANGE = st.tuples(
    st.sampled_from(["put", "put", "extend", "end", "correct"]),
    st.integers(0, 2),
    st.integers(0, END),
    st.integers(1, END),
)
FAULT = st.sampled_from([*GARBLED, "disk", "zeros", "died", "none"])


def strike(fault: str, memcached: Memcached, folder: Path, seed: int) -> None:
    """Damage what a tier has."""
    if fault == "died":
        memcached.stop()
        memcached.start()
    elif fault in GARBLED:
        memcached.set(GARBLED[fault](memcached.values(), random.Random(seed)))
    elif fault != "none":
        for path in folder.rglob("*.bytes"):
            if fault == "zeros":
                path.write_bytes(bytes(path.stat().st_size))
            else:
                flip_bits(path, 200)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.lists(CHANGE, min_size=1, max_size=4), FAULT, st.integers(0, 2)), min_size=1, max_size=5
    ),
    st.sampled_from(["newest", "open"]),
)
def test_no_fault_between_tiers_gives_a_value_that_the_plain_list_would_not_give(
    tmp_path_factory: pytest.TempPathFactory,
    memcached: Memcached,
    steps: list[tuple[list[tuple[str, int, int, int]], str, int]],
    overlap: Literal["newest", "open"],
) -> None:
    folder = tmp_path_factory.mktemp("model")
    plain, expected = Plain(overlap), {}
    with (
        fb.create(folder / "m.fed") as fed,
        fb.serve(fed.path, port=0, address="127.0.0.1", anonymous="all", config=QUICK_STOP) as server,
    ):
        for number, (changes, fault, disk) in enumerate(steps):
            with fed.transaction() as txn:
                series = txn.series("tpc/gain", Level, create=True, overlap=overlap)
                for change in changes:
                    plain.apply(series, *change)
            csn = txn.csn or fed.head()
            expected[csn] = [[plain.at(channel, t) for t in range(2 * END)] for channel in range(3)]
            strike(fault, memcached, folder, number)
            disk_cache = folder / f"kept{disk}" if disk else None
            with fb.open(server.url("/m.fed"), disk_cache=disk_cache, memcached=memcached.address) as remote:
                for csn, answers in expected.items():
                    conditions = remote.conditions(csn=csn)["tpc/gain"]
                    for channel in range(3):
                        found = conditions.at(range(2 * END), "value", channel=channel).to_list()
                        assert [row and row["value"] for row in found] == answers[channel], (csn, fault)
