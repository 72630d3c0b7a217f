"""Groups by the targets of links: an object, a collection of an object, a collection beside another."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .._schema.types import ElementLink, Link
from .groups import Group

__all__ = ["Pairs", "Place", "Targets"]

Pairs = npt.NDArray[np.int64]

Place = tuple[int, int, int]
"""Database, container and entry of an object."""


class Targets:
    """The groups of one event, for links to look up."""

    def __init__(self, groups: list[Group]) -> None:
        self.groups = groups
        self.podio_names: dict[str, dict[int, str]] = {}
        """Names of podio's collections by their numbers, for each container; read when they are needed."""
        self._by_place: dict[Place, dict[str, int]] = {}
        for number, group in enumerate(groups):
            self._by_place.setdefault(_place(group), {})[group.name] = number

    def element_group(self, place: Place, node: Link | ElementLink) -> int | None:
        """Return the group that a link leads to: an object, or the collection of one."""
        members = self._by_place.get(place, {})
        if isinstance(node, Link):
            return members.get("")
        named = node.target.partition(".")[2]
        return members.get(named) if named else _only(members)

    def counted_in(self, group: Group, name: str) -> int | None:
        """Return the collection of a field's name beside a group, or that of the object that it links to."""
        if name not in group.owner.link_fields:
            return self._by_place[_place(group)].get(name)
        linked = group.owner.links(name)
        if not linked:
            return None
        oid = linked[0]
        return _only(self._by_place.get((oid.database, oid.container, oid.entry), {}))

    def beside(self, group: Group, lower_name: str) -> int | None:
        """Return the collection of the same object with a name, whatever its case."""
        members = self._by_place[_place(group)]
        return next((number for name, number in members.items() if name.lower() == lower_name), None)


def _place(group: Group) -> Place:
    oid = group.owner.oid
    return oid.database, oid.container, oid.entry


def _only(members: dict[str, int]) -> int | None:
    """Return the only collection of an object, or the last one: links without a name mean no other."""
    return next((number for name, number in reversed(members.items()) if name), None)
