"""Corrections: the parts of the clock in which conditions were updated, ended or deleted after a commit."""

from __future__ import annotations

import numpy as np

from .._data.casts import Values
from .._views.view import View

__all__ = ["corrected_ranges"]

STEP_ENTRIES = 1_000_000
"""Conditions that are compared at once."""


def corrected_ranges(before: View, after: View, field: str) -> dict[int, tuple[int, int]]:
    """Return where conditions of an earlier view are others in a later one, in their validity or a number.

    Returns
    -------
    dict
        For each channel with such conditions the beginning and the end of the range with all of them.
    """
    found: dict[int, tuple[int, int]] = {}
    ends = np.frombuffer(memoryview(after._handle.changed_entries(before._handle)), np.uint64)
    for first, last in ends.reshape(-1, 2).tolist():
        for start in range(first, last, STEP_ENTRIES):
            stop = min(start + STEP_ENTRIES, last)
            old, new = (_Conditions(view, field, start, stop) for view in (before, after))
            for one, other in ((old, new), (new, old)):
                one.add_others_than(other, found)
    return found


class _Conditions:
    """The conditions of a range of entries."""

    def __init__(self, view: View, field: str, start: int, stop: int) -> None:
        self.entries = view._entries_within(start, stop)
        names = ["since", "until", "channel", field]
        read = view.arrays(names, entry_start=start, entry_stop=stop, library="np")
        self.since, self.until, self.channel, self.value = (np.asarray(read[name]) for name in names)

    def add_others_than(self, other: _Conditions, found: dict[int, tuple[int, int]]) -> None:
        """Add where conditions are valid that the other range does not have in the same way."""
        is_other = ~self._is_in(other)
        since, until, channel = (each[is_other] for each in (self.since, self.until, self.channel))
        for number in np.unique(channel).tolist():
            chosen = channel == number
            begin, end = found.get(number, (int(since[chosen][0]), int(until[chosen][0])))
            found[number] = min(begin, int(since[chosen].min())), max(end, int(until[chosen].max()))

    def _is_in(self, other: _Conditions) -> Values:
        places = np.searchsorted(other.entries, self.entries)
        is_in: Values = np.append(other.entries, np.uint64(2**64 - 1))[places] == self.entries
        mine, others = np.flatnonzero(is_in), places[is_in]
        for name in ("since", "until", "channel", "value"):
            one, two = getattr(self, name)[mine], getattr(other, name)[others]
            is_in[mine] &= (one == two) | ((one != one) & (two != two))
        return is_in
