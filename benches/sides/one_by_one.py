"""Objects written and read one by one, in one of the `engines/`.

    one_by_one.py write ENGINE small|blob FOLDER COUNT POOL
    one_by_one.py read ENGINE small|blob FOLDER COUNT STORED

`small` objects, from rows.bin, have 10 fields and 100 bytes; a `blob`, from objects.bin, is a number and
10 KB. POOL is rows.bin or objects.bin. Writing commits 10,000 objects at a time, durably. Reading fetches
COUNT of the STORED objects in FOLDER in random order, and touches every field. It does so twice, and the
second time is measured.
"""

from __future__ import annotations

import random
import sys
from importlib import import_module
from pathlib import Path

import numpy as np
from data import OBJECT_BYTES, ROW
from engines import Engine, Fetch, Fields
from timing import Seen, measure_once

COMMIT = 10_000
SIZES = {"small": ROW.itemsize, "blob": OBJECT_BYTES}


def main() -> None:
    """Run one side."""
    what, name, kind, folder, count, last = sys.argv[1:]
    engine = import_module(f"engines.{name}").Store(Path(folder), kind)
    if what == "read":
        # The first pass is not timed, as for all sides; the engine is closed in between, to empty its cache.
        order = shuffled(int(last))[: int(count)]
        read(engine.fetcher(), kind, order)
        engine.close()
        measure_once(engine.fetcher, lambda fetch: read(fetch, kind, order))
    else:
        write(engine, kind, pool(kind, Path(last), int(count)), Path(folder))


def write(engine: Engine, kind: str, objects: list[Fields], folder: Path) -> None:
    """Write and commit the objects, 10,000 at a time."""
    folder.mkdir(parents=True)

    def run(_: None) -> Seen:
        for start in range(0, len(objects), COMMIT):
            engine.write(start, objects[start : start + COMMIT])
        return Seen(len(objects), len(objects) * SIZES[kind])

    measure_once(lambda: engine.create(len(objects)), run, folder)


def shuffled(count: int) -> list[int]:
    """The numbers below `count` in a random order that is always the same."""
    order = list(range(count))
    random.Random(1).shuffle(order)
    return order


def read(fetch: Fetch, kind: str, order: list[int]) -> Seen:
    """Fetch objects one by one."""
    check = 0
    for number in order:
        fields = fetch(number)
        check += int(fields[1] if kind == "small" else fields[1][17])
    return Seen(len(order), len(order) * SIZES[kind], check)


def pool(kind: str, path: Path, count: int) -> list[Fields]:
    """Objects as Python values, in the order of their fields."""
    if kind == "small":
        rows = np.fromfile(path, ROW, count)
        return list(zip(*(rows[name].tolist() for name in ROW.names or ()), strict=True))
    blobs = path.read_bytes()
    starts = [number * OBJECT_BYTES % len(blobs) for number in range(count)]
    return [(number, blobs[start : start + OBJECT_BYTES]) for number, start in enumerate(starts)]


if __name__ == "__main__":
    main()
