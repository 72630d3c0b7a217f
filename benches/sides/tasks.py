"""Tasks that write 1 MB each into one container, and one process that writes the same.

    tasks.py one|tasks|dask FOLDER POOL TASKS none|zstd

`one` writes all in one transaction. `tasks` writes for a transaction that forks, a task after the other, in
this process; `merge_us` is what merging takes for each. `dask` lets Dask run the tasks, in two workers with a
thread each. The check is the sum of all words that are there afterwards.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from data import ROW
from engines.femtobarn import Hit
from processes import tree_seconds
from timing import Array, Seen

import femtobarn as fb

OBJECTS = 10_000
"""Of 100 bytes, in a task."""
PATH = "own/rows"
WORKERS = 2
Write = Callable[[fb.Transaction], dict[str, float]]


def main() -> int:
    """Run one side, and print its sample."""
    side, folder, pool, tasks, compression = sys.argv[1:]
    count = int(tasks)
    with fb.create(Path(folder) / "bench.fed") as federation:
        if side == "dask":
            by_dask(federation, pool, count, compression)
        else:
            work = {"one": in_one, "tasks": in_tasks}[side]
            timed(federation, compression, 1, lambda txn: work(txn, pool, 1))
            print(json.dumps(timed(federation, compression, count, lambda txn: work(txn, pool, count))))
    return 0


def timed(
    federation: fb.Federation,
    compression: str,
    tasks: int,
    write: Write,
    cpu_seconds: Callable[[], float] = time.process_time,
) -> dict[str, Any]:
    """Write what a number of tasks has into a container of that number, and return the sample."""
    path = f"{PATH}{tasks}"
    wall, cpu = time.perf_counter(), cpu_seconds()
    with federation.transaction() as txn:
        database, _, name = path.partition("/")
        txn.database(database, create=True).container(name, Hit, create=True, compression=compression)
        more = write(txn)
    wall, cpu = time.perf_counter() - wall, cpu_seconds() - cpu
    seen = Seen(items=tasks)
    for column in federation[path].arrays(library="np").values():
        seen.add(np.ascontiguousarray(column))
    if len(federation[path]) != tasks * OBJECTS:
        raise SystemExit(f"{len(federation[path])} objects are there for {tasks} tasks")
    return {"items": tasks, "bytes": seen.bytes, "wall_s": wall, "cpu_s": cpu, "check": seen.check, **more}


def cpu_seconds_of_all() -> float:
    """CPU seconds of this process, and of those that it has started."""
    return tree_seconds(os.getpid())


@cache
def rows_of(pool: str) -> Array:
    """The pool of objects, which each process reads once."""
    return np.fromfile(pool, ROW)


def part_of(pool: str, number: int) -> Array:
    """The objects of a task."""
    rows = rows_of(pool)
    first = number * OBJECTS % len(rows)
    return rows[first : first + OBJECTS]


def in_one(txn: fb.Transaction, pool: str, tasks: int) -> dict[str, float]:
    """Write one part after the other."""
    container = txn.database("own").container(f"rows{tasks}")
    for number in range(tasks):
        container.extend(part_of(pool, number))
    return {}


def in_tasks(txn: fb.Transaction, pool: str, tasks: int) -> dict[str, float]:
    """Run one task after the other, and merge their receipts."""
    fork, keys, receipts = txn.fork(), [f"task {number}" for number in range(tasks)], []
    for number, key in enumerate(keys):
        with fork.task(key) as task:
            task[f"{PATH}{tasks}"].extend(part_of(pool, number))
        receipts.append(task.receipt)
    began = time.perf_counter()
    txn.merge(receipts, keys)
    return {"merge_us": (time.perf_counter() - began) / tasks * 1e6}


def by_dask(federation: fb.Federation, pool: str, tasks: int, compression: str) -> None:
    """Let Dask run the tasks, first a few that load modules, and print the sample."""
    from distributed import Client, LocalCluster

    def write(count: int, number: int, task: fb.Task) -> None:
        task[f"{PATH}{count}"].extend(part_of(pool, number))

    def run(txn: fb.Transaction, count: int) -> dict[str, float]:
        fb.dask.write(txn, lambda number, task: write(count, number, task), range(count))
        return {}

    options: dict[str, Any] = {"n_workers": WORKERS, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**options) as cluster, Client(cluster):
        timed(federation, compression, 4 * WORKERS, lambda txn: run(txn, 4 * WORKERS))
        sample = timed(federation, compression, tasks, lambda txn: run(txn, tasks), cpu_seconds_of_all)
        print(json.dumps(sample))


if __name__ == "__main__":
    sys.exit(main())
