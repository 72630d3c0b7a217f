"""The cut of the chapter selection: `selection.py femtobarn|file|uproot|duckdb|lance FILE`.

The cut uses two of 50 columns; three others are read for the one event in a thousand that passes. The number
of threads is that of the process's CPUs.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterable
from typing import Any

import numpy as np
from timing import Seen, measure

# These numbers are exact in single precision.
CUT = "f00 > 4.28125 and abs(f01) < 0.15625"
READ = ["f10", "f20", "f30"]
THREADS = len(os.sched_getaffinity(0))


def main() -> None:
    """Run one side."""
    side, path = sys.argv[1:]
    {
        "femtobarn": by_femtobarn,
        "file": by_femtobarn_from_root,
        "uproot": by_uproot,
        "duckdb": by_duckdb,
        "lance": by_lance,
    }[side](path)


def by_femtobarn(path: str) -> None:
    """A container of our own."""
    import femtobarn as fb

    measure(lambda: fb.open(path)["own/events"], where)


def by_femtobarn_from_root(path: str) -> None:
    """The file that ROOT wrote, attached."""
    import femtobarn as fb

    with tempfile.TemporaryDirectory() as folder:
        target = f"{folder}/bench.fed"
        with fb.create(target) as federation:
            federation.attach(path, name="file")
        measure(lambda: fb.open(target)["file/events"], where)


def where(view: Any) -> Seen:
    """The result of a selection, whose chunks of entries are read on all CPUs."""
    chosen = view.arrays(READ, CUT, library="np")
    return summed(len(view), (chosen[name] for name in READ))


def by_uproot(path: str) -> None:
    """Batch by batch, and the cut with awkward."""
    import awkward as ak
    import uproot

    def read(ntuple: Any) -> Seen:
        seen = Seen(items=ntuple.num_entries)
        for batch in ntuple.iterate(["f00", "f01", *READ], step_size="100 MB"):
            chosen = batch[(batch.f00 > 4.28125) & (np.abs(batch.f01) < 0.15625)]
            for name in READ:
                seen.add(ak.to_numpy(chosen[name]))
        return seen

    measure(lambda: uproot.open(path, array_cache=None)["events"], read)


def by_duckdb(path: str) -> None:
    """SQL over a Parquet file."""
    import duckdb

    query = f"SELECT {', '.join(READ)} FROM read_parquet('{path}') WHERE {CUT}"

    def read(connection: Any) -> Seen:
        return summed(entries, connection.execute(query).fetchnumpy().values())

    entries = duckdb.execute(f"SELECT count(*) FROM read_parquet('{path}')").fetchall()[0][0]
    measure(lambda: duckdb.connect(config={"threads": THREADS}), read)


def by_lance(path: str) -> None:
    """A filter that Lance pushes down, with late materialisation of the other columns."""
    import lance

    def read(dataset: Any) -> Seen:
        table = dataset.to_table(columns=READ, filter=CUT)
        return summed(dataset.count_rows(), (column.to_numpy() for column in table.columns))

    measure(lambda: lance.dataset(path), read)


def summed(entries: int, columns: Iterable[Any]) -> Seen:
    """The sum over all values of some columns."""
    seen = Seen(items=entries)
    for column in columns:
        seen.add(np.ascontiguousarray(column))
    return seen


if __name__ == "__main__":
    main()
