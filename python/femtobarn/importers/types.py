"""Types of class definitions for awkward layouts.

`normalise` returns a type, and a layout of exactly that type: lists with 64-bit offsets from zero, fixed
arrays as regular ones, tuples with names, strings as strings. A layout without such a type raises
`Unrepresentable`.
"""

from __future__ import annotations

import awkward as ak
import numpy as np

from femtobarn._schema.names import identifier
from femtobarn.definitions import Type, array_of, field, list_of

__all__ = ["Unrepresentable", "normalise"]

_PRIMITIVES = {
    "bool", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64",
    "float16", "float32", "float64",
}  # fmt: skip


class Unrepresentable(Exception):
    """A branch has values that no type of a field can hold; the text names the type."""


def normalise(layout: ak.contents.Content, label: str) -> tuple[Type, ak.contents.Content]:
    """Return the type of a layout, and its data in a layout of that type.

    Parameters
    ----------
    label
        Class name for records without one.

    Raises
    ------
    Unrepresentable
        If no type can hold the values.
    """
    if layout.is_numpy:
        return _numbers(layout)
    if layout.is_list:
        return _list(layout, label)
    if layout.is_record:
        return _record(layout, label)
    if layout.is_option:
        content_type, content = normalise(layout.to_IndexedOptionArray64().content, label)
        optional = layout.to_IndexedOptionArray64().copy(content=content)
        return {"optional": content_type}, optional
    if layout.is_indexed:
        return normalise(layout.project(), label)
    raise Unrepresentable(f"{type(layout).__name__} has no field type")


def _numbers(layout: ak.contents.Content) -> tuple[Type, ak.contents.Content]:
    if layout.inner_shape:
        return normalise(layout.to_RegularArray(), "")
    values = np.require(layout.data, requirements=["C", "ALIGNED"])
    if values.dtype.name not in _PRIMITIVES:
        raise Unrepresentable(f"numbers of type {values.dtype.name}")
    return values.dtype.name, ak.contents.NumpyArray(values)


def _list(layout: ak.contents.Content, label: str) -> tuple[Type, ak.contents.Content]:
    kind = layout.parameter("__array__")
    if kind == "string":
        return "string", layout
    if kind == "bytestring":
        return list_of("byte"), _offsets(layout, ak.contents.NumpyArray(_offset_content(layout).data))
    if layout.is_regular:
        inner_type, inner = normalise(layout.content[: layout.length * layout.size], label)
        fixed = ak.contents.RegularArray(inner, layout.size, layout.length)
        if _holds_records(inner_type):
            # The items of a fixed array need a name in C++, which these records lack.
            return list_of(inner_type), fixed.to_ListOffsetArray64(True)
        return array_of(inner_type, layout.size), fixed
    inner_type, inner = normalise(_offset_content(layout), label)
    return list_of(inner_type), _offsets(layout, inner)


def _holds_records(type_: Type) -> bool:
    if isinstance(type_, str):
        return False
    [(kind, inner)] = type_.items()
    return kind == "record" or (kind in {"list", "optional"} and _holds_records(inner))


def _offset_content(layout: ak.contents.Content) -> ak.contents.Content:
    lists = layout.to_ListOffsetArray64(True)
    return lists.content[: lists.offsets[-1]]


def _offsets(layout: ak.contents.Content, content: ak.contents.Content) -> ak.contents.Content:
    return ak.contents.ListOffsetArray(layout.to_ListOffsetArray64(True).offsets, content)


def _record(layout: ak.contents.Content, label: str) -> tuple[Type, ak.contents.Content]:
    """Return the type of records. The pairs of a map are tuples, whose members are named key and value."""
    names = ["key", "value"] if layout.is_tuple and len(layout.fields) == 2 else layout.fields
    fields, contents, kept = [], [], []
    for source, name in zip(layout.fields, names, strict=True):
        if name.startswith("@"):
            continue  # A counter of ROOT's streamer, not data.
        inner_type, inner = normalise(layout[source], f"{label}_{identifier(name)}")
        fields.append(field(identifier(name), inner_type))
        kept.append(identifier(name))
        contents.append(inner)
    if not fields:
        raise Unrepresentable("a record without a field")
    class_name = identifier(str(layout.parameter("__record__") or label))
    record: Type = {"record": {"class": class_name, "fields": fields}}
    return record, ak.contents.RecordArray(contents, kept, length=layout.length)
