"""Arrays of objects of 10 fields and 100 bytes.

    records.py write femtobarn|uproot|hdf5|parquet|numpy FOLDER ROWS
    records.py read femtobarn|uproot|hdf5|parquet|numpy FOLDER

Writes a structured NumPy array of 2 million objects of rows.bin, durably. Reads arrays: structured ones if
the side has them, else one for each field.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from data import ROW
from timing import Array, Seen, measure, measure_once, sync

COUNT = 2_000_000
NTUPLE = "rows"


def main() -> None:
    """Run one side."""
    what, side, folder, *rest = sys.argv[1:]
    path, (writer, reader) = Path(folder), SIDES[side]
    if what == "read":
        measure(lambda: path, lambda path: summed(reader(path)))
        return
    pool = np.fromfile(rest[0], ROW)
    rows = np.tile(pool, COUNT // len(pool))
    for name in ("warm", "rows"):
        (path / name).mkdir(parents=True)
    # A few rows are written first, unmeasured, to load modules and initialise libraries.
    writer(path / "warm", rows[:1000])
    measure_once(lambda: None, lambda _: written(writer, path / "rows", rows), path / "rows")


def written(writer: Callable[[Path, Array], None], folder: Path, rows: Array) -> Seen:
    """Write the rows; return their counts."""
    writer(folder, rows)
    return Seen(len(rows), rows.nbytes)


def summed(arrays: Iterable[Array]) -> Seen:
    """The counts and the check of what was read."""
    seen = Seen(items=COUNT)
    for each in arrays:
        seen.add(np.ascontiguousarray(each))
    return seen


def to_femtobarn(folder: Path, rows: Array) -> None:
    """One container."""
    from engines.femtobarn import Hit

    import femtobarn as fb

    federation = fb.create(folder / "bench.fed")
    with federation.transaction() as transaction:
        container = transaction.database("own", create=True).container(NTUPLE, Hit, create=True)
        container.extend(rows)


def from_femtobarn(folder: Path) -> Iterable[Array]:
    import femtobarn as fb

    arrays = fb.open(folder / "bench.fed")[f"own/{NTUPLE}"].arrays(library="np")
    return list(arrays.values())


def to_uproot(folder: Path, rows: Array) -> None:
    """An RNTuple, which uproot writes from arrays of the fields."""
    import uproot

    with uproot.recreate(folder / "rows.root", compression=None) as file:
        file.mkrntuple(NTUPLE, {name: np.ascontiguousarray(rows[name]) for name in rows.dtype.names or ()})
    sync(folder / "rows.root")


def from_uproot(folder: Path) -> Iterable[Array]:
    import uproot

    arrays = uproot.open(folder / "rows.root", array_cache=None)[NTUPLE].arrays()
    return [arrays[name].to_numpy() for name in arrays.fields]


def to_hdf5(folder: Path, rows: Array) -> None:
    """One data set in one piece."""
    import h5py

    with h5py.File(folder / "rows.h5", "w", libver="latest") as file:
        file.create_dataset(NTUPLE, data=rows)
    sync(folder / "rows.h5")


def from_hdf5(folder: Path) -> Iterable[Array]:
    import h5py

    with h5py.File(folder / "rows.h5") as file:
        return [file[NTUPLE][:]]


def to_parquet(folder: Path, rows: Array) -> None:
    """A table of the fields without dictionaries and compression, which is fastest for random numbers."""
    import pyarrow as pa
    from pyarrow import parquet

    columns: dict[str, Any] = {}
    for name in rows.dtype.names or ():
        values = np.ascontiguousarray(rows[name])
        column = pa.array(values.reshape(-1))
        if values.ndim > 1:
            column = pa.FixedSizeListArray.from_arrays(column, values.shape[1])
        columns[name] = column
    parquet.write_table(pa.table(columns), folder / "rows.parquet", compression="none", use_dictionary=False)
    sync(folder / "rows.parquet")


def from_parquet(folder: Path) -> Iterable[Array]:
    from pyarrow import parquet
    from scan import values_of

    table = parquet.read_table(folder / "rows.parquet", memory_map=True, use_threads=False)
    return [values_of(chunk) for column in table.columns for chunk in column.chunks]


def to_numpy(folder: Path, rows: Array) -> None:
    """A plain file."""
    rows.tofile(folder / "rows.bin")
    sync(folder / "rows.bin")


def from_numpy(folder: Path) -> Iterable[Array]:
    return [np.fromfile(folder / "rows.bin", ROW)]


SIDES = {
    "femtobarn": (to_femtobarn, from_femtobarn),
    "uproot": (to_uproot, from_uproot),
    "hdf5": (to_hdf5, from_hdf5),
    "parquet": (to_parquet, from_parquet),
    "numpy": (to_numpy, from_numpy),
}


if __name__ == "__main__":
    main()
