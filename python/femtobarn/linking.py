"""Columns of links: references to objects, and to elements of the collections in objects.

A link is the record (database, container, entry), an element link has the element's index too. Ids of
containers start at 1, so that a link of zeros refers to nothing. It is read as a missing value, and may be
given as one.
"""

from __future__ import annotations

from typing import NamedTuple

import awkward as ak
import numpy as np

from femtobarn.jagged import Array

__all__ = ["Target", "element_links", "links"]


class Target(NamedTuple):
    """Where consecutive objects are: their container and the entry of the first."""

    database: int
    container: int
    first: int


def links(target: Target, entries: Array | int) -> ak.Array:
    """Links to objects.

    Parameters
    ----------
    target
        The container, and the entry that counts as 0.
    entries
        Shape (links,), relative to ``target.first``; a number n stands for 0 to n - 1.

    >>> links(Target(3, 1, 40), 2).to_list()
    [{'database': 3, 'container': 1, 'entry': 40}, {'database': 3, 'container': 1, 'entry': 41}]
    """
    relative = np.arange(entries) if isinstance(entries, int) else entries
    return ak.Array(_record(_link_columns(target, relative)))


def element_links(target: Target, entries: Array, elements: Array, offsets: Array) -> ak.Array:
    """Lists of links to elements of collections.

    Parameters
    ----------
    entries, elements
        Shape (links,): the object, relative to ``target.first``, and the index in its collection.
    offsets
        Shape (lists + 1,): which links belong to which list.
    """
    columns = _link_columns(target, entries) | {"element": elements.astype(np.uint32)}
    index = ak.index.Index64(np.asarray(offsets, np.int64))
    return ak.Array(ak.contents.ListOffsetArray(index, _record(columns)))


def _link_columns(target: Target, entries: Array) -> dict[str, Array]:
    count = len(entries)
    return {
        "database": np.full(count, target.database, np.uint32),
        "container": np.full(count, target.container, np.uint32),
        "entry": entries.astype(np.uint64) + np.uint64(target.first),
    }


def _record(columns: dict[str, Array]) -> ak.contents.RecordArray:
    contents = [ak.contents.NumpyArray(column) for column in columns.values()]
    return ak.contents.RecordArray(contents, list(columns))
