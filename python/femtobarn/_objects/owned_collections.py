"""Objects whose collections lead to each other by indices: ``event.Muon[0].jet`` is an item of ``event.Jet``.

An array or record of such an object keeps a reference to the object, and so do selections from it. Arrays of
many objects do not: there the link is part of the expression, as in ``view.arrays("Muon.jet.pt")``.
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
from .._schema.references import Reference, has_references, reference_in, references_by_class
from .._schema.types import Record, innermost, plain_name
from .behaviours import array_behavior

__all__ = ["OwnedCollections", "owned_collections"]

OWNER = "@femtobarn.owner"
"""Attribute of an awkward array that holds the object and the name of the field that it is a part of. It is
not pickled."""


class OwnedCollections:
    """The collections of the objects of a class with links by indices."""

    def __init__(self, record: Record) -> None:
        self._record = record
        self._lists = frozenset(
            field.name
            for field in record.fields
            if not isinstance(field.type, Record) and isinstance(innermost(field.type), Record)
        )
        """Names of the fields that are lists of records."""
        self._behavior: tuple[Any, Any] = (None, None)
        """The behaviours of all declared classes, and those of these collections that were made of them."""

    def owned(self, value: Any, owner: Object, field: str) -> Any:
        """Return the value of a field of an object; it knows the object if it is an array of records."""
        if field not in self._lists or not isinstance(value, ak.Array):
            return value
        attrs = {**value.attrs, OWNER: (owner, field)}
        return ak.Array(value.layout, behavior=self._behavior_now(), attrs=attrs)

    def linked(self, owner: Object, name: str) -> Any:
        """Return the elements that a link of an object itself leads to.

        Raises
        ------
        AttributeError
            If the class has no link of this name.
        """
        reference = None if name.startswith("_") else reference_in(self._record, name)
        if reference is None:
            raise AttributeError(owner._view._no_field(name))
        return _elements(reference, owner, owner, name)

    def _behavior_now(self) -> Any:
        """Return the behaviours of all declared classes, with links in the records that have indices."""
        declared = array_behavior()
        known, made = self._behavior
        if known is not declared:
            made = type(declared)(declared)
            by_class: dict[str, dict[str, dict[str, Reference]]] = {}
            for field in self._record.fields:
                for name, links in references_by_class(replace(self._record, fields=(field,))).items():
                    by_class.setdefault(plain_name(name), {})[field.name] = links
            for name, by_field in by_class.items():
                references = {"_references": by_field, "__module__": __name__}
                for key, plain in ((name, ak.Record), (("*", name), ak.Array)):
                    base = declared.get(key, plain)
                    made[key] = _leading(base, references)
            self._behavior = declared, made
        return made


@cache
def owned_collections(record: Record) -> OwnedCollections | None:
    """Return the collections of objects with the fields of a record; None if no index of them is a link."""
    return OwnedCollections(record) if has_references(record) else None


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


def _leading(base: type[Any], references: dict[str, Any]) -> type[Any]:
    """Return a class of records or arrays with links to elements, also for vectors without all components."""
    incomplete = getattr(base, "_incomplete", None)
    if incomplete is not None:
        references = references | {"_incomplete": _leading(incomplete, references)}
    return type(base.__name__, (_LeadingToElements, base), references)


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
    if len(columns) > 1:  # Where items' links lead depends on the collection, which the items do not know.
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
