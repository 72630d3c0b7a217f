"""Scenes: the drawing of one event on the page, as JSON.

======================  =================================================================================
member                  is
======================  =================================================================================
``title``, ``oid``      name of the container and position of the object; its OID
``outline``             ``radius`` and ``half_length`` of the cylinder that the tracker fills, in metres
``groups``              the object, its collections, and those of the objects that it links to
``links``               ``name``, ``source`` and ``target`` (numbers of groups), and ``pairs``: the index of
                        an item in the first, then in the second, and so on
``undrawn``             sizes of collections without positions and momenta, by class and field
======================  =================================================================================

A group has ``name``, ``class``, ``oid`` and ``owner`` (the group of its object), ``kind``, ``form``,
``colour``, ``shown`` and ``radius`` from its rule, ``count`` and ``left_out``, ``table`` (members to values
of all items), ``geometry`` (numbers of the form, see ``forms``; null is not drawn), and perhaps ``kinds``
(kind and colour of single items). A shape is an item of a group that has a form.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._objects.objects import Object
from .columns import Numbers
from .groups import Group, groups_of, objects_from
from .relations import relations_of

__all__ = ["scene_of"]

RADIUS, HALF_LENGTH = 1.2, 2.9
"""Outline of the tracker of events without positions (m): that of a general purpose detector."""

BARREL_MIN = 5
"""Positions around the beam that make an outline."""

DECIMALS = 5
"""Decimal places of drawn values: 10 micrometres, and 10 keV."""


def scene_of(found: Object, *, referrers: bool = False) -> dict[str, Any]:
    """Return the scene of an object and of the objects that its links lead to.

    Parameters
    ----------
    referrers
        Whether objects that link to it are shown, too; see :meth:`Snapshot.referrers`.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> @fb.persistent
    ... class Jet:
    ...     pt: fb.float32
    ...     eta: fb.float32
    ...     phi: fb.float32
    >>> @fb.persistent
    ... class Event:
    ...     run: int
    ...     jets: list[Jet]
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> with fed.transaction() as txn:
    ...     events = txn.database("mc", create=True).container("events", Event, create=True)
    ...     oid = events.append(Event(run=7, jets=[Jet(pt=30, eta=0.5, phi=1)]))
    >>> event, jets = scene_of(fed["mc/events"][0])["groups"]
    >>> event["table"], jets["kind"], jets["geometry"]
    ({'run': [7]}, 'jet', {'pt': [30.0], 'phi': [1.0], 'eta': [0.5]})
    """
    groups: list[Group] = []
    owners: list[int] = []
    undrawn: dict[str, int] = {}
    for stored in objects_from(found, referrers=referrers):
        own, without = groups_of(stored)
        owners += [len(groups)] * len(own)
        groups += own
        undrawn |= without
    links = [
        {
            "name": relation.name,
            "source": relation.source,
            "target": relation.target,
            "pairs": relation.pairs.ravel().tolist(),
        }
        for relation in relations_of(groups)
    ]
    return {
        "title": f"{found._view.name} {found.entry}",
        "oid": str(found.oid),
        "outline": _outline(groups),
        "groups": [_as_json(group, owner) for group, owner in zip(groups, owners, strict=True)],
        "links": links,
        "undrawn": undrawn,
    }


def _as_json(group: Group, owner: int) -> dict[str, Any]:
    rule = group.rule
    form: dict[str, Any] = {
        "name": group.name,
        "class": group.class_name,
        "container": group.owner.container,
        "oid": str(group.owner.oid),
        "owner": owner,
        "kind": "object" if rule is None else rule.kind,
        "form": None if rule is None else rule.form,
        "count": group.columns.count,
        "left_out": group.left_out,
        "table": group.columns.table(),
        "geometry": {name: _rounded(values) for name, values in group.geometry.items()},
    }
    if rule is not None:
        form |= {"colour": rule.colour, "shown": rule.shown, "radius": rule.radius}
    kinds = group.colours()
    return form if kinds is None else form | {"kinds": kinds}


def _rounded(values: Numbers) -> list[float | None]:
    with np.errstate(over="ignore"):  # Of numbers near the largest, which some models take for a missing one.
        rounded = np.round(values, DECIMALS)
    is_known = np.isfinite(rounded).tolist()
    return [value if known else None for value, known in zip(rounded.tolist(), is_known, strict=True)]


def _outline(groups: list[Group]) -> dict[str, float]:
    """Return the cylinder around the hits of trackers, inside the clusters, or around what has no rule, or
    else a usual one."""
    for kind, choose in (("hit", np.max), ("cluster", np.min), ("item", np.max)):
        places = [
            group.geometry
            for group in groups
            if group.rule is not None and group.rule.kind == kind and "x" in group.geometry
        ]
        if not places:
            continue
        x, y, z = (np.concatenate([each[axis] for each in places]) for axis in "xyz")
        radius, length = np.hypot(x, y), np.abs(z)
        is_known = np.isfinite(radius) & (radius > 0)
        in_barrel = is_known & (radius > length)
        if in_barrel.sum() >= BARREL_MIN:
            limit = float(choose(radius[in_barrel]))
            reach = 1.3 * limit if kind == "cluster" else float(np.max(length[is_known]))
            margin = 0.98 if kind == "cluster" else 1.1
            return {"radius": round(margin * limit, 3), "half_length": round(max(1.05 * reach, limit), 3)}
    return {"radius": RADIUS, "half_length": HALF_LENGTH}
