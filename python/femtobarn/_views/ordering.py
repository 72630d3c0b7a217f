"""Objects in the order of the values of fields, and groups of objects with the same values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import awkward as ak
import numpy as np

from .._exceptions import InvalidError

__all__ = ["key_column", "order_of", "ranked"]


def order_of(array: ak.Array, keys: Sequence[str], descending: bool) -> Any:
    """Return the positions of objects in the order of their values, shape (n,), int64.

    Raises
    ------
    InvalidError
        If a key has several values per object, or members.
    """
    columns: list[Any] = []
    for key in reversed(keys):
        if not isinstance(key, str) or any(sign in key for sign in "*?[/"):
            raise InvalidError(f"{key!r} is not the name of one field")
        ranks, is_missing = ranked(key_column(array, key))
        columns += [-ranks if descending else ranks, is_missing]
    return np.lexsort(columns)


def key_column(array: ak.Array, path: str) -> ak.Array:
    """Return a field with one value per object, by its dotted name.

    Raises
    ------
    InvalidError
        If it has several values per object, or members.
    """
    column = array[path] if path in array.fields else array[tuple(path.split("."))]
    if "union[" in str(column.type) or "bytes" in str(column.type):
        raise InvalidError(
            f"{path!r} has values of several types, or bytes, which have no order; name another"
        )
    if column.ndim > 1 or column.fields:
        what = "members" if column.fields else "several values per object"
        raise InvalidError(f"{path!r} has {what}, which have no order; name one of them, or an alias")
    return column


def ranked(column: ak.Array) -> tuple[Any, Any]:
    """Return the place of each value among all different ones, and which values are missing or NaN.

    Returns
    -------
    tuple
        int64 and bool, shape (n,) each. The places of missing values are 0.
    """
    is_missing = ak.to_numpy(ak.is_none(column)).astype(bool)
    there = ak.drop_none(column)
    # An array of NumPy's texts has room for the longest in each place.
    is_text = "string" in str(there.type)
    values = np.array(there.to_list(), object) if is_text else np.asarray(ak.to_numpy(there))
    ranks = np.zeros(len(column), np.int64)
    if len(values):
        ranks[~is_missing] = np.unique(values, return_inverse=True)[1].reshape(-1)
    if values.dtype.kind == "f":
        is_missing[~is_missing] = np.isnan(values)
    ranks[is_missing] = 0
    return ranks, is_missing
