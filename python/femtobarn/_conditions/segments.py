"""Segments: the parts of the clock in which one condition of a channel is valid, as arrays.

Segments of one channel do not overlap, and are in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._data.casts import Values
from .series import Series

__all__ = ["Differences", "Segments", "differences_of", "positions_at", "read_segments"]


@dataclass(frozen=True)
class Segments:
    """The segments of one channel, with the fields of their conditions."""

    since: Values
    until: Values
    fields: dict[str, Values]
    entries: Values
    """The entry of each condition in the container of the series; -1 for one that is not stored."""

    def __len__(self) -> int:
        return len(self.since)

    def where(self, kept: Values) -> Segments:
        """Return the segments at some positions, or those that a mask selects."""
        fields = {name: values[kept] for name, values in self.fields.items()}
        return Segments(self.since[kept], self.until[kept], fields, self.entries[kept])

    def within(self, since: int, until: int) -> Segments:
        """Return the parts of the segments within a range."""
        found = self.where((self.since < until) & (self.until > since))
        return Segments(
            np.maximum(found.since, since), np.minimum(found.until, until), found.fields, found.entries
        )

    @classmethod
    def new(cls, since: Values, until: Values, fields: dict[str, Values]) -> Segments:
        """Return segments that are not stored."""
        return cls(since, until, fields, np.full(len(since), -1))


@dataclass(frozen=True)
class Differences:
    """The changes that turn a channel's segments into other ones."""

    put: Segments
    """Conditions to put."""
    gaps: list[tuple[int, int]]
    """Ranges in which nothing may be valid any more."""


def read_segments(
    series: Series, channels: Sequence[int], since: int, until: int, fields: Sequence[str]
) -> dict[int, Segments]:
    """Return the segments of channels within a range of the clock; they end where the range does."""
    parts = []
    for channel in channels:
        columns = series._handle.intervals(channel, since, until)
        begins, ends, entries = (np.frombuffer(memoryview(each), np.int64) for each in columns)
        kept = slice(None) if since < until else slice(0)
        parts.append((np.maximum(begins, since)[kept], np.minimum(ends, until)[kept], entries[kept]))
    every = np.concatenate([entries for _, _, entries in parts]) if parts else np.zeros(0, np.int64)
    wanted, positions = np.unique(every, return_inverse=True)
    values = series.fetch(wanted.astype(np.uint64), list(fields), library="np")
    found, first = {}, 0
    for channel, (begins, ends, entries) in zip(channels, parts, strict=True):
        chosen = positions[first : first + len(entries)]
        first += len(entries)
        columns_of_channel = {name: np.asarray(values[name])[chosen] for name in fields}
        found[channel] = Segments(begins, ends, columns_of_channel, entries)
    return found


def positions_at(segments: Segments, moments: Values) -> Values:
    """Return the position of the segment that is valid at each moment, or -1."""
    if not len(segments):
        return np.full(len(moments), -1)
    positions = np.searchsorted(segments.since, moments, "right") - 1
    return np.where((positions >= 0) & (moments < segments.until[positions]), positions, -1)


def differences_of(old: Segments, new: Segments, compared: Sequence[str]) -> Differences:
    """Return the changes after which old segments answer as new ones do, in the compared fields."""
    bounds = np.unique(np.concatenate([old.since, old.until, new.since, new.until]))
    starts, stops = bounds[:-1], bounds[1:]
    before, after = positions_at(old, starts), positions_at(new, starts)
    differs = np.ones(len(starts), bool)
    both = np.flatnonzero((before >= 0) & (after >= 0))
    differs[both] = False
    for name in compared:
        one, other = old.fields[name][before[both]], new.fields[name][after[both]]
        differs[both] |= (one != other) & ((one == one) | (other == other))
    is_put = np.flatnonzero((after >= 0) & differs)
    first, last = _runs(is_put, after[is_put])
    chosen = new.where(after[is_put][first])
    put = Segments(starts[is_put][first], stops[is_put][last], chosen.fields, chosen.entries)
    is_gap = np.flatnonzero((after < 0) & (before >= 0))
    first, last = _runs(is_gap, np.zeros(len(is_gap)))
    gaps = list(zip(starts[is_gap][first].tolist(), stops[is_gap][last].tolist(), strict=True))
    return Differences(put, gaps)


def _runs(positions: Values, labels: Values) -> tuple[Values, Values]:
    """Return where runs of neighbouring positions with the same label begin, and where they end."""
    if not len(positions):
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    breaks = np.flatnonzero((np.diff(positions) != 1) | (np.diff(labels) != 0))
    return np.append(0, breaks + 1), np.append(breaks, len(positions) - 1)
