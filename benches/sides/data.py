"""Generates the data of the benchmarks, the same bytes on every machine: `data.py KIND FILE`.

`objects.bin`: a pool of objects of 10,240 bytes each. An object is three quarters packed detector hits
(ascending cell numbers, positions, charges) and one quarter noise; zstd compresses it to three quarters, like
real raw data.

`columns.bin`: jagged single-precision columns of 1,000 events, like reconstructed physics objects: six
collections with members that fall steeply, are uniform in angle, or take few values. Layout, with
little-endian counts of 64 bits: number of columns; for each column the length of its name, the name, the
number of offsets, the offsets (64 bits each), the values (floats).

`rows.bin`: objects of 10 fields and 100 bytes (`ROW`), back to back.

`events.bin`: events of 50 floats, `f00` to `f49`, back to back, with the same kinds of quantities as
`columns.bin`. One in a thousand passes the cut of the chapter selection.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

OBJECT_BYTES = 10_240
OBJECTS = 2_000
EVENTS = 1_000
ROWS = 200_000
FLAT_EVENTS = 500_000
FLAT_COLUMNS = 50
SEED = 20260101

# Collection, mean number of items in an event, and its columns.
COLLECTIONS: dict[str, tuple[float, list[str]]] = {
    "Jet": (8, ["pt", "eta", "phi", "mass", "area", "emf", "btag", "nconst"]),
    "Track": (380, ["pt", "eta", "phi", "d0", "z0", "chi2", "charge", "nhits"]),
    "Cluster": (250, ["e", "eta", "phi", "emf", "ncells", "width"]),
    "Candidate": (620, ["pt", "eta", "phi", "mass", "charge", "pdgid", "puppi", "d0", "z0"]),
    "Vertex": (12, ["x", "y", "z", "chi2", "ndof", "ntracks"]),
    "Muon": (2, ["pt", "eta", "phi", "iso"]),
}


# An object of 10 fields and 100 bytes.
ROW = np.dtype(
    [
        ("run", "<u4"), ("event", "<u8"), ("time", "<f8"), ("x", "<f8"), ("y", "<f8"), ("z", "<f8"),
        ("energy", "<f8"), ("momentum", "<f4", 3), ("covariance", "<f4", 5), ("hits", "<u2", 8),
    ]
)  # fmt: skip


def objects() -> bytes:
    """The pool of objects."""
    random = np.random.default_rng(SEED)
    packed_bytes = 3 * OBJECT_BYTES // 4
    hits = np.zeros(
        (OBJECTS, packed_bytes // 16), dtype=[("cell", "<u4"), ("x", "<f4"), ("y", "<f4"), ("charge", "<u4")]
    )
    hits["cell"] = np.sort(random.integers(0, 1 << 24, hits.shape), axis=1)
    hits["x"] = np.round(random.normal(0, 30, hits.shape) * 64) / 64
    hits["y"] = np.round(random.normal(0, 30, hits.shape) * 64) / 64
    hits["charge"] = random.exponential(2000, hits.shape)
    noise = random.integers(0, 256, (OBJECTS, OBJECT_BYTES - packed_bytes), dtype=np.uint8)
    packed = np.frombuffer(hits.tobytes(), dtype=np.uint8).reshape(OBJECTS, packed_bytes)
    return np.concatenate([packed, noise], axis=1).tobytes()


def columns() -> bytes:
    """The columns of all collections."""
    random = np.random.default_rng(SEED)
    parts = [struct.pack("<Q", sum(len(names) for _, names in COLLECTIONS.values()))]
    for collection, (mean, names) in COLLECTIONS.items():
        offsets = np.concatenate([[0], np.cumsum(random.poisson(mean, EVENTS))]).astype("<u8")
        for name in names:
            label = f"{collection}_{name}".encode()
            parts += [
                struct.pack("<Q", len(label)),
                label,
                struct.pack("<Q", len(offsets)),
                offsets.tobytes(),
            ]
            parts.append(values(random, name, int(offsets[-1])).astype("<f4").tobytes())
    return b"".join(parts)


def rows() -> bytes:
    """The pool of objects of 100 bytes."""
    random = np.random.default_rng(SEED)
    made = np.zeros(ROWS, ROW)
    made["run"] = 7
    made["event"] = np.arange(ROWS)
    made["time"] = np.cumsum(random.exponential(1e-3, ROWS))
    for name in ("x", "y", "z"):
        made[name] = random.normal(0, 30, ROWS)
    made["energy"] = random.pareto(2.5, ROWS) + 0.5
    made["momentum"] = random.normal(0, 10, (ROWS, 3))
    made["covariance"] = np.round(random.normal(0, 1, (ROWS, 5)), 3)
    made["hits"] = random.poisson(12, (ROWS, 8))
    return made.tobytes()


def events() -> bytes:
    """The pool of events of 50 floats."""
    random = np.random.default_rng(SEED)
    made = np.empty((FLAT_EVENTS, FLAT_COLUMNS), "<f4")
    for column in range(FLAT_COLUMNS):
        made[:, column] = values(random, ("pt", "eta", "x", "emf", "nhits")[column % 5], FLAT_EVENTS)
    return made.tobytes()


def values(random: np.random.Generator, name: str, count: int) -> NDArray[np.float64]:
    """Random values, distributed like the named quantity."""
    if name in ("eta", "phi"):
        return random.uniform(-3.1416, 3.1416, count)
    if name in ("charge", "pdgid"):
        return random.choice([-211.0, -1.0, 1.0, 22.0, 130.0, 211.0], count)
    if name.startswith("n"):
        return random.poisson(12, count).astype(np.float64)
    if name in ("emf", "btag", "puppi"):
        return np.round(random.beta(0.5, 0.5, count), 3)
    if name in ("x", "y", "z", "d0", "z0"):
        return random.normal(0, 1, count)
    return random.pareto(2.5, count) + 0.5


def main() -> None:
    """Write one file under a temporary name, and rename it."""
    what, target = sys.argv[1], Path(sys.argv[2])
    building = target.with_suffix(".building")
    building.write_bytes({"objects": objects, "columns": columns, "rows": rows, "events": events}[what]())
    building.rename(target)


if __name__ == "__main__":
    main()
