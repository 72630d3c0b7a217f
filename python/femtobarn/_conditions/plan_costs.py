"""Count the reads of a plan's jobs, from the validities of series and the clusters of containers.

Each count is a sum over jobs. Within a job everything counts once, as for jobs that cache all that they have
read and share nothing with each other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .._data.casts import Values
from .._views.view import View
from .clocks import FOREVER
from .event_lists import EventList, each_once
from .segments import Segments, positions_at
from .series import Series

__all__ = ["PlanCosts", "SeriesCosts", "costs_of_jobs", "distinct_pairs"]

MASK_BYTES_MAX = 1 << 27
"""Above this size of a mask of all pairs, pairs are sorted instead."""


@dataclass(frozen=True)
class SeriesCosts:
    """The reads of one series by all jobs together."""

    intervals: int
    """Intervals in which a condition is valid, channel by channel, with an event of the job."""
    clusters: int
    """Clusters of the series' container with these conditions, the parts that a job reads at once."""


@dataclass(frozen=True)
class PlanCosts:
    """The reads of jobs, for one way to divide the events among them."""

    first: Values
    """Moment of the first event of each job."""
    last: Values
    """Moment of the last event of each job."""
    containers: int = 0
    """Containers of events."""
    event_clusters: int = 0
    """Clusters of these containers with an event of the job."""
    series: dict[str, SeriesCosts] = field(default_factory=dict)
    """By the path of the series."""

    @property
    def intervals(self) -> int:
        """Intervals of all series."""
        return sum(each.intervals for each in self.series.values())

    @property
    def clusters(self) -> int:
        """Clusters of all series."""
        return sum(each.clusters for each in self.series.values())

    @property
    def median_span(self) -> float:
        """Median of the range from the first to the last event of a job on the clock; 0 without jobs."""
        return float(np.median(self.last.astype(float) - self.first)) if len(self.first) else 0.0


def costs_of_jobs(
    listed: EventList,
    jobs: Values,
    job_count: int,
    clock: str,
    series: Iterable[Series],
    channels: Sequence[int] | None,
) -> PlanCosts:
    """Count the reads of jobs.

    Parameters
    ----------
    jobs
        The number of the job of each event of the list; each job has an event.
    clock
        The clock of the first and last moments.
    channels
        Channels that the jobs look up; all that a series has if None.
    """
    first = np.full(job_count, np.iinfo(np.int64).max)
    last = np.full(job_count, np.iinfo(np.int64).min)
    np.minimum.at(first, jobs, listed.moments[clock])
    np.maximum.at(last, jobs, listed.moments[clock])
    places = listed.places
    containers = len(distinct_pairs(jobs, places, job_count, len(listed.views))[0])
    homes, count = _clusters_of_events(listed)
    clusters = len(distinct_pairs(jobs, homes, job_count, count)[0])
    costs = {}
    for each in series:
        order = listed.orders[each.clock]
        costs[each.path] = _costs_of_series(
            each, channels, listed.moments[each.clock][order], jobs[order], job_count
        )
    return PlanCosts(first, last, containers, clusters, costs)


def _clusters_of_events(listed: EventList) -> tuple[Values, int]:
    """Return the number of each event's cluster among those of all containers, and how many these are."""
    homes, count = [np.empty(0, np.int64)], 0
    for view, entries in zip(listed.views, listed.entries, strict=True):
        starts = _first_entries(view, view.fields)
        homes.append(np.searchsorted(starts, entries.astype(np.int64), "right") - 1 + count)
        count += len(starts)
    return np.concatenate(homes), count


def _costs_of_series(
    series: Series, channels: Sequence[int] | None, moments: Values, jobs: Values, job_count: int
) -> SeriesCosts:
    """Count the conditions of a series that jobs need, by the moments (ascending) and jobs of all events."""
    if not len(moments):
        return SeriesCosts(0, 0)
    since, until = int(moments[0]), min(int(moments[-1]) + 1, FOREVER)
    if channels is None:
        channels = series.channels(since, until)
    segments = [series.segments(since, until, channel=channel) for channel in channels]
    # In a cell, between two neighbouring edges, no channel changes; before the first edge nothing is valid.
    edges = each_once(np.concatenate([np.empty(0, np.int64), *(each for it in segments for each in it[:2])]))
    cuts = np.concatenate([[0], np.searchsorted(moments, edges), [len(moments)]])
    cells = np.repeat(np.arange(len(edges) + 1), np.diff(cuts))
    job, cell = distinct_pairs(jobs, cells, job_count, len(edges) + 1)
    starts = _clusters_of_series(series)
    intervals, read = 0, [np.empty((2, 0), np.int64)]
    for begins, ends, entries in segments:
        valid = np.append(-1, positions_at(Segments.new(begins, ends, {}), edges))[cell]
        needed = distinct_pairs(job[valid >= 0], valid[valid >= 0], job_count, len(begins))
        intervals += len(needed[0])
        homes = np.searchsorted(starts, entries.astype(np.int64), "right") - 1
        read.append(np.stack(distinct_pairs(needed[0], homes[needed[1]], job_count, len(starts))))
    readers, clusters = np.concatenate(read, axis=1)
    return SeriesCosts(intervals, len(distinct_pairs(readers, clusters, job_count, len(starts))[0]))


def _clusters_of_series(series: Series) -> Values:
    """Return the first entry of each cluster of a series, through all its containers."""
    starts, first = [], 0
    for view in series.sources:
        starts.append(_first_entries(view, ["since"]) + first)
        first += view._handle.entries
    return each_once(np.concatenate(starts))


def distinct_pairs(jobs: Values, labels: Values, job_count: int, label_count: int) -> tuple[Values, Values]:
    """Return the different pairs of a job and a label, in order.

    Examples
    --------
    >>> import numpy as np
    >>> distinct_pairs(np.array([1, 0, 1]), np.array([2, 2, 2]), 2, 3)
    (array([0, 1]), array([2, 2]))
    """
    keys = jobs.astype(np.int64) * label_count + labels
    if job_count * label_count <= MASK_BYTES_MAX:
        mask = np.zeros(job_count * label_count, np.bool_)
        mask[keys] = True
        keys = np.flatnonzero(mask)
    else:
        keys = each_once(keys)
    job, label = np.divmod(keys, max(label_count, 1))
    return job, label


def _first_entries(view: View, fields: Iterable[str]) -> Values:
    """Return the first entry of each cluster of a container, from the first field that has statistics."""
    for name in fields:
        found = view._handle.statistics(name)
        if found is not None:
            return each_once(np.append(0, np.frombuffer(memoryview(found[0]), np.int64)))
    return np.zeros(1, np.int64)
