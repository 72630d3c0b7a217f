"""HDF5: rows of a data set, written many at a time, as HDF5 prefers; a commit flushes and syncs the file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
from data import OBJECT_BYTES, ROW
from timing import sync

from . import Fetch, Fields


class Store:
    """A file with one data set."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.path = folder / "bench.h5"
        self.kind = kind

    def create(self, count: int) -> None:
        self.file = h5py.File(self.path, "w", libver="latest")
        shape, dtype = ((count,), ROW) if self.kind == "small" else ((count, OBJECT_BYTES), np.dtype("u1"))
        self.rows = self.file.create_dataset("objects", shape, dtype)

    def write(self, start: int, objects: Sequence[Fields]) -> None:
        for number, fields in enumerate(objects, start):
            if self.kind == "small":
                self.rows[number] = np.array(fields, ROW)
            else:
                self.rows[number] = np.frombuffer(fields[1], np.uint8)
        self.file.flush()
        sync(self.path)

    def fetcher(self) -> Fetch:
        self.file = h5py.File(self.path)
        rows = self.file["objects"]
        if self.kind == "small":
            return lambda number: tuple(rows[number].tolist())
        return lambda number: (number, rows[number])

    def close(self) -> None:
        self.file.close()
