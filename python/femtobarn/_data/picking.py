"""Items of lists, picked by indices for all entries at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .._lazy import ak

__all__ = ["picked", "picked_ranges"]


def picked(columns: Sequence[tuple[Any, int | None]], index: Any, key: Any = None) -> Any:
    """Return the items that indices lead to, nested as the indices are; missing where one leads nowhere.

    Parameters
    ----------
    columns
        For each collection its items, in a list for each entry, and its key.
    index, key
        For each entry an index and the key of its collection, or lists of these.

    Examples
    --------
    >>> import awkward as ak
    >>> picked([(ak.Array([[5.5, 7.5], []]), None)], ak.Array([[1, -1], [0]])).to_list()
    [[7.5, None], [None]]
    """
    lists = [_without_missing(column) for column, _ in columns]
    counts = [ak.to_numpy(ak.num(each, axis=1)) for each in lists]
    together = lists[0] if len(lists) == 1 else ak.concatenate(lists, axis=1)
    items = _list_layout(together)
    starts = [items.offsets.data[:-1]]
    for count in counts[:-1]:
        starts.append(starts[-1] + count)
    keys = [of for _, of in columns]

    def picked_at(layouts: Any, **_: Any) -> Any:
        if not all(each.is_numpy for each in layouts):
            return None
        entries, places, *given = (each.data.astype(np.int64) for each in layouts)
        found = np.full(len(places), -1, np.int64)
        for start, count, of in zip(starts, counts, keys, strict=True):
            leads = (places >= 0) & (places < count[entries])
            if given:
                leads &= given[0] == of
            found[leads] = (start[entries] + places)[leads]
        return ak.contents.IndexedOptionArray.simplified(ak.index.Index64(found), items.content)

    return _transformed(picked_at, together, [index] if key is None else [index, key])


def picked_ranges(column: Any, begin: Any, end: Any) -> Any:
    """Return the items from an index to before another, in a list for each pair.

    Positions beyond the items are left out.

    Examples
    --------
    >>> import awkward as ak
    >>> column = ak.Array([[1, 2, 3], []])
    >>> picked_ranges(column, ak.Array([[0, 2], [0]]), ak.Array([[2, 3], [0]])).to_list()
    [[[1, 2], [3]], [[]]]
    """
    lists = _without_missing(column)
    items = _list_layout(lists)
    starts, stops = items.offsets.data[:-1], items.offsets.data[1:]

    def picked_at(layouts: Any, **_: Any) -> Any:
        if not all(each.is_numpy for each in layouts):
            return None
        entries, *ends = (each.data.astype(np.int64) for each in layouts)
        first, last = (
            np.clip(starts[entries] + each, starts[entries], stops[entries]).astype(np.int64) for each in ends
        )
        indices = (ak.index.Index64(each) for each in (first, np.maximum(first, last)))
        return ak.contents.ListArray(*indices, items.content)

    return _transformed(picked_at, lists, [begin, end])


def _without_missing(column: Any) -> Any:
    """Return lists, empty ones for those that are missing."""
    return ak.fill_none(column, [], axis=0) if column.layout.is_option else column


def _list_layout(lists: Any) -> Any:
    """Return the layout of lists, which a selection gives as indices of others."""
    layout = lists.layout
    return (layout.project() if layout.is_indexed else layout).to_ListOffsetArray64(True)


def _transformed(function: Callable[..., Any], lists: Any, nested: Sequence[Any]) -> Any:
    """Apply a function to the numbers in lists, each with the number of its entry before it."""
    # awkward would broadcast lists of a fixed length as NumPy does.
    numbers = [ak.from_regular(each, axis=None) for each in nested]
    settings = {"behavior": lists.behavior, "attrs": lists.attrs}
    return ak.transform(function, np.arange(len(lists)), *numbers, **settings)
