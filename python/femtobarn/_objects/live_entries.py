"""The entries of a container that have objects, where some objects were deleted."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._data.casts import Values

__all__ = ["LiveEntries"]

Entries = np.ndarray[Any, np.dtype[np.uint64]]


class LiveEntries:
    """Runs of entries with objects. The position of an object is its index among them, as in a view.

    Parameters
    ----------
    ends
        First entry and end of each run, in order: shape (2 * runs,).

    Examples
    --------
    >>> live = LiveEntries(np.array([0, 2, 5, 8]))
    >>> len(live), live.entry(2), live.within(1, 7).tolist()
    (5, 5, [1, 5, 6])
    """

    def __init__(self, ends: np.ndarray[Any, Any]) -> None:
        runs = ends.reshape(-1, 2).astype(np.int64)
        self._starts, self._stops = runs[:, 0], runs[:, 1]
        self._first = np.concatenate([[0], np.cumsum(self._stops - self._starts)])

    def __len__(self) -> int:
        return int(self._first[-1])

    @property
    def runs(self) -> Iterator[range]:
        """The runs, in order."""
        return map(range, self._starts.tolist(), self._stops.tolist())

    def entry(self, position: int) -> int:
        """Return the entry of the object at a position."""
        run = int(np.searchsorted(self._first, position, side="right")) - 1
        return int(self._starts[run] + position - self._first[run])

    def within(self, start: int, stop: int) -> Entries:
        """Return the entries in ``start:stop`` that have objects."""
        parts = [np.empty(0, np.uint64)]
        first = int(np.searchsorted(self._stops, start, side="right"))
        last = int(np.searchsorted(self._starts, stop, side="left"))
        for run in range(first, last):
            ends = max(start, int(self._starts[run])), min(stop, int(self._stops[run]))
            parts.append(np.arange(*ends, dtype=np.uint64))
        return np.concatenate(parts)

    def positions_among(self, others: LiveEntries) -> Values:
        """Return the positions of all entries here among others, of which they are some.

        Examples
        --------
        >>> live = LiveEntries(np.array([0, 2, 5, 8]))
        >>> live.positions_among(LiveEntries(np.array([0, 4, 5, 8]))).tolist()
        [0, 1, 4, 5, 6]
        """
        run = np.searchsorted(others._starts, self._starts, side="right") - 1
        first = others._first[run] + self._starts - others._starts[run]
        return np.repeat(first - self._first[:-1], self._stops - self._starts) + np.arange(len(self))

    def first_outside(self, others: LiveEntries) -> int | None:
        """Return the first entry here that is not among others; None if they have all.

        Examples
        --------
        >>> live = LiveEntries(np.array([0, 2, 5, 8]))
        >>> live.first_outside(LiveEntries(np.array([0, 6, 7, 9]))), live.first_outside(live)
        (6, None)
        """
        if not len(others):
            return int(self._starts[0]) if len(self) else None
        run = np.searchsorted(others._starts, self._starts, side="right") - 1
        ends = np.where(run < 0, self._starts, np.maximum(others._stops[run], self._starts))
        outside = np.flatnonzero(ends < self._stops)
        return int(ends[outside[0]]) if len(outside) else None
