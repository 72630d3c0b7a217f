"""Links between items, in each of the forms in which models of events store them.

=====================================  ==================================================================
stored as                              for example
=====================================  ==================================================================
links of Femtobarn                     ``Jet.tracks``: to elements of the collection of another object
indices, as the rule of a class says   ``Track.pixels``: in the collection that the object links to
indices, as the class says             ``Muon.jetIdx``: in the collection ``Jet`` of the same object
``ObjectID``, of podio                 ``PandoraPFOs.tracks_begin`` in ``_PandoraPFOs_tracks``
=====================================  ==================================================================
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import awkward as ak
import numpy as np

from .._schema.references import BEGIN
from .._schema.types import ElementLink, Link, Primitive, innermost
from .columns import flat_values
from .groups import Group
from .podio import podio_relations
from .targets import Pairs, Targets

__all__ = ["Relation", "relations_of"]


@dataclass(frozen=True)
class Relation:
    """Links of one member from items of a group to items of another one.

    Parameters
    ----------
    name
        The member: "tracks".
    source, target
        Numbers of the groups.
    pairs
        Shape (links, 2): indices of the items in both groups.
    """

    name: str
    source: int
    target: int
    pairs: Pairs


def relations_of(groups: list[Group]) -> list[Relation]:
    """Return all links between the items of groups."""
    targets = Targets(groups)
    found = []
    for source, group in enumerate(groups):
        links = [*_links(group, targets), *_indices(group, targets), *podio_relations(group, targets)]
        for name, target, pairs in links:
            inside = pairs[:, 1] < groups[target].columns.count
            inside &= (pairs >= 0).all(axis=1) & (pairs[:, 0] < group.columns.count)
            if inside.any():
                found.append(Relation(name, source, target, pairs[inside]))
    return found


def _links(group: Group, targets: Targets) -> Iterator[tuple[str, int, Pairs]]:
    """Yield links to objects, and to elements of their collections."""
    for name, (node, values) in group.columns.leaves.items():
        inner = innermost(node)
        if not isinstance(inner, Link | ElementLink):
            continue
        items, values = flat_values(values)
        columns = [ak.to_numpy(values[each]).tolist() for each in ("database", "container", "entry")]
        elements = ak.to_numpy(values["element"]) if isinstance(inner, ElementLink) else None
        oids = list(zip(*columns, strict=True))
        for place in dict.fromkeys(oids):
            target = targets.element_group(place, inner)
            if target is None:
                continue
            chosen = np.array([oid == place for oid in oids])
            to = np.zeros(chosen.sum(), np.int64) if elements is None else elements[chosen]
            yield name, target, np.stack([items[chosen], to], axis=1).astype(np.int64)


def _indices(group: Group, targets: Targets) -> Iterator[tuple[str, int, Pairs]]:
    """Yield the targets of the indices of a collection."""
    named = {} if group.rule is None else dict(group.rule.indices)
    for name, (node, values) in group.columns.leaves.items():
        inner = innermost(node)
        if not isinstance(inner, Primitive) or inner.dtype.kind not in "iu":
            continue
        if name in named:
            target = targets.counted_in(group, named[name])
        elif inner.meaning is not None and inner.meaning.is_element and not name.endswith(BEGIN):
            target = targets.counted_in(group, inner.meaning.name)
        else:
            continue
        if target is None:
            continue
        items, values = flat_values(values)
        yield name, target, np.stack([items, ak.to_numpy(values).astype(np.int64)], axis=1)
