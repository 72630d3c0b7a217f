"""The classes of workloads, and the initial data, which are written before clients start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

import femtobarn as fb

from .scenario import Content, Data, Scenario

__all__ = ["Item", "LinkedItem", "Payloads", "Tag", "names_of", "prepare", "repeat_links"]


@fb.persistent
class Item:
    """An object with a payload."""

    number: fb.uint64
    payload: list[fb.float32]


@fb.persistent
class LinkedItem:
    """An object with a payload and links."""

    number: fb.uint64
    payload: list[fb.float32]
    links: list[fb.link[Item]]


@fb.persistent
class Tag:
    """A value to select by, and a link to the tagged object."""

    value: fb.float32
    item: fb.link[Item]


class Payloads:
    """Payloads like detector data: normally distributed numbers, different in each object.

    Sizes are rounded down to multiples of four bytes.
    """

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self._pool = self._random.normal(size=1 << 20).astype(np.float32)

    def one(self, size: int) -> Any:
        """Return the payload of an object, which the caller must not change."""
        count = size // 4
        pool = self._pool if count <= len(self._pool) // 2 else np.resize(self._pool, 2 * count)
        start = int(self._random.integers(len(pool) - count + 1))
        return pool[start : start + count]

    def many(self, objects: int, size: int) -> Any:
        """Return the payloads of some objects, of shape (objects, size / 4)."""
        return np.resize(self._pool, (objects, size // 4))


def repeat_links(oids: list[fb.Oid], objects: int) -> Any:
    """Return a column of links for some objects, with all of the links in each object."""
    import awkward as ak  # clients that do not write links in bulk start faster without it

    ranges = [fb.OidRange(oid.database, oid.container, oid.entry, oid.entry + 1) for oid in oids]
    records = np.concatenate([one.to_numpy() for one in ranges])
    return ak.unflatten(ak.from_numpy(np.tile(records, objects)), len(oids))


def names_of(scenario: Scenario, client: int, part: int = 0) -> dict[str, Any]:
    """Return the values for the templates of a client's names."""
    disks = scenario.simulation.disks
    return {"client": client, "disk": disks.name(client) if disks else "disk0", "part": part}


def prepare(federation: fb.Federation, scenario: Scenario, clients: int) -> Iterator[int]:
    """Write the initial data, one database after the other; yield the payload of each."""
    payloads = Payloads(seed=1)
    for data in scenario.data:
        for owner in range(_owners(data, scenario, clients)):
            names = names_of(scenario, owner)
            place = names["disk"] if scenario.simulation.disks else None
            with federation.transaction(message="initial data") as txn:
                database = txn.database(data.database.format(**names), create=True, place=place)
                yield _fill(database, data, payloads)


def _owners(data: Data, scenario: Scenario, clients: int) -> int:
    if data.each == "client":
        return clients
    disks = scenario.simulation.disks
    return min(disks.count, clients) if data.each == "disk" and disks else 1


def _fill(database: fb.Database, data: Data, payloads: Payloads) -> int:
    """Write the containers of a database in turn, a chunk at a time; tags come after their objects."""
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
"""Bytes of a tag: its value and its link."""


def _items(first: int, count: int, content: Content, payloads: Payloads) -> dict[str, Any]:
    numbers = np.arange(first, first + count, dtype=np.uint64)
    return {"number": numbers, "payload": payloads.many(count, content.size)}


def _tags(of: list[fb.OidRange], count: int) -> dict[str, Any]:
    """Tags of the first objects, with values evenly spread from 0 to 1 in random order."""
    every = np.concatenate([part.to_numpy() for part in of])[:count]
    values = np.random.default_rng(2).permutation(len(every)) / len(every)
    return {"value": values.astype(np.float32), "item": every}
