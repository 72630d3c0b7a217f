"""Reads fields of a file in order: `scan.py uproot|parquet|lance FILE NTUPLE NAMES`, the names as "a,b".

Each reads in the way that its documentation recommends: uproot all arrays at once; pyarrow from a memory map,
batch by batch; Lance batch by batch. The number of threads is that of the process's CPUs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from timing import Array, Seen, measure

BATCH_ROWS = 16_384
"""Rows per batch of pyarrow for small objects; objects of 10 KB come by the thousand."""

THREADS = len(os.sched_getaffinity(0))


def main() -> None:
    """Run one side."""
    side, path, ntuple, names = sys.argv[1:]
    sides = {"uproot": by_uproot, "parquet": by_parquet, "lance": by_lance}
    sides[side](path, ntuple, names.split(","))


def by_uproot(path: str, ntuple: str, names: list[str]) -> None:
    """All arrays in one call."""
    import awkward as ak
    import uproot

    def read(source: Any) -> Seen:
        arrays = source.arrays(names)
        seen = Seen(items=len(arrays))
        _, _, buffers = ak.to_buffers(arrays)
        for name, values in buffers.items():
            if name.endswith("-data"):
                seen.add(np.asarray(values))
        return seen

    measure(lambda: uproot.open(path, array_cache=None)[ntuple], read)


def by_parquet(path: str, ntuple: str, names: list[str]) -> None:
    """Batch by batch, from a memory map."""
    from pyarrow import parquet

    del ntuple
    rows = 1000 if names == ["id", "blob"] else BATCH_ROWS
    measure(
        lambda: parquet.ParquetFile(path, memory_map=True),
        lambda file: summed(file.iter_batches(rows, columns=names, use_threads=THREADS > 1)),
    )


def by_lance(path: str, ntuple: str, names: list[str]) -> None:
    """Batch by batch, of the size that Lance chooses."""
    import lance

    del ntuple
    measure(lambda: lance.dataset(path), lambda dataset: summed(dataset.to_batches(columns=names)))


def summed(batches: Iterator[Any]) -> Seen:
    """The sum over all values of Arrow batches."""
    seen = Seen()
    for batch in batches:
        seen.items += batch.num_rows
        for column in batch.columns:
            seen.add(values_of(column))
    return seen


def values_of(array: Any) -> Array:
    """The numbers in an Arrow array, without a copy: the items of lists, the bytes of binary values."""
    import pyarrow as pa

    if pa.types.is_binary(array.type) or pa.types.is_large_binary(array.type):
        width = np.int32 if pa.types.is_binary(array.type) else np.int64
        _, offsets, values = array.buffers()
        ends = np.frombuffer(offsets, width)[array.offset : array.offset + len(array) + 1]
        return np.frombuffer(values, np.uint8)[ends[0] : ends[-1]]
    while pa.types.is_nested(array.type):
        array = array.flatten()
    return np.asarray(array.to_numpy(zero_copy_only=True))


if __name__ == "__main__":
    main()
