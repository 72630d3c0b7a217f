"""Events joined with the conditions that were valid when they were taken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._exceptions import InvalidError
from .._lazy import ak
from .._query.paths import Expressions
from .._query.projections import Projection
from .._views.view import View
from .series import Series

if TYPE_CHECKING:
    from .jobs import Job

__all__ = ["Moments", "joined_batches", "missing_fields", "times_of"]

Moments = str | tuple[str, str] | Callable[[Any], Any]
"""Where the moments of events come from: a field, a pair of fields (run, block), or a function of a batch."""


def joined_batches(
    job: Job,
    events: View,
    series: Sequence[str] | Mapping[str, str],
    expressions: Expressions,
    where: str | None,
    moments: Moments,
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
    kept = list(Projection.of(expressions, events.definition).record.by_name)
    read = None if callable(moments) and expressions is None else [*kept, *missing_fields(moments, kept)]
    return _batches(events, opened, read, kept, where, moments, channel, required, step_size)


def missing_fields(moments: Moments, kept: list[str]) -> list[str]:
    """Return the fields with the moments that are not read anyway."""
    fields = () if callable(moments) else (moments,) if isinstance(moments, str) else moments
    return [field for field in fields if field not in kept]


def _batches(
    events: View,
    opened: dict[str, Series],
    read: list[str] | None,
    kept: list[str],
    where: str | None,
    moments: Moments,
    channel: int,
    required: bool,
    step_size: int | str,
) -> Iterator[ak.Array]:
    for batch in events.iterate(read, where, step_size=step_size):
        times = times_of(batch, moments)
        joined = batch if read is None else batch[kept]
        for name, series in opened.items():
            joined[name] = series.at(times, channel=channel, required=required)
        yield joined


def times_of(batch: ak.Array, moments: Moments) -> Any:
    """Return the moments of the events of a batch."""
    if callable(moments):
        return moments(batch)
    if isinstance(moments, str):
        return ak.to_numpy(batch[moments])
    runs, blocks = (np.asarray(ak.to_numpy(batch[name])) for name in moments)
    return runs, blocks
