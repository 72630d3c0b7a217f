"""The request of one call: the fields that it reads, and the columns that it returns.

Columns are fields, computed columns, and fields behind links.

Most calls return exactly the fields that they read. For computed columns the fields that they use are read as
well, and left out of the result unless they were asked for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .._data.layout_types import type_of_layout
from .._data.results import as_library, check_library
from .._data.typed_layouts import widened
from .._exceptions import InvalidError
from .._lazy import ak
from .._query.aliases import aliases_of, field_behind_link, with_aliases
from .._query.array_terms import ArrayTerm, link_before
from .._query.paths import Expressions, expand
from .._query.projections import Projection
from .._query.selection import Selection, Where
from .._schema.types import Definition, ElementLink, Field, Link, Node, Record, innermost
from .._schema.unions import NOTHING, common_type

__all__ = ["Request", "one_of_each"]


@dataclass(frozen=True)
class Request:
    """The fields to read, and how the result is made of them."""

    projection: Projection
    selection: Selection | None
    made_for: str
    """The library that the result is for."""
    computed: Mapping[str, ArrayTerm]
    """Computed columns by their names; dotted ones are fields behind links."""
    kept: Record
    """The fields of the result that are read as they are."""
    order: tuple[str, ...]
    """Names of the result's fields."""

    @classmethod
    def of(
        cls,
        definition: Definition,
        expressions: Expressions,
        where: Where = None,
        library: str = "ak",
        aliases: Mapping[str, str] | None = None,
        filter_name: Expressions = None,
        cut: Where = None,
    ) -> Request:
        """Return the request of a call; see :meth:`femtobarn.View.arrays`.

        Raises
        ------
        InvalidError
            If an expression or a condition is malformed, or a parameter is given by both of its names.
        NotFoundError
            If a field does not exist; near misses are named.
        """
        check_library(library)
        expressions, where = one_of_each(expressions, where, filter_name, cut)
        known = aliases_of({} if aliases is None else aliases, definition)
        if isinstance(where, str):
            where = with_aliases(where, known)
        selection = Selection.of(where, definition)
        if not known and not _leads_through_links(expressions, definition):
            plain = Projection.of(expressions, definition)
            return cls(plain, selection, library, {}, plain.record, ())
        fields, computed, order = _chosen(expressions, known, definition)
        kept = Projection.of(fields, definition).record if fields or not computed else Record("", ())
        paths = [*fields, *(path for term in computed.values() for path in term.paths)]
        return cls(Projection.of(paths, definition), selection, library, computed, kept, tuple(order))

    def result(self, array: ak.Array) -> Any:
        """Return the data that were read in the form of the requested library."""
        return as_library(*self.typed(array), self.made_for)

    def typed(self, array: ak.Array) -> tuple[ak.Array, Record]:
        """Return the data that were read with the computed columns, and their type."""
        if not self.computed:
            return array, self.projection.record
        fields = dict(zip(array.fields, ak.unzip(array), strict=True)) if self.kept.fields else {}
        columns: dict[str, Any] = {
            field.name: ak.Array(widened(fields[field.name].layout, field.type), attrs=array.attrs)
            for field in self.kept.fields
        }
        behind: dict[str, Any] = {}
        for name, term in self.computed.items():
            values = ak.broadcast_arrays(term.column(array), np.zeros(len(array)), depth_limit=1)[0]
            top, *rest = name.split(".")
            if rest and top not in self.kept.by_name:
                _put(behind.setdefault(top, {}), rest, values)
            else:
                columns[name] = values
        columns |= {top: _nested(members) for top, members in behind.items()}
        found = ak.zip({name: columns[name] for name in self.order}, depth_limit=1)
        found = ak.Array(found.layout, behavior=array.behavior, attrs=array.attrs)
        types = self.kept.by_name | {
            name: type_of_layout(columns[name].layout) for name in columns if name not in self.kept.by_name
        }
        return found, Record("", tuple(Field(name, types[name]) for name in self.order))

    @property
    def follows_links(self) -> bool:
        """Whether computed columns lead through links: the types of these depend on the targets."""
        nodes = ((term.definition.resolve(path) for path in term.paths) for term in self.computed.values())
        return any(isinstance(innermost(node), Link | ElementLink) for each in nodes for node in each)

    def type_of(self, empty: ak.Array, batches: Iterable[ak.Array]) -> Record:
        """Return a type for the results of :meth:`typed` of batches, or of an empty one if that suffices."""
        record, found = self.typed(empty)[1], dict[str, list[Node]]()
        for batch in batches if self.follows_links else ():
            array = self.typed(batch)[0]
            for name in set(array.fields) - set(self.kept.by_name) if len(array) else ():
                found.setdefault(name, []).append(type_of_layout(array[name].layout, NOTHING))
        common = {name: common_type(name, types) for name, types in found.items()}
        fields = (replace(field, type=common.get(field.name, field.type)) for field in record.fields)
        return Record(record.class_name, tuple(fields))

    def as_type(self, batch: ak.Array, record: Record) -> ak.Array:
        """Return what :meth:`typed` makes of a batch, in the type of :meth:`type_of`."""
        array = self.typed(batch)[0]
        return ak.Array(widened(array.layout, record), attrs=array.attrs) if self.computed else array


def one_of_each(
    expressions: Expressions, where: Where, filter_name: Expressions, cut: Where
) -> tuple[Expressions, Where]:
    """Return the expressions and the condition, each of which has two names."""
    expressions = _one_of("expressions", expressions, "filter_name", filter_name)
    return expressions, _one_of("where", where, "cut", cut)


def _one_of(name: str, value: Any, other: str, same: Any) -> Any:
    """Return the value of a parameter with two names."""
    if value is not None and same is not None:
        raise InvalidError(f"{name} and {other} are the same; give one of them")
    return same if value is None else value


def _chosen(
    expressions: Expressions, known: Mapping[str, ArrayTerm], definition: Definition
) -> tuple[list[str], dict[str, ArrayTerm], list[str]]:
    """Return the fields that expressions stand for, the computed columns, and the names in the result."""
    if expressions is None or callable(expressions):
        fields = expand(expressions, definition, counts=True)
        computed = {name: term for name, term in known.items() if expressions is None or expressions(name)}
        return fields, computed, [*dict.fromkeys(path.partition(".")[0] for path in fields), *computed]
    fields, computed = [], {}
    order: dict[str, None] = {}
    for item in [expressions] if isinstance(expressions, str) else list(expressions):
        if isinstance(item, str) and item in known:
            computed[item] = known[item]
            order[item] = None
        elif isinstance(item, str) and _leads_through_link(item, definition):
            computed[item] = field_behind_link(item, definition)
            order[item] = None
        else:
            found = expand(item if isinstance(item, str) else [item], definition, counts=True)
            fields += found
            order |= dict.fromkeys(path.partition(".")[0] for path in found)
    tops = {path.partition(".")[0] for path in fields}
    names = (name if name in tops else _shown(name, tops) for name in order)
    return fields, computed, list(dict.fromkeys(names))


def _shown(name: str, tops: set[str]) -> str:
    """Return the field of the result that has a computed column: a field behind a link is in a record."""
    top = name.partition(".")[0]
    return name if top in tops else top


def _put(members: dict[str, Any], path: list[str], values: Any) -> None:
    """Put the values of a column at a path of names; a whole record has its members already."""
    for name in path[:-1]:
        members = members.setdefault(name, {})
        if not isinstance(members, dict):
            return
    members[path[-1]] = values


def _nested(members: dict[str, Any]) -> ak.Array:
    """Return columns as records, one for each entry."""
    columns = {name: _nested(each) if isinstance(each, dict) else each for name, each in members.items()}
    return ak.zip(columns, depth_limit=1)


def _leads_through_links(expressions: Expressions, definition: Definition) -> bool:
    """Whether an expression is a field of the targets of links."""
    if expressions is None or callable(expressions):
        return False
    items = [expressions] if isinstance(expressions, str) else expressions
    if not isinstance(items, list | tuple):
        return True  # Something that can be walked once.
    return any(isinstance(item, str) and _leads_through_link(item, definition) for item in items)


def _leads_through_link(item: str, definition: Definition) -> bool:
    is_path = all(part.isidentifier() for part in item.split("."))
    return is_path and link_before(item, definition) is not None
