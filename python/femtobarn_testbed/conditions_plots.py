"""Plots of jobs that look up conditions: time in database code beside time in physics, and latencies."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from femtobarn_reports.style import INK, clean, picture

from .event_costs import DATABASE, EventCosts, event_costs_of
from .papers import STAR_FACTOR
from .rate_plots import WIDTH, Run, largest
from .summaries import rounded
from .time_plots import OPERATIONS

__all__ = ["draw_event_costs", "draw_look_up_latencies"]

PHYSICS = OPERATIONS["compute"]
COLOURS = {name: OPERATIONS[name] for name in DATABASE}
QUANTILES = {"median": ("median", "o"), "p99": ("99 %", "D")}
"""The text and the marker of each quantile of a point's operations."""

TEXT_SHARE = 0.66
"""Share of the width of the axes that texts beside the longest bar take."""


def draw_event_costs(run: Run) -> Figure:
    """Draw the time of an event in physics and in database code, and that of look-ups alone, logarithmic."""
    shown = event_costs_of({**run, "points": largest(run)})
    figure = picture(WIDTH, 1.5 + 0.42 * len(shown))
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[1.0, 1.2])
    _draw_time(left, shown)
    _draw_factors(right, shown)
    left.set_yticks(range(len(shown)), [each.variant for each in shown])
    left.invert_yaxis()
    left.tick_params(axis="y", labelcolor=INK)
    clients = shown[0].clients if shown else 0
    figure.suptitle(f"{run['title']}, {clients} client{'s' * (clients != 1)}", fontsize=12)
    handles = [Patch(facecolor=colour) for colour in (PHYSICS, *COLOURS.values())]
    figure.legend(handles, ["physics", *DATABASE], loc="outside lower center", ncols=len(handles))
    return figure


def _draw_time(axes: Axes, shown: list[EventCosts]) -> None:
    rows = np.arange(len(shown))
    floor = np.array([1e3 * each.physics for each in shown])
    axes.barh(rows, floor, height=0.62, color=PHYSICS)
    for name, colour in COLOURS.items():
        width = np.array([1e3 * each.database[name] for each in shown])
        axes.barh(rows, width, left=floor, height=0.62, color=colour)
        floor = floor + width
    for row, each in enumerate(shown):
        axes.text(floor[row], row, f"  {each.database_share:.0%} database", va="center", fontsize=9)
    axes.set_xlim(0, 1.45 * max(*floor, 1e-9))
    clean(axes, x="ms for an event", grid="x")


def _draw_factors(axes: Axes, shown: list[EventCosts]) -> None:
    """Draw the time in look-ups, by which factor it is less than the first variant's, and the requests.

    The texts are a column beside the longest bar, where the paper's line does not cross them.
    """
    times = np.array([1e3 * each.look_ups for each in shown])
    axes.barh(range(len(shown)), times, height=0.62, color=COLOURS["look up"])
    low, high = times.min() / 3, times.max()
    for row, (time, each) in enumerate(zip(times, shown, strict=True)):
        factor = f", {rounded(times[0] / time)} times less" if row else ""
        axes.text(
            high,
            row,
            f"  {rounded(time)} ms, {rounded(each.requests)} requests{factor}",
            va="center",
            fontsize=9,
        )
    axes.set_xscale("log")
    axes.set_xlim(low, high * (high / low) ** (TEXT_SHARE / (1 - TEXT_SHARE)))
    axes.set_xticks(10.0 ** np.arange(np.ceil(np.log10(low)), np.log10(high) + 0.5))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.axvline(times[0] / STAR_FACTOR, color=INK, linewidth=1.0, linestyle=(0, (6, 3)))
    axes.annotate(
        f"paper: {STAR_FACTOR:g} times less", (times[0] / STAR_FACTOR, 1.0), (0, 3), ha="center", fontsize=9,
        xycoords=("data", "axes fraction"), textcoords="offset points",
    )  # fmt: skip
    clean(axes, x="ms of it in look-ups, logarithmic", grid="x")


def draw_look_up_latencies(run: Run) -> Figure:
    """Draw the median and the 99 % quantile of an event's look-ups with the most clients, logarithmic."""
    shown = {
        point["variant"]: point["operations"]["look up"]
        for point in largest(run)
        if point["operations"].get("look up", {"count": 0})["count"]
    }
    figure = picture(WIDTH, 1.5 + 0.5 * len(shown))
    axes = figure.subplots()
    colour = COLOURS["look up"]
    for row, done in enumerate(shown.values()):
        times = [1e3 * done[name] for name in QUANTILES]
        axes.plot(times, [row] * len(times), color="#b6bcc6", zorder=1)
        for time, (_, marker), side in zip(times, QUANTILES.values(), (-1, 1), strict=True):
            axes.plot(time, row, marker, markersize=9, color=colour)
            axes.annotate(
                f"{rounded(time)} ms", (time, row), (11 * side, 0), textcoords="offset points", va="center",
                ha="left" if side > 0 else "right", fontsize=9,
            )  # fmt: skip
    axes.set_yticks(range(len(shown)), list(shown))
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(x=0.2)
    clean(axes, x="ms of the look-ups of an event, logarithmic", grid="x")
    clients = max(point["clients"] for point in run["points"])
    axes.set_title(f"{clients} client{'s' * (clients != 1)}", fontsize=10.5)
    handles = [
        Line2D([], [], marker=marker, color=colour, linewidth=0, markersize=7, label=name)
        for name, marker in QUANTILES.values()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure
