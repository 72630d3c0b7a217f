"""Layouts converted to a wider type, such as the common type of containers of different classes."""

from __future__ import annotations

import numpy as np

from .._lazy import ak
from .._schema.types import Fixed, List, Node, Optional, Primitive, Record, plain_name
from .arrays import empty_tree
from .results import layout_of

__all__ = ["widened"]


def widened(layout: ak.contents.Content, node: Node) -> ak.contents.Content:
    """Return a layout as one of a type that holds its values.

    Numbers get the width of the type, members that records lack are missing values, and values that may be
    missing are optional.

    Parameters
    ----------
    node
        The type, such as :func:`femtobarn._schema.unions.union` makes of several.
    """
    if layout.is_indexed and not layout.is_option:
        layout = layout.project()
    if isinstance(node, Optional):
        if layout.is_option and layout.mask_as_bool(valid_when=False).all():
            return _missing(node, layout.length)
        if layout.is_option:
            return layout.copy(content=widened(layout.content, node.item))
        return ak.contents.UnmaskedArray.simplified(widened(layout, node.item))
    if layout.is_option:
        return layout.copy(content=widened(layout.content, node))
    if layout.is_unknown:
        return layout_of(empty_tree(node), node)
    if isinstance(node, Record) and layout.is_record:
        return _record(layout, node)
    if isinstance(node, List | Fixed) and layout.is_list and layout.parameter("__array__") is None:
        return layout.copy(content=widened(layout.content, node.item))
    if isinstance(node, Primitive) and layout.is_numpy and np.can_cast(layout.data.dtype, node.dtype, "safe"):
        return ak.contents.NumpyArray(layout.data.astype(node.dtype, copy=False))
    return layout


def _record(layout: ak.contents.Content, node: Record) -> ak.contents.Content:
    there = set(layout.fields)
    contents = [
        widened(layout.content(field.name), field.type)
        if field.name in there
        else _missing(field.type, layout.length)
        for field in node.fields
    ]
    name = "" if node.is_tuple else plain_name(node.class_name)
    return ak.contents.RecordArray(
        contents,
        list(node.by_name),
        length=layout.length,
        parameters={"__record__": name} if name else None,
    )


def _missing(node: Node, length: int) -> ak.contents.Content:
    """Return missing values of a type."""
    item = node.item if isinstance(node, Optional) else node
    nothing = layout_of(empty_tree(item), item)
    index = ak.index.Index64(np.full(length, -1, np.int64))
    return ak.contents.IndexedOptionArray.simplified(index, nothing)
