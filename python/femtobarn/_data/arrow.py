"""Arrow data as awkward layouts: of pyarrow, or of any library with the Arrow PyCapsule interface.

pyarrow is imported only when there are such data; it is needed to read them.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .._exceptions import InvalidError
from .._lazy import ak

__all__ = ["is_arrow_stream", "layout_of_arrow", "table_of"]


def is_arrow_stream(data: Any) -> bool:
    """Tell whether an object implements the Arrow PyCapsule interface."""
    return hasattr(data, "__arrow_c_stream__") or hasattr(data, "__arrow_c_array__")


def table_of(data: Any) -> Any:
    """Return data with the Arrow PyCapsule interface as a table or batch of pyarrow.

    Raises
    ------
    InvalidError
        If the data have no named columns.
    """
    import pyarrow as pa

    try:
        if hasattr(data, "__arrow_c_stream__"):
            return pa.RecordBatchReader.from_stream(data).read_all()
        return pa.record_batch(data)
    except pa.ArrowException as error:
        raise InvalidError(
            f"{type(data).__name__} cannot be read as an Arrow table of named columns: {error}"
        ) from error


def layout_of_arrow(data: Any) -> ak.contents.Content:
    """Return Arrow data as an awkward layout.

    Slices of larger arrays are copied first: awkward 2.14 reads the validity of a slice from the beginning of
    the whole array.

    Raises
    ------
    InvalidError
        If awkward cannot read the Arrow type.
    """
    import pyarrow as pa

    if not isinstance(data, pa.ChunkedArray | pa.Array | pa.Table | pa.RecordBatch | pa.Scalar):
        data = pa.chunked_array(data) if hasattr(data, "__arrow_c_stream__") else pa.array(data)
    given = data
    try:
        if not isinstance(data, pa.Scalar | pa.Table | pa.RecordBatch):
            # Arrow decodes a dictionary of plain texts, but not one of views: so views are cast first.
            for decode in (False, True):
                kind = _plain_type(data.type, decode)
                data = data if kind == data.type else data.cast(kind)
        if isinstance(data, pa.ChunkedArray):
            data = pa.chunked_array([_unsliced(chunk) for chunk in data.chunks], data.type)
        elif isinstance(data, pa.Array):
            data = _unsliced(data)
        return ak.from_arrow(data, highlevel=False)
    except (AssertionError, NotImplementedError, TypeError, ValueError, pa.ArrowException) as error:
        kind = getattr(given, "type", None) or given.schema
        raise InvalidError(f"Arrow data of type {kind} cannot be read; cast them first") from error


def _plain_type(kind: Any, decode: bool) -> Any:
    """Return an Arrow type without maps, views and, if asked, dictionaries: awkward 2.14 lacks some."""
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(kind):
        values = _plain_type(kind.value_type, decode)
        return values if decode else pa.dictionary(kind.index_type, values, kind.ordered)
    if kinds.is_string_view(kind):
        return pa.large_string()
    if kinds.is_binary_view(kind):
        return pa.large_binary()
    if kinds.is_struct(kind):
        fields = (kind[position] for position in range(kind.num_fields))
        return pa.struct([each.with_type(_plain_type(each.type, decode)) for each in fields])
    if kinds.is_map(kind):
        pair = (kind.key_field, kind.item_field)
        return pa.list_(pa.struct([each.with_type(_plain_type(each.type, decode)) for each in pair]))
    if not any(test(kind) for test in (kinds.is_list, kinds.is_large_list, kinds.is_fixed_size_list)):
        return kind
    item = kind.value_field.with_type(_plain_type(kind.value_type, decode))
    if kinds.is_fixed_size_list(kind):
        return pa.list_(item, kind.list_size)
    return pa.large_list(item) if kinds.is_large_list(kind) else pa.list_(item)


def _unsliced(array: Any) -> Any:
    """Copy an array that is, or has in it, a slice of a larger one."""
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
