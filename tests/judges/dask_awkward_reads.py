"""Reads a federation by arrays of dask-awkward, for which an older Dask is installed than the tests have.

    python dask_awkward_reads.py FEDERATION

Prints as JSON what was computed, and for each computation the columns that were read of each partition.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import awkward as ak
import dask
import dask_awkward as dak

import femtobarn as fb
from femtobarn._views.partitions import Partition


def main(path: str) -> None:
    read: list[Any] = []
    arrays = Partition.arrays

    def noted(self: Partition, expressions: Any = None, where: Any = None, **options: Any) -> Any:
        read.append((expressions, where))
        return arrays(self, expressions, where, **options)

    Partition.arrays = noted  # type: ignore[method-assign]
    view = fb.open(path)["d/events"]
    events = view.to_dask_awkward(size=25)
    heavy = view.to_dask_awkward(where="n >= 90", size=25)
    few = view.to_dask_awkward(["n", "hits.x"], size=25)
    versions = [dask.__version__, dak.__version__]
    found: dict[str, Any] = {"versions": versions, "partitions": events.npartitions}

    def compute(name: str, collection: Any) -> None:
        read.clear()
        value = collection.compute(scheduler="sync")
        value = value.to_list() if isinstance(value, ak.Array) else value.item()
        found[name] = {"value": value, "read": [[columns, where] for columns, where in read]}

    compute("sum", dak.sum(events.hits.x))
    compute("counts", dak.num(events.hits, axis=1))
    compute("length", dak.num(events.n, axis=0))
    compute("heavy", heavy.n)
    compute("selected", few[few.n % 50 == 1].hits.x)
    compute("links", events.raw[:3])
    compute("empty", view[:0].to_dask_awkward().n)
    found["in processes"] = dak.sum(events.n).compute(scheduler="processes").item()
    print(json.dumps(found, default=str))


if __name__ == "__main__":
    main(sys.argv[1])
