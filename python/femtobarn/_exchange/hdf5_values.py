"""Values of HDF5 datasets: columns of them, their types, and slices of them as layouts of awkward."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._lazy import ak
from .._schema.meanings import Meaning
from .._schema.names import identifier
from .._schema.types import DTYPES, Field, Fixed, List, Node, Optional, Primitive, Record, Reduced, String
from .column_layouts import Numbers, lists, option, records, texts

if TYPE_CHECKING:
    import h5py

__all__ = ["Column", "NotStoredError"]

SLICE_ROWS = 1 << 20
"""Rows of a column of times that are searched at a time."""


class NotStoredError(Exception):
    """A column is of a type that cannot be stored."""


@dataclass(frozen=True)
class Column:
    """A dataset, or a part of its rows, as a field of objects."""

    name: str
    dataset: h5py.Dataset
    member: str | None = None
    """The member of a compound dataset."""
    item: int | None = None
    """The index in the second dimension."""
    stands_for: str | None = None
    """NumPy's name of the type that the numbers stand for: ``bool``, or one of times; or ``category``."""

    @property
    def node(self) -> Node:
        """The stored type."""
        if "PSEUDOATOM" in self.dataset.attrs:
            raise NotStoredError("its values are pickled; write it with format='table'")
        if {"shape", "value_type"} <= self.dataset.attrs.keys():
            # HDF5 files of PyTables have no arrays without items, and this one has an item of no meaning.
            raise NotStoredError("pandas has stored it without a row")
        if self.stands_for == "category":
            raise NotStoredError("its values are numbers of categories; write these as texts")
        if self.stands_for == "bool":
            return Primitive("bool")
        if self.stands_for is not None:
            node: Node = Primitive("int64", Meaning("datetime"))
            return Optional(node) if self._has_missing_times() else node
        return _node(*self._item_type(), self.name)

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of the whole dataset, of which lists and texts are not a part."""
        return int(self.dataset.dtype.itemsize * math.prod(self.dataset.shape[1:]))

    def layout(self, rows: Numbers) -> Any:
        """Return the values of this column in rows of the dataset."""
        values = self._values(rows)
        if self.stands_for is None:
            return _layout(values, self._item_type()[0])
        if self.stands_for == "bool":
            return ak.contents.NumpyArray(values.astype(bool))
        times = values.astype(self.stands_for).astype("M8[ns]")
        missing = np.isnat(times)
        return option(times, ~missing) if missing.any() else ak.contents.NumpyArray(times)

    def _values(self, rows: Numbers) -> Numbers:
        values: Numbers = rows if self.member is None else rows[self.member]
        return values if self.item is None else values[:, self.item]

    def _item_type(self) -> tuple[np.dtype[Any], tuple[int, ...]]:
        dtype, shape = self.dataset.dtype, self.dataset.shape[1:]
        if self.member is not None:
            dtype = dtype[self.member]
        if dtype.subdtype is not None:
            dtype, inner = dtype.subdtype
            shape = (*shape, *inner)
        return dtype, shape if self.item is None else shape[1:]

    def _has_missing_times(self) -> bool:
        starts = range(0, len(self.dataset), SLICE_ROWS)
        slices = (self.dataset[start : start + SLICE_ROWS] for start in starts)
        return any(np.isnat(self._values(rows).astype(self.stands_for)).any() for rows in slices)


def _node(dtype: np.dtype[Any], shape: tuple[int, ...], path: str) -> Node:
    """Return the stored type of items of a type and shape."""
    import h5py

    if dtype.subdtype is not None:
        return _node(dtype.subdtype[0], (*shape, *dtype.subdtype[1]), path)
    if shape:
        item = _node(dtype, shape[1:], path)
        return Fixed(item, shape[0]) if isinstance(item, Primitive | Fixed) and shape[0] else List(item)
    if dtype.names is not None:
        members = (Field(identifier(name), _node(dtype[name], (), f"{path}_{name}")) for name in dtype.names)
        return Record(identifier(path), tuple(members))
    if h5py.check_string_dtype(dtype) is not None:
        return String()
    items = h5py.check_vlen_dtype(dtype)
    if items is not None:
        if not np.dtype(items).isnative:
            raise NotStoredError("h5py reads lists of numbers of another byte order wrongly")
        return List(_node(np.dtype(items), (), path))
    if dtype.kind != "O" and dtype.name in DTYPES:
        return Primitive(dtype.name)
    if dtype.name == "float16":
        return Reduced("float16")
    raise NotStoredError(f"{dtype.name} cannot be stored")


def _layout(values: Numbers, dtype: np.dtype[Any]) -> Any:
    """Return values of a dataset as a layout; their first dimension counts the objects."""
    import h5py

    if dtype.subdtype is not None:
        dtype = dtype.subdtype[0]
    if values.ndim > 1:
        count, size = values.shape[:2]
        items = _layout(values.reshape(count * size, *values.shape[2:]), dtype)
        return ak.contents.RegularArray(items, size, zeros_length=count)
    if dtype.names is not None:
        return records({identifier(name): _layout(values[name], dtype[name]) for name in dtype.names})
    if h5py.check_string_dtype(dtype) is not None:
        return texts(each.decode(errors="replace") for each in values.tolist())
    items = h5py.check_vlen_dtype(dtype)
    if items is not None:
        flat = np.concatenate([np.empty(0, items), *values])
        return lists([len(each) for each in values], _layout(flat, np.dtype(items)))
    return ak.contents.NumpyArray(np.ascontiguousarray(values, values.dtype.newbyteorder("=")))
