"""Dictionaries in Arrow tables, as maps, which other programs know, rather than as lists of pairs."""

from __future__ import annotations

from typing import Any

from .._schema.types import Fixed, List, Node, Optional, Record, innermost

__all__ = ["with_maps"]


def with_maps(table: Any, record: Record) -> Any:
    """Return an Arrow table in which the dictionaries of a class are maps.

    Parameters
    ----------
    table
        A table of pyarrow that awkward made: a dictionary is a list of records ``_0`` and ``_1``.
    record
        The class, with the fields in the order of the columns. Dictionaries in variants stay dictionaries.
    """
    for position, field in enumerate(record.fields):
        if _has_maps(field.type):
            column = _mapped(table.column(position).combine_chunks(), field.type)
            table = table.set_column(position, table.field(position).with_type(column.type), column)
    return table


def _has_maps(node: Node) -> bool:
    inner = innermost(node)
    return isinstance(inner, Record) and (
        List(inner).is_map or any(_has_maps(member) for member in inner.by_name.values())
    )


def _mapped(array: Any, node: Node) -> Any:
    """Return an Arrow array with maps in the places of a type that have dictionaries."""
    import pyarrow as pa

    if isinstance(node, Optional):
        return _mapped(array, node.item)
    if not _has_maps(node):
        return array
    mask = array.is_null() if array.null_count else None
    if isinstance(node, Record):
        members = [_mapped(array.field(name), member) for name, member in node.by_name.items()]
        fields = [field.with_type(each.type) for field, each in zip(array.type, members, strict=True)]
        return pa.StructArray.from_arrays(members, fields=fields, mask=mask)
    if not isinstance(node, List | Fixed):
        return array
    items = _mapped(array.values, node.item)
    if isinstance(node, List) and node.is_map and items.type.num_fields == 2:
        keys, values = items.field("_0"), items.field("_1")
        typed = pa.map_(keys.type, items.type.field("_1").with_name("value"))
        # Maps have offsets of 32 bits.
        return pa.MapArray.from_arrays(array.offsets.cast(pa.int32()), keys, values, typed, mask=mask)
    item = array.type.value_field.with_type(items.type)
    if isinstance(node, Fixed):
        return pa.FixedSizeListArray.from_arrays(items, type=pa.list_(item, node.size), mask=mask)
    return pa.LargeListArray.from_arrays(array.offsets, items, type=pa.large_list(item), mask=mask)
