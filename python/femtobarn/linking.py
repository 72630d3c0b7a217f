"""Columns of links: references to objects, and to elements of collections in objects.

A link is the record (database, container, entry); an element link also has the index of the element. Numbers
of containers start at 1, so that a link of zeros is null. It is read as a missing value, and a missing value
is stored as one.
"""

from __future__ import annotations

from typing import NamedTuple

import awkward as ak
import numpy as np

from femtobarn.jagged import Array

__all__ = ["Target", "element_links", "links"]


class Target(NamedTuple):
    """The container of consecutive objects, and the entry of the first."""

    database: int
    container: int
    first: int


def links(target: Target, entries: Array | int) -> ak.Array:
    """Return links to objects.

    Parameters
    ----------
    target
        The container, and the entry from which `entries` count.
    entries
        Entries relative to ``target.first``: shape (links,); a number n stands for 0 to n - 1.

    >>> links(Target(3, 1, 40), 2).to_list()
    [{'database': 3, 'container': 1, 'entry': 40}, {'database': 3, 'container': 1, 'entry': 41}]
    """
    relative = np.arange(entries) if isinstance(entries, int) else entries
    return ak.Array(_record(_link_columns(target, relative)))


def element_links(target: Target, entries: Array, elements: Array, offsets: Array) -> ak.Array:
    """Return lists of links to elements of collections.

    Parameters
    ----------
    entries, elements
        The entry of the object, relative to ``target.first``, and the index in its collection: shape
        (links,).
    offsets
        Offsets of the lists in the links: shape (lists + 1,).
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
