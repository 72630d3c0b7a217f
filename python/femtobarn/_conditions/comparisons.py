"""Comparing two jobs: their differences, with their ranges, and the events that these affect."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError
from .clocks import BEGINNING, FOREVER, moment_of, moments_of, shown
from .series import Series

if TYPE_CHECKING:
    from .jobs import Job, ListedSeries

__all__ = [
    "Difference",
    "changed",
    "differences",
    "entries_or_gaps",
    "has_same_version",
    "is_same",
    "same_entries",
]


@dataclass(frozen=True)
class Difference:
    """A range of a series' clock in which two jobs have different conditions."""

    series: str
    """Path of the series."""
    channel: int
    """The channel."""
    since: int
    """The first moment of the range."""
    until: int
    """The first moment after the range."""
    before: dict[str, Any] | None
    """The condition of the first job; None if it has a gap there, or no such series."""
    after: dict[str, Any] | None
    """The condition of the second job."""
    clock: str
    """Clock of the series."""

    def __str__(self) -> str:
        ends = " to ".join(shown(moment, self.clock) for moment in (self.since, self.until))
        return f"{self.series} channel {self.channel}, {ends}: {self.before} -> {self.after}"


def differences(
    before: Job, after: Job, series: Iterable[str] | None, since: Any, until: Any
) -> Iterator[Difference]:
    """Return the ranges in which two jobs differ, by series and channel, each in the order of time."""
    listed = before._listed(), after._listed()
    known = listed[0].keys(), listed[1].keys()
    for path in sorted(known[0] | known[1]) if series is None else series:
        if has_same_version(before, after, listed[0].get(path), listed[1].get(path)):
            continue
        first, second = (
            job[path] if path in names else None for job, names in zip((before, after), known, strict=True)
        )
        if first is None and second is None:
            raise InvalidError(f"neither of the two jobs has a series {path!r}")
        yield from _differences_of(path, first, second, since, until)


def has_same_version(
    before: Job, after: Job, first: ListedSeries | None, second: ListedSeries | None
) -> bool:
    """Return whether a series is known to have the same conditions in two jobs without opening it."""
    if first is None or second is None or first.version != second.version:
        return False
    return before.federation.uuid == after.federation.uuid


def changed(found: Iterable[Difference], path: str, moments: Any, *, channel: int = 0) -> Values:
    """Return for each of many moments whether the condition of a series differs there, as truth values.

    Parameters
    ----------
    found
        Differences, from :meth:`Conditions.diff`.
    path, channel
        The series and the channel that is looked up.
    moments
        An array of moments, as for :meth:`Series.at`; those of events give the events that change.

    Examples
    --------
    >>> import femtobarn as fb
    >>> found = [fb.Difference("tpc/gain", 0, 40, 60, None, {"value": 2.0}, "time")]
    >>> fb.changed(found, "tpc/gain", [39, 40, 59, 60]).tolist()
    [False, True, True, False]
    """
    chosen = [each for each in found if each.series == path and each.channel == channel]
    times = moments_of(moments, chosen[0].clock if chosen else "time")
    differs = np.zeros(len(times), bool)
    for each in chosen:
        differs |= (each.since <= times) & (times < each.until)
    return differs


def _differences_of(
    path: str, before: Series | None, after: Series | None, since: Any, until: Any
) -> Iterator[Difference]:
    if before is not None and after is not None:
        if before.version == after.version:
            return
        if before.clock != after.clock:
            raise InvalidError(
                f"series {path} is on the clock {before.clock!r} in one job, {after.clock!r} in the other"
            )
    known = [each for each in (before, after) if each is not None]
    clock = known[0].clock
    span = (
        BEGINNING if since is None else moment_of(since, clock),
        FOREVER if until is None else moment_of(until, clock),
    )
    channels = sorted({channel for each in known for channel in each.channels(*span)})
    for channel in channels:
        yield from _differences_in_channel(path, before, after, span, channel, clock)


def _differences_in_channel(
    path: str, before: Series | None, after: Series | None, span: tuple[int, int], channel: int, clock: str
) -> Iterator[Difference]:
    ends: set[int] = {span[0]}
    for each in (before, after):
        for interval in each.intervals(*span, channel=channel) if each is not None else []:
            ends.update((max(interval.since, span[0]), min(interval.until, span[1])))
    starts = np.array(sorted(ends - {span[1]}), np.int64)
    stops = np.append(starts[1:], span[1])
    if before is not None and after is not None:
        kept = ~same_entries(before, after, starts, channel)
        starts, stops = starts[kept], stops[kept]
    rows = [_rows_at(each, starts, channel) for each in (before, after)]
    last: Difference | None = None
    for start, stop, old, new in zip(starts.tolist(), stops.tolist(), *rows, strict=True):
        if is_same(old, new):
            continue
        if (
            last is not None
            and last.until == start
            and is_same(last.before, old)
            and is_same(last.after, new)
        ):
            last = Difference(path, channel, last.since, stop, old, new, clock)
            continue
        if last is not None:
            yield last
        last = Difference(path, channel, start, stop, old, new, clock)
    if last is not None:
        yield last


def same_entries(one: Series, other: Series, moments: Values, channel: int) -> Values:
    """Return where two series have the same condition, or both a gap, by their entries alone.

    Entries suffice for containers that both series have in the same version, such as the base of a branch.
    """
    shared = one.shared_entries(other)
    first, second = (entries_or_gaps(each, moments, channel) for each in (one, other))
    same: Values = (first == second) & (first < shared)
    return same


def entries_or_gaps(series: Series, moments: Values, channel: int) -> Values:
    """Return the entry of the condition at each moment, or -1 (``int64``)."""
    entries, positions = series.entries_at(moments, channel=channel)
    found: Values = np.append(entries.astype(np.int64), -1)[positions]
    return found


def _rows_at(series: Series | None, starts: Values, channel: int) -> list[dict[str, Any] | None]:
    if series is None:
        return [None] * len(starts)
    rows: list[dict[str, Any] | None] = series.at(starts, channel=channel).to_list()
    return rows


def is_same(one: Any, other: Any) -> bool:
    """Return whether two plain values are equal, where NaN equals NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(one[name], other[name]) for name in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    return bool(one == other) or (_is_nan(one) and _is_nan(other))


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)
