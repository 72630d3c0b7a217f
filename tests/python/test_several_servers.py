"""A federation read from several servers: no read fails while one of them has the bytes, and none is wrong.

The servers are real ones; they fail behind proxies, or are stopped and started.
"""

from __future__ import annotations

import pickle
import random
import shutil
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import sleep

import numpy as np
import pytest
from condition_samples import Gain, Level
from faulty_tiers import flip_bits
from server_copies import Copies, Mode
from waiting import wait_for

import femtobarn as fb

INTERVALS = 3_000
EVENTS = 50_000
TIMEOUT = 120.0
"""Longer than any test waits, so that only what never ends fails."""


def fill(path: Path) -> fb.Federation:
    """Make a federation with conditions, and with events of some pages."""
    fed = fb.create(path)
    with fed.transaction(message="conditions and events") as txn:
        since = np.arange(INTERVALS) * 10
        values = {"value": since / 7, "status": np.zeros(INTERVALS, int)}
        txn.series("tpc/gain", Gain, create=True).extend(values, since=since, until=since + 8)
        events = txn.database("run7", create=True).container("events", Level, create=True)
        events.extend({"value": np.random.default_rng(5).random(EVENTS)})
    return fed


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    """Three of them."""
    with Copies(tmp_path, 3, fill) as made:
        yield made


def insert(folder: Path, value: float) -> int:
    """Put a condition into all later moments of the series; returns the commit."""
    with fb.open(folder) as fed:
        with fed.transaction(message="late") as txn:
            txn.series("tpc/gain").put(Gain(value=value, status=0), since=100)
        return fed.head()


def events_sum(fed: fb.Federation | fb.Snapshot) -> float:
    return float(np.sum(fed["run7/events"].arrays("value").value.to_numpy()))


EVENTS_SUM = float(np.sum(np.random.default_rng(5).random(EVENTS)))


def hits(fed: fb.Federation) -> list[int]:
    return [row.hits for row in fed.read_statistics()]


def read_until_hit(fed: fb.Federation, number: int) -> None:
    """Read until a server has answered again."""
    before = hits(fed)[number]

    def is_hit() -> bool:
        assert events_sum(fed) == EVENTS_SUM
        return hits(fed)[number] > before

    wait_for(is_hit)


def test_all_servers_are_read_from(copies: Copies) -> None:
    with fb.open(copies.urls, read_ahead_bytes=0, cache_bytes=0) as fed:
        assert fed.path == ",".join(copies.urls)
        for number in range(3):
            read_until_hit(fed, number)
        rows = fed.read_statistics()
        assert [row.name for row in rows] == copies.urls
        assert [row.failures for row in rows] == [0, 0, 0]
        assert sum(row.bytes for row in rows) > EVENTS * 8
    job = fb.conditions(",".join(copies.urls))
    assert job["tpc/gain"].at(75).value == 10
    again = pickle.loads(pickle.dumps(job))
    assert again.csn == job.csn
    assert again["tpc/gain"].at(79) is None


def test_nothing_is_changed_through_several_servers(copies: Copies) -> None:
    with fb.open(copies.urls[:2]) as fed:
        with (
            pytest.raises(fb.DeniedError, match="is read-only"),
            fed.transaction() as txn,
        ):
            txn.series("tpc/gain").put(Gain(value=1, status=0), since=0)
        with pytest.raises(fb.DeniedError, match="open the federation at one server to write"):
            fed.tag("today")


def test_wrong_lists_of_servers_are_refused(copies: Copies, tmp_path: Path) -> None:
    with pytest.raises(fb.InvalidError, match="no server was named"):
        fb.open([])
    copies.proxies[0].set("cut")
    copies.proxies[1].set("cut")
    with pytest.raises(fb.UnavailableError, match=f"{copies.proxies[0].port}"):
        fb.open(copies.urls[:2])
    other = fb.create(tmp_path / "lhc.fed")
    with fb.serve(other.path, port=0, address="127.0.0.1") as server:
        url = server.url("/lhc.fed")
        with pytest.raises(fb.InvalidError, match='is not a copy of "lhc"'):
            fb.open([copies.urls[2], url])


@pytest.mark.parametrize("fault", ["cut", "silent", "dripping"])
@pytest.mark.parametrize("after", [0, 100_000])
def test_reads_continue_at_another_server(copies: Copies, fault: Mode, after: int) -> None:
    """The fault begins between two answers, or in the middle of one; later the server is asked again."""
    with fb.open(copies.urls[:2], timeout=TIMEOUT, read_ahead_bytes=0, cache_bytes=0) as fed:
        job = fed.conditions()
        assert events_sum(fed) == EVENTS_SUM
        copies.proxies[0].set(fault, after)
        for moment in range(0, INTERVALS * 10, 1_000):
            assert job["tpc/gain"].at(moment).value == moment / 7
        with ThreadPoolExecutor(4) as threads:
            for found in threads.map(lambda _: events_sum(fed), range(8)):
                assert found == EVENTS_SUM
        if fault != "dripping":
            wait_for(lambda: events_sum(fed) == EVENTS_SUM and fed.read_statistics()[0].failures > 0)
        copies.proxies[0].set("pass")
        read_until_hit(fed, 0)


def test_the_last_server_may_be_away_for_a_while(copies: Copies) -> None:
    with fb.open(copies.urls[:2], timeout=TIMEOUT, cache_bytes=0) as fed:
        snapshot = fed.snapshot()
        for proxy in copies.proxies[:2]:
            proxy.set("cut")
        with ThreadPoolExecutor(1) as thread:
            found = thread.submit(events_sum, snapshot)
            wait_for(lambda: sum(row.failures for row in fed.read_statistics()) >= 1)
            assert not found.done()
            copies.stop(1)
            copies.start(1)
            copies.proxies[1].set("pass")
            assert found.result(TIMEOUT) == EVENTS_SUM


def test_no_server_at_all_is_unavailable_after_the_time_out(copies: Copies) -> None:
    with fb.open(copies.urls, timeout=6.0) as fed:
        job = fed.conditions()
        for proxy in copies.proxies:
            proxy.set("cut")
        with pytest.raises(
            fb.UnavailableError, match="no server that has commit 1 answered within 6 s"
        ) as caught:
            job["tpc/gain"].at(5)
        assert all(url in str(caught.value) for url in copies.urls)


def test_a_copy_that_is_behind_is_asked_once_it_has_caught_up(copies: Copies) -> None:
    copies.stop(0)
    newest = insert(copies.folders[0], -1.0)
    copies.start(0)
    with fb.open(copies.urls[:2], timeout=TIMEOUT, read_ahead_bytes=0, cache_bytes=0) as fed:
        old, job = fed.conditions(csn=newest - 1), fed.conditions()
        assert job.csn == newest
        for moment in range(500, 900, 10):
            assert job["tpc/gain"].at(moment).value == -1.0
        assert hits(fed)[1] == 0, "it does not have the commit"
        for moment in range(500, 900, 10):
            assert old["tpc/gain"].at(moment).value == moment / 7
        copies.copy_again(1)
        read_until_hit(fed, 1)
        assert fb.open(copies.urls[1]).head() == newest


def test_a_job_reads_as_of_its_commit_whatever_is_inserted(copies: Copies) -> None:
    with fb.open(copies.urls, timeout=TIMEOUT, cache_bytes=0) as fed:
        job = fed.conditions()
        for number in (0, 1, 2):
            copies.stop(number)
            if number == 0:
                insert(copies.folders[0], -1.0)
                copies.start(0)
            else:
                copies.copy_again(number)
            assert job["tpc/gain"].at(700).value == 100.0
        wait_for(lambda: fed.head() == job.csn + 1)
        assert fed.conditions()["tpc/gain"].at(700).value == -1.0


def test_a_copy_with_another_history_is_left_out(copies: Copies) -> None:
    for number in (0, 1):
        copies.stop(number)
        insert(copies.folders[number], float(number))
        copies.start(number)
    with fb.open(copies.urls[:2], timeout=6.0, read_ahead_bytes=0, cache_bytes=0) as fed:
        job = fed.conditions()
        for moment in range(500, 900, 10):
            assert job["tpc/gain"].at(moment).value == 0.0
        assert fed.read_statistics()[1].hits == 0
        assert fed.read_statistics()[1].failures > 0
        copies.proxies[0].set("cut")
        with pytest.raises(fb.UnavailableError, match="another commit 2 than the other servers"):
            events_sum(fed)
    # The order of the list decides which history is that of the federation.
    copies.proxies[0].set("pass")
    assert fb.conditions([copies.urls[1], copies.urls[0]])["tpc/gain"].at(500).value == 1.0


def test_copies_with_different_histories_are_distinguished_without_a_snapshot(copies: Copies) -> None:
    """Both had been admitted; then each has a second commit of its own."""
    with fb.open(copies.urls[:2], timeout=6.0) as fed:
        assert fed.head() == 1
        insert(copies.folders[0], 0.0)
        wait_for(lambda: fed.head() == 2)
        sleep(2.5)  # Each server is visited once a second.
        copies.stop(1)
        insert(copies.folders[1], 1.0)
        failures = fed.read_statistics()[1].failures
        copies.start(1)
        wait_for(lambda: fed.read_statistics()[1].failures > failures + 1)
        copies.proxies[0].set("cut")
        with pytest.raises(fb.UnavailableError, match="has another commit 2 than the other servers"):
            fed.head()


def test_a_server_that_returns_with_another_history_is_left_out(copies: Copies) -> None:
    with fb.open(copies.urls[:2], timeout=TIMEOUT, read_ahead_bytes=0, cache_bytes=0) as fed:
        insert(copies.folders[0], 0.0)
        copies.copy_again(1)
        wait_for(lambda: fed.head() == 2)
        job = fed.conditions()
        copies.stop(1)
        # An older copy that went on by itself.
        with fb.open(copies.folders[1]) as other:
            for value in (3.0, 4.0):
                with other.transaction() as txn:
                    txn.series("tpc/gain").put(Gain(value=value, status=0), since=0)
        shutil.rmtree(copies.folders[1])
        fill(copies.folders[1]).close()
        copies.start(1)
        failures = fed.read_statistics()[1].failures
        before = hits(fed)[1]
        wait_for(lambda: fed.read_statistics()[1].failures > failures)
        for moment in range(500, 900, 10):
            assert job["tpc/gain"].at(moment).value == 0.0
        assert hits(fed)[1] == before


def test_damaged_pages_of_one_copy_are_read_from_the_others(copies: Copies) -> None:
    copies.stop(0)
    for file in sorted(copies.folders[0].rglob("*.root")):
        flip_bits(file, 40)
    copies.start(0)
    with fb.open(copies.urls[:2], timeout=TIMEOUT, read_ahead_bytes=0, cache_bytes=0) as fed:
        for _ in range(6):
            assert events_sum(fed) == EVENTS_SUM


@pytest.mark.parametrize("fault", ["read:1+=EIO", "read:2+=EIO", "open:1+=EACCES", "read:1+=short:100"])
def test_a_failing_disk_of_one_server_fails_no_read(copies: Copies, fault: str) -> None:
    copies.stop(0)
    copies.start(0, f'faults = ["{fault}"]')
    with fb.open(copies.urls[:2], timeout=TIMEOUT, read_ahead_bytes=0, cache_bytes=0) as fed:
        wait_for(lambda: events_sum(fed) == EVENTS_SUM and fed.read_statistics()[0].failures > 0)
        assert fed.conditions()["tpc/gain"].at(70).value == 10


def test_a_slow_server_is_spared(copies: Copies) -> None:
    """Of requests that would be spread evenly, it gets few."""
    copies.stop(0)
    copies.start(
        0, "throttle = { bytes_per_second = 2_000_000, seeks_per_second = 20, cache_bytes = 65_536 }"
    )
    with fb.open(copies.urls, timeout=TIMEOUT, read_ahead_bytes=0, cache_bytes=0) as fed:
        for _ in range(60):
            assert events_sum(fed) == EVENTS_SUM
        slow, *others = hits(fed)
        assert slow < min(others) / 2, hits(fed)


def test_a_file_that_one_copy_lacks_is_read_from_the_others(copies: Copies) -> None:
    copies.stop(0)
    (file,) = (path for path in copies.folders[0].rglob("*.root") if "run7" in path.name)
    file.rename(file.with_suffix(".away"))
    copies.start(0)
    with fb.open(copies.urls[:2], timeout=TIMEOUT, cache_bytes=0) as fed:
        for _ in range(6):
            assert events_sum(fed) == EVENTS_SUM
        assert fed.conditions()["tpc/gain"].at(70).value == 10


def test_a_snapshot_is_pinned_at_every_server(copies: Copies) -> None:
    insert(copies.folders[0], 1.0)
    copies.copy_again(1)

    def kept(number: int) -> list[int]:
        with fb.open(copies.folders[number]) as here:
            here.set_retention(keep_commits=1)
            return list(here.vacuum().kept)

    with fb.open(copies.urls[:2], timeout=TIMEOUT, cache_bytes=0) as fed:
        job = fed.conditions(csn=1)
        assert [1 in kept(number) for number in (0, 1)] == [True, True]
        copies.proxies[0].set("cut")
        assert job["tpc/gain"].at(700).value == 100.0
        copies.proxies[0].set("pass")
    del job
    wait_for(lambda: not any(1 in kept(number) for number in (0, 1)))


def test_no_fault_gives_a_value_that_a_single_server_would_not_give(copies: Copies) -> None:
    """Random faults at two of three servers, while threads look up and each job keeps its commit."""
    rng = random.Random(20261125)
    has_ended = threading.Event()
    answered = [0] * 3

    def look_up(thread: int) -> None:
        own = random.Random(thread)
        with fb.open(
            copies.urls, timeout=TIMEOUT, read_ahead_bytes=own.choice([0, 1 << 20]), cache_bytes=0
        ) as fed:
            series = fed.conditions()["tpc/gain"]
            while not has_ended.is_set():
                moment = own.randrange(INTERVALS * 10)
                found = series.at(moment)
                expected = None if moment % 10 >= 8 else moment // 10 * 10 / 7
                assert (None if found is None else found.value) == expected
                if own.random() < 0.2:
                    assert events_sum(fed) == EVENTS_SUM
                answered[thread] += 1

    with ThreadPoolExecutor(3) as threads:
        looking = [threads.submit(look_up, thread) for thread in range(3)]
        wait_for(lambda: all(answered) or any(it.done() for it in looking))
        for _ in range(5):
            faulty = rng.sample(range(3), 2)
            for number in faulty:
                faults: list[Mode] = ["cut", "silent", "dripping"]
                copies.proxies[number].set(rng.choice(faults), rng.choice([0, 0, 10_000]))
            before = list(answered)

            def have_all_answered(before: list[int] = before) -> bool:
                return all(now > then for now, then in zip(answered, before, strict=True))

            wait_for(lambda: have_all_answered() or any(it.done() for it in looking))
            for number in faulty:
                copies.proxies[number].set("pass")
        has_ended.set()
        for it in looking:
            it.result(TIMEOUT)
