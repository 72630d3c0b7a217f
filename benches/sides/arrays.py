"""Reads all columns of an RNTuple file as awkward arrays: `arrays.py ours|uproot FILE`.

Opening and a first read of everything are not timed: afterwards the page cache is warm, all modules are
loaded, and the process has allocated its memory. Prints one JSON object (README.md).
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np
from timing import Seen

NTUPLE = "events"


def main() -> None:
    """Run one side."""
    side, path = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        source = {"ours": ours, "uproot": by_uproot}[side](path, folder)
        source.arrays()
        wall, cpu = time.perf_counter(), time.process_time()
        arrays = source.arrays()
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    bytes_read, check = summed(arrays)
    print(
        json.dumps({"items": len(arrays), "bytes": bytes_read, "wall_s": wall, "cpu_s": cpu, "check": check})
    )


def ours(path: str, folder: str) -> Any:
    """The file, attached to a new federation."""
    package: Any = import_module("femtobarn")
    federation = package.create(Path(folder) / "bench.fed")
    federation.attach(path, name="columns")
    return federation.snapshot()[f"columns/{NTUPLE}"]


def by_uproot(path: str, folder: str) -> Any:
    """The file in uproot."""
    import uproot

    del folder
    return uproot.open(path, array_cache=None)[NTUPLE]


def summed(arrays: ak.Array) -> tuple[int, int]:
    """The bytes of all numbers in lists, and the sum of their words."""
    seen = Seen()
    for name in arrays.fields:
        if arrays[name].ndim == 2:
            seen.add(np.ascontiguousarray(ak.to_numpy(ak.flatten(arrays[name])), np.float32))
    return seen.bytes, seen.check


if __name__ == "__main__":
    main()
