"""Engines that write and fetch objects one by one, each as its documentation recommends.

Each module has one engine, `Store`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

Fields = tuple[Any, ...]
"""The values of an object in the order of its fields: the 10 of `data.ROW`, or a number and bytes."""
Fetch = Callable[[int], Fields]
SMALL = struct.Struct("<IQddddd3f5f8H")
"""The 100 bytes of a small object, packed."""


class Engine(Protocol):
    """A store in a folder, of objects of one kind: `small` or `blob`."""

    def __init__(self, folder: Path, kind: str) -> None: ...

    def create(self, count: int) -> None:
        """Create the store, for this number of objects."""

    def write(self, start: int, objects: Sequence[Fields]) -> None:
        """Store objects with numbers from `start` on, one by one, and commit durably."""

    def fetcher(self) -> Fetch:
        """Open the store, and return a function that fetches an object by its number."""

    def close(self) -> None:
        """Close the store."""


def fields_of_small(it: Any) -> Fields:
    """All fields of an object of a class."""
    return (
        it.run, it.event, it.time, it.x, it.y, it.z, it.energy, it.momentum, it.covariance, it.hits,
    )  # fmt: skip


def fields_of_blob(it: Any) -> Fields:
    """The number and the bytes."""
    return it.id, it.blob


FIELDS_OF = {"small": fields_of_small, "blob": fields_of_blob}
