"""Plans: a list of events of many containers, divided into jobs in the order of time, and the savings."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, SupportsIndex, overload

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError
from .channels import channels_of
from .event_joins import Moments, moments_by_clock, opened_series
from .event_lists import EventList, Events, read_event_list
from .plan_costs import PlanCosts, costs_of_jobs
from .planned_jobs import PlannedJob, runs_of_entries
from .plots import draw_plan

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .jobs import Job

__all__ = ["JobPlan", "plan_jobs"]


class JobPlan(Sequence[PlannedJob]):
    """Jobs that have the events of a list in the order of time; :meth:`Job.plan_jobs` makes them.

    A sequence of :class:`PlannedJob`.
    """

    def __init__(
        self, jobs: Sequence[PlannedJob], num_events: int, clock: str, before: PlanCosts, after: PlanCosts
    ) -> None:
        self._jobs = jobs
        self.num_events = num_events
        """Number of events of all jobs."""
        self.clock = clock
        """The clock whose order the events have."""
        self.before = before
        """The reads of the same number of jobs if the events were divided in stored order, container by
        container."""
        self.after = after
        """The reads of the plan's jobs."""

    @overload
    def __getitem__(self, index: SupportsIndex) -> PlannedJob: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[PlannedJob]: ...
    def __getitem__(self, index: SupportsIndex | slice) -> PlannedJob | Sequence[PlannedJob]:
        return self._jobs[index]  # type: ignore[index]

    def __len__(self) -> int:
        return len(self._jobs)

    def __iter__(self) -> Iterator[PlannedJob]:
        return iter(self._jobs)

    def plot(self) -> Figure:
        """Draw each job as a bar from its first to its last event, above as the events lie, below as planned.

        Raises
        ------
        UnsupportedError
            If Matplotlib, the extra ``plots``, is not installed.
        """
        spans = {
            "as the events lie": (self.before.first, self.before.last),
            "in the order of time": (self.after.first, self.after.last),
        }
        return draw_plan(self.clock, spans)

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the plan to a JSON file, from which :func:`femtobarn.load_plan` reads it.

        Raises
        ------
        ExistsError
            If the file exists.
        StorageError
            If the disk is full, or the folder does not exist.
        InvalidError
            If the moments of the events are a function, which cannot be written.
        """
        from .plan_files import write_plan  # That module imports this one.

        write_plan(self, path)

    def __repr__(self) -> str:
        return (
            f"<JobPlan: {len(self)} jobs with {self.num_events:,} events, which need "
            f"{self.after.intervals:,} intervals of conditions instead of {self.before.intervals:,}>"
        )


def plan_jobs(
    job: Job,
    events: Events,
    series: Iterable[str] | None,
    where: str | None,
    moments: Moments | Mapping[str, Moments],
    jobs: int | None,
    events_per_job: int | None,
    channel: Any,
) -> JobPlan:
    """Divide events among jobs; see :meth:`Job.plan_jobs`."""
    if (jobs is None) == (events_per_job is None) or (jobs or events_per_job or 0) < 1:
        raise InvalidError("give either the number of jobs or the events_per_job, 1 or more")
    channels = None if channel is None else channels_of(channel, np.size(channel)).tolist()
    opened = opened_series(job, series)
    of_clocks = moments_by_clock(opened, moments)
    clock = "time" if "time" in of_clocks else "run"
    listed = read_event_list(job.snapshot, events, where, of_clocks)
    count = len(listed)
    wanted = jobs if jobs is not None else -(-count // (events_per_job or 1))
    job_count = min(wanted, count)
    bounds = np.arange(job_count + 1) * count // max(job_count, 1)
    order = listed.orders[clock]
    before = np.repeat(np.arange(job_count, dtype=np.int32), np.diff(bounds))
    after = np.empty_like(before)
    after[order] = before
    costs = [costs_of_jobs(listed, each, job_count, clock, opened, channels) for each in (before, after)]
    planned = list(_planned_jobs(listed, order, bounds, clock, of_clocks[clock]))
    return JobPlan(planned, count, clock, *costs)


def _planned_jobs(
    listed: EventList, order: Values, bounds: Values, clock: str, moments: Moments
) -> Iterator[PlannedJob]:
    """Yield the jobs, each with the events between two bounds of the order of time."""
    entries = np.concatenate([np.empty(0, np.uint64), *listed.entries])
    offsets = np.cumsum([0, *map(len, listed.entries)])
    times = listed.moments[clock]
    for number, (start, stop) in enumerate(pairwise(bounds.tolist())):
        positions = np.sort(order[start:stop])
        counts = np.diff(np.searchsorted(positions, offsets))
        yield PlannedJob(
            number,
            clock,
            moments,
            first=int(times[order[start]]),
            last=int(times[order[stop - 1]]),
            views=tuple(listed.views[place] for place in np.flatnonzero(counts)),
            runs=tuple(runs_of_entries(entries[positions], counts[counts > 0])),
        )
