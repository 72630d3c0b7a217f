"""The chapter conditions from Python: `conditions.py WHAT SIDE FOLDER ...`.

    fill femtobarn FOLDER                 100 series of 4,000 conditions over 100 days, in a federation
    insert femtobarn|sqlite FOLDER        the same, timed
    put femtobarn|sqlite FOLDER COUNT     conditions one by one, each in a durable commit
    copy femtobarn FOLDER COUNT           copies of a global tag that has all series
    grow femtobarn FOLDER                 100 series of 50,000 conditions, and a global tag of them
    tag femtobarn FOLDER                  the tag of 5 million conditions: opened, and copied
    single SIDE FOLDER ordered|random     one look-up at a time in one series
    arrays SIDE FOLDER ordered|random     all events at once in each series
    first femtobarn|numpy FOLDER          the first look-up of a new process, from its start on; for numpy,
                                          an interpreter that only imports it

Sides of look-ups: `femtobarn`; `bisect` and `sqlite` for single ones; for arrays `numpy`, which is
searchsorted in a sorted array.
"""

from __future__ import annotations

import bisect
import json
import os
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from timing import Seen, measure, measure_once

SERIES, CONDITIONS, EVENTS = 100, 4000, 20_000
START, SPAN = 1_767_225_600_000_000_000, 100 * 86_400 * 10**9
MANY = 50_000
"""Conditions of a series of a large tag."""
COPIES = 20
FORM = {"name": "Gain", "fields": [{"name": "value", "type": "float64"}]}


def main() -> None:
    """Run one side."""
    what, side, folder, *rest = sys.argv[1:]
    work: dict[str, Callable[..., None]] = {
        "fill": fill, "insert": insert, "put": put, "copy": copy, "single": single, "arrays": arrays,
        "first": first, "grow": grow, "tag": tag,
    }  # fmt: skip
    work[what](side, Path(folder), *rest)


def conditions(series: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Beginnings, ends and values of a series: gaps of a tenth of a validity between neighbours."""
    numbers = np.random.default_rng(series)
    lengths = np.exp(numbers.uniform(np.log(600), np.log(86_400), CONDITIONS))
    ends = (np.cumsum(lengths) / lengths.sum() * SPAN).astype(np.int64) + START
    begins = np.concatenate([[START], ends[:-1]])
    return begins, ends - (ends - begins) // 10, numbers.random(CONDITIONS)


def moments(order: str) -> np.ndarray[Any, Any]:
    """Moments of the events, in the order of time or at random."""
    times = np.sort(np.random.default_rng(7).integers(START, START + SPAN, EVENTS))
    return np.random.default_rng(8).permutation(times) if order == "random" else times


def fill(_: str, folder: Path) -> None:
    """Make the federation that look-ups read."""
    measure_once(lambda: None, lambda _: by_femtobarn(folder))


def insert(side: str, folder: Path) -> None:
    """Insert all conditions in one transaction."""
    measure_once(lambda: None, lambda _: (by_femtobarn if side == "femtobarn" else by_sqlite)(folder))


def by_femtobarn(folder: Path) -> Seen:
    """All series in one transaction."""
    import femtobarn as fb

    with fb.create(folder) as federation, federation.transaction() as txn:
        for series in range(SERIES):
            begins, ends, values = conditions(series)
            writer = txn.series(f"det/s{series}", FORM, create=True)
            writer.extend({"value": values}, since=begins, until=ends)
    return Seen(items=SERIES * CONDITIONS)


def by_sqlite(folder: Path) -> Seen:
    """One table with an index, as small conditions databases have it."""
    folder.mkdir(parents=True)
    with sqlite3.connect(folder / "conditions.sqlite") as connection:
        connection.execute(
            "CREATE TABLE iov (series INTEGER, since INTEGER, until INTEGER, value REAL, "
            "PRIMARY KEY (series, since)) WITHOUT ROWID"
        )
        for series in range(SERIES):
            columns = (column.tolist() for column in conditions(series))
            rows = ((series, *row) for row in zip(*columns, strict=True))
            connection.executemany("INSERT INTO iov VALUES (?, ?, ?, ?)", rows)
    return Seen(items=SERIES * CONDITIONS)


def put(side: str, folder: Path, count: str) -> None:
    """Put conditions one by one, each in a commit of its own."""
    measure_once(
        lambda: None,
        lambda _: (put_by_femtobarn if side == "femtobarn" else put_by_sqlite)(folder, int(count)),
    )


def put_by_femtobarn(folder: Path, count: int) -> Seen:
    """A transaction for each."""
    import femtobarn as fb

    with fb.create(folder) as federation:
        with federation.transaction() as txn:
            txn.series("det/s", FORM, create=True)
        for n in range(count):
            with federation.transaction() as txn:
                txn.series("det/s").put({"value": 1.0}, since=n, until=n + 1)
    return Seen(items=count)


def put_by_sqlite(folder: Path, count: int) -> Seen:
    """A synced transaction for each, with a write-ahead log."""
    folder.mkdir(parents=True)
    connection = sqlite3.connect(folder / "conditions.sqlite", isolation_level=None)
    connection.executescript("PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL")
    connection.execute("CREATE TABLE iov (since INTEGER PRIMARY KEY, until INTEGER, value REAL)")
    for n in range(count):
        connection.execute("INSERT INTO iov VALUES (?, ?, 1.0)", (n, n + 1))
    return Seen(items=count)


def copy(_: str, folder: Path, count: str) -> None:
    """Copy a global tag that lists all series, again and again."""
    import femtobarn as fb

    by_femtobarn(folder)
    federation = fb.open(folder)
    federation.conditions.create_tag("first", list(federation.conditions()))

    def copies(_: Any) -> Seen:
        for n in range(int(count)):
            federation.conditions.create_tag(f"copy{n}", copy_of="first")
        return Seen(items=int(count))

    measure_once(lambda: None, copies)


def grow(_: str, folder: Path) -> None:
    """Make the federation whose global tag has many conditions."""
    import femtobarn as fb

    def work(_: Any) -> Seen:
        since = np.arange(MANY) * 60 * 10**9 + START
        with fb.create(folder) as federation:
            with federation.transaction() as txn:
                for series in range(SERIES):
                    values = np.random.default_rng(series).random(MANY)
                    writer = txn.series(f"det/s{series}", FORM, create=True)
                    writer.extend({"value": values}, since=since, until=since + 60 * 10**9)
            federation.conditions.create_tag("first", list(federation.conditions()))
        return Seen(items=SERIES * MANY)

    measure_once(lambda: None, work)


def tag(_: str, folder: Path) -> None:
    """Open the global tag in a new federation's handle, then copy it; the copies are deleted again.

    `open_s` of the sample is the time until a series of the tag is there, `copied_bytes` what a copy adds to
    the files.
    """
    import femtobarn as fb

    fb.open(folder).conditions("first")["det/s0"].at(START)
    federation = fb.open(folder)
    opened = time.perf_counter()
    series = federation.conditions("first")["det/s0"]
    open_s = time.perf_counter() - opened
    seen = Seen(items=COPIES, check=len(series))
    before = file_bytes(folder)
    wall, cpu = time.perf_counter(), time.process_time()
    for n in range(COPIES):
        federation.conditions.create_tag(f"copy{n}", copy_of="first")
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    copied = (file_bytes(folder) - before) / COPIES
    for n in range(COPIES):
        federation.conditions.delete_tag(f"copy{n}")
    sample = {"items": seen.items, "bytes": 0, "wall_s": wall, "cpu_s": cpu, "check": seen.check}
    print(json.dumps({**sample, "open_s": open_s, "copied_bytes": copied}))


def file_bytes(folder: Path) -> int:
    """The lengths of all database files."""
    return sum(each.stat().st_size for each in folder.rglob("*.root"))


def single(side: str, folder: Path, order: str) -> None:
    """Look one series up, moment by moment."""
    times = moments(order).tolist()
    begins, ends, _ = conditions(0)

    def by_job(series: Any) -> Seen:
        return found(series.at(at) is not None for at in times)

    def by_bisect(lists: tuple[list[int], list[int]]) -> Seen:
        since, until = lists
        return found(at < until[bisect.bisect_right(since, at) - 1] for at in times)

    def by_query(connection: sqlite3.Connection) -> Seen:
        query = (
            "SELECT value FROM iov WHERE series = 0 AND since <= ?1 AND until > ?1 "
            "ORDER BY since DESC LIMIT 1"
        )
        return found(connection.execute(query, (at,)).fetchone() is not None for at in times)

    if side == "femtobarn":
        measure(lambda: opened(folder)["det/s0"], by_job)
    elif side == "bisect":
        measure(lambda: (begins.tolist(), ends.tolist()), by_bisect)
    else:
        measure(lambda: sqlite3.connect(folder / "conditions.sqlite"), by_query)


def arrays(side: str, folder: Path, order: str) -> None:
    """Look all events up in each series."""
    times = moments(order)

    def by_job(job: Any) -> Seen:
        seen = Seen()
        for series in range(SERIES):
            _, positions = job[f"det/s{series}"].entries_at(times)
            seen.items += len(times)
            seen.check += int((positions >= 0).sum())
        return seen

    def known() -> list[tuple[np.ndarray[Any, Any], ...]]:
        return [conditions(series) for series in range(SERIES)]

    def by_searchsorted(series: list[tuple[np.ndarray[Any, Any], ...]]) -> Seen:
        seen = Seen()
        for begins, ends, _ in series:
            places = np.searchsorted(begins, times, "right") - 1
            seen.items += len(times)
            seen.check += int((times < ends[places]).sum())
        return seen

    if side == "femtobarn":
        measure(lambda: opened(folder), by_job)
    else:
        measure(known, by_searchsorted)


ONLY_NUMPY = """
import numpy
print(0.0, True)
"""
FIRST = """
import sys, time
import numpy
import femtobarn
began = time.perf_counter()
found = femtobarn.open(sys.argv[1]).conditions()["det/s0"].at(int(sys.argv[2]))
print(time.perf_counter() - began, found is not None)
"""


def first(side: str, folder: Path) -> None:
    """Start an interpreter that looks one condition up: first to have its files in memory, then timed.

    `ours_s` of the sample is its time from the opening of the federation to the condition.
    """
    script = FIRST if side == "femtobarn" else ONLY_NUMPY
    command = [sys.executable, "-W", "ignore", "-c", script, str(folder), str(moments("ordered")[0])]
    for _pass in range(2):
        wall, cpu = time.perf_counter(), children_seconds()
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        wall, cpu = time.perf_counter() - wall, children_seconds() - cpu
    ours, is_found = done.stdout.split()
    sample = {"items": 1, "bytes": 0, "wall_s": wall, "cpu_s": cpu, "check": int(is_found == "True")}
    print(json.dumps({**sample, "ours_s": float(ours)}))


def children_seconds() -> float:
    """CPU seconds of the processes that this one has waited for."""
    used = os.times()
    return used.children_user + used.children_system


def opened(folder: Path) -> Any:
    """A job with all series."""
    import femtobarn as fb

    return fb.open(folder).conditions()


def found(results: Any) -> Seen:
    """How many look-ups there were, and how many of them found a condition."""
    answers = list(results)
    return Seen(items=len(answers), check=sum(answers))


if __name__ == "__main__":
    main()
