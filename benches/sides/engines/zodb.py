"""ZODB: persistent objects in a BTree, in a FileStorage, with a cache large enough for all objects in use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import persistent
import transaction
import ZODB
import ZODB.FileStorage
from BTrees.IOBTree import IOBTree

from . import FIELDS_OF, Fetch, Fields

CACHE_OBJECTS = 20_000


class Hit(persistent.Persistent):  # type: ignore[misc]
    """10 fields and 100 bytes."""

    def __init__(self, fields: Fields) -> None:
        (
            self.run, self.event, self.time, self.x, self.y, self.z, self.energy,
            self.momentum, self.covariance, self.hits,
        ) = fields  # fmt: skip


class Blob(persistent.Persistent):  # type: ignore[misc]
    """A number and 10 KB."""

    def __init__(self, fields: Fields) -> None:
        self.id, self.blob = fields


class Store:
    """A database with one IOBTree."""

    def __init__(self, folder: Path, kind: str) -> None:
        self.path = folder / "data.fs"
        self.kind = kind

    def create(self, count: int) -> None:
        del count
        self.root = self._open()
        self.root["objects"] = IOBTree()
        transaction.commit()

    def write(self, start: int, objects: Sequence[Fields]) -> None:
        tree, cls = self.root["objects"], Hit if self.kind == "small" else Blob
        for number, fields in enumerate(objects, start):
            tree[number] = cls(fields)
        transaction.commit()

    def fetcher(self) -> Fetch:
        tree, fields_of = self._open()["objects"], FIELDS_OF[self.kind]
        return lambda number: fields_of(tree[number])

    def close(self) -> None:
        self.database.close()

    def _open(self) -> Any:
        storage = ZODB.FileStorage.FileStorage(str(self.path))
        self.database = ZODB.DB(storage, cache_size=CACHE_OBJECTS)
        return self.database.open().root()
