"""No store, which is the limit of the interpreter: small objects of a class, made from a mapped file."""

from __future__ import annotations

import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from timing import sync

from . import SMALL, Fetch, Fields, fields_of_small


class Hit:
    """10 fields and 100 bytes."""

    __slots__ = ("covariance", "energy", "event", "hits", "momentum", "run", "time", "x", "y", "z")

    def __init__(self, run: int, event: int, time: float, x: float, y: float, z: float, *rest: Any) -> None:
        self.run, self.event, self.time, self.x, self.y, self.z = run, event, time, x, y, z
        self.energy, self.momentum, self.covariance, self.hits = rest[0], rest[1:4], rest[4:9], rest[9:]


class Store:
    """A file of packed objects, which is synced at each commit."""

    def __init__(self, folder: Path, kind: str) -> None:
        assert kind == "small"
        self.path = folder / "packed.bin"

    def create(self, count: int) -> None:
        del count
        self.path.touch()

    def write(self, start: int, objects: Sequence[Fields]) -> None:
        del start
        written = bytearray()
        for *numbers, momentum, covariance, hits in objects:
            written += packed(Hit(*numbers, *momentum, *covariance, *hits))
        with self.path.open("ab") as file:
            file.write(written)
        sync(self.path)

    def fetcher(self) -> Fetch:
        with self.path.open("rb") as file:
            memory = self.memory = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return lambda number: fields_of_small(Hit(*SMALL.unpack_from(memory, number * SMALL.size)))

    def close(self) -> None:
        self.memory.close()


def packed(hit: Hit) -> bytes:
    """The 100 bytes of an object."""
    return SMALL.pack(
        hit.run, hit.event, hit.time, hit.x, hit.y, hit.z, hit.energy,
        *hit.momentum, *hit.covariance, *hit.hits,
    )  # fmt: skip
