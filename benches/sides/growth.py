"""The cost of work on federations of growing size. All commands but `prepare` print a sample (README.md).

    growth.py prepare containers|databases|commits FOLDER    make federations of several sizes, to be copied
    growth.py append FOLDER cpu|wall     commit 1,000 objects to containers of several sizes
    growth.py open FOLDER cpu|wall       open a federation and read one object of a container of these sizes
    growth.py create KIND DATA FOLDER    add containers, databases or commits to federations of several sizes
    growth.py find KIND DATA             find one of them in a federation that was just opened
    growth.py reader FOLDER              memory while 1.6 GB are read
    growth.py writer FOLDER              memory while 1.6 GB are written
    growth.py upkeep WORK DATA FOLDER    check, or vacuum, federations of several sizes
    growth.py many DATA                  200 processes that open a federation and read an object

The cost at each size is the median, in microseconds, of rounds that take the sizes in turn; that of an added
item is a part of a transaction's. Memory is in MB.
"""

from __future__ import annotations

import itertools
import json
import os
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import femtobarn as fb

Points = list[tuple[float, float]]
Clock = Callable[[], float]

FORM = {"name": "Small", "fields": [{"name": "n", "type": "uint64"}, {"name": "x", "type": "float64"}]}
OBJECT_BYTES = 16
OBJECTS = tuple(10**power for power in range(3, 9))
CHUNK = 10**6
SIZES = {
    "containers": (10**3, 10**4, 10**5),
    "databases": (10**2, 10**3, 10**4),
    "commits": (10**2, 10**3, 10**4),
}
TOGETHER = {"containers": 200, "databases": 50, "commits": 1}
CLOCKS: dict[str, Clock] = {"cpu": time.process_time, "wall": time.perf_counter}
READERS = 200


def main() -> None:
    """Run one command."""
    command, *rest = sys.argv[1:]
    if command == "prepare":
        return prepare(*rest)
    sides: dict[str, Callable[..., dict[str, Any]]]
    sides = {"append": append, "open": opened, "create": create, "find": find}
    sides |= {"reader": reader, "writer": writer, "upkeep": upkeep, "many": many}
    wall, cpu = time.perf_counter(), time.process_time()
    sample = sides[command](*rest)
    spent = {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu}
    print(json.dumps({"bytes": 0, "check": 0, **spent, **sample}))
    return None


# ---- a container that grows


def rows(count: int, first: int = 0) -> dict[str, Any]:
    """Objects with numbers from `first` on."""
    return {"n": np.arange(first, first + count, dtype=np.uint64), "x": np.zeros(count)}


def filled(federation: fb.Federation, size: int) -> str:
    """Write a container of this size; return its path."""
    with federation.transaction() as txn:
        writer = txn.database("d", create=True).container(f"of{size}", FORM, create=True)
        for first in range(0, size, CHUNK):
            writer.extend(rows(min(size, CHUNK), first))
    return f"d/of{size}"


def append(folder: str, by: str) -> dict[str, Any]:
    """Commit transactions of 1,000 objects to containers of all sizes."""
    more = rows(1000)
    with fb.create(Path(folder) / "append.fed") as federation:
        names = {size: filled(federation, size).removeprefix("d/") for size in OBJECTS}

        def one(size: int) -> None:
            with federation.transaction() as txn:
                txn.database("d").container(names[size]).extend(more)

        points = medians(CLOCKS[by], one, OBJECTS, 100)
    return {"items": sum(OBJECTS), "bytes": sum(OBJECTS) * OBJECT_BYTES, "points": points}


def opened(folder: str, by: str) -> dict[str, Any]:
    """Open a federation, and read an object in the middle of a container."""
    path = Path(folder) / "open.fed"
    with fb.create(path) as federation:
        names = {size: filled(federation, size) for size in OBJECTS}

    def one(size: int) -> None:
        with fb.open(path) as federation:
            assert federation[names[size]][size // 2].n == size // 2

    return {"items": sum(OBJECTS), "points": medians(CLOCKS[by], one, OBJECTS, 50)}


def reader(folder: str) -> dict[str, Any]:
    """Read a container that is many times larger than any cache, batch by batch."""
    path, points, check = Path(folder) / "read.fed", [], 0
    with fb.create(path) as federation:
        name = filled(federation, OBJECTS[-1])
    with fb.open(path) as federation:
        for number, batch in enumerate(federation[name].iterate(step_size=CHUNK, library="np")):
            check += int(batch["n"][-1])
            if number % 10 == 9:
                points.append(((number + 1) * CHUNK * OBJECT_BYTES / 1e6, memory()))
    return {"items": OBJECTS[-1], "bytes": OBJECTS[-1] * OBJECT_BYTES, "check": check, "points": points}


def writer(folder: str) -> dict[str, Any]:
    """Write that container, in one transaction."""
    points, count = [], OBJECTS[-1] // CHUNK
    with fb.create(Path(folder) / "write.fed") as federation, federation.transaction() as txn:
        container = txn.database("d", create=True).container("events", FORM, create=True)
        for number in range(count):
            container.extend(rows(CHUNK, number * CHUNK))
            if number % 10 == 9:
                points.append(((number + 1) * CHUNK * OBJECT_BYTES / 1e6, memory()))
    check = sum(number * CHUNK - 1 for number in range(1, count + 1))
    return {"items": OBJECTS[-1], "bytes": OBJECTS[-1] * OBJECT_BYTES, "check": check, "points": points}


# ---- a federation that grows


def prepare(kind: str, folder: str) -> None:
    """Make federations with growing numbers of containers, databases or commits."""
    draft = Path(folder + ".draft")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    for size in SIZES[kind]:
        with fb.create(draft / f"{size}.fed") as federation:
            for first in range(0, size, TOGETHER[kind]):
                add(federation, kind, first, TOGETHER[kind])
    draft.rename(folder)


def add(federation: fb.Federation, kind: str, first: int, count: int) -> None:
    """Add containers or databases in one transaction, or a commit with a tag."""
    with federation.transaction() as txn:
        for number in range(first, first + count):
            database = f"d{number}" if kind == "databases" else "d"
            container = f"c{number}" if kind == "containers" else "c"
            writer = txn.database(database, create=True).container(container, FORM, create=True)
            writer.extend(rows(1, number))
    if kind == "commits":
        federation.tag(f"t{first}")


def create(kind: str, data: str, folder: str) -> dict[str, Any]:
    """Add items of a kind to copies of the prepared federations; CPU time of each."""
    count = TOGETHER[kind]
    with ExitStack() as stack:
        federations = {}
        for size in SIZES[kind]:
            shutil.copytree(f"{data}/{size}.fed", f"{folder}/{size}.fed")
            federations[size] = stack.enter_context(fb.open(f"{folder}/{size}.fed"))
        numbers = {size: itertools.count(size, count) for size in SIZES[kind]}

        def one(size: int) -> None:
            add(federations[size], kind, next(numbers[size]), count)

        points = medians(time.process_time, one, SIZES[kind], max(50 // count, 7))
    return {"items": sum(SIZES[kind]), "points": [(size, cost / count) for size, cost in points]}


def find(kind: str, data: str) -> dict[str, Any]:
    """Open a federation, and read an object of a random item of the kind."""
    random = np.random.default_rng(1)

    def one(size: int) -> None:
        number = int(random.integers(size))
        with fb.open(f"{data}/{size}.fed") as federation:
            snapshot = federation.snapshot(tag=f"t{number}") if kind == "commits" else federation.snapshot()
            database = f"d{number}" if kind == "databases" else "d"
            container = f"c{number}" if kind == "containers" else "c"
            assert snapshot[f"{database}/{container}"][-1].n == number

    points = medians(time.process_time, one, SIZES[kind], 100)
    return {"items": sum(SIZES[kind]), "points": points}


def upkeep(work: str, data: str, folder: str) -> dict[str, Any]:
    """Check copies of the prepared federations, or delete the versions of all their old commits."""
    sizes = SIZES["commits"] if work == "vacuum" else SIZES["containers"][:-1]
    points = []
    for size in sizes:
        shutil.copytree(f"{data}/{size}.fed", f"{folder}/{size}.fed")
        with fb.open(f"{folder}/{size}.fed") as federation:
            for tag in federation.tags():
                federation.untag(tag["name"])
            started = time.process_time()
            if work == "vacuum":
                assert federation.vacuum(keep_from=federation.head()).versions == size - 1
            else:
                assert federation.check().sound
            points.append((size, (time.process_time() - started) / size * 1e6))
    return {"items": sum(sizes), "points": points}


# ---- many processes


def many(data: str) -> dict[str, Any]:
    """Start processes that open the federation of 10,000 databases at once, and read an object each."""
    path = f"{data}/{SIZES['databases'][-1]}.fed"
    go, done = os.pipe(), os.pipe()
    children = [one_reader(path, number, go, done) for number in range(READERS)]
    wall = time.perf_counter()
    os.close(go[0])
    os.close(go[1])
    seen = list(reports(done[0]))
    wall = time.perf_counter() - wall
    for child in children:
        os.waitpid(child, 0)
    total = {key: sum(each[key] for each in seen) for key in ("cpu_s", "memory_bytes", "check")}
    return {"items": READERS, "wall_s": wall, **total}


def one_reader(path: str, number: int, go: tuple[int, int], done: tuple[int, int]) -> int:
    """Fork a process that waits until `go` is closed, reads, and reports its time and memory."""
    child = os.fork()
    if child != 0:
        return child
    os.close(go[1])
    os.read(go[0], 1)
    before, cpu = private_bytes(), time.process_time()
    federation = fb.open(path)
    value = int(federation[f"d{number}/c"][0].n)
    spent = {"cpu_s": time.process_time() - cpu, "memory_bytes": private_bytes() - before, "check": value}
    os.write(done[1], json.dumps(spent).encode() + b"\n")
    os._exit(0)


def reports(end: int) -> Iterator[dict[str, float]]:
    """The reports of the processes, a line each."""
    with os.fdopen(end) as lines:
        for _ in range(READERS):
            yield json.loads(lines.readline())


# ---- measuring


def medians(
    clock: Clock, work: Callable[[int], None], sizes: Sequence[int], times: int
) -> list[tuple[int, float]]:
    """The median cost of work for each size in microseconds, without the first rounds over all sizes."""
    costs: dict[int, list[float]] = {size: [] for size in sizes}
    for _ in range(times + 3):
        for size, spent in costs.items():
            started = clock()
            work(size)
            spent.append(clock() - started)
    return [(size, statistics.median(spent[3:]) * 1e6) for size, spent in costs.items()]


def memory() -> float:
    """Anonymous memory of this process in MB."""
    fields = Path("/proc/self/statm").read_text().split()
    return (int(fields[1]) - int(fields[2])) * os.sysconf("SC_PAGE_SIZE") / 1e6


def private_bytes() -> int:
    """Memory in bytes that this process shares with no other, not even with its parent."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Private_"))


if __name__ == "__main__":
    main()
