"""Objects whose collections lead to each other by indices: ``event.Muon[0].jet`` is an item of ``event.Jet``.

An array or record of such an object knows the object, and what of it is selected still does. Arrays of many
objects do not: there the link is part of the expression, as in ``view.arrays("Muon.jet.pt")``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from .._data.arrays import empty_tree
from .._data.picking import picked, picked_ranges
from .._data.results import awkward_of
from .._femtobarn import Object
from .._lazy import ak
from .._schema.references import Reference, reference_in, references_by_class
from .._schema.types import Record, innermost, plain_name
from .behaviours import array_behavior

__all__ = ["owning_class"]

OWNER = "@femtobarn.owner"
"""Attribute of an awkward array that holds the object and the name of the field that it is a part of. It is
not pickled."""


class OwningObject(Object):
    """An object with links by indices in its collections, or to them."""

    _record: ClassVar[Record]
    _lists: ClassVar[frozenset[str]]
    """Names of the fields that are lists of records."""
    _behavior: ClassVar[tuple[Any, Any]] = (None, None)
    """The behaviours of all declared classes, and those of this object's arrays that were made of them."""

    def __getattribute__(self, name: str) -> Any:
        try:
            value = super().__getattribute__(name)
        except AttributeError:
            reference = None if name.startswith("_") else reference_in(type(self)._record, name)
            if reference is None:
                raise
            return _elements(reference, self, self, name)
        return _owned(value, self, name) if name in type(self)._lists else value

    def __getitem__(self, name: str) -> Any:
        value = super().__getitem__(name)
        return _owned(value, self, name) if name in type(self)._lists else value


@cache
def owning_class(record: Record) -> type[OwningObject]:
    """Return the class of objects with the fields of a record, some of which are indices."""
    lists = frozenset(
        field.name
        for field in record.fields
        if not isinstance(field.type, Record) and isinstance(innermost(field.type), Record)
    )
    return type("Object", (OwningObject,), {"_record": record, "_lists": lists, "__module__": __name__})


class _LeadingToElements:
    """Records with indices: the name of a link leads to the elements, in the object that has both."""

    _references: ClassVar[Mapping[str, Mapping[str, Reference]]]
    """The links of the class by their names, for each field of the object: collections of one class lead to
    different ones."""
    attrs: Mapping[str, Any]

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)  # type: ignore[misc]
        except AttributeError:
            owner, field = self.attrs.get(OWNER, (None, ""))
            links = self._references.get(field, {})
            reference = links.get(name) or links.get("")
            if name.startswith("_") or reference is None:
                raise
        return _elements(reference, owner, self, name)


def _elements(reference: Reference, owner: Object, records: Any, name: str) -> Any:
    """Return the elements of an object that records of it lead to by a name."""
    numbers = [records[part] for part in (reference.index, reference.key, reference.end) if part]
    nested = [each[np.newaxis] if isinstance(each, ak.Array) else ak.Array([each]) for each in numbers]
    if reference.end:
        return picked_ranges(_collection(owner, reference.targets[0][0])[np.newaxis], *nested)[0]
    if not reference.key:
        columns = [(_collection(owner, path), key) for path, key in reference.targets]
    else:  # The name is one of a member of the elements.
        used = set(ak.flatten(nested[1], axis=None).to_list())
        reached = [(_collection(owner, path), key) for path, key in reference.targets if key in used]
        columns = [(column[name], key) for column, key in reached if name in column.fields]
        if reached and not columns:
            raise AttributeError(f"no field named {name!r}")
    if len(columns) > 1:  # What links of theirs lead to depends on the collection, which items do not know.
        columns = [(ak.Array(column.layout, behavior=column.behavior), key) for column, key in columns]
    if not columns:
        columns = [(ak.Array(np.empty(0)), None)]  # None of the keys is that of a collection.
    return picked([(column[np.newaxis], key) for column, key in columns], *nested)[0]


def _collection(owner: Object, field: str) -> Any:
    """Return the items of a collection of an object, none if it is missing."""
    found = owner[field]
    if found is None:
        node = innermost(owner._view.definition.record.by_name[field])
        return awkward_of(empty_tree(node), node)
    return ak.Array(found)  # Lists of numbers are arrays of NumPy.


def _owned(value: Any, owner: OwningObject, field: str) -> Any:
    """Return a field of an object that knows the object, if it is an array."""
    if not isinstance(value, ak.Array):
        return value
    attrs = {**value.attrs, OWNER: (owner, field)}
    return ak.Array(value.layout, behavior=_behavior_of(type(owner)), attrs=attrs)


def _behavior_of(cls: type[OwningObject]) -> Any:
    """Return the behaviours of all declared classes, with links in the records that have indices."""
    declared = array_behavior()
    known, made = cls._behavior
    if known is not declared:
        made = type(declared)(declared)
        by_class: dict[str, dict[str, dict[str, Reference]]] = {}
        for field in cls._record.fields:
            for name, links in references_by_class(replace(cls._record, fields=(field,))).items():
                by_class.setdefault(plain_name(name), {})[field.name] = links
        for name, by_field in by_class.items():
            references = {"_references": by_field, "__module__": __name__}
            for key, plain in ((name, ak.Record), (("*", name), ak.Array)):
                base = declared.get(key, plain)
                made[key] = type(base.__name__, (_LeadingToElements, base), references)
        cls._behavior = declared, made
    return made
