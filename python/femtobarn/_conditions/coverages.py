"""Coverages: the parts of a series that a snapshot file has, chosen by a range or by the moments of events.

Within its coverage a file answers as the federation does, in every channel, gaps included. It knows nothing
outside, so that a moment there is an error and not a gap.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from .._data.casts import Values
from .clocks import BEGINNING, FOREVER
from .series import Series

__all__ = ["Coverage", "Segments", "segments_at", "segments_within"]


class Coverage:
    """Ranges of a clock, sorted; each begins after the end of the one before.

    Examples
    --------
    >>> coverage = Coverage([(0, 10), (20, 30)])
    >>> coverage.has(9), coverage.has(10), coverage.parts(5, None)
    (True, False, [(5, 10), (20, 30)])
    """

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self.ranges = list(ranges)
        self._starts = [start for start, _ in self.ranges]

    def around(self, moment: int) -> tuple[int, int] | None:
        """Return the range that a moment is in; None if it is not covered."""
        place = bisect_right(self._starts, moment) - 1
        if place < 0:
            return None
        start, stop = self.ranges[place]
        # A range without an end has the last number of the clock, too, at which nothing is valid.
        return (start, stop) if moment < stop or stop == FOREVER else None

    def has(self, moment: int) -> bool:
        """Tell whether a moment is covered."""
        return self.around(moment) is not None

    def first_outside(self, moments: Values) -> int | None:
        """Return the first of many moments that is not covered; None if all are."""
        if not self.ranges:
            return int(moments[0]) if len(moments) else None
        starts, stops = np.array(self.ranges, np.int64).T
        places = np.searchsorted(starts, moments, "right") - 1
        is_outside = (places < 0) | ((moments >= stops[places]) & (stops[places] != FOREVER))
        return int(moments[np.argmax(is_outside)]) if is_outside.any() else None

    def parts(self, since: int | None, until: int | None) -> list[tuple[int, int]] | None:
        """Return the covered parts of a range; None if they do not reach from end to end of it.

        An end that is not given is that of the coverage, and there may be holes if one is not given.
        """
        low = BEGINNING if since is None else since
        high = FOREVER if until is None else until
        parts = [(max(low, start), min(high, stop)) for start, stop in self.ranges]
        parts = [(start, stop) for start, stop in parts if start < stop]
        if low >= high or (since is None and until is None):
            return parts
        has_hole = since is not None and until is not None and len(parts) > 1
        reaches = (
            bool(parts)
            and (since is None or parts[0][0] == since)
            and (until is None or parts[-1][1] == until)
        )
        return parts if reaches and not has_hole else None


@dataclass(frozen=True)
class Segments:
    """Ranges of channels in which one condition is valid: its validity, channel, and entry in the source."""

    since: Values
    until: Values
    channel: Values
    entry: Values
    coverage: Coverage

    def __len__(self) -> int:
        return len(self.entry)


def segments_within(series: Series, since: int, until: int) -> Segments:
    """Return the conditions that are valid in a range, cut to it."""
    found = []
    for channel in series.channels(since, until):
        begins, ends, entries = series.segments(since, until, channel=channel)
        found.append((channel, np.maximum(begins, since), np.minimum(ends, until), entries))
    return _joined(found, Coverage([(since, until)]))


def segments_at(series: Series, moments: Values) -> Segments:
    """Return the conditions that are valid at some moments, each with its whole validity.

    The coverage is the ranges around the moments in which no channel changes.

    Parameters
    ----------
    moments
        Moments in ascending order, each once.
    """
    found = []
    lows = np.full(len(moments), BEGINNING, np.int64)
    highs = np.full(len(moments), FOREVER, np.int64)
    for channel in series.channels() if len(moments) else ():
        begins, ends, entries = series.segments(channel=channel)
        places = np.searchsorted(begins, moments, "right") - 1
        stops = np.where(places < 0, BEGINNING, ends[places])
        is_valid = moments < stops
        lows = np.maximum(lows, np.where(is_valid, begins[places], stops))
        highs = np.minimum(highs, np.where(is_valid, stops, np.append(begins, FOREVER)[places + 1]))
        used = np.unique(places[is_valid])
        found.append((channel, begins[used], ends[used], entries[used]))
    return _joined(found, Coverage(_merged(lows, highs)))


def _merged(lows: Values, highs: Values) -> list[tuple[int, int]]:
    """Return ranges, which are sorted and touch or equal each other, as few as possible."""
    if not len(lows):
        return []
    begins = np.flatnonzero(np.append(True, lows[1:] > highs[:-1]))
    ends = np.append(begins[1:], len(lows)) - 1
    return list(zip(lows[begins].tolist(), highs[ends].tolist(), strict=True))


def _joined(found: list[tuple[int, Values, Values, Values]], coverage: Coverage) -> Segments:
    """Return the segments of all channels, in the order of the clock."""
    none = (0, *(np.empty(0, kind) for kind in (np.int64, np.int64, np.uint64)))
    channels, since, until, entries = zip(none, *found, strict=True)
    counts = [len(each) for each in entries]
    channel = np.repeat(np.array(channels, np.int64), counts)
    begins = np.concatenate(since)
    order = np.lexsort((channel, begins))
    ends, joined = np.concatenate(until)[order], np.concatenate(entries)[order]
    return Segments(begins[order], ends, channel[order], joined, coverage)
