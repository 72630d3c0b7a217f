"""Partitions of views: small when pickled, opened where they are read, and together the whole view."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import pickle
import shutil
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import femtobarn as fb
from femtobarn._views.partitions import Partition

FORM = {"name": "Event", "fields": [{"name": "n", "type": "int64"}, {"name": "text", "type": "string"}]}


def total(part: Partition) -> tuple[int, int]:
    """The sum of a partition's numbers, and the process that computed it."""
    return int(part.arrays("n", library="np")["n"].sum()), os.getpid()


@pytest.fixture
def view(fed: fb.Federation) -> fb.View:
    with fed.transaction() as txn:
        events = txn.database("d", create=True).container(
            "events", FORM, create=True, page_size="4 KiB", cluster_size="16 KiB"
        )
        for first in range(0, 20_000, 4000):
            texts = ["x" * 20] * 4000
            events.extend({"n": np.arange(first, first + 4000), "text": texts})
        events.delete(range(10, 20))
    return fed["d/events"]


@pytest.mark.parametrize("kind", ["spawn", "fork", "threads"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_partitions_are_read_in_other_processes_and_threads(view: fb.View, kind: str) -> None:
    parts = view.partitions("100 kB")
    assert len(parts) > 3
    assert all(len(pickle.dumps(part)) < 2000 for part in parts)
    pool: Any = ThreadPoolExecutor(2)
    if kind != "threads":
        pool = ProcessPoolExecutor(2, multiprocessing.get_context(kind))
    with pool:
        found = list(pool.map(total, parts))
    assert sum(each for each, _ in found) == sum(range(20_000)) - sum(range(10, 20))
    assert (os.getpid() in {process for _, process in found}) == (kind == "threads")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_reads_the_partitions_that_it_inherited(view: fb.View) -> None:
    part = view.partitions(5000)[1]
    expected = total(part)[0]
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    process = context.Process(target=lambda: queue.put(total(part)[0]))
    process.start()
    assert queue.get() == expected
    process.join()
    assert process.exitcode == 0


def test_a_process_opens_a_view_once_for_all_its_partitions(view: fb.View) -> None:
    """More partitions than views that a process keeps open were each opened anew, whenever they were read."""
    parts: list[Partition] = pickle.loads(pickle.dumps(view.partitions(500)))
    assert len(parts) > 30
    assert len({id(part.view._handle) for part in parts}) == 1
    assert sum(total(part)[0] for part in parts) == total(view.partitions(10**6)[0])[0]


@pytest.mark.parametrize("size", [1, 700, 4000, 10**6, "1 kB", "50 kB", "1 GB"])
def test_partitions_follow_each_other_and_are_of_the_size(view: fb.View, size: int | str) -> None:
    part_of = view[1000:9000]
    parts = part_of.partitions(size)
    windows = [part.view._window for part in parts]
    assert windows[0].start == part_of._window.start
    assert windows[-1].stop == part_of._window.stop
    assert all(one.stop == other.start for one, other in itertools.pairwise(windows))
    assert len({part.key for part in parts}) == len(parts)
    assert [part.num_entries for part in parts] == [len(window) for window in windows]
    edges = {edge for start, stop, _ in view._handle.cluster_sizes(["n"]) for edge in (start, stop)}
    if isinstance(size, int):
        assert max(part.num_entries for part in parts) <= size
    else:
        assert {window.stop for window in windows[:-1]} <= edges
        largest = max(nbytes for _, _, nbytes in view._handle.cluster_sizes(["n", "text"]))
        assert max(part.nbytes for part in parts) <= max(largest, fb._sizes.bytes_of_size(size))


def test_partitions_are_sized_by_the_columns_that_are_meant(view: fb.View) -> None:
    narrow, whole = view.partitions("40 kB", "n"), view.partitions("40 kB")
    assert len(narrow) < len(whole)
    assert sum(part.nbytes for part in narrow) < sum(part.nbytes for part in whole)


def test_wrong_sizes_and_picked_objects_are_refused(view: fb.View, fed: fb.Federation) -> None:
    for size in (0, -1, "0 B"):
        with pytest.raises(fb.InvalidError, match=r"1 or more|1 byte or more"):
            view.partitions(size)
    with pytest.raises(fb.UnsupportedError, match="picked objects are not ranges"):
        view[[3, 1]].partitions()
    with fed.transaction() as txn, pytest.raises(fb.InvalidError, match="commit first"):
        txn["d/events"].partitions()
    assert view[:0].partitions() == []


def test_vacuum_keeps_the_snapshot_of_unread_partitions(view: fb.View, fed: fb.Federation) -> None:
    def delete(entries: range) -> None:
        with fed.transaction() as txn:
            txn.database("d").container("events").delete(entries)

    delete(range(20, 30))
    parts, csn = fed[view.name].partitions(5000), fed.head()
    delete(range(30, 40))
    gc.collect()
    assert csn in fed.vacuum(keep_from=fed.head()).kept
    assert sum(len(part.view) for part in parts) == len(fed[view.name]) + 10


def test_a_process_reads_and_writes_the_federation_that_has_the_place_now(tmp_path: Path) -> None:
    """A worker lives longer than a federation that is made anew."""
    left = []
    for first in (0, 100):
        shutil.rmtree(tmp_path / "lhc.fed", ignore_errors=True)
        with fb.create(tmp_path / "lhc.fed") as fed:
            with fed.transaction() as txn:
                events = txn.database("d", create=True).container("events", FORM, create=True)
                events.extend({"n": [first], "text": ["a"]})
            [part] = fed["d/events"].partitions()
            assert total(part)[0] == first
            with fed.transaction() as txn:
                txn.database("d").container("events")
                with pickle.loads(pickle.dumps(txn.fork())).task(part.key) as task:
                    task["d/events"].extend(part.arrays())
                txn.merge([task.receipt])
            assert fed["d/events"]["n"].to_list() == [first, first]
            left.append(pickle.dumps(fed["d/events"]))
    with pytest.raises(fb.FemtobarnError, match="another"):
        pickle.loads(left[0])
