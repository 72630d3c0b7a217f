"""The types of computed columns, in the form of fields' types, for the conversion to other libraries."""

from __future__ import annotations

import numpy as np

from .._lazy import ak
from .._schema.meanings import TIMES, Meaning
from .._schema.types import DTYPES, Field, Fixed, List, Node, Optional, Primitive, Record, String, Variant

__all__ = ["type_of_layout"]


def type_of_layout(layout: ak.contents.Content, of_nothing: Node | None = None) -> Node:
    """Return the type that a field with the values of a layout would have.

    Parameters
    ----------
    of_nothing
        The type of values that are always missing in the layout, such as fields behind links that are all
        null. If not given, such values are numbers, unless the layout has another type for them.

    Examples
    --------
    >>> import awkward as ak
    >>> str(type_of_layout(ak.Array([[1.5], [], None]).layout))
    'list[float64] | None'
    """
    if layout.is_option:
        if of_nothing is not None and not layout.mask_as_bool(valid_when=True).any():
            return Optional(of_nothing)
        return Optional(type_of_layout(layout.content, of_nothing))
    if layout.is_indexed:
        return type_of_layout(layout.content, of_nothing)
    if layout.is_record:
        members = (Field(name, type_of_layout(layout.content(name), of_nothing)) for name in layout.fields)
        return Record(layout.parameter("__record__") or "", tuple(members))
    if layout.is_union:
        return Variant(tuple(type_of_layout(each, of_nothing) for each in layout.contents))
    kind = layout.parameter("__array__")
    if kind in ("string", "bytestring"):
        return String() if kind == "string" else List(Primitive("byte"))
    if layout.is_list:
        item = type_of_layout(layout.content, of_nothing)
        return Fixed(item, layout.size) if layout.is_regular else List(item)
    if layout.is_numpy:
        return _of_numbers(layout.data.dtype)
    return of_nothing or Primitive("float64")


def _of_numbers(dtype: np.dtype[np.generic]) -> Node:
    for meaning, stored in TIMES.items():
        if dtype == stored:
            return Primitive("int64", Meaning(meaning))
    # Values of a type that fields cannot have, such as durations, are read as numbers.
    return Primitive(dtype.name if dtype.name in DTYPES else "int64")
