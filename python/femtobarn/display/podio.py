"""Relations of podio's models, such as EDM4hep: ranges of ``ObjectID`` beside a collection.

An ``ObjectID`` is the number of a collection, and the index of an item in it. Numbers have names in the
container ``podio_metadata``, which is imported with the events. Older files lack it: there a number means
the only collection of the class that has so many items, and nothing if there are several.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import awkward as ak
import numpy as np

from .._exceptions import NotFoundError
from .._schema.types import plain_name
from .groups import Group, Stored
from .targets import Pairs, Targets

__all__ = ["podio_relations"]

METADATA = "podio_metadata"

TARGET_CLASSES = {
    "tracks": "TrackData",
    "clusters": "ClusterData",
    "particles": "ReconstructedParticleData",
    "hits": "CalorimeterHitData",
    "trackerHits": "TrackerHitData",
    "parents": "MCParticleData",
    "daughters": "MCParticleData",
}
"""Classes that relations lead to, for files without names of collections."""


def podio_relations(group: Group, targets: Targets) -> Iterator[tuple[str, int, Pairs]]:
    """Yield the relations of a collection to others of the same object, to many items or to one, and the
    links that are stored in collections of their own."""
    for name, first, last in _ranges(group):
        ids = _object_ids(group, name)
        if ids is None:
            continue
        stop = np.minimum(last, len(ids))
        items = np.repeat(np.arange(len(first)), np.maximum(stop - first, 0))
        within = np.concatenate([np.arange(a, b) for a, b in zip(first, stop, strict=True)])
        yield from _resolved(group, targets, name, items, ids[within])
    yield from _relations_to_one(group, targets)
    yield from _link_collections(group, targets)


def _relations_to_one(group: Group, targets: Targets) -> Iterator[tuple[str, int, Pairs]]:
    prefix = f"_{group.name}_"
    for field in group.owner.record.fields:
        name = field.name.removeprefix(prefix)
        # An underscore begins the name of a longer collection, such as SiTracks_Refitted beside SiTracks.
        if name == field.name or "_" in name or f"{name}_begin" in group.columns.leaves:
            continue
        ids = group.owner.collection(field.name)
        if ids is not None and "collectionID" in ids.fields and len(ids) == group.columns.count:
            yield from _resolved(group, targets, name, np.arange(len(ids)), ids)


def _link_collections(group: Group, targets: Targets) -> Iterator[tuple[str, int, Pairs]]:
    """Yield links of podio's LinkCollection, such as those from reconstructed to generated particles."""
    numbers = [number for number, name in _names(group, targets).items() if name == group.name]
    for link, record, _ in group.owner.collections():
        if not numbers or plain_name(record.class_name) != "LinkData":
            continue
        from_ids, to_ids = (group.owner.collection(f"_{link}_{end}") for end in ("from", "to"))
        if from_ids is None or to_ids is None:
            continue
        own = ak.to_numpy(from_ids["collectionID"]) == numbers[0]
        items = ak.to_numpy(from_ids["index"][own]).astype(np.int64)
        yield from _resolved(group, targets, link, items, to_ids[own])


def _ranges(group: Group) -> Iterator[tuple[str, Pairs, Pairs]]:
    """Yield the members of a collection that are ranges of a relation, in their order."""
    for path in group.columns.numbers:
        name = path.removesuffix("_begin")
        last = group.columns.numbers.get(f"{name}_end")
        if name != path and last is not None:
            yield name, group.columns.numbers[path].astype(np.int64), last.astype(np.int64)


def _object_ids(group: Group, relation: str) -> ak.Array | None:
    """Return the ``ObjectID`` of a relation, by its name or, in older files, by its position."""
    stored = group.owner
    found = stored.collection(f"_{group.name}_{relation}")
    if found is None:
        places = [name for name, _, _ in _ranges(group) if name in TARGET_CLASSES or name == "particleIDs"]
        if relation in places:
            found = stored.collection(f"{group.name}_{places.index(relation)}")
    return found if found is not None and "collectionID" in found.fields else None


def _resolved(
    group: Group, targets: Targets, relation: str, items: Pairs, ids: ak.Array
) -> Iterator[tuple[str, int, Pairs]]:
    numbers, indices = ak.to_numpy(ids["collectionID"]), ak.to_numpy(ids["index"]).astype(np.int64)
    names = _names(group, targets)
    for number in np.unique(numbers).tolist():
        chosen = numbers == number
        name = names.get(number)
        target = targets.beside(group, name.lower()) if name is not None else None
        if not names:
            target = _only_candidate(targets, group, relation, int(indices[chosen].max()))
        if target is not None:
            yield relation, target, np.stack([items[chosen], indices[chosen]], axis=1)


def _only_candidate(targets: Targets, group: Group, relation: str, index_max: int) -> int | None:
    wanted = TARGET_CLASSES.get(relation)
    found = [
        number
        for number, other in enumerate(targets.groups)
        if other.owner is group.owner
        and re.fullmatch(rf"{wanted}(@\w+)?", other.class_name)
        and other.columns.count > index_max
    ]
    return found[0] if len(found) == 1 else None


def _names(group: Group, targets: Targets) -> dict[int, str]:
    container = group.owner.container
    if container not in targets.podio_names:
        targets.podio_names[container] = _collection_names(group.owner)
    return targets.podio_names[container]


def _collection_names(stored: Stored) -> dict[int, str]:
    """Return the names of collections by their numbers, from the metadata beside an event."""
    database, _, container = stored.container.partition("/")
    try:
        rows = stored.snapshot[f"{database}/{METADATA}"][:1].arrays()
    except NotFoundError:
        return {}
    infos = rows[f"{container}___CollectionTypeInfo"][0]
    return dict(zip(infos["collectionID"].to_list(), infos["name"].to_list(), strict=True))
