"""What small commits and many pages cost as a container grows; prints a few lines, takes half a minute.

Run it with the project's own Python: ``.venv/bin/python benches/growth.py [commits] [pages]``.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import femtobarn as fb

OBJECTS = 10
PARTS = 10
COLUMNS = 50
PAGE_BYTES = 4096


@fb.persistent
class Event:
    run: fb.uint32
    event: fb.uint64
    pt: list[fb.float32]


def cpu() -> float:
    """Processor seconds of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def commits(folder: Path, count: int) -> None:
    """Many commits of ten objects into one container: what each costs, tenth by tenth."""
    rows = {"run": [7] * OBJECTS, "event": list(range(OBJECTS)), "pt": [[1.0] * 3] * OBJECTS}
    with fb.create(folder / "commits.fed") as federation:
        with federation.transaction() as txn:
            txn.database("d", create=True).container("events", Event, create=True)
        costs = []
        for _ in range(PARTS):
            started = cpu()
            for _ in range(count // PARTS):
                with federation.transaction() as txn:
                    txn.database("d").container("events").extend(rows)
            costs.append((cpu() - started) / (count // PARTS) * 1e3)
        print("commits of ten objects, CPU ms each:", "  ".join(f"{cost:.2f}" for cost in costs))
        (done,) = federation.compact("d/events")
        started = time.monotonic()
        freed = federation.vacuum(keep_from=federation.head()).version_bytes
        seconds = time.monotonic() - started
        print(f"compacted {done.clusters_before} clusters; vacuumed {freed / 1e6:.1f} MB in {seconds:.2f} s")


def pages(folder: Path, count: int) -> None:
    """A container with many pages: what it takes to open it and to read one object."""
    entries = count // COLUMNS * (PAGE_BYTES // 8)
    names = [f"x{number}" for number in range(COLUMNS)]
    form = {"name": "Wide", "fields": [{"name": name, "type": "float64"} for name in names]}
    rows = dict.fromkeys(names, np.arange(entries // PARTS, dtype=np.float64))
    with fb.create(folder / "pages.fed") as federation:
        for _ in range(PARTS):
            with federation.transaction() as txn:
                database = txn.database("d", create=True)
                database.container("wide", form, create=True, page_size=PAGE_BYTES).extend(rows)
    with fb.open(folder / "pages.fed") as federation:
        started = time.monotonic()
        view = federation["d/wide"]
        opened = time.monotonic()
        _ = view[len(view) // 2].x7
        read = time.monotonic()
        opening, reading = (opened - started) * 1e3, (read - opened) * 1e3
        print(f"{count:,} pages: opened in {opening:.2f} ms, first object in {reading:.2f} ms")


def main() -> int:
    """Measure both."""
    numbers = [int(text) for text in sys.argv[1:]] + [10_000, 1_000_000][len(sys.argv) - 1 :]
    with tempfile.TemporaryDirectory() as place:
        commits(Path(place), numbers[0])
        pages(Path(place), numbers[1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
