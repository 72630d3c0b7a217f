"""Planned jobs: the events of one job, from any containers, read in the order of time.

A planned job stores its events as gaps and runs of entries, so that it is small to store and to send.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError
from .._lazy import ak
from .._query.paths import Expressions
from .._query.projections import Projection
from .._schema.types import Definition
from .._views.batches import read_in_batches
from .._views.picked import PickedView
from .._views.view import View
from .clocks import shown
from .event_joins import Moments, iterate_moments

__all__ = ["PlannedJob", "entries_of_runs", "runs_of_entries"]


@dataclass(frozen=True, repr=False)
class PlannedJob:
    """The events of one job of a plan. :meth:`Job.for_events` reads them with their conditions.

    It can be pickled, and sent to where the job runs, unless `moments` is a function that cannot.
    """

    number: int
    """Position in the plan; jobs with a higher number have later events."""
    clock: str
    """The clock whose order the events have, ``"time"`` or ``"run"``."""
    moments: Moments
    """Where the moments of the events on this clock are."""
    first: int
    """Moment of the first event on the clock."""
    last: int
    """Moment of the last event on the clock."""
    views: tuple[View, ...]
    """The containers with its events."""
    runs: tuple[Values, ...]
    """The events in each container as a flat array of entries to leave out, entries to take, and so on."""

    @property
    def definition(self) -> Definition:
        """The class of the events."""
        return self.views[0].definition

    @property
    def fields(self) -> list[str]:
        """Names of the fields of an event."""
        return self.views[0].fields

    def __len__(self) -> int:
        return sum(int(runs[1::2].sum(dtype=np.int64)) for runs in self.runs)

    def entries(self) -> dict[str, Values]:
        """Return the entries of its events (``uint64``, ascending) by the name of their container."""
        return {view.name: entries_of_runs(runs) for view, runs in zip(self.views, self.runs, strict=True)}

    def iterate(
        self, expressions: Expressions = None, where: str | None = None, *, step_size: int | str = "64 MB"
    ) -> Iterator[ak.Array]:
        """Read fields of the events batch by batch, in the order of time, with read-ahead of one batch.

        Events of the same moment are in the order of `views`, and in that of their entries. The moments of
        all events are read first.

        Parameters
        ----------
        expressions, step_size
            As for :meth:`View.iterate`.

        Raises
        ------
        InvalidError
            If there is a condition in `where`: the events were selected when the plan was made.
        """
        if where is not None:
            raise InvalidError("the events of a planned job were selected already; give where to plan_jobs")
        projection = Projection.of(expressions, self.definition)
        places, entries = self._in_order()

        def read(part: range) -> ak.Array:
            chosen = slice(part.start, part.stop)
            return self._read(projection, places[chosen], entries[chosen])

        return read_in_batches(read, range(len(entries)), step_size)

    def _in_order(self) -> tuple[Values, Values]:
        """Return the container, as its position in `views`, and the entry of each event, in order of time."""
        entries = [entries_of_runs(runs) for runs in self.runs]
        of_clock: Mapping[str, Moments] = {self.clock: self.moments}
        moments = [
            batch[self.clock]
            for view, chosen in zip(self.views, entries, strict=True)
            for batch in iterate_moments(PickedView(view, chosen), of_clock)
        ]
        order = np.argsort(np.concatenate(moments), kind="stable")
        places = np.repeat(np.arange(len(entries)), [len(each) for each in entries])
        return places[order], np.concatenate(entries)[order]

    def _read(self, projection: Projection, places: Values, entries: Values) -> ak.Array:
        parts: list[ak.Array] = []
        positions = np.empty(len(places), np.int64)
        done = 0
        for place in np.unique(places).tolist():
            chosen = np.flatnonzero(places == place)
            chosen = chosen[np.argsort(entries[chosen])]
            parts.append(self.views[place]._read_entries(projection, entries[chosen]))
            positions[chosen] = np.arange(done, done + len(chosen))
            done += len(chosen)
        return self.views[0].snapshot._in_order(parts, positions)

    def __repr__(self) -> str:
        first, last = (shown(moment, self.clock) for moment in (self.first, self.last))
        return (
            f"<PlannedJob {self.number}: {len(self):,} events of {len(self.views)} containers, "
            f"from {first} to {last}>"
        )


def runs_of_entries(entries: Values, counts: Values) -> list[Values]:
    """Return the entries of each container as a flat array: entries to leave out, entries to take, and so on.

    Parameters
    ----------
    entries
        Entries of one container after the other, ascending in each.
    counts
        Number of entries in each container, 1 or more.

    Examples
    --------
    >>> import numpy as np
    >>> runs_of_entries(np.array([2, 3, 4, 9, 5]), np.array([4, 1]))
    [array([2, 3, 4, 1], dtype=uint8), array([5, 1], dtype=uint8)]
    """
    firsts = np.cumsum(counts) - counts
    begins_run = np.append(True, np.diff(entries) != 1)
    begins_run[firsts] = True
    begins = np.flatnonzero(begins_run)
    starts = entries[begins].astype(np.int64)
    stops = starts + np.diff(np.append(begins, len(entries)))
    runs = np.stack([starts, stops - starts], axis=1)
    runs[1:, 0] -= stops[:-1]
    of_containers = np.searchsorted(begins, firsts)
    runs[of_containers, 0] = starts[of_containers]
    packed = runs.astype(np.min_scalar_type(int(runs.max()))).ravel()
    return np.split(packed, 2 * of_containers[1:])


def entries_of_runs(runs: Values) -> Values:
    """Return the entries that :func:`runs_of_entries` was given, as ``uint64``.

    Examples
    --------
    >>> import numpy as np
    >>> entries_of_runs(np.array([2, 3, 4, 1]))
    array([2, 3, 4, 9], dtype=uint64)
    """
    ends = np.cumsum(runs, dtype=np.int64)
    takes = runs[1::2].astype(np.int64)
    before = np.cumsum(takes) - takes
    return (np.repeat(ends[0::2] - before, takes) + np.arange(takes.sum())).astype(np.uint64)
