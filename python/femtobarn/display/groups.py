"""The objects of an event and their collections, found along links from one object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import awkward as ak
import numpy as np

from .._exceptions import NotFoundError
from .._objects.objects import Object
from .._oid import Oid
from .._schema.types import ElementLink, Link, List, Node, Record, innermost, plain_name
from .columns import Columns, flat_values
from .forms import Form, geometry_of
from .rules import PARTICLES, Rule, rule_of

if TYPE_CHECKING:
    from .._snapshots import Snapshot

__all__ = ["Group", "Stored", "groups_of", "objects_from"]

STEPS_MAX = 3
"""Links from the first object to the farthest one that is shown."""

OBJECTS_MAX = 64
"""Most objects of one event that are shown."""

ITEMS_MAX = 20_000
"""Most items of one collection that are shown."""

LINKS_OF_PODIO = ("ObjectID", "LinkData")
"""Classes of lists that only say which item links to which."""


@dataclass(frozen=True, eq=False)
class Stored:
    """A stored object with all of its fields, read at once.

    Parameters
    ----------
    row
        An array of one record.
    """

    oid: Oid
    container: str
    record: Record
    row: ak.Array
    snapshot: Snapshot

    @classmethod
    def of(cls, found: Object) -> Stored:
        """Read an object."""
        view = found._view
        return cls(found.oid, view.name, view.definition.record, view.fetch([found.entry]), view.snapshot)

    def collections(self) -> Iterator[tuple[str, Record, ak.Array]]:
        """Yield the name, the class and the items of each list of records; a record is a list of one."""
        for member in self.record.fields:
            if isinstance(member.type, Record) and not member.type.is_tuple:
                yield member.name, member.type, self.row[member.name]
            elif isinstance(member.type, List) and isinstance(item := member.type.item, Record):
                yield member.name, item, self.row[member.name][0]

    def collection(self, name: str) -> ak.Array | None:
        """Return the items of a list of records, or None if the object has no such list."""
        node = self.record.by_name.get(name)
        is_list = isinstance(node, List) and isinstance(node.item, Record)
        return self.row[name][0] if is_list else None

    def links(self, name: str) -> list[Oid]:
        """Return the targets of a field of links, without null ones."""
        return _targets(self.row[name])

    @property
    def link_fields(self) -> list[str]:
        """Names of the fields of links to objects."""
        return [each.name for each in self.record.fields if isinstance(innermost(each.type), Link)]


@dataclass
class Group:
    """The items of one collection: their form in the drawing, and their members.

    An object is a group, too, of one item.
    """

    owner: Stored
    name: str
    class_name: str
    columns: Columns
    rule: Rule | None = None
    geometry: Form = field(default_factory=dict)
    left_out: int = 0
    """Items beyond the most that are shown."""

    def colours(self) -> list[tuple[str, str] | None] | None:
        """Return kinds and colours of particles by their PDG codes; None if the rule knows their kind."""
        codes = self.columns.number("pdg", "pdgid", "pid")
        is_known = self.rule is None or self.rule.kind not in ("particle", "candidate", "generated particle")
        if codes is None or is_known:
            return None
        return [PARTICLES.get(abs(int(code))) for code in np.nan_to_num(codes)]


def objects_from(first: Object, *, referrers: bool = False) -> list[Stored]:
    """Return an object and those that its links lead to, the nearest first.

    Parameters
    ----------
    referrers
        Whether objects that link to the first one, and those that they link to, are returned, too.
    """
    snapshot = first._view.snapshot
    waiting = [(first.oid, 0)]
    if referrers:
        waiting += [(found.oid, 1) for found in snapshot.referrers(first)]
    found: dict[Oid, Stored | None] = {}
    while waiting and len(found) < OBJECTS_MAX:
        oid, steps = waiting.pop(0)
        if oid in found:
            continue
        try:
            stored = Stored.of(first if oid == first.oid else snapshot.object(oid))
        except NotFoundError:  # A link to an object that was deleted.
            found[oid] = None
            continue
        found[oid] = stored
        if steps < STEPS_MAX:
            waiting += [(target, steps + 1) for target in _reached(stored)]
    return [stored for stored in found.values() if stored is not None]


def _reached(stored: Stored) -> Iterator[Oid]:
    """Yield the objects that an object and its collections link to."""
    for name in stored.link_fields:
        yield from stored.links(name)
    for _, record, items in stored.collections():
        for member in record.fields:
            if isinstance(innermost(member.type), Link | ElementLink):
                yield from dict.fromkeys(_targets(items[member.name]))


def _targets(links: ak.Array) -> list[Oid]:
    _, found = flat_values(links)
    columns = (found[name].to_list() for name in ("database", "container", "entry"))
    return [Oid(*members) for members in zip(*columns, strict=True) if members[1]]


def groups_of(stored: Stored) -> tuple[list[Group], dict[str, int]]:
    """Return an object and its collections that can be drawn, and the sizes of those that cannot."""
    groups = [_of_object(stored)]
    strength = _field_strength(stored)
    undrawn: dict[str, int] = {}
    for name, record, items in stored.collections():
        if not len(items):
            continue
        columns = Columns(items[:ITEMS_MAX], record)
        states = _states(stored, name, columns)
        rule = rule_of(record.class_name, name, lambda each: _can_draw(columns, each, states))  # noqa: B023
        if rule is None and not name.startswith("_") and record.class_name not in LINKS_OF_PODIO:
            undrawn[f"{stored.record.class_name}.{name}"] = len(items)
        if rule is None:
            continue
        rule = rule if strength is None else replace(rule, field=strength)
        geometry = geometry_of(columns, rule, states) or {}
        left_out = max(0, len(items) - ITEMS_MAX)
        groups.append(Group(stored, name, record.class_name, columns, rule, geometry, left_out))
    return groups, undrawn


def _field_strength(stored: Stored) -> float | None:
    """Return the magnetic field of an event of EDM4hep (T), or None if it has none."""
    if "magFieldBz" not in stored.record.by_name:
        return None
    values = ak.to_list(ak.flatten(stored.row["magFieldBz"], axis=None))
    return float(values[0]) if values else None


def _of_object(stored: Stored) -> Group:
    # Names of podio's lists for the members of collections begin so.
    named = (each for each in stored.record.fields if not each.name.startswith("_"))
    own = [each for each in named if not _is_collection(each.type)]
    columns = Columns(stored.row, Record(stored.record.class_name, tuple(own)))
    name = plain_name(stored.record.class_name)
    rule = rule_of(name, "", lambda each: _can_draw(columns, each, None))
    geometry = geometry_of(columns, rule) if rule is not None else None
    return Group(stored, "", name, columns, rule, geometry or {})


def _is_collection(node: Node) -> bool:
    if isinstance(node, Record):
        return not node.is_tuple
    return isinstance(node, List) and isinstance(node.item, Record)


def _can_draw(columns: Columns, rule: Rule, states: Columns | None) -> bool:
    return geometry_of(columns, rule, states) is not None


def _states(stored: Stored, name: str, columns: Columns) -> Columns | None:
    """Return EDM4hep's first state of each track, from the list beside the tracks; None if there is none."""
    begin, end = columns.number("trackstates_begin"), columns.number("trackstates_end")
    if begin is None or end is None:
        return None
    beside = re.compile(rf"_?{re.escape(name)}_(trackStates|[\d_]+)")
    for other, record, items in stored.collections():
        if record.class_name.partition("@")[0] == "TrackState" and beside.fullmatch(other) and len(items):
            first = np.where((end > begin) & (begin < len(items)), begin, 0).astype(np.int64)
            return Columns(items[first], record)
    return None
