"""One class for the objects of files whose fields differ.

A field that some files lack becomes optional, and is missing in their objects: zero, false or empty would
mean that a trigger did not fire, or that there were no muons. Numbers of different widths get the wider type.
An index that leads to elements of different collections, or to none in one of the files, is a number, and so
is one whose keys stand for different collections.
Any other difference is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from .._exceptions import InvalidError
from .meanings import Meaning
from .types import ElementLink, Field, Fixed, Link, List, Node, Optional, Primitive, Record, Variant

__all__ = ["NOTHING", "common_type", "required", "union"]

NOTHING = Variant(())
"""The type of a field without values, such as one behind links that are all null: any type can hold it."""


def union(classes: Sequence[tuple[str, Record]]) -> Record:
    """Return the fields of several classes: those of the first, then those that only others have.

    Parameters
    ----------
    classes
        The origin of each class, for error texts, and its fields.

    Raises
    ------
    InvalidError
        If a field has types that cannot be merged, or two classes have no field in common.
    """
    [(first, record), *others] = classes
    for origin, other in others:
        if not set(record.by_name) & set(other.by_name):
            raise InvalidError(
                f"{origin} and {first} have no field in common; import them into different containers"
            )
        record = _Merge(first, origin).records(record, other, "")
    return record


def common_type(name: str, types: Iterable[Node]) -> Node:
    """Return a type that holds the values of a column of several types; numbers if it has no value at all.

    Raises
    ------
    InvalidError
        If there is none.

    Examples
    --------
    >>> str(common_type("n", [Optional(NOTHING), List(Primitive("int8")), List(Primitive("int16"))]))
    'list[int16] | None'
    """
    found = list(dict.fromkeys(types))
    try:
        common = union([("", Record("", (Field(name, each),))) for each in found]).by_name[name]
    except InvalidError:
        shown = " and ".join(map(str, found))
        raise InvalidError(
            f"{name!r} is {shown} in different objects; they cannot be in one column"
        ) from None
    return _numbers_for_nothing(common)


def _numbers_for_nothing(node: Node) -> Node:
    if node == NOTHING:
        return Primitive("float64")
    if isinstance(node, List | Fixed | Optional):
        return replace(node, item=_numbers_for_nothing(node.item))
    if isinstance(node, Record):
        fields = (replace(field, type=_numbers_for_nothing(field.type)) for field in node.fields)
        return replace(node, fields=tuple(fields))
    return node


@dataclass(frozen=True)
class _Merge:
    """Merges two classes, and names their origins in error texts."""

    first: str
    origin: str

    def records(self, ours: Record, theirs: Record, path: str) -> Record:
        if ours.fields == theirs.fields:
            return ours
        others = {field.name: field for field in theirs.fields}
        fields = []
        for field in ours.fields:
            other = others.pop(field.name, None)
            place = f"{path}{field.name}"
            type_ = _optional(field.type) if other is None else self._nodes(field.type, other.type, place)
            fields.append(replace(field, type=type_, was=""))
        fields += [replace(field, type=_optional(field.type), was="") for field in others.values()]
        is_wider = [(each.name, each.type) for each in fields] != list(ours.by_name.items())
        return Record(ours.class_name, tuple(fields)) if is_wider else ours

    def _nodes(self, ours: Node, theirs: Node, path: str) -> Node:
        if ours == theirs or theirs == NOTHING:
            return ours
        if ours == NOTHING:
            return theirs
        if isinstance(ours, Optional) or isinstance(theirs, Optional):
            return Optional(self._nodes(required(ours), required(theirs), path))
        if isinstance(ours, Record) and isinstance(theirs, Record):
            return self.records(ours, theirs, f"{path}.")
        if isinstance(ours, List | Fixed) and isinstance(theirs, List | Fixed):
            item = self._nodes(ours.item, theirs.item, path)
            is_fixed = isinstance(ours, Fixed) and isinstance(theirs, Fixed) and ours.size == theirs.size
            return replace(ours, item=item) if is_fixed else List(item)
        wider = _wider(ours, theirs)
        if wider is None:
            raise InvalidError(
                f"field {path!r} is {ours} in {self.first} and {theirs} in {self.origin}; they cannot "
                "be in one; leave it out, with only= when importing"
            )
        return wider


def required(node: Node) -> Node:
    """Return a type without the possibility that values are missing."""
    return node.item if isinstance(node, Optional) else node


def _optional(node: Node) -> Node:
    """Return the type of a field that may be missing; links and variants may be missing without that."""
    return node if isinstance(node, Optional | Link | ElementLink | Variant) else Optional(node)


def _wider(ours: Node, theirs: Node) -> Node | None:
    """Return the type of integers, or of real numbers, that holds both without loss, or None."""
    if not isinstance(ours, Primitive) or not isinstance(theirs, Primitive):
        return None
    elements = [
        each.meaning for each in (ours, theirs) if each.meaning is not None and each.meaning.is_element
    ]
    if not elements and ours.meaning != theirs.meaning:
        return None
    wider = np.promote_types(ours.dtype, theirs.dtype)
    are_real = {kind == "f" for kind in (ours.dtype.kind, theirs.dtype.kind, wider.kind)}
    is_number = {ours.dtype.kind, theirs.dtype.kind} <= set("iuf")
    if not is_number or len(are_real) > 1:
        return None
    return Primitive(wider.name, _common(elements) if len(elements) == 2 else None)


def _common(elements: Sequence[Meaning]) -> Meaning | None:
    """Return the meaning of indices in both classes: elements of one collection, or of one by its key."""
    ours, theirs = elements
    if ours.name != theirs.name or bool(ours.members) != bool(theirs.members):
        return None
    if ours == theirs:
        return ours
    members = tuple(dict.fromkeys(ours.members + theirs.members))
    # Older versions of podio number the collections of each file anew.
    are_unique = all(len({member[part] for member in members}) == len(members) for part in (0, 1))
    return replace(ours, members=members) if are_unique else None
