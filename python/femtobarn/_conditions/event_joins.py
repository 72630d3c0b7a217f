"""Joins events, batch by batch, with the conditions that were valid at their moments.

Plans of jobs read the moments of events by `iterate_moments`, without conditions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError
from .._lazy import ak
from .._query.paths import Expressions
from .._query.projections import Projection
from .._views.view import View
from .clocks import moments_of
from .series import Series

if TYPE_CHECKING:
    from .jobs import Job
    from .planned_jobs import PlannedJob

__all__ = ["Moments", "iterate_moments", "joined_batches", "moments_by_clock", "opened_series"]

Moments = str | tuple[str, str] | Callable[[Any], Any]
"""Where the moments of events come from: a field, a pair of fields (run, block), or a function of a batch."""


def opened_series(job: Job, paths: Iterable[str] | None) -> list[Series]:
    """Return series by their paths, each once; all of the job if no paths are given.

    Raises
    ------
    InvalidError
        If there are none.
    """
    wanted = list(job) if paths is None else [paths] if isinstance(paths, str) else list(dict.fromkeys(paths))
    if not wanted:
        raise InvalidError("there are no series; put conditions first, or name series")
    return [job[path] for path in wanted]


def moments_by_clock(
    series: Iterable[Series], moments: Moments | Mapping[str, Moments]
) -> dict[str, Moments]:
    """Return where the moments of events on each clock of some series are.

    Raises
    ------
    InvalidError
        If the moments of a clock are not given.
    """
    clocks = {each.clock: each.path for each in reversed(list(series))}
    if not isinstance(moments, Mapping):
        if len(clocks) > 1:
            listed = " and ".join(f"{path} on the clock {clock}" for clock, path in sorted(clocks.items()))
            raise InvalidError(f"{listed} need different moments; give a mapping from clocks to moments")
        return dict.fromkeys(clocks, moments)
    for clock, path in clocks.items():
        if clock not in moments:
            raise InvalidError(f"{path} is on the clock {clock}; give moments of it, or name other series")
    return {clock: moments[clock] for clock in clocks}


def iterate_moments(events: View, moments: Mapping[str, Moments]) -> Iterator[dict[str, Values]]:
    """Yield the moments of events on each clock, batch by batch, in the order of the view."""
    fields: list[str] = []
    for each in moments.values():
        fields += _missing_fields(each, fields)
    read = None if any(callable(each) for each in moments.values()) else fields
    for batch in events.iterate(read):
        yield {clock: moments_of(_times_of(batch, each), clock) for clock, each in moments.items()}


def joined_batches(
    job: Job,
    events: View | PlannedJob,
    series: Sequence[str] | Mapping[str, str],
    expressions: Expressions,
    where: str | None,
    moments: Moments | Mapping[str, Moments],
    channel: int,
    required: bool,
    step_size: int | str,
) -> Iterator[ak.Array]:
    """Return batches of events, with a field for each series; see :meth:`Job.for_events`."""
    named = dict(series) if isinstance(series, Mapping) else {path: path.replace("/", "_") for path in series}
    taken = {name for name in named.values() if name in events.fields or list(named.values()).count(name) > 1}
    if taken:
        raise InvalidError(
            f"two fields would be called {', '.join(sorted(taken))}; give the series other names, such as "
            '{"tpc/gain": "my_gain"}'
        )
    opened = {name: job[path] for path, name in named.items()}
    of_clocks = moments_by_clock(opened.values(), moments)
    kept = list(Projection.of(expressions, events.definition).record.by_name)
    read: list[str] | None = list(kept)
    for each in of_clocks.values():
        if callable(each) and expressions is None:
            read = None
        elif read is not None:
            read += _missing_fields(each, read)
    return _joined(
        events.iterate(read, where, step_size=step_size), opened, kept, of_clocks, channel, required
    )


def _joined(
    batches: Iterator[ak.Array],
    opened: dict[str, Series],
    kept: list[str],
    moments: dict[str, Moments],
    channel: int,
    required: bool,
) -> Iterator[ak.Array]:
    for batch in batches:
        times = {clock: _times_of(batch, each) for clock, each in moments.items()}
        joined = batch if batch.fields == kept else batch[kept]
        for name, series in opened.items():
            joined[name] = series.at(times[series.clock], channel=channel, required=required)
        yield joined


def _missing_fields(moments: Moments, kept: list[str]) -> list[str]:
    """Return the fields with the moments that are not read anyway."""
    fields = () if callable(moments) else (moments,) if isinstance(moments, str) else moments
    return [field for field in fields if field not in kept]


def _times_of(batch: ak.Array, moments: Moments) -> Any:
    """Return the moments of the events of a batch."""
    if callable(moments):
        return moments(batch)
    if isinstance(moments, str):
        return ak.to_numpy(batch[moments])
    runs, blocks = (np.asarray(ak.to_numpy(batch[name])) for name in moments)
    return runs, blocks
