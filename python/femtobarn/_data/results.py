"""Columns of the engine as arrays of the library that the caller chooses.

The engine returns a tree of buffers, in the form that :mod:`femtobarn._data.arrays` describes. An awkward
array uses these buffers without a copy. Other libraries get their data from awkward, which copies only
columns whose memory layout differs.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import numpy as np

from .._exceptions import InvalidError, near_misses
from .._lazy import ak
from .._schema.meanings import TIMES
from .._schema.types import (
    DTYPES,
    ElementLink,
    Field,
    Fixed,
    Link,
    List,
    Node,
    Optional,
    Primitive,
    Record,
    Variant,
    innermost,
    plain_name,
)
from .arrays import LINK_RECORDS, Tree
from .arrow_maps import with_maps

__all__ = ["LIBRARIES", "Library", "as_library", "awkward_of", "check_library", "tree_nbytes"]

Library: TypeAlias = Literal["ak", "np", "pd", "pa"]

LIBRARIES = {
    "ak": "ak",
    "awkward": "ak",
    "np": "np",
    "numpy": "np",
    "pd": "pd",
    "pandas": "pd",
    "pa": "pa",
    "pyarrow": "pa",
}
"""The library for each name that a caller may give."""

RECORD_NAMES: dict[type, str] = {Link: "Link", ElementLink: "ElementLink"}


def as_library(array: ak.Array, node: Record, library: str) -> Any:
    """Return an awkward array of records as data of a library.

    Parameters
    ----------
    array
        The records.
    node
        Their type: the class, or the fields of it that were read.
    library
        ``"ak"`` (awkward array), ``"np"`` (dictionary of NumPy arrays), ``"pd"`` (pandas data frame)
        or ``"pa"`` (Arrow table).

    Raises
    ------
    InvalidError
        If the library is unknown.
    """
    chosen = check_library(library)
    if chosen == "ak":
        return array
    if chosen == "np":
        return {path: _numpy_of(column, leaf) for path, column, leaf in _leaves(array, node, "")}
    if chosen == "pa":
        return with_maps(_arrow_of(array), node)
    return _pandas_of(array, node)


def check_library(library: str) -> str:
    """Return the short name of a library, or raise :class:`~femtobarn.InvalidError` if it is unknown."""
    if library not in LIBRARIES:
        raise InvalidError(f"library {library!r} does not exist{near_misses(str(library), LIBRARIES)}")
    return LIBRARIES[library]


def awkward_of(tree: Tree, node: Node | None, **settings: Any) -> ak.Array:
    """Return columns as an awkward array over the same memory."""
    return ak.Array(layout_of(tree, node), **settings)


def tree_nbytes(tree: Any) -> int:
    """Return the size of all buffers of a tree in bytes."""
    if isinstance(tree, tuple):
        return sum(map(tree_nbytes, tree))
    if isinstance(tree, str | int):
        return 0
    return memoryview(tree).nbytes


def layout_of(tree: Tree, node: Node | None) -> ak.contents.Content:
    """Return columns as an awkward layout, whose records have the names of classes if the type is given."""
    kind = tree[0]
    if kind == "primitive":
        return ak.contents.NumpyArray(numbers_of(tree, node))
    if kind == "record":
        return _record(tree, node)
    if kind == "list":
        return _optional(tree, node) if tree[3] else _list(tree, node)
    if kind == "string":
        characters = np.frombuffer(tree[2], np.uint8)
        content = ak.contents.NumpyArray(characters, parameters={"__array__": "char"})
        return ak.contents.ListOffsetArray(_index(tree[1]), content, parameters={"__array__": "string"})
    if kind == "fixed":
        item = node.item if isinstance(node, Fixed) else None
        return ak.contents.RegularArray(layout_of(tree[3], item), tree[1], zeros_length=tree[2])
    return _variant(tree, node)


def numbers_of(tree: Tree, node: Node | None) -> Any:
    """Return a column of numbers as a NumPy array: times as times, all other values as they are stored."""
    numbers = np.frombuffer(tree[2], DTYPES[tree[1]])
    meaning = node.meaning if isinstance(node, Primitive) else None
    if meaning is None or meaning.kind not in TIMES:
        return numbers
    return numbers.astype(np.int64, copy=False).view(TIMES[meaning.kind])


def _record(tree: Tree, node: Node | None) -> ak.contents.Content:
    _, length, names, contents = tree
    members = _members(node)
    layouts = [layout_of(content, members.get(name)) for name, content in zip(names, contents, strict=True)]
    record = ak.contents.RecordArray(layouts, list(names), length=length, parameters=_parameters(node))
    return _links(record) if isinstance(node, Link | ElementLink) else record


def _links(record: ak.contents.Content) -> ak.contents.Content:
    """Return records of links as optional values, of which null links are missing."""
    present = record.content("container").data != 0
    if present.all():
        return ak.contents.UnmaskedArray(record)
    return ak.contents.ByteMaskedArray(ak.index.Index8(present.view(np.int8)), record, valid_when=True)


def _members(node: Node | None) -> dict[str, Node]:
    return node.by_name if isinstance(node, Record) else {}


def _parameters(node: Node | None) -> dict[str, Any] | None:
    name = plain_name(node.class_name) if isinstance(node, Record) else RECORD_NAMES.get(type(node), "")
    if isinstance(node, Record) and node.is_tuple:
        return None
    return {"__record__": name} if name else None


def _list(tree: Tree, node: Node | None) -> ak.contents.Content:
    item = node.item if isinstance(node, List) else None
    if item == Primitive("byte"):
        content = ak.contents.NumpyArray(
            np.frombuffer(tree[2][2], np.uint8), parameters={"__array__": "byte"}
        )
        return ak.contents.ListOffsetArray(_index(tree[1]), content, parameters={"__array__": "bytestring"})
    return ak.contents.ListOffsetArray(_index(tree[1]), layout_of(tree[2], item))


def _optional(tree: Tree, node: Node | None) -> ak.contents.Content:
    offsets = np.frombuffer(tree[1], np.int64)
    positions = np.where(offsets[1:] > offsets[:-1], offsets[:-1], -1)
    content = layout_of(tree[2], node.item if isinstance(node, Optional) else None)
    return ak.contents.IndexedOptionArray.simplified(ak.index.Index64(positions), content)


def _variant(tree: Tree, node: Node | None) -> ak.contents.Content:
    tags, positions = np.frombuffer(tree[1], np.int8), np.frombuffer(tree[2], np.int64)
    items: tuple[Node | None, ...] = (
        node.alternatives if isinstance(node, Variant) else (None,) * len(tree[3])
    )
    contents = [layout_of(content, item) for content, item in zip(tree[3], items, strict=True)]
    if (tags < 0).any():
        # awkward has no tag for a missing value, so that an option around the union marks it.
        present = np.flatnonzero(tags >= 0)
        index = np.full(len(tags), -1, np.int64)
        index[present] = np.arange(len(present))
        union = _union(tags[present], positions[present], contents)
        return ak.contents.IndexedOptionArray.simplified(ak.index.Index64(index), union)
    return _union(tags, positions, contents)


def _union(tags: Any, positions: Any, contents: list[ak.contents.Content]) -> ak.contents.Content:
    if len(contents) == 1:
        return ak.contents.IndexedArray.simplified(ak.index.Index64(positions), contents[0])
    return ak.contents.UnionArray.simplified(ak.index.Index8(tags), ak.index.Index64(positions), contents)


def _index(buffer: Any) -> ak.index.Index64:
    return ak.index.Index64(np.frombuffer(buffer, np.int64))


def _leaves(array: ak.Array, node: Record, prefix: str) -> Iterator[tuple[str, ak.Array, Node]]:
    """Yield each column of records with its dotted name and its type, also of records in lists."""
    for name in array.fields:
        yield from _leaf(array[name], node.by_name[name], prefix + name)


def _leaf(column: ak.Array, node: Node, path: str) -> Iterator[tuple[str, ak.Array, Node]]:
    inner = innermost(node)
    # Records without members are a column themselves, so that their number is not lost.
    if isinstance(inner, Record) and inner.fields:
        for name in column.fields:
            yield from _leaf(column[name], _holding(node, inner.by_name[name]), f"{path}.{name}")
    else:
        yield path, column, node


def _holding(node: Node, member: Node) -> Node:
    """Return a type with `member` in the place of its innermost type."""
    if isinstance(node, List | Fixed | Optional):
        return replace(node, item=_holding(node.item, member))
    return member


def _numpy_of(column: ak.Array, node: Node) -> Any:
    """Return one column as a NumPy array; lists of any length are an array of objects, as in uproot."""
    if isinstance(node, Link | ElementLink):
        return _links_of(column, LINK_RECORDS[type(node)].fields)
    if isinstance(node, List) and not node.is_bytes:
        lists = ak.to_packed(column).layout.to_ListOffsetArray64(True)
        items = _numpy_of(ak.Array(lists.content), node.item)
        bounds = lists.offsets.data.tolist()
        return _objects_of([items[start:stop] for start, stop in itertools.pairwise(bounds)])
    if not _is_flat(node):
        return _objects_of(ak.to_list(column))
    return ak.to_numpy(column, allow_missing=True)


def _objects_of(items: list[Any]) -> Any:
    # numpy.array() would make a second dimension of lists that happen to have one length.
    values = np.empty(len(items), object)
    for position, item in enumerate(items):
        values[position] = item
    return values


def _links_of(column: ak.Array, fields: tuple[Field, ...]) -> Any:
    dtype = np.dtype([(f.name, f.type.dtype) for f in fields if isinstance(f.type, Primitive)])
    links = np.empty(len(column), dtype)
    for field in fields:
        links[field.name] = np.ma.filled(ak.to_numpy(column[field.name]), 0)
    return links


def _is_flat(node: Node) -> bool:
    if isinstance(node, Fixed | Optional):
        return _is_flat(node.item)
    return not isinstance(node, List | Variant | Record | Link | ElementLink)


def _arrow_of(array: ak.Array) -> Any:
    return ak.to_arrow_table(_with_items(array), extensionarray=False)


def _with_items(array: ak.Array) -> ak.Array:
    """Return missing lists as empty ones behind a mask: awkward cannot convert an option without a list."""

    def masked(layout: Any, **_: Any) -> Any:
        if not layout.is_option or not layout.content.is_list or layout.content.is_regular:
            return None
        valid = layout.mask_as_bool(valid_when=True)
        lists = layout.project().to_ListOffsetArray64(True)
        offsets = np.zeros(layout.length + 1, np.int64)
        offsets[1:][valid] = np.diff(lists.offsets.data)
        np.cumsum(offsets, out=offsets)
        filled = ak.contents.ListOffsetArray(
            ak.index.Index64(offsets), lists.content, parameters=lists.parameters
        )
        return ak.contents.ByteMaskedArray(ak.index.Index8(valid.view(np.int8)), filled, valid_when=True)

    return ak.transform(masked, array)


def _pandas_of(array: ak.Array, node: Record) -> Any:
    import pandas as pd

    columns = {}
    for path, column, leaf in _leaves(array, node, ""):
        if isinstance(leaf, Optional | Fixed) or not hasattr(leaf, "dtype"):
            arrow = ak.to_arrow(_with_items(column), extensionarray=False)
            columns[path] = pd.Series(pd.arrays.ArrowExtensionArray(arrow))
        else:
            columns[path] = pd.Series(ak.to_numpy(column), copy=False)
    return pd.DataFrame(columns, copy=False)
