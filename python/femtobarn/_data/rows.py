"""Rows of columns, picked by their positions: columns in the form of the engine, whatever their types."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._schema.leaf_types import DTYPES
from .arrays import Tree
from .casts import Values

__all__ = ["rows_of"]


def rows_of(tree: Tree, positions: Values) -> Tree:
    """Return the entries of columns at some positions, in the order of these.

    Examples
    --------
    >>> lists = ("list", np.array([0, 2, 2, 3]), ("primitive", "int8", np.array([5, 6, 7], np.int8)), False)
    >>> _, offsets, (_, _, items), _ = rows_of(lists, np.array([2, 0, 0]))
    >>> offsets.view(np.int64).tolist(), items.tolist()
    ([0, 1, 3, 5], [7, 5, 6, 5, 6])
    """
    kind = tree[0]
    if kind == "primitive":
        return (*tree[:2], _bytes_of(np.frombuffer(tree[2], DTYPES[tree[1]])[positions]))
    if kind == "record":
        return (kind, len(positions), tree[2], tuple(rows_of(member, positions) for member in tree[3]))
    if kind == "fixed":
        size = tree[1]
        items = (positions[:, np.newaxis] * size + np.arange(size)).reshape(-1)
        return (kind, size, len(positions), rows_of(tree[3], items))
    if kind == "variant":
        return _variant(tree, positions)
    offsets, items = _lists(np.frombuffer(tree[1], np.int64), positions)
    if kind == "string":
        return (kind, offsets, np.frombuffer(tree[2], np.uint8)[items])
    return (kind, offsets, rows_of(tree[2], items), tree[3])


def _lists(offsets: Values, positions: Values) -> tuple[Values, Values]:
    """Return the offsets of lists at some positions, as bytes, and the positions of their items."""
    starts, counts = offsets[:-1][positions], np.diff(offsets)[positions]
    ends = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return _bytes_of(ends), np.repeat(starts - ends[:-1], counts) + np.arange(ends[-1])


def _variant(tree: Tree, positions: Values) -> Tree:
    """Return values of several types; each alternative keeps the items that are left, in their order."""
    tags = np.frombuffer(tree[1], np.int8)[positions]
    places = np.frombuffer(tree[2], np.int64)[positions].copy()
    contents: list[Any] = []
    for tag, alternative in enumerate(tree[3]):
        is_of_it = tags == tag
        contents.append(rows_of(alternative, places[is_of_it]))
        places[is_of_it] = np.arange(np.count_nonzero(is_of_it))
    return (tree[0], _bytes_of(tags), _bytes_of(places), tuple(contents))


def _bytes_of(values: Values) -> Values:
    return np.ascontiguousarray(values).view(np.uint8)
