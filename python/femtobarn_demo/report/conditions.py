"""Conditions: constants by time, and their effect on energies and residuals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from femtobarn.jagged import Array
from femtobarn_demo.calibration import Timeline
from femtobarn_reports.style import BLUE, GREY, INK, SAND, clean, picture

__all__ = ["draw_residuals", "draw_responses", "draw_timelines"]

SIZE = (5.6, 3.9)
"""Size of a picture of half the page's width (inches)."""

MICROMETRE = 1.0e-6
AZIMUTH_BINS = 24

RESPONSE_RANGE = (0.74, 1.06)


def draw_timelines(timelines: Sequence[Timeline], start_hour: int) -> Figure:
    """Draw true values by time, and as bars the constants of both passes while they are valid.

    Parameters
    ----------
    start_hour
        Hour of the day at which the run starts.
    """
    figure = picture(10.0, 4.2)
    panels = figure.subplots(1, len(timelines), squeeze=False, gridspec_kw={"wspace": 0.08})[0]
    for axes, timeline in zip(panels, timelines, strict=True):
        _draw_timeline(axes, timeline, start_hour)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))
    return figure


def _draw_timeline(axes: Axes, timeline: Timeline, start_hour: int) -> None:
    for bars, colour, label in (
        (timeline.prompt, SAND, "constant of the first pass"),
        (timeline.final, BLUE, "constants of the second pass"),
    ):
        since, until, values = np.transpose(bars)
        axes.hlines(values, since, until, color=colour, linewidth=5.0, label=label, capstyle="butt")
        axes.vlines(since[1:], values[1:], values[:-1], color=colour, linewidth=0.8, alpha=0.5)
    axes.plot(timeline.hours, timeline.truth, color=INK, linewidth=1.2, label="truth of the simulation")
    last = float(timeline.hours[-1])
    ticks = np.arange(0.0, last + 0.1, 2.0)
    axes.set(xlim=(0.0, last))
    axes.set_xticks(ticks, [f"{start_hour + int(tick):02d}:00" for tick in ticks])
    axes.margins(y=0.12)
    unit = f" ({timeline.unit})" if timeline.unit else ""
    clean(axes, x="time (UTC)", y="", title=timeline.title + unit)


def draw_responses(first: Array, second: Array) -> Figure:
    """Draw the energies of clusters divided by those in a perfect detector, in both passes."""
    figure = picture(*SIZE)
    axes = figure.subplots()
    edges = np.linspace(*RESPONSE_RANGE, 41)
    for values, colour, label in ((first, SAND, "first pass"), (second, BLUE, "second pass")):
        counts, _ = np.histogram(values, edges)
        axes.stairs(counts, edges, color=colour, fill=True, alpha=0.25)
        axes.stairs(counts, edges, color=colour, linewidth=1.5, label=label)
    axes.set(xlim=RESPONSE_RANGE, ylim=(0, None))
    axes.axvline(1.0, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.legend(loc="upper left")
    clean(axes, x="energy / energy in a perfect detector", y="clusters per bin")
    return figure


def draw_residuals(first: tuple[Array, Array], second: tuple[Array, Array]) -> Figure:
    """Draw the mean distances of points from their tracks by azimuth, in both passes.

    Parameters
    ----------
    first, second
        Azimuths (rad) and distances (m) of points.
    """
    figure = picture(*SIZE)
    axes = figure.subplots()
    edges = np.linspace(-np.pi, np.pi, AZIMUTH_BINS + 1)
    axes.axhline(0.0, color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    for (azimuth, distance), colour, label in ((first, SAND, "first pass"), (second, BLUE, "second pass")):
        number = np.clip(np.digitize(azimuth, edges) - 1, 0, AZIMUTH_BINS - 1)
        count = np.bincount(number, minlength=AZIMUTH_BINS)
        mean, square = (
            np.bincount(number, values, AZIMUTH_BINS) / np.maximum(count, 1)
            for values in (distance, distance**2)
        )
        error = np.sqrt(np.maximum(square - mean**2, 0.0) / np.maximum(count, 1))
        axes.errorbar(
            0.5 * (edges[1:] + edges[:-1])[count > 0],
            mean[count > 0] / MICROMETRE,
            yerr=error[count > 0] / MICROMETRE,
            fmt="o",
            ms=4.5,
            color=colour,
            elinewidth=1.2,
            label=label,
        )
    axes.set(xlim=(-np.pi, np.pi))
    axes.set_xticks([-np.pi, 0.0, np.pi], ["-π", "0", "π"])
    axes.margins(y=0.2)
    axes.legend(loc="upper center", ncols=2)
    clean(axes, x="azimuth (rad)", y="mean distance (µm)")
    return figure
