"""Objects of two views that have the same keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import awkward as ak
import numpy as np

from .._data.layout_types import type_of_layout
from .._data.results import as_library, check_library
from .._exceptions import InvalidError, WrongTypeError
from .._schema.types import Field, Node, Primitive, Record
from .._schema.unions import required
from .ordering import key_column, ranked
from .requests import Request

if TYPE_CHECKING:
    from .columns import Columns

__all__ = ["Keys", "joined"]

Keys: TypeAlias = str | Sequence[str] | Mapping[str, str]
"""Fields that are equal in both views, or the names in the other view by those in this one."""


def joined(
    view: Columns,
    other: Columns,
    on: Keys,
    name: str,
    request: Request,
    of_other: Request,
    library: str,
) -> Any:
    """Return objects with those of another view, as :meth:`femtobarn.View.join` describes."""
    check_library(library)
    keys = _keys_of(on)
    whole = view._part(None, None)
    found = request.result(view._array_of(request.projection, None, whole))
    if name in found.fields:
        raise InvalidError(f"{name!r} is a field of {view.name}; give another name, such as name='other'")
    by = Request.of(view.definition, list(keys))
    places = _partners(by.result(view._array_of(by.projection, None, whole)), other, keys)
    theirs = of_other.result(other._array_of(of_other.projection, None, other._part(None, None)))
    matched = ak.contents.IndexedOptionArray.simplified(ak.index.Index64(places), theirs.layout)
    layout = ak.contents.RecordArray(
        [*(found[each].layout for each in found.fields), matched],
        [*found.fields, name],
        length=len(found),
    )
    types = request.kept.by_name
    fields = [Field(each, types.get(each) or type_of_layout(layout.content(each))) for each in layout.fields]
    array = ak.Array(layout, behavior=found.behavior, attrs=found.attrs)
    return as_library(array, Record("", tuple(fields)), library)


def _partners(array: ak.Array, other: Columns, keys: Mapping[str, str]) -> Any:
    """Return the position in another view of the object with the same keys for each of an array, or -1.

    Raises
    ------
    InvalidError
        If a key has several values per object, those of both views cannot be equal, or several objects of
        the other view have one key.
    """
    theirs = other.arrays(list(dict.fromkeys(keys.values())))
    codes = np.zeros(len(array) + len(theirs), np.int64)
    is_known = np.ones(len(codes), bool)
    for ours, their in keys.items():
        ranks, is_missing = ranked(_together(key_column(array, ours), key_column(theirs, their), ours, their))
        is_known &= ~is_missing
        # Codes stay below the number of objects, so that their products fit.
        codes = np.unique(codes * (ranks.max(initial=0) + 1) + ranks, return_inverse=True)[1].reshape(-1)
    positions = np.flatnonzero(is_known[len(array) :])
    of_theirs = codes[len(array) :][positions]
    places = np.full(codes.max(initial=0) + 1, -1, np.int64)
    places[of_theirs] = positions
    twice = positions[places[of_theirs] != positions]
    if len(twice):
        values = {their: key_column(theirs, their)[int(twice[0])] for their in keys.values()}
        shown = ", ".join(f"{their} {value}" for their, value in values.items())
        raise InvalidError(
            f"several objects of {other.name} have {shown}; call join of the view of {other.name} instead, "
            "with this view as its argument"
        )
    return np.where(is_known[: len(array)], places[codes[: len(array)]], -1)


def _together(ours: ak.Array, theirs: ak.Array, name: str, other_name: str) -> ak.Array:
    """Return the values of a key in both views as one array, if they can be equal."""
    types = [type_of_layout(each.layout) for each in (ours, theirs)]
    if _kind(types[0]) != _kind(types[1]):
        raise InvalidError(f"{name!r} is {types[0]}, and {other_name!r} is {types[1]}: these are never equal")
    if _kind(types[0]) == "integer" and required(types[0]) != required(types[1]):
        # NumPy would make real numbers of some integers; integers above 2^63 have no partner then.
        ours, theirs = (_as_signed(each) for each in (ours, theirs))
    return ak.concatenate([ours, theirs])


def _kind(node: Node) -> str:
    """Return the type in which values are compared."""
    node = required(node)
    if isinstance(node, Primitive) and (node.meaning is None or node.meaning.is_element):
        return "real" if node.dtype.kind == "f" else "integer"
    return str(node)


def _as_signed(column: ak.Array) -> ak.Array:
    if "uint64" not in str(column.type):
        return column
    return ak.values_astype(ak.mask(column, column < np.uint64(1 << 63)), np.int64)


def _keys_of(on: Keys) -> dict[str, str]:
    """Return the names of keys in the other view by those in this one."""
    if isinstance(on, str):
        return {on: on}
    found = dict(on) if isinstance(on, Mapping) else {each: each for each in on}
    if not found or not all(isinstance(each, str) for pair in found.items() for each in pair):
        raise WrongTypeError(f"join takes names of fields as on=, such as on=['run', 'event'], not {on!r}")
    return found
