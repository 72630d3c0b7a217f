"""Femtobarn: objects of a persistent class, fetched by their OIDs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import femtobarn as fb

from . import FIELDS_OF, Fetch, Fields


@fb.persistent
class Hit:
    """10 fields and 100 bytes."""

    run: fb.uint32
    event: fb.uint64
    time: fb.float64
    x: fb.float64
    y: fb.float64
    z: fb.float64
    energy: fb.float64
    momentum: fb.array[fb.float32, Literal[3]]
    covariance: fb.array[fb.float32, Literal[5]]
    hits: fb.array[fb.uint16, Literal[8]]


@fb.persistent
class Blob:
    """A number and 10 KB."""

    id: fb.uint64
    blob: list[fb.uint8]


class Store:
    """A federation with one container, and an index over the numbers."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.path = folder / "bench.fed"
        self.kind = kind

    def create(self, count: int) -> None:
        del count
        self.federation = fb.create(self.path)

    def write(self, start: int, objects: Sequence[Fields]) -> None:
        with self.federation.transaction() as transaction:
            container = transaction.database("d", create=True).container(
                "objects", Hit if self.kind == "small" else Blob, create=True
            )
            if self.kind == "small":
                for run, event, time, x, y, z, energy, momentum, covariance, hits in objects:
                    container.append(
                        Hit(
                            run=run, event=event, time=time, x=x, y=y, z=z, energy=energy,
                            momentum=momentum, covariance=covariance, hits=hits,
                        )
                    )  # fmt: skip
            else:
                for number, blob in objects:
                    container.append(Blob(id=number, blob=blob))

    def fetcher(self) -> Fetch:
        self.federation = fb.open(self.path)
        snapshot = self.federation.snapshot()
        oids, fields_of = snapshot["d/objects"].oids, FIELDS_OF[self.kind]
        return lambda number: fields_of(snapshot.object(oids[number]))

    def close(self) -> None:
        self.federation.close()
