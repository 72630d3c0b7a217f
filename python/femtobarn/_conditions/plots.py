"""Pictures of series, a number of the conditions by the time at which they are valid, and of plans.

They need Matplotlib.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError, UnsupportedError
from .._schema.types import Primitive
from .clocks import BEGINNING, FOREVER, LUMI_MAX, RUN_BITS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .series import Series

__all__ = ["draw_plan", "draw_series"]

CHANNELS_MAX = 10
"""Channels that are drawn if none is named: as many as Matplotlib has colours."""

MARGIN = 0.05
"""Width drawn before the first and after the last change, as a fraction of the range between them."""

ALONE = {"time": 3_600_000_000_000, "run": 1 << RUN_BITS}
"""Width drawn on both sides of a single change: an hour, or a run."""

AXIS_LABELS = {"time": "time (UTC)", "run": "run"}

Segments = tuple[Values, Values, Values]
"""Beginnings, ends and entries of intervals."""


def draw_series(
    series: Series, field: str | None, since: int, until: int, channels: list[int] | None, axes: Axes | None
) -> Axes:
    """Draw a field of a series by time: a line at its value for each interval, none in gaps.

    Raises
    ------
    InvalidError
        If the field is not a number, if it is not given and the class has several, or if no channel is given
        and there are more than `CHANNELS_MAX`.
    UnsupportedError
        If Matplotlib is not installed.
    """
    field = _number(series, field)
    if channels is None:
        channels = series.channels(since, until)
        if len(channels) > CHANNELS_MAX:
            raise InvalidError(f"{series.path} has {len(channels)} channels: name some, as in channel=[0, 1]")
    segments = [series.segments(since, until, channel=channel) for channel in channels]
    changes = _changes(segments)
    first, last = _range(changes, series.clock, since, until)
    blocks = int((changes & LUMI_MAX).max(initial=0)) + 1
    axes = _new_figure(3.5).subplots() if axes is None else axes
    for channel, (begins, ends, entries) in zip(channels, segments, strict=True):
        x, y = _steps(begins.clip(first, last), ends.clip(first, last), _values(series, field, entries))
        axes.plot(_places(x, series.clock, blocks), y, label=f"channel {channel}", solid_capstyle="butt")
    if len(channels) > 1:
        axes.legend()
    axes.set(title=series.path, xlabel=AXIS_LABELS[series.clock], ylabel=field)
    left, right = _places(np.array([first, last]), series.clock, blocks)
    axes.set_xlim(left, right)
    return axes


def _number(series: Series, field: str | None) -> str:
    """Return the path of the field to draw, checked."""
    definition = series.definition
    numbers = [part.name for part in definition.fields if _is_number(part.type)]
    if field is None:
        if len(numbers) != 1:
            raise InvalidError(f"name the field of {definition.name} to draw; numbers are {numbers}")
        return numbers[0]
    if not _is_number(definition.resolve(field)):
        raise InvalidError(f"field {field!r} of {definition.name} is not a number; numbers are {numbers}")
    return field


def _is_number(node: object) -> bool:
    return isinstance(node, Primitive) and node.dtype.kind in "biuf"


def _changes(segments: list[Segments]) -> Values:
    """Return the moments at which an interval begins or ends, without the ends of the clock."""
    edges = np.concatenate([np.empty(0, np.int64), *(column for it in segments for column in it[:2])])
    return edges[(edges > BEGINNING) & (edges < FOREVER)]


def _range(changes: Values, clock: str, since: int, until: int) -> tuple[int, int]:
    """Return the range to draw: as given, or from the first to the last change with a margin."""
    first, last = (int(changes.min()), int(changes.max())) if len(changes) else (0, 0)
    margin = int((last - first) * MARGIN) or ALONE[clock]
    return (
        max(first - margin, BEGINNING) if since == BEGINNING else since,
        min(last + margin, FOREVER) if until == FOREVER else until,
    )


def _steps(begins: Values, ends: Values, values: Values) -> tuple[Values, Values]:
    """Return the corners of a line that is at each interval's value, and interrupted in gaps."""
    x = np.stack([begins, ends, ends], axis=1).ravel()
    y = np.stack([values, values, np.full(len(values), np.nan)], axis=1).ravel()
    drawn = np.ones(len(x), bool)
    drawn[2::3][:-1] = ends[:-1] < begins[1:]
    return x[drawn], y[drawn]


def _values(series: Series, field: str, entries: Values) -> Values:
    """Return the field of conditions by their entries."""
    different, positions = np.unique(entries, return_inverse=True)
    read = series.fetch(different, field)
    return np.asarray(read, np.float64)[positions]


def _places(moments: Values, clock: str, blocks: int) -> Values:
    """Return where moments are on the axis: times as such, runs with the part of their `blocks` before it."""
    if clock == "time":
        return moments.astype("datetime64[ns]")
    parts: Values = np.minimum((moments & LUMI_MAX) / blocks, 1.0)
    return (moments >> RUN_BITS) + parts


def draw_plan(clock: str, spans: Mapping[str, tuple[Values, Values]]) -> Figure:
    """Draw the jobs of plans, a panel for each: a bar from the first to the last moment of each job.

    Parameters
    ----------
    spans
        For each panel its title, and the first and last moments of the jobs.

    Raises
    ------
    UnsupportedError
        If Matplotlib is not installed.
    """
    figure = _new_figure(5.0)
    panels = figure.subplots(len(spans), 1, sharex=True, squeeze=False)[:, 0]
    every = np.concatenate([moments for span in spans.values() for moments in span])
    blocks = int((every & LUMI_MAX).max(initial=0)) + 1
    for axes, (title, (first, last)) in zip(panels, spans.items(), strict=True):
        left, right = (_places(moments, clock, blocks) for moments in (first, last))
        axes.barh(np.arange(len(left)), right - left, height=1.0, left=left, edgecolor="white", linewidth=0.2)
        # A job of a single moment has a bar without width.
        axes.plot(left, np.arange(len(left)), "|", color="C0", markersize=2.0)
        axes.set(title=title, ylabel="job", ylim=(max(len(left), 1) - 0.5, -0.5))
    panels[-1].set_xlabel(AXIS_LABELS[clock])
    return figure


def _new_figure(height: float) -> Figure:
    """Return a new picture of a height in inches: in a notebook that of its cell."""
    try:
        from matplotlib import pyplot
    except ModuleNotFoundError as error:
        if str(error.name).partition(".")[0] != "matplotlib":
            raise
        raise UnsupportedError(
            "pictures need Matplotlib, which is not installed: pip install 'femtobarn[plots]'"
        ) from error
    return pyplot.figure(figsize=(9.0, height), layout="constrained")
