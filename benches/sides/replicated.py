"""A follower beside commits at its leader.

    replicated.py rate FOLDER MB_A_SECOND SECONDS
    replicated.py containers FOLDER COMMITS NUMBER...

`rate` makes commits of 10 MB at a rate; its point is how long, at most, a commit was not in the copy. Its CPU
seconds are the follower's. `containers` makes small commits, each when the copy has the one before, in
federations of some numbers of containers; its points are the CPU microseconds of the leader's server for
a commit. Leader's server, writer and follower are processes of their own on one machine.
"""

from __future__ import annotations

import json
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from servers import Server, free_port, ours, running

import femtobarn as fb

COMMIT_BYTES = 10_000_000
NAME = "leader.fed"


@fb.persistent
class Reading:
    """A value."""

    value: fb.float64


def main() -> int:
    """Run the work, and print its sample."""
    work, folder, *rest = sys.argv[1:]
    Path(folder).mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="replicated", dir=folder) as place:
        if work == "rate":
            done = at_a_rate(Path(place), float(rest[0]), float(rest[1]))
        else:
            done = by_containers(Path(place), int(rest[0]), [int(number) for number in rest[1:]])
    print(json.dumps(done))
    return 0


@contextmanager
def leader(place: Path, containers: int) -> Iterator[Server]:
    """A federation with so many containers, and its server."""
    folder, port = place / NAME, free_port()
    with fb.create(folder) as federation, federation.transaction() as txn:
        database = txn.database("run", create=True)
        for number in range(containers):
            database.container(f"c{number}", Reading, create=True)
    scratch = place / "server"
    scratch.mkdir()
    with running(ours({NAME: folder}, port), port, scratch) as server:
        yield server


def at_a_rate(place: Path, rate: float, seconds: float) -> dict[str, object]:
    """Follow commits of 10 MB each."""
    context = multiprocessing.get_context("spawn")
    with leader(place, 1) as server, fb.follow(f"{server.url}/{NAME}", place / "copy.fed") as follower:
        follower.catch_up()
        reached: list[tuple[int, float]] = []

        def step() -> int:
            csn = follower.step(0.5).csn
            reached.append((csn, time.time()))
            return csn

        writer = context.Process(target=write, args=(str(place / NAME), rate * 1e6, seconds))
        wall, cpu = time.time(), time.process_time()
        writer.start()
        while writer.is_alive():
            step()
        times = committed_times(place / NAME)
        while step() < max(times):
            pass
        wall, cpu = time.time() - wall, time.process_time() - cpu
    behind = max(next(at for csn, at in reached if csn >= made) - when for made, when in times.items())
    size = len(times) * COMMIT_BYTES
    sample = {"items": len(times), "bytes": size, "wall_s": wall, "cpu_s": cpu, "check": 0}
    return sample | {"points": [(rate, behind)]}


def write(folder: str, rate: float, seconds: float) -> None:
    """Commit at a rate."""
    values = np.random.default_rng(1).random(COMMIT_BYTES // 8)
    with fb.open(folder) as federation:
        began, count = time.monotonic(), 0
        while time.monotonic() - began < seconds:
            with federation.transaction() as txn:
                txn.database("run").container("c0").extend({"value": values})
            count += 1
            time.sleep(max(began + count * COMMIT_BYTES / rate - time.monotonic(), 0.0))


def committed_times(folder: Path) -> dict[int, float]:
    """When the commits with data were made, by the clock."""
    with fb.open(folder) as federation:
        return {row["csn"]: row["time"].timestamp() for row in federation.history() if row["csn"] > 1}


def by_containers(place: Path, commits: int, numbers: list[int]) -> dict[str, object]:
    """Follow small commits in federations that grow."""
    points, wall, cpu = [], 0.0, 0.0
    for containers in numbers:
        here = place / str(containers)
        here.mkdir()
        with (
            leader(here, containers) as server,
            fb.follow(f"{server.url}/{NAME}", here / "copy.fed") as follower,
            fb.open(here / NAME) as federation,
        ):
            follower.catch_up()
            began, before = time.perf_counter(), server.cpu_seconds()
            for number in range(commits):
                with federation.transaction() as txn:
                    txn.database("run").container(f"c{number % containers}").extend({"value": [1.0]})
                while follower.step(1.0).csn < federation.head():
                    pass
            wall, spent = wall + time.perf_counter() - began, server.cpu_seconds() - before
            cpu += spent
            points.append((containers, spent / commits * 1e6))
    sample = {"items": commits * len(numbers), "bytes": 0, "wall_s": wall, "cpu_s": cpu, "check": 0}
    return sample | {"points": points}


if __name__ == "__main__":
    sys.exit(main())
