"""The order of objects by the values of fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import awkward as ak
import numpy as np

from .._exceptions import InvalidError

__all__ = ["order_of"]


def order_of(array: ak.Array, keys: Sequence[str], descending: bool) -> Any:
    """Return the positions of objects in the order of their values, shape (n,), int64.

    Raises
    ------
    InvalidError
        If a key has several values per object, or values without an order.
    """
    columns: list[Any] = []
    for key in reversed(keys):
        column = array[key] if key in array.fields else array[tuple(key.split("."))]
        if column.ndim > 1 or column.fields:
            what = "members" if column.fields else "several values per object"
            raise InvalidError(f"{key!r} has {what}, which have no order; name one of them, or an alias")
        columns += _ranks(column, descending)
    return np.lexsort(columns)


def _ranks(column: ak.Array, descending: bool) -> list[Any]:
    """Return the places of values among all different ones, and above that, which values come last."""
    is_missing = ak.to_numpy(ak.is_none(column)).astype(bool)
    values = np.asarray(ak.to_numpy(ak.drop_none(column)))
    ranks = np.zeros(len(column), np.int64)
    if len(values):
        ranks[~is_missing] = np.unique(values, return_inverse=True)[1].reshape(-1)
    if values.dtype.kind == "f":
        is_missing[~is_missing] = np.isnan(values)
    ranks[is_missing] = 0  # Their order stays.
    return [-ranks if descending else ranks, is_missing]
