"""Data of any library as awkward layouts, which :mod:`femtobarn._arrays` matches against classes.

Optional libraries are never imported here: data of theirs can only come from a caller who has them.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ._casts import Values
from ._exceptions import InvalidError
from ._later import ak
from ._oid import Oid, OidRange
from ._types import ElementLink, Fixed, Link, List, Node, Optional, Record, String, Variant

__all__ = ["layout_of", "named_parts"]


def named_parts(data: Any) -> Mapping[str, Any] | None:
    """Return the columns of what is kept by column, or None."""
    if isinstance(data, Mapping):
        return data
    if isinstance(data, np.ndarray) and data.dtype.names is not None:
        return {name: data[name] for name in data.dtype.names}
    if _is_of(data, "pandas", "DataFrame"):
        return {str(name): column for name, column in data.items()}
    if _is_of(data, "pyarrow", "Table", "RecordBatch"):
        return dict(zip(data.column_names, data.columns, strict=True))
    return None


def layout_of(data: Any, node: Node) -> tuple[ak.contents.Content, bool]:
    """Return an array as an awkward layout, and whether it was made from Python objects."""
    if isinstance(data, ak.Array):
        return _materialised(data), False
    if isinstance(data, OidRange):
        return ak.from_numpy(data.to_numpy(), highlevel=False), False
    if isinstance(data, np.ndarray) and data.dtype != object:
        return _of_numpy(data), False
    if _is_of(data, "pandas", "Series"):
        return _of_series(data, node)
    if type(data).__module__.partition(".")[0] == "pyarrow":
        return _of_arrow(data), False
    if hasattr(data, "__dask_graph__"):
        raise InvalidError("a Dask collection holds no data yet; call .compute() first")
    if isinstance(data, str | bytes) or not isinstance(data, Iterable):
        raise InvalidError(
            f"{type(data).__name__} is not an array; give awkward, NumPy, Arrow or pandas data, or a list"
        )
    return _of_python(data, node), True


def _of_python(data: Iterable[Any], node: Node) -> ak.contents.Content:
    try:
        return ak.from_iter(_plain(list(data), List(node)), highlevel=False)
    except (TypeError, ValueError) as error:
        raise InvalidError(f"the list cannot be made an array of {node}: {error}") from error


def _of_numpy(data: Values) -> ak.contents.Content:
    if data.dtype.kind in "mMcV" and data.dtype.names is None:
        raise InvalidError(f"NumPy values of type {data.dtype} cannot be stored; convert to numbers first")
    if not data.dtype.isnative:
        data = data.astype(data.dtype.newbyteorder("="))
    return ak.from_numpy(data, regulararray=True, highlevel=False)


def _of_series(data: Any, node: Node) -> tuple[ak.contents.Content, bool]:
    if isinstance(data.dtype, np.dtype) and data.dtype != object:
        return _of_numpy(data.to_numpy()), False
    if data.dtype != object:
        import pyarrow

        return _of_arrow(pyarrow.array(data)), False
    return _of_python(data, node), True


def _of_arrow(data: Any) -> ak.contents.Content:
    """Return Arrow data as a layout, parts of larger arrays as arrays of their own first.

    Awkward 2.14 takes the missing values of a part from the beginning of the whole.
    """
    import pyarrow as pa

    if isinstance(data, pa.ChunkedArray):
        data = pa.chunked_array([_whole(chunk) for chunk in data.chunks], data.type)
    elif isinstance(data, pa.Array):
        data = _whole(data)
    return ak.from_arrow(data, highlevel=False)


def _whole(array: Any) -> Any:
    return array.take(np.arange(len(array))) if _is_part(array) else array


def _is_part(array: Any) -> bool:
    import pyarrow as pa

    kinds = pa.types
    if array.offset:
        return True
    if kinds.is_struct(array.type):
        return any(_is_part(array.field(position)) for position in range(array.type.num_fields))
    if any(test(array.type) for test in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)):
        return _is_part(array.values)
    return False


def _materialised(data: ak.Array) -> ak.contents.Content:
    if ak.backend(data) not in ("cpu", "typetracer"):
        data = ak.to_backend(data, "cpu")
    if ak.backend(data) == "typetracer":
        raise InvalidError("the awkward array holds a type but no data; compute it first")
    return ak.materialize(data).layout


def _is_of(data: Any, module: str, *names: str) -> bool:
    """Tell whether data is of a class of an optional library, without importing it."""
    loaded = sys.modules.get(module)
    return loaded is not None and any(isinstance(data, getattr(loaded, name)) for name in names)


def _plain(value: Any, node: Node) -> Any:
    """Replace OIDs in Python objects by what they are stored as."""
    if isinstance(node, Link):
        oid = getattr(value, "oid", value)
        return (
            dict(zip(("database", "container", "entry"), oid, strict=True)) if isinstance(oid, Oid) else value
        )
    if isinstance(node, ElementLink) and isinstance(value, tuple):
        return _plain(value[0], Link("")) | {"element": value[1]}
    if isinstance(node, List | Fixed) and isinstance(value, list | tuple | OidRange):
        return [_plain(item, node.item) for item in value]
    if isinstance(node, Optional):
        return _plain(value, node.item)
    if isinstance(node, Record):
        return _plain_record(value, node)
    if isinstance(node, Variant):
        return _plain(value, _alternative_for(value, node))
    return value.tolist() if isinstance(value, np.generic) else value


def _alternative_for(value: Any, node: Variant) -> Node:
    """Return the alternative of which a Python object that awkward does not know is."""
    info = getattr(type(value), "__femtobarn__", None)
    wanted: Any = Link if isinstance(getattr(value, "oid", value), Oid) else List
    if info is not None:
        named = (
            item for item in node.alternatives if isinstance(item, Record) and item.class_name == info.name
        )
        return next(named, node.alternatives[0])
    return next((item for item in node.alternatives if isinstance(item, wanted)), String())


def _plain_record(value: Any, node: Record) -> Any:
    if hasattr(type(value), "__femtobarn__"):
        value = {name: getattr(value, name) for name in node.by_name}
    if not isinstance(value, dict):
        return value
    return {
        name: _plain(item, node.by_name[name]) if name in node.by_name else item
        for name, item in value.items()
    }
