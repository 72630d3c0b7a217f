"""Jagged columns: the collections of many events held as flat NumPy arrays.

The collection of one event is a range of rows. `Jagged` has one array per column for the rows of all events
of a batch, and offsets at which each event begins. RNTuple stores columns in this form, and NumPy computes on
them without a loop over events.

Invariants:

1. ``offsets[0] == 0``, offsets never decrease, and ``offsets[-1]`` is the length of every column.
2. Columns are one-dimensional and contiguous, or two-dimensional for fixed-size arrays.
3. A `Jagged` does not change; every operation returns a new one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import awkward as ak
import numpy as np
import numpy.typing as npt

__all__ = ["Array", "Jagged", "offsets_of", "ranges"]

Array = npt.NDArray[Any]


def offsets_of(owners: Array, events: int) -> npt.NDArray[np.int64]:
    """Return the offsets of rows that are sorted by event.

    Parameters
    ----------
    owners
        The number of each row's event within the batch: shape (rows,).
    events
        Number of events in the batch.

    Returns
    -------
    Shape (events + 1,).
    """
    counts = np.bincount(owners, minlength=events)
    return np.concatenate(([0], np.cumsum(counts))).astype(np.int64)


def ranges(starts: Array, counts: Array) -> npt.NDArray[np.int64]:
    """Return the concatenation of ``arange(start, start + count)`` for every pair of `starts` and `counts`.

    >>> ranges(np.array([5, 0]), np.array([2, 3]))
    array([5, 6, 0, 1, 2])
    """
    counts = np.asarray(counts, dtype=np.int64)
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    shifts = np.repeat(np.asarray(starts, dtype=np.int64) - (ends - counts), counts)
    return shifts + np.arange(total, dtype=np.int64)


@dataclass(frozen=True)
class Jagged:
    """Rows of many events: offsets and flat columns.

    Parameters
    ----------
    offsets
        Shape (events + 1,): the rows of event ``i`` are ``offsets[i]:offsets[i + 1]``.
    columns
        Name to array of shape (rows,) or (rows, size).
    """

    offsets: npt.NDArray[np.int64]
    columns: Mapping[str, Array]

    @classmethod
    def from_rows(cls, owners: Array, events: int, columns: Mapping[str, Array]) -> Jagged:
        """Return rows, given in any order, grouped by their event in ``owners`` (shape (rows,))."""
        order = np.argsort(owners, kind="stable")
        grouped = {name: np.ascontiguousarray(column[order]) for name, column in columns.items()}
        return cls(offsets_of(owners, events), grouped)

    @classmethod
    def from_awkward(cls, array: ak.Array) -> Jagged:
        """Return the rows of an awkward array of type ``events * var * {name: number, ...}``."""
        layout = ak.to_packed(array).layout
        content = layout.content
        columns = {name: ak.to_numpy(content[name]) for name in content.fields}
        return cls(np.asarray(layout.offsets, dtype=np.int64), columns)

    @classmethod
    def concatenate(cls, parts: Sequence[Jagged]) -> Jagged:
        """Return the rows of several parts, event by event in the order of the parts."""
        events = len(parts[0])
        owners = np.concatenate([part.owners for part in parts])
        names = list(parts[0].columns)
        columns = {name: np.concatenate([part[name] for part in parts]) for name in names}
        return cls.from_rows(owners, events, columns)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, name: str) -> Array:
        return self.columns[name]

    @property
    def rows(self) -> int:
        """Number of rows of all events."""
        return int(self.offsets[-1])

    @cached_property
    def counts(self) -> npt.NDArray[np.int64]:
        """Shape (events,): number of rows of each event."""
        return np.diff(self.offsets)

    @cached_property
    def owners(self) -> npt.NDArray[np.int64]:
        """Shape (rows,): number of the event of each row."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.counts)

    @cached_property
    def positions(self) -> npt.NDArray[np.int64]:
        """Shape (rows,): the index of each row within its event."""
        return np.arange(self.rows, dtype=np.int64) - np.repeat(self.offsets[:-1], self.counts)

    @property
    def nbytes(self) -> int:
        """Size of all columns in bytes."""
        return sum(column.nbytes for column in self.columns.values())

    def slice(self, start: int, stop: int) -> Jagged:
        """Return the events ``start:stop``. The columns are views, without a copy."""
        first, last = int(self.offsets[start]), int(self.offsets[stop])
        columns = {name: column[first:last] for name, column in self.columns.items()}
        return Jagged(self.offsets[start : stop + 1] - first, columns)

    def select(self, keep: Array) -> Jagged:
        """Return the rows where ``keep``, of shape (rows,), is true."""
        columns = {name: column[keep] for name, column in self.columns.items()}
        return Jagged(offsets_of(self.owners[keep], len(self)), columns)

    def take(self, events: Array) -> Jagged:
        """Return the given events in the given order; an event may occur several times."""
        counts = self.counts[events]
        picked = ranges(self.offsets[:-1][events], counts)
        columns = {name: column[picked] for name, column in self.columns.items()}
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        return Jagged(offsets, columns)

    def to_awkward(self, record: str | None = None) -> ak.Array:
        """Return the data as an awkward array ``events * var * {...}`` over the same memory.

        Parameters
        ----------
        record
            Class name of the rows, for awkward's ``__record__``.
        """
        names = list(self.columns)
        contents = [ak.from_numpy(self.columns[name], highlevel=False) for name in names]
        parameters = {"__record__": record} if record else None
        rows = ak.contents.RecordArray(contents, names, length=self.rows, parameters=parameters)
        return ak.Array(ak.contents.ListOffsetArray(ak.index.Index64(self.offsets), rows))
