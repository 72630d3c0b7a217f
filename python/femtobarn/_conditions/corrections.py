"""Corrections: the parts of the clock that new, updated, ended and deleted conditions can have changed.

A condition of an ``open`` series changes answers from its beginning until the next one begins, even if it has
ended before: it hides older conditions until there. In other series it changes answers while it is valid.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from .._data.casts import Values
from .._views.view import View
from .clocks import BEGINNING, FOREVER
from .series import Series

__all__ = ["Ranges", "corrected_ranges", "inserted_ranges", "newest_beginning"]

Ranges = dict[int, tuple[int, int]]
"""For each channel the beginning and the end of a part of the clock."""

STEP_ENTRIES = 1_000_000
"""Conditions that are read at once."""

GAP_ENTRIES = 4096
"""Unchanged conditions between changed ones that are read as well, which costs less than to read twice."""


def corrected_ranges(before: View, after: Series, field: str) -> Ranges:
    """Return where conditions of an earlier view are others in a later one, in their validity or a number.

    Returns
    -------
    dict
        For each channel with such conditions the range with everything that they can have changed.
    """
    touched = _Touched()
    for start, stop in _changed_entries(before, after.view):
        old, new = (_Conditions(view, field, start, stop) for view in (before, after.view))
        touched.add(*old.others_than(new))
        touched.add(*new.others_than(old))
    return touched.ranges(after)


def inserted_ranges(series: Series, start: int) -> Ranges:
    """Return what conditions from an entry on can have changed, by channel."""
    touched = _Touched()
    for first, last in _steps(start, series.view._handle.entries):
        new = series.view.arrays(
            ["channel", "since", "until"], entry_start=first, entry_stop=last, library="np"
        )
        touched.add(*(np.asarray(new[name]) for name in ("channel", "since", "until")))
    return touched.ranges(series)


def newest_beginning(view: View, start: int) -> int:
    """Return the last moment at which a condition begins, of those from an entry on."""
    newest = BEGINNING
    for first, last in _steps(start, view._handle.entries):
        since = view.arrays("since", entry_start=first, entry_stop=last, library="np")["since"]
        newest = max(newest, int(np.max(since, initial=BEGINNING)))
    return newest


def _changed_entries(before: View, after: View) -> Iterator[tuple[int, int]]:
    """Return ranges of entries with all conditions that have changed."""
    ends = np.frombuffer(memoryview(after._handle.changed_entries(before._handle)), np.uint64)
    firsts, lasts = ends.astype(np.int64).reshape(-1, 2).T
    if len(firsts):
        is_far = firsts[1:] - lasts[:-1] > GAP_ENTRIES
        firsts, lasts = firsts[np.append(True, is_far)], lasts[np.append(is_far, True)]
    for first, last in zip(firsts.tolist(), lasts.tolist(), strict=True):
        yield from _steps(first, last)


def _steps(first: int, last: int) -> Iterator[tuple[int, int]]:
    for start in range(first, last, STEP_ENTRIES):
        yield start, min(start + STEP_ENTRIES, last)


class _Conditions:
    """The conditions of a range of entries."""

    def __init__(self, view: View, field: str, start: int, stop: int) -> None:
        self.entries = view._entries_within(start, stop)
        names = ["since", "until", "channel", field]
        read = view.arrays(names, entry_start=start, entry_stop=stop, library="np")
        self.since, self.until, self.channel, self.value = (np.asarray(read[name]) for name in names)

    def others_than(self, other: _Conditions) -> tuple[Values, Values, Values]:
        """Return channels, beginnings and ends of the conditions that are others in the other range."""
        places = np.searchsorted(other.entries, self.entries)
        is_in: Values = np.append(other.entries, np.uint64(2**64 - 1))[places] == self.entries
        mine, others = np.flatnonzero(is_in), places[is_in]
        for name in ("since", "until", "channel", "value"):
            one, two = getattr(self, name)[mine], getattr(other, name)[others]
            is_in[mine] &= (one == two) | ((one != one) & (two != two))
        return self.channel[~is_in], self.since[~is_in], self.until[~is_in]


class _Touched:
    """The conditions of each channel that are new or others: where the first and the last of them begin, and
    where all have ended."""

    def __init__(self) -> None:
        self.extents: dict[int, tuple[int, int, int]] = {}

    def add(self, channel: Values, since: Values, until: Values) -> None:
        order = np.argsort(channel, kind="stable")
        numbers, starts = np.unique(channel[order], return_index=True)
        if not len(numbers):
            return
        begins, ends = since[order], until[order]
        columns = (
            np.minimum.reduceat(begins, starts),
            np.maximum.reduceat(begins, starts),
            np.maximum.reduceat(ends, starts),
        )
        for number, *new in zip(numbers.tolist(), *(each.tolist() for each in columns), strict=True):
            first, last, end = self.extents.get(number, new)
            self.extents[number] = min(first, new[0]), max(last, new[1]), max(end, new[2])

    def ranges(self, series: Series) -> Ranges:
        """Return the ranges of a series that the corrections can have changed."""
        if series.overlap != "open":
            return {channel: (first, end) for channel, (first, _, end) in self.extents.items()}
        return {
            channel: (first, _next_beginning(series, channel, last))
            for channel, (first, last, _) in self.extents.items()
        }


def _next_beginning(series: Series, channel: int, moment: int) -> int:
    """Return where the next condition of a channel begins after a moment."""
    found = series._interval(moment, channel)
    if found.entry is None or found.until == FOREVER:
        return found.until
    following = series._interval(found.until, channel)
    return following.until if following.entry is None else found.until
