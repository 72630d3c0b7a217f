"""Data of any library as awkward layouts, which :mod:`femtobarn._data.arrays` matches against classes.

Optional libraries are not imported to recognise their data: a caller that has such data has imported them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from .._exceptions import InvalidError
from .._lazy import ak
from .._oid import Oid, OidArray, OidRange
from .._schema.declared_fields import surplus_of
from .._schema.types import ElementLink, Fixed, Link, List, Node, Optional, Record, String, Variant
from .arrow import is_arrow_stream, layout_of_arrow, table_of
from .casts import Values

__all__ = ["layout_of", "named_parts"]


BLOCK_BYTES = 1 << 18
"""Bytes of rows that are divided into fields at once: they stay in the processor's cache."""


def named_parts(data: Any) -> Mapping[str, Any] | None:
    """Return the columns of data that are kept by column, or None for other data."""
    if isinstance(data, Mapping):
        return data
    if isinstance(data, np.ndarray) and data.dtype.names is not None:
        return _fields_of(data)
    if _is_of(data, "pandas", "DataFrame"):
        return {str(name): column for name, column in data.items()}
    if _is_of(data, "pyarrow", "Array", "ChunkedArray"):
        return None
    if is_arrow_stream(data):
        data = table_of(data)
    if _is_of(data, "pyarrow", "Table", "RecordBatch"):
        return dict(zip(data.column_names, data.columns, strict=True))
    return None


def _fields_of(rows: np.ndarray[Any, Any]) -> dict[str, Any]:
    """Return the fields of a structured array.

    Of many rows, each field is copied to an array of its own, block by block, so that the rows are read from
    memory once, and not once for each field. The values are copied as bytes, which NumPy does faster. Bytes
    have no mask, so the fields of a masked array are left to NumPy.
    """
    names, size = rows.dtype.names or (), rows.dtype.itemsize
    types = [rows.dtype[name] for name in names]
    step = BLOCK_BYTES // max(size, 1)
    are_bytes = all(of.itemsize and not of.hasobject for of in types)
    are_bytes = are_bytes and not isinstance(rows, np.ma.MaskedArray)
    if rows.ndim != 1 or not 0 < step < len(rows) or not are_bytes:
        return {name: rows[name] for name in names}
    opaque = [np.dtype((np.void, of.itemsize)) for of in types]
    offsets = [rows.dtype.fields[name][1] for name in names]
    form: Any = {"names": names, "formats": opaque, "offsets": offsets, "itemsize": size}
    as_bytes = rows.view(np.dtype(form))
    columns = [np.empty(len(rows), of) for of in opaque]
    for start in range(0, len(rows), step):
        block = as_bytes[start : start + step]
        for name, column in zip(names, columns, strict=True):
            column[start : start + step] = block[name]
    return {name: _as_values(*each) for name, *each in zip(names, columns, types, strict=True)}


def _as_values(column: np.ndarray[Any, Any], of: np.dtype[Any]) -> np.ndarray[Any, Any]:
    """Return the bytes of a field of rows as its values."""
    values: np.ndarray[Any, Any] = column.view(of.base).reshape(len(column), *of.shape)
    return values


def layout_of(data: Any, node: Node) -> ak.contents.Content:
    """Return an array of any library as an awkward layout.

    Parameters
    ----------
    data
        An array, or a list of Python objects.
    node
        The type that the values should have; Python objects are converted to it.

    Raises
    ------
    InvalidError
        If the data are not an array, or belong to a lazy library that has not computed them.
    """
    if isinstance(data, ak.contents.Content):
        return data
    if isinstance(data, ak.Array):
        return _materialised(data)
    if isinstance(data, OidRange | OidArray):
        return ak.from_numpy(data.to_numpy(), highlevel=False)
    if isinstance(data, np.ndarray) and data.dtype != object:
        return _of_numpy(data)
    if _is_of(data, "pandas", "Series"):
        return _of_series(data, node)
    if is_arrow_stream(data) or type(data).__module__.partition(".")[0] == "pyarrow":
        return layout_of_arrow(data)
    if hasattr(data, "__dask_graph__"):
        raise InvalidError("a Dask collection holds no data yet; call .compute() first")
    if hasattr(data, "collect"):
        raise InvalidError("a lazy data frame holds no data yet; call .collect() first")
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise InvalidError(
            f"{type(data).__name__} is not an array; give awkward, NumPy, Arrow or pandas data, or a list"
        )
    return _of_python(data, node)


def _of_python(data: Iterable[Any], node: Node) -> ak.contents.Content:
    try:
        return ak.from_iter(_plain(list(data), List(node)), highlevel=False)
    except (TypeError, ValueError) as error:
        raise InvalidError(f"the list cannot be converted to an array of {node}: {error}") from error
    except RuntimeError as error:  # awkward cannot cast a value.
        if "'int'" in str(error):
            raise InvalidError(
                "the list has an integer that int64 cannot hold; append the objects one by one, or give "
                "a NumPy array of uint64"
            ) from error
        raise InvalidError(
            "a text in the list has half of a surrogate pair, which UTF-8 cannot hold"
        ) from error


def _of_numpy(data: Values) -> ak.contents.Content:
    if data.dtype.kind in "mcV" and data.dtype.names is None:
        raise InvalidError(f"NumPy values of type {data.dtype} cannot be stored; convert to numbers first")
    if not data.dtype.isnative:
        data = data.astype(data.dtype.newbyteorder("="))
    try:
        return ak.from_numpy(data, regulararray=True, highlevel=False)
    except UnicodeEncodeError as error:
        raise InvalidError(
            "a text in the array has half of a surrogate pair, which UTF-8 cannot hold"
        ) from error


def _of_series(data: Any, node: Node) -> ak.contents.Content:
    if isinstance(data.dtype, np.dtype) and data.dtype != object:
        return _of_numpy(data.to_numpy())
    if data.dtype != object:
        import pyarrow

        return layout_of_arrow(pyarrow.array(data))
    return _of_python(data, node)


def _materialised(data: ak.Array) -> ak.contents.Content:
    if ak.backend(data) not in ("cpu", "typetracer"):
        data = ak.to_backend(data, "cpu")
    if ak.backend(data) == "typetracer":
        raise InvalidError("the awkward array holds a type but no data; compute it first")
    return ak.materialize(data).layout


def _is_of(data: Any, module: str, *names: str) -> bool:
    """Tell whether data are of a class of an optional library, without importing the library."""
    loaded = sys.modules.get(module)
    return loaded is not None and any(isinstance(data, getattr(loaded, name)) for name in names)


def _plain(value: Any, node: Node) -> Any:
    """Replace values in Python objects that awkward does not know by their stored form."""
    meaning = getattr(node, "meaning", None)
    if meaning is not None and value is not None:
        value = meaning.to_stored(value)
    if isinstance(node, Optional) and _is_no_time(value):
        return None
    if isinstance(node, Link):
        oid = getattr(value, "oid", value)
        return (
            dict(zip(("database", "container", "entry"), oid, strict=True)) if isinstance(oid, Oid) else value
        )
    if isinstance(node, ElementLink) and hasattr(value, "element"):
        value = (value.oid, value.element)
    if isinstance(node, ElementLink) and isinstance(value, tuple):
        return _plain(value[0], Link("")) | {"element": value[1]}
    if isinstance(node, List) and node.is_map and isinstance(value, dict):
        value = list(value.items())
    if isinstance(node, List | Fixed) and isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_plain(item, node.item) for item in value]
    if isinstance(node, Optional):
        return _plain(value, node.item)
    if isinstance(node, Record):
        return _plain_record(value, node)
    if isinstance(node, Variant):
        return _plain(value, _alternative_for(value, node))
    return value.tolist() if isinstance(value, np.generic) else value


def _is_no_time(value: Any) -> bool:
    """Whether a value is NaT, of NumPy or pandas."""
    return type(value).__name__ == "NaTType" or (isinstance(value, np.datetime64) and bool(np.isnat(value)))


def _alternative_for(value: Any, node: Variant) -> Node:
    """Return the alternative for a Python object that awkward cannot convert itself."""
    info = getattr(type(value), "__femtobarn__", None)
    wanted: Any = Link if isinstance(getattr(value, "oid", value), Oid) else List
    if info is not None:
        named = (
            item for item in node.alternatives if isinstance(item, Record) and item.class_name == info.name
        )
        return next(named, node.alternatives[0])
    return next((item for item in node.alternatives if isinstance(item, wanted)), String())


def _plain_record(value: Any, node: Record) -> Any:
    if node.is_tuple and isinstance(value, tuple):
        if len(value) != len(node.fields):
            raise ValueError(f"{value!r} has {len(value)} items, not {len(node.fields)}")
        return {field.name: _plain(item, field.type) for field, item in zip(node.fields, value, strict=True)}
    if hasattr(type(value), "__femtobarn__"):
        surplus, _ = surplus_of(value, list(node.by_name), node.class_name)
        if surplus is not None:
            raise InvalidError(surplus)
        value = {name: getattr(value, name) for name in node.by_name}
    if not isinstance(value, dict):
        return value
    return {
        name: _plain(item, node.by_name[name]) if name in node.by_name else item
        for name, item in value.items()
    }
