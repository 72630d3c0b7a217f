"""The objects of workloads, and the databases that are there before clients begin."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import femtobarn as fb

from .scenario import Content, Data, Scenario

__all__ = ["Item", "LinkedItem", "Payloads", "Tag", "names_of", "prepare", "same_links"]


@fb.persistent
class Item:
    """An object of so many bytes."""

    number: fb.uint64
    payload: list[fb.float32]


@fb.persistent
class LinkedItem:
    """An object of so many bytes with links to others."""

    number: fb.uint64
    payload: list[fb.float32]
    links: list[fb.link[Item]]


@fb.persistent
class Tag:
    """What a selection looks at, and the object that it is of."""

    value: fb.float32
    item: fb.link[Item]


class Payloads:
    """Payloads as detectors have them: numbers around zero, of which each object has other ones.

    Bytes are rounded down to whole numbers of four.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._pool = self._random.normal(size=1 << 20).astype(np.float32)

    def one(self, size: int) -> Any:
        """Return the payload of an object; it must not be changed."""
        count = size // 4
        pool = self._pool if count <= len(self._pool) // 2 else np.resize(self._pool, 2 * count)
        start = int(self._random.integers(len(pool) - count + 1))
        return pool[start : start + count]

    def many(self, objects: int, size: int) -> Any:
        """Return the payloads of some objects, of shape (objects, size / 4)."""
        return np.resize(self._pool, (objects, size // 4))


def same_links(oids: list[fb.Oid], objects: int) -> Any:
    """Return the links of so many objects, each of which has them all."""
    import awkward as ak  # other clients start without it

    ranges = [fb.OidRange(oid.database, oid.container, oid.entry, oid.entry + 1) for oid in oids]
    records = np.concatenate([one.to_numpy() for one in ranges])
    return ak.unflatten(ak.from_numpy(np.tile(records, objects)), len(oids))


def names_of(scenario: Scenario, client: int, part: int = 0) -> dict[str, Any]:
    """Return what the templates of a client's names stand for."""
    disks = scenario.play.disks
    return {"client": client, "disk": disks.name(client) if disks else "disk0", "part": part}


def prepare(federation: fb.Federation, scenario: Scenario, clients: int) -> Iterator[int]:
    """Write the data that clients find, one database after the other; yield the bytes of each."""
    payloads = Payloads(seed=1)
    for data in scenario.data:
        for owner in range(_owners(data, scenario, clients)):
            names = names_of(scenario, owner)
            place = names["disk"] if scenario.play.disks else None
            with federation.transaction(message="what is there before") as txn:
                database = txn.database(data.database.format(**names), create=True, place=place)
                yield _fill(database, data, payloads)


def _owners(data: Data, scenario: Scenario, clients: int) -> int:
    if data.each == "client":
        return clients
    disks = scenario.play.disks
    return min(disks.count, clients) if data.each == "disk" and disks else 1


def _fill(database: fb.Database, data: Data, payloads: Payloads) -> int:
    """Write the containers of a database, in turn if that is wanted, tags after what they are of."""
    writers: dict[str, fb.ContainerWriter] = {}
    oids: dict[str, list[fb.OidRange]] = {name: [] for name in data.containers}
    left = {name: content.objects for name, content in data.containers.items()}
    for name, content in data.containers.items():
        cls = Tag if content.tags_of else Item
        writers[name] = database.container(name, cls, create=True, **data.layout)
    while any(left.values()):
        for name, content in data.containers.items():
            count = min(left[name], content.chunk or content.objects)
            first = content.objects - left[name]
            left[name] -= count
            if count and not content.tags_of:
                columns = _items(first, count, content, payloads)
                oids[name].append(writers[name].extend(columns))
    for name, content in data.containers.items():
        if content.tags_of:
            writers[name].extend(_tags(oids[content.tags_of], content.objects))
    return sum(content.objects * (content.size or TAG_BYTES) for content in data.containers.values())


TAG_BYTES = 20
"""Bytes of a tag: a number and a link."""


def _items(first: int, count: int, content: Content, payloads: Payloads) -> dict[str, Any]:
    numbers = np.arange(first, first + count, dtype=np.uint64)
    return {"number": numbers, "payload": payloads.many(count, content.size)}


def _tags(of: list[fb.OidRange], count: int) -> dict[str, Any]:
    """Tags whose values are spread evenly over 0 to 1, each of one object, without order."""
    every = np.concatenate([part.to_numpy() for part in of])[:count]
    values = np.random.default_rng(2).permutation(len(every)) / len(every)
    return {"value": values.astype(np.float32), "item": every}
