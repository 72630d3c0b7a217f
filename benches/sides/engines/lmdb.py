"""LMDB: values packed with `struct`, appended under ascending keys, and read without a copy."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import lmdb

from . import SMALL, Fetch, Fields

KEY = struct.Struct(">Q")
MAP_BYTES = 4 << 30


class Store:
    """An environment with one tree."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.path = folder / "bench.lmdb"
        self.kind = kind

    def create(self, count: int) -> None:
        del count
        self._open()

    def write(self, start: int, objects: Sequence[Fields]) -> None:
        with self.environment.begin(write=True) as transaction:
            for number, fields in enumerate(objects, start):
                transaction.put(KEY.pack(number), self._packed(fields), append=True)

    def fetcher(self) -> Fetch:
        self._open()
        get: Any = self.environment.begin(buffers=True).get
        if self.kind == "small":
            return lambda number: SMALL.unpack(get(KEY.pack(number)))
        return lambda number: (number, get(KEY.pack(number)))

    def close(self) -> None:
        self.environment.close()

    def _packed(self, fields: Fields) -> bytes:
        if self.kind == "blob":
            return bytes(fields[1])
        *numbers, momentum, covariance, hits = fields
        return SMALL.pack(*numbers, *momentum, *covariance, *hits)

    def _open(self) -> None:
        self.environment = lmdb.open(str(self.path), map_size=MAP_BYTES)
