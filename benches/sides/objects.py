"""Opaque objects in stores with Python clients, written and read like the sides in Rust:

    objects.py append zodb|h5 FOLDER POOL SIZE COUNT COMMIT
    objects.py random zodb|lance FOLDER OBJECTS SIZE COUNT BATCH hot|cold
    objects.py fill lance FOLDER POOL SIZE COUNT
    objects.py commits zodb|zeo FOLDER PROCESSES SECONDS

Prints one JSON object, as README.md says.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np

BATCH_BYTES = 1 << 20
SMALL_OBJECTS, SMALL_BYTES = 10, 100
# Longest wait for a process (s).
PATIENCE = 60


class Watch:
    """The timed part: from its construction to its report."""

    def __init__(self) -> None:
        self.wall, self.cpu = time.perf_counter(), time.process_time()

    def report(
        self, items: int, size: int, check: int = 0, folder: Path | None = None, more_cpu: float = 0
    ) -> None:
        """Print the sample since construction; `more_cpu` are CPU seconds of other processes."""
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu + more_cpu
        sample = {"items": items, "bytes": items * size, "wall_s": wall, "cpu_s": cpu, "check": check}
        if folder is not None:
            files = [each for each in folder.rglob("*") if each.is_file()]
            sample["disk_bytes"] = sum(each.stat().st_blocks * 512 for each in files)
        print(json.dumps(sample))


class Pool:
    """Objects of one size from the file objects.bin."""

    def __init__(self, path: str, size: int) -> None:
        self.bytes, self.size = Path(path).read_bytes(), size

    def object(self, number: int) -> bytes:
        """An object; the pool repeats."""
        start = number % (len(self.bytes) // self.size) * self.size
        return self.bytes[start : start + self.size]


def word_sum(data: bytes) -> int:
    """The sum of an object's 64-bit words; a remainder of 4 bytes is a 32-bit word."""
    words = int(np.frombuffer(data, "<u8", len(data) // 8).sum())
    return words + int.from_bytes(data[len(data) // 8 * 8 :], "little")


def numbers(objects: int, count: int) -> Iterator[int]:
    """The random objects of all sides: splitmix64 from seed 1."""
    mask, state = 2**64 - 1, 1
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield ((z ^ (z >> 31)) * objects) >> 64


# ---- ZODB: persistent objects in a tree, by number


def zodb_database(folder: Path) -> Any:
    """A database in one file; its cache holds all objects that a benchmark reads."""
    zodb = import_module("ZODB")
    storage = import_module("ZODB.FileStorage").FileStorage(str(folder / "objects.fs"))
    return zodb.DB(storage, cache_size=200_000, large_record_size=1 << 26)


def zodb_append(folder: Path, pool: Pool, count: int, commit: int) -> None:
    """Append objects, in transactions."""
    record = import_module("persistent.mapping").PersistentMapping
    database, watch = zodb_database(folder), Watch()
    with database.transaction() as connection:
        connection.root.objects = import_module("BTrees.LOBTree").LOBTree()
    for first in range(0, count, commit):
        # Each transaction has a new connection, so that its cache does not hold objects written before.
        with database.transaction() as connection:
            for number in range(first, min(first + commit, count)):
                connection.root.objects[number] = record(data=pool.object(number))
    database.close()
    watch.report(count, pool.size, folder=folder)


def zodb_reader(folder: Path) -> Callable[[int], bytes]:
    """A function that reads an object."""
    objects = zodb_database(folder).open().root.objects
    return lambda number: bytes(objects[number]["data"])


# ---- HDF5: one array of bytes with a row for each object


def h5_append(folder: Path, pool: Pool, count: int, commit: int) -> None:
    """Append objects in batches, each one array."""
    h5py = import_module("h5py")
    folder.mkdir(exist_ok=True)
    file = h5py.File(folder / "objects.h5", "w", libver="latest")
    batch = max(1, BATCH_BYTES // pool.size)
    chunks = (batch, pool.size)
    objects = file.create_dataset("objects", (0, pool.size), "u1", maxshape=(None, pool.size), chunks=chunks)
    descriptor = os.open(folder / "objects.h5", os.O_RDONLY)
    watch = Watch()
    for first in range(0, count, commit):
        last = min(first + commit, count)
        objects.resize(last, axis=0)
        for start in range(first, last, batch):
            stop = min(start + batch, last)
            data = b"".join(map(pool.object, range(start, stop)))
            objects[start:stop] = np.frombuffer(data, np.uint8).reshape(-1, pool.size)
        file.flush()
        os.fdatasync(descriptor)
    file.close()
    watch.report(count, pool.size, folder=folder)


# ---- Lance: a table with a column of bytes


def lance_fill(folder: Path, pool: Pool, count: int) -> None:
    """Make a table of objects."""
    lance, arrow = import_module("lance"), import_module("pyarrow")
    schema = arrow.schema([("data", arrow.binary())])
    batch = max(1, BATCH_BYTES * 16 // pool.size)

    def batches() -> Iterator[Any]:
        for first in range(0, count, batch):
            objects = list(map(pool.object, range(first, min(first + batch, count))))
            yield arrow.record_batch([arrow.array(objects, arrow.binary())], schema=schema)

    lance.write_dataset(arrow.RecordBatchReader.from_batches(schema, batches()), str(folder))
    Watch().report(count, pool.size)


def lance_take(folder: Path) -> Callable[[list[int]], Any]:
    """A function that reads many objects."""
    table = import_module("lance").dataset(str(folder))
    return lambda rows: table.take(rows, columns=["data"])["data"]


# ---- reading at random


def read(store: str, folder: Path, objects: int, size: int, count: int, batch: int, is_hot: bool) -> None:
    """Read objects at random, one by one or in batches."""
    if store == "lance":
        take = lance_take(folder)

        def together(some: list[int]) -> int:
            return sum(word_sum(each.as_py()) for each in take(some))
    else:
        single = zodb_reader(folder)

        def together(some: list[int]) -> int:
            return sum(word_sum(single(number)) for number in some)

    if is_hot:
        for first in range(0, objects, 1000):
            together(list(range(first, min(first + 1000, objects))))
    chosen, check = list(numbers(objects, count)), 0
    watch = Watch()
    for first in range(0, count, batch):
        check += together(chosen[first : first + batch])
    watch.report(count, size, check % 2**64)


# ---- small transactions


def zodb_commits(folder: Path, seconds: float) -> None:
    """Commit small transactions in one process."""
    database = zodb_database(folder)
    make_trees(database, 1)
    watch = Watch()
    count = small_commits(database, 0, seconds)
    watch.report(count, SMALL_OBJECTS * SMALL_BYTES)


def zeo_commits(folder: Path, processes: int, seconds: float) -> None:
    """Commit small transactions in clients of one server."""
    zeo = import_module("ZEO")
    address, stop = zeo.server(str(folder / "objects.fs"), threaded=False)
    make_trees(zeo.DB(address), processes)
    context = get_context("spawn")
    ready, counts = context.Barrier(processes + 1, timeout=PATIENCE), context.Queue()
    clients = [
        context.Process(target=zeo_client, args=(address, number, seconds, ready, counts), daemon=True)
        for number in range(processes)
    ]
    for client in clients:
        client.start()
    ready.wait()
    watch = Watch()
    done = [counts.get(timeout=PATIENCE) for _ in clients]
    watch.report(sum(n for n, _ in done), SMALL_OBJECTS * SMALL_BYTES, more_cpu=sum(cpu for _, cpu in done))
    for client in clients:
        client.join()
    stop()


def zeo_client(address: Any, number: int, seconds: float, ready: Any, counts: Any) -> None:
    """One client."""
    database = import_module("ZEO").DB(address)
    ready.wait()
    cpu = time.process_time()
    counts.put((small_commits(database, number, seconds), time.process_time() - cpu))


def make_trees(database: Any, writers: int) -> None:
    """Make a tree for each writer, so that none conflict."""
    with database.transaction() as connection:
        for writer in range(writers):
            connection.root()[f"w{writer}"] = import_module("BTrees.LOBTree").LOBTree()


def small_commits(database: Any, writer: int, seconds: float) -> int:
    """Commit for some seconds; return the number of commits."""
    record = import_module("persistent.mapping").PersistentMapping
    commit = import_module("transaction").commit
    tree = database.open().root()[f"w{writer}"]
    end, count = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        for number in range(count * SMALL_OBJECTS, (count + 1) * SMALL_OBJECTS):
            tree[number] = record(data=bytes(SMALL_BYTES))
        commit()
        count += 1
    return count


def main() -> None:
    """Run one side."""
    mode, store, place, *rest = sys.argv[1:]
    folder = Path(place)
    if mode == "append":
        folder.mkdir(exist_ok=True)
        size, count, commit = map(int, rest[1:])
        {"zodb": zodb_append, "h5": h5_append}[store](folder, Pool(rest[0], size), count, commit)
    elif mode == "fill":
        lance_fill(folder, Pool(rest[0], int(rest[1])), int(rest[2]))
    elif mode == "random":
        objects, size, count, batch = map(int, rest[:4])
        read(store, folder, objects, size, count, batch, rest[4] == "hot")
    elif store == "zodb":
        zodb_commits(folder, float(rest[1]))
    else:
        zeo_commits(folder, int(rest[0]), float(rest[1]))


if __name__ == "__main__":
    main()
