"""Partitions of views: small when pickled, opened where they are read, and together the whole view."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import pickle
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
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
    with pytest.raises(fb.UnsupportedError, match="picked objects are no ranges"):
        view[[3, 1]].partitions()
    with fed.transaction() as txn, pytest.raises(fb.InvalidError, match="commit first"):
        txn["d/events"].partitions()
    assert view[:0].partitions() == []
