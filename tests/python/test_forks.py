"""Tasks in threads, other processes and clients of a server write for one transaction, each exactly once."""

from __future__ import annotations

import multiprocessing
import pickle
import signal
import sqlite3
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
import pytest
from server_settings import QUICK_STOP

import femtobarn as fb

EVENTS = "run7/events"
FORM = {
    "name": "Event",
    "fields": [{"name": "n", "type": "int64"}, {"name": "pt", "type": {"list": "float32"}}],
}


def rows(first: int, count: int) -> ak.Array:
    numbers = np.arange(first, first + count)
    return ak.zip(
        {"n": numbers, "pt": ak.unflatten(np.ones(int((numbers % 3).sum()), np.float32), numbers % 3)},
        depth_limit=1,
    )


def write(fork: fb.Fork, first: int, count: int = 1000) -> fb.Receipt:
    """A task: some events."""
    with fork.task(f"from {first}") as task:
        half = count // 2
        task[EVENTS].extend(rows(first, half))
        for event in rows(first + half, count - half).to_list():
            task[EVENTS].append(event)
    return task.receipt


def write_and_die(fork: fb.Fork, first: int) -> None:
    """A task that is killed after it wrote."""
    with fork.task(f"from {first}") as task:
        task[EVENTS].extend(rows(first, 50_000))
        signal.raise_signal(signal.SIGKILL)


def begin_many_and_die(fork: fb.Fork, firsts: range) -> None:
    """Many tasks at once, whose process is killed when all have written."""
    tasks = [fork.task(f"from {first}") for first in firsts]
    for first, task in zip(firsts, tasks, strict=True):
        task[EVENTS].extend(rows(first, 1000))
    signal.raise_signal(signal.SIGKILL)


def opened(txn: fb.Transaction) -> fb.ContainerWriter:
    return txn.database("run7", create=True).container("events", FORM, create=True)


def numbers(fed: fb.Federation) -> list[int]:
    found: list[int] = fed[EVENTS]["n"].to_list()
    return found


def assert_intact(fed: fb.Federation) -> None:
    assert fed.check(full=True).problems == []


@pytest.mark.parametrize("kind", ["spawn", "fork", "forkserver", "threads"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_tasks_of_other_processes_and_threads_write_for_one_commit(fed: fb.Federation, kind: str) -> None:
    with fed.transaction(message="many") as txn:
        opened(txn).extend(rows(-2, 2))
        fork = txn.fork()
        assert len(pickle.dumps(fork)) < 2000
        if kind == "threads":
            pool: Any = ThreadPoolExecutor(3)
        else:
            pool = ProcessPoolExecutor(2, multiprocessing.get_context(kind))
        firsts = range(0, 8000, 1000)
        with pool:
            receipts = list(pool.map(write, [fork] * 8, firsts))
        assert all(len(pickle.dumps(each)) < 2000 for each in receipts)
        assert EVENTS not in fed
        assert txn.merge(reversed(receipts), [f"from {first}" for first in firsts]) == 8
        assert txn[EVENTS]["n"].to_list() == list(range(-2, 8000))
    assert numbers(fed) == list(range(-2, 8000))
    assert fed[EVENTS].arrays(where="n == 7500").pt.to_list() == [[]]
    assert fed[EVENTS][5002].pt.tolist() == [1.0, 1.0][: 5000 % 3]
    assert_intact(fed)


def test_clients_of_a_server_write_for_one_commit(tmp_path: Path) -> None:
    options: dict[str, Any] = {"address": "127.0.0.1", "anonymous": "all", "config": QUICK_STOP}
    context = multiprocessing.get_context("spawn")
    with (
        fb.create(tmp_path / "lhc.fed") as local,
        fb.serve(local.path, port=0, **options) as server,
        fb.open(server.url("/lhc.fed")) as far,
        ProcessPoolExecutor(2, context) as pool,
    ):
        for first in (0, 2000):  # The database is new, then it is not.
            with far.transaction() as txn:
                opened(txn)
                fork = txn.fork()
                txn.merge(pool.map(write, [fork] * 2, [first, first + 1000]))
                assert txn.merge([write(fork, first)]) == 0
            assert numbers(far) == list(range(first + 2000))
        assert numbers(local) == list(range(4000))
        assert_intact(local)


def test_a_task_whose_process_was_killed_leaves_nothing_and_counts_once_when_it_is_run_again(
    fed: fb.Federation,
) -> None:
    context = multiprocessing.get_context("spawn")
    with fed.transaction() as txn:
        opened(txn)
        fork = txn.fork()
        process = context.Process(target=write_and_die, args=(fork, 0))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        receipts = [write(fork, 1000), write(fork, 0), write(fork, 0)]
        with pytest.raises(fb.InvalidError, match=r"1 of 3 tasks have no receipt: 'from 2000'"):
            txn.merge(receipts, ["from 0", "from 1000", "from 2000"])
        assert txn.merge(receipts, ["from 0", "from 1000"]) == 2
    assert numbers(fed) == list(range(2000))
    assert_intact(fed)
    size = (Path(fed.path) / "databases/run7.root").stat().st_blocks
    report = fed.vacuum()
    assert report.garbage_bytes > 500_000
    assert (Path(fed.path) / "databases/run7.root").stat().st_blocks < size
    assert numbers(fed) == list(range(2000))
    assert_intact(fed)


def test_hundreds_of_tasks_that_all_die_are_named_and_leave_nothing(fed: fb.Federation) -> None:
    context = multiprocessing.get_context("spawn")
    groups = [range(first, first + 125) for first in range(0, 500, 125)]
    with fed.transaction() as txn:
        txn.database("run7", create=True).container("events", FORM, create=True, page_size="4 KiB")
        fork = txn.fork()
        processes = [context.Process(target=begin_many_and_die, args=(fork, group)) for group in groups]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        assert {process.exitcode for process in processes} == {-signal.SIGKILL}
        keys = [f"from {first}" for group in groups for first in group]
        with pytest.raises(fb.InvalidError, match=r"500 of 500 tasks have no receipt: 'from 0', .*, \.\.\.;"):
            txn.merge([], keys)
        txn.merge([write(fork, 0)], keys[:1])
    assert numbers(fed) == list(range(1000))
    assert fed.vacuum().garbage_bytes > 500 * 8000
    assert fed.vacuum().garbage_bytes == 0
    assert numbers(fed) == list(range(1000))
    assert_intact(fed)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_writes_with_the_fork_that_it_inherited_alone(fed: fb.Federation) -> None:
    """Transactions and tasks that were open when their process forked stay with the one that began them."""
    context = multiprocessing.get_context("fork")
    queue = context.SimpleQueue()
    with fed.transaction() as txn:
        opened(txn)
        fork = txn.fork()
        begun = fork.task("from 1000")
        begun[EVENTS].extend(rows(1000, 1000))

        def work() -> None:
            for call in (txn.fork, lambda: txn.merge([]), lambda: begun[EVENTS].extend(rows(0, 1))):
                with pytest.raises(fb.ClosedError, match="forked"):
                    call()
            queue.put(write(fork, 0))

        process = context.Process(target=work)
        process.start()
        process.join(60)
        assert process.exitcode == 0
        with begun:
            pass
        txn.merge([queue.get(), begun.receipt])
    assert numbers(fed) == list(range(2000))
    assert_intact(fed)


def test_a_task_that_fails_or_is_left_open_counts_for_nothing(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        opened(txn)
        fork = txn.fork()
        task = fork.task("open")
        task[EVENTS].extend(rows(0, 10))
        with pytest.raises(fb.ClosedError, match="its block has not ended, or ended with an error"):
            task.receipt  # noqa: B018
        with pytest.raises(fb.InvalidError, match="needs field 'pt'"), fork.task("broken") as broken:
            broken[EVENTS].extend({"n": [1]})
        with pytest.raises(fb.ClosedError, match="has no receipt"):
            broken.receipt  # noqa: B018
        with pytest.raises(fb.ClosedError, match="the task has ended"):
            broken[EVENTS].append({"n": 1, "pt": []})
        with fork.task("wrong") as wrong:
            with pytest.raises(fb.InvalidError, match="class Event needs field 'pt'"):
                wrong[EVENTS].extend({"n": [1]})
            with pytest.raises(fb.NotFoundError, match="did you mean 'run7/events'"):
                wrong["run7/event"]
        assert wrong.receipt.num_entries == 0
        assert txn.merge([wrong.receipt]) == 1
    assert numbers(fed) == []


def test_wrong_receipts_are_refused_with_the_reason(fed: fb.Federation, tmp_path: Path) -> None:
    with fed.transaction() as txn:
        with pytest.raises(fb.InvalidError, match="no container is open"):
            txn.fork()
        opened(txn)
        fork = txn.fork(EVENTS)
        good, other = write(fork, 0), write(fork, 1000)
        data = pickle.dumps(good)
        for place in (len(data) // 2, len(data) - 40):
            garbled = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
            with pytest.raises((fb.CorruptError, pickle.UnpicklingError)):
                pickle.loads(garbled)
        _, (path, uuid, plan) = fork.__reduce__()
        for of_another_version in (
            lambda: pickle.loads(data.replace(b"FBRCT\0\x001", b"FBRCT\0\x002")),
            lambda: fb.Fork(path, uuid, plan.replace(b"FBFRK\0\x001", b"FBFRK\0\x009")).task("a"),
        ):
            with pytest.raises(fb.UnsupportedError, match="the transaction and its tasks need the same one"):
                of_another_version()
        with pytest.raises(fb.WrongTypeError, match="takes the receipts of tasks, not bytes"):
            txn.merge([b"receipt"])  # type: ignore[list-item]
        with pytest.raises(fb.InvalidError, match="are not in tasks: 'from 1000'"):
            txn.merge([good, other], ["from 0"])
        with pytest.raises(fb.InvalidError, match="'from 0' is given to two tasks"):
            txn.merge([good, other], ["from 0", "from 1000", "from 0"])
        with pytest.raises(fb.InvalidError, match="the key of a task has 600 bytes"):
            fork.task("k" * 600)
        txn.rollback()
    with fed.transaction() as txn:
        opened(txn)
        with pytest.raises(fb.InvalidError, match="is of another transaction"):
            txn.merge([good])
        # Its file is removed, and another database has the name.
        with pytest.raises(fb.ClosedError, match="has ended; fork again"):
            write(pickle.loads(pickle.dumps(fork)), 0)
    with fb.create(tmp_path / "other.fed") as elsewhere, elsewhere.transaction() as txn:
        opened(txn)
        with pytest.raises(fb.InvalidError, match="is of another federation"):
            txn.merge([good])


def test_tasks_link_to_databases_that_the_fork_names(fed: fb.Federation) -> None:
    form = {"name": "Tag", "fields": [{"name": "event", "type": {"link": "Event"}}]}
    with fed.transaction() as txn:
        opened(txn).extend(rows(0, 5))
    oid = fed[EVENTS].oid(3)
    with fed.transaction() as txn:
        txn.database("tags", create=True).container("tags", form, create=True)
        with (
            txn.fork().task("a") as task,
            pytest.raises(fb.InvalidError, match="that the fork does not name"),
        ):
            task["tags/tags"].extend({"event": [oid]})
        with txn.fork(links=["run7"]).task("b") as task:
            task["tags/tags"].extend({"event": [oid, None]})
            task["tags/tags"].append({"event": oid})
        txn.merge([task.receipt])
    assert [tag.event and tag.event.n for tag in fed["tags/tags"]] == [3, None, 3]
    assert_intact(fed)


def test_databases_that_a_fork_names_need_no_task_that_links_to_them(fed: fb.Federation) -> None:
    form = {"name": "Tag", "fields": [{"name": "event", "type": {"link": "Event"}}]}
    with fed.transaction() as txn:
        opened(txn).extend(rows(0, 5))
        txn.database("tags", create=True).container("tags", form, create=True)
    oid = fed[EVENTS].oid(3)
    with fed.transaction() as txn:
        opened(txn)
        txn.database("tags").container("tags")
        fork = txn.fork(links=["run7"])
        txn.merge([write(fork, 5)])
        txn.checkpoint()
        with fork.task("tags") as task:
            task["tags/tags"].append({"event": oid})
        txn.merge([task.receipt])
    with fed.transaction() as txn:
        txn.database("tags").container("tags").append({"event": oid})
    assert [tag.event.n for tag in fed["tags/tags"]] == [3, 3]
    assert numbers(fed) == list(range(1005))
    assert_intact(fed)


def test_tasks_link_to_objects_of_databases_that_the_transaction_creates(fed: fb.Federation) -> None:
    form = {"name": "Tag", "fields": [{"name": "event", "type": {"link": "Event"}}]}
    with fed.transaction() as txn:
        oids = opened(txn).extend(rows(0, 5))
        for name in ("run7", "tags"):
            txn.database(name, create=True).container("tags", form, create=True)
        with txn.fork("run7/tags", "tags/tags", links=["run7"]).task("a") as task:
            for path in ("run7/tags", "tags/tags"):
                task[path].extend({"event": [oids[3], None]})
        txn.merge([task.receipt])
    for path in ("run7/tags", "tags/tags"):
        assert [tag.event and tag.event.n for tag in fed[path]] == [3, None]
    assert_intact(fed)


def test_forks_and_receipts_stay_small_with_many_wide_containers(fed: fb.Federation) -> None:
    names = [f"field{number}" for number in range(300)]
    form = {"name": "Wide", "fields": [{"name": name, "type": "int32"} for name in names]}
    with fed.transaction() as txn:
        paths = [f"run{number % 3}/wide{number}" for number in range(20)]
        for path in paths:
            database, name = path.split("/")
            txn.database(database, create=True).container(name, form, create=True)
        fork = txn.fork()
        with fork.task("k" * 400) as task:
            for path in paths:
                task[path].extend({name: [1, 2] for name in names})
        assert len(pickle.dumps(fork)) < 2000
        assert len(pickle.dumps(task.receipt)) < 2000
        assert task.receipt.num_entries == 40
        assert txn.merge([pickle.loads(pickle.dumps(task.receipt))]) == 1
    for path in paths:
        assert fed[path]["field299"].to_list() == [1, 2]
        assert all(len(pickle.dumps(part)) < 2000 for part in fed[path].partitions(1))
    assert_intact(fed)


def test_a_view_is_copied_by_tasks_and_series_are_refused(fed: fb.Federation) -> None:
    with fed.transaction() as txn:
        opened(txn).extend(rows(0, 10))
    with fed.transaction() as txn:
        txn.database("copy", create=True).container("events", FORM, create=True)
        fork = txn.fork("copy/events")
        receipts = []
        for part in fed[EVENTS].partitions(4):
            with fork.task(part.key) as task:
                task["copy/events"].extend(part.view)
            receipts.append(task.receipt)
        txn.merge(receipts)
        txn.series("c/gain", {"name": "Gain", "fields": [{"name": "x", "type": "float32"}]}, create=True)
        with pytest.raises(fb.InvalidError, match="is a series"):
            txn.fork()
    assert fed["copy/events"]["n"].to_list() == list(range(10))


def test_bytes_of_other_processes_are_synced_with_the_file_and_not_with_the_log(fed: fb.Federation) -> None:
    """The bytes of a small commit go into the catalogue's log, but it has those of its own process alone."""

    def logged() -> int:
        with closing(sqlite3.connect(f"file:{fed.path}/catalogue.sqlite?mode=ro", uri=True)) as catalogue:
            counts = (
                "SELECT (SELECT count(*) FROM logged_writes), (SELECT count(*) FROM log_slots WHERE csn > 0)"
            )
            rows, slots = catalogue.execute(counts).fetchone()
            return int(rows + slots)

    for first in range(3):
        with fed.transaction() as txn:
            opened(txn).extend(rows(first, 1))
    before = logged()
    assert before > 0
    with fed.transaction() as txn:
        opened(txn)
        txn.merge([write(txn.fork(), 3, 2)])
    assert logged() == before
    assert numbers(fed) == list(range(5))
