"""The plot of a replay: bytes staged by each policy on each trace, relative to the product's."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter

from femtobarn_reports.style import BLUE, CORAL, INK, SAND, TEAL, VIOLET, clean, picture

from .policies import BASE
from .tables import Cell, Run, cells_of, ranked

__all__ = ["draw_staged"]

COLOURS = (VIOLET, BLUE, TEAL, SAND, CORAL)
"""Of the sizes of the disk, from the smallest on, again from the first when they are used up."""

MARKERS = "os^Dv"
WIDTH_EACH = 3.1
LARGEST = 1.62
"""Largest ratio that has a place of its own; larger ones are at the edge, with their value."""


def draw_staged(run: Run) -> Figure:
    """Draw a panel for each trace and a row for each policy; a point is a size of the disk."""
    cells = cells_of(run)
    traces = list(dict.fromkeys(cell.trace for cell in cells))
    policies = [name for name in ranked(cells) if name != BASE]
    percents = list(dict.fromkeys(cell.cache_percent for cell in cells))
    figure = picture(1.6 + WIDTH_EACH * len(traces), 1.5 + 0.5 * len(policies))
    panels = figure.subplots(1, len(traces), sharey=True, squeeze=False)[0]
    for panel, trace in zip(panels, traces, strict=True):
        _draw_panel(panel, [cell for cell in cells if cell.trace == trace], policies, percents)
        panel.set_title(trace)
    panels[0].set_yticks(range(len(policies)), policies)
    panels[0].set_ylim(len(policies) - 0.4, -0.6)
    panels[0].tick_params(axis="y", labelcolor=INK)
    handles = [
        Line2D([], [], marker=_marker(at), color=_colour(at), linewidth=0, markersize=7, label=f"{percent} %")
        for at, percent in enumerate(percents)
    ]
    title = "disk, of the bytes of all files: "
    figure.legend(handles=handles, title=title, loc="outside lower center", ncols=len(handles))
    return figure


def _draw_panel(axes: Axes, cells: list[Cell], policies: list[str], percents: list[int]) -> None:
    axes.axvline(1.0, color=INK, linewidth=1.0)
    for cell in cells:
        if cell.policy == BASE:
            continue
        row, at = policies.index(cell.policy), percents.index(cell.cache_percent)
        # Points of one row are a little apart, so that equal ones do not hide each other.
        place = row + 0.2 * (at - (len(percents) - 1) / 2)
        axes.plot(min(cell.ratio, LARGEST), place, _marker(at), color=_colour(at), markersize=5.5)
        if cell.ratio > LARGEST:
            axes.annotate(
                f"{cell.ratio:.1f}", (LARGEST, place), (-6, 0), textcoords="offset points",
                ha="right", va="center", fontsize=8, color=_colour(at),
            )  # fmt: skip
    ratios = [min(cell.ratio, LARGEST) for cell in cells]
    axes.set_xlim(min(0.25, *ratios) - 0.05, LARGEST + 0.05)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    clean(axes, x=f"bytes staged, {BASE} = 1", grid="x")


def _colour(at: int) -> str:
    return COLOURS[at % len(COLOURS)]


def _marker(at: int) -> str:
    return MARKERS[at % len(MARKERS)]
