"""Plots of time: shares of the clients' time, start-up, and CPU time by the size of objects."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from femtobarn_reports.style import BLUE, CORAL, INK, SAND, TEAL, VIOLET, clean, picture

from .labels import Ending, label_ends
from .monarc import Cell, cells_of
from .papers import MONARC_RANGES, paper_of
from .rate_plots import LINE_COLOURS, LINES_MAX, MARKERS, WIDTH, Run, by_variant, largest

__all__ = ["OPERATIONS", "draw_object_sizes", "draw_starts", "draw_time_shares"]

OPERATIONS = {
    "compute": "#cdd3dc",
    "read": BLUE,
    "select": "#8fb3f5",
    "look up": "#e0679a",
    "open job": "#b9a3e3",
    "tags": "#5ec4b3",
    "write": SAND,
    "commit": VIOLET,
    "open container": CORAL,
    "create": TEAL,
    "drop": "#8b5e3c",
}
"""Colours of operations, in the order in which their shares are stacked."""

REST = "#eceff4"
"""Colour of the time between operations, in the client's own loop."""
SIZES_HEIGHT = 3.9
"""Height of a row of panels over the size of objects (inches)."""

MOMENTS = {
    "first_object": ("first object", SAND, "^", 6.5),
    "transaction": ("first transaction", BLUE, "o", 3.0),
}
"""Moments of a client's start: name, colour, marker and its size. Both are visible where they coincide."""


def draw_time_shares(run: Run) -> Figure:
    """Draw the shares of the clients' time as stacked bars, a panel for each variant."""
    groups = by_variant(run)
    counts = [len(points) for points in groups.values()]
    if len(groups) > LINES_MAX or max(counts) == 1:
        return _draw_rows(run)
    figure = picture(WIDTH, 3.5)
    panels = figure.subplots(
        1, len(groups), sharey=True, squeeze=False, width_ratios=[n + 1.0 for n in counts]
    )
    for axes, (name, points) in zip(panels[0], groups.items(), strict=True):
        _stack(axes, points, is_upright=True)
        axes.set_xticks(range(len(points)), [str(point["clients"]) for point in points])
        axes.set_xlim(-0.6, len(points) - 0.4)
        axes.set_ylim(0, 100)
        clean(axes, x="clients")
        axes.set_title(
            fill(name, max(int(72 * (len(points) + 1) / sum(n + 1 for n in counts)), 12)), fontsize=10.5
        )
    panels[0][0].set_ylabel("share of the clients' time (%)")
    _key(figure, run)
    return figure


def _draw_rows(run: Run) -> Figure:
    """Draw the shares with a row for each variant: for many variants, or a single number of clients."""
    points = largest(run)
    figure = picture(WIDTH, 1.3 + 0.32 * len(points))
    axes = figure.subplots()
    _stack(axes, points, is_upright=False)
    axes.set_yticks(range(len(points)), [point["variant"] for point in points])
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    clean(axes, x="share of the clients' time (%)", grid="x")
    axes.tick_params(axis="y", labelcolor=INK)
    _key(figure, run)
    return figure


def _stack(axes: Axes, points: Sequence[Mapping[str, Any]], *, is_upright: bool) -> None:
    at, floor = np.arange(len(points)), np.zeros(len(points))
    for name, colour in OPERATIONS.items():
        shares = np.array([100 * point["time_shares"].get(name, 0.0) for point in points])
        # Rounding at the edges of the window may add up to a little more than 100 %.
        shares = np.minimum(shares, 100 - floor)
        if is_upright:
            axes.bar(at, shares, bottom=floor, width=0.72, color=colour)
        else:
            axes.barh(at, shares, left=floor, height=0.66, color=colour)
        floor = floor + shares
    if is_upright:
        axes.bar(at, 100 - floor, bottom=floor, width=0.72, color=REST)
    else:
        axes.barh(at, 100 - floor, left=floor, height=0.66, color=REST)


def _key(figure: Figure, run: Run) -> None:
    """Draw a legend of the colours in use, in one line."""
    seen = [
        name for name in OPERATIONS if any(point["time_shares"].get(name, 0.0) for point in run["points"])
    ]
    handles = [Patch(facecolor=colour) for colour in (*(OPERATIONS[name] for name in seen), REST)]
    figure.legend(handles, [*seen, "their own loop"], loc="outside lower center", ncols=min(len(handles), 8))


def draw_starts(run: Run) -> Figure:
    """Plot the seconds from a client's launch to its first transaction and first object, over its number."""
    groups = {name: points[-1]["start"] for name, points in by_variant(run).items() if points[-1]["start"]}
    paper = paper_of(run)
    theirs = [point for point in paper.points if point.clients] if paper else []
    figure = picture(WIDTH, 4.2)
    panels = figure.subplots(1, max(len(groups), 1), sharey=True, sharex=True, squeeze=False)[0]
    for axes, (name, starts) in zip(panels, groups.items(), strict=False):
        ordered = sorted(starts, key=lambda start: start["launched"])
        for moment, (_, colour, marker, size) in MOMENTS.items():
            seconds = [start.get(moment) for start in ordered]
            there = [(number, value) for number, value in enumerate(seconds, 1) if value]
            if there:
                axes.plot(*zip(*there, strict=True), marker, markersize=size, color=colour, linewidth=0)
        for point in theirs:
            what, colour, marker, _ = MOMENTS[point.quantity]
            axes.plot(
                point.clients,
                point.value,
                marker,
                markersize=9,
                fillstyle="none",
                markeredgewidth=1.6,
                color=colour,
            )
            axes.annotate(
                f"paper: {what}, {point.value:.0f} s", (point.clients, point.value), (-9, 0),
                textcoords="offset points", ha="right", va="center", fontsize=9,
            )  # fmt: skip
        axes.set_title(fill(name, 30), fontsize=10.5)
        clean(axes, x="number of the client")
    panels[0].set_ylabel("seconds since its launch" + (", logarithmic" if theirs else ""))
    if theirs:
        panels[0].set_yscale("log")
        low = min(
            (start["transaction"] or 1.0 for starts in groups.values() for start in starts), default=1.0
        )
        panels[0].set_ylim(10 ** np.floor(np.log10(0.8 * low)), 150)
        panels[0].yaxis.set_major_formatter("{x:g}")
        for axes in panels:
            axes.tick_params(which="both", length=0)
    else:
        panels[0].set_ylim(0, None)
    panels[0].set_xlim(0, None)
    handles = [
        Line2D([], [], marker=marker, color=colour, linewidth=0, markersize=7, label=what)
        for what, colour, marker, _ in MOMENTS.values()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=2)
    return figure


def draw_object_sizes(run: Run) -> Figure:
    """Plot the payload per CPU second over the size of objects: a line for each number of links."""
    cells = cells_of(run)
    groups: dict[str, dict[int, list[Cell]]] = {}
    for cell in cells:
        groups.setdefault(cell.how, {}).setdefault(cell.links, []).append(cell)
    sizes = sorted({cell.size for cell in cells} | set(MONARC_RANGES))
    rows = math.ceil(len(groups) / 2)
    figure = picture(WIDTH, SIZES_HEIGHT * rows)
    panels = figure.subplots(rows, min(len(groups), 2), sharey=True, squeeze=False)
    shown = dict(zip(groups, panels.flat, strict=False))
    for how, axes in shown.items():
        _draw_sizes(axes, groups[how], sizes)
        axes.set_title(how, fontsize=10.5)
    for axes in panels.flat[len(groups) :]:
        axes.remove()
    # The ends of lines are known only once all panels have set the shared axis.
    for how, axes in shown.items():
        _name_lines(axes, groups[how])
    for row in panels:
        row[0].set_ylabel("MB/s by a CPU, logarithmic")
    return figure


def _draw_sizes(axes: Axes, lines: Mapping[int, list[Cell]], sizes: Sequence[int]) -> None:
    for at, cells in enumerate(lines.values()):
        x = [sizes.index(cell.size) for cell in cells]
        y = [cell.bytes_per_cpu_second / 1e6 for cell in cells]
        axes.plot(x, y, marker=MARKERS[at % 6], markersize=5.5, color=LINE_COLOURS[at % 6], linewidth=2.0)
    for size, (low, high) in MONARC_RANGES.items():
        ends = [low / 1e6, high / 1e6]
        axes.plot([sizes.index(size)] * 2, ends, color=INK, linewidth=1.2, marker="_", markersize=11)
    axes.annotate(
        "paper, 1998", (sizes.index(1_000), MONARC_RANGES[1_000][1] / 1e6), (0, 6), ha="center",
        textcoords="offset points", fontsize=9,
    )  # fmt: skip
    axes.set_yscale("log")
    axes.set_xticks(range(len(sizes)), [_size(size) for size in sizes])
    axes.set_xlim(-0.4, len(sizes) - 0.6)
    clean(axes, x="size of an object")
    axes.tick_params(which="both", length=0)
    axes.yaxis.set_major_formatter("{x:g}")


def _name_lines(axes: Axes, lines: Mapping[int, list[Cell]]) -> None:
    """Label each line with its number of links, at its end on the logarithmic axis."""
    low, high = axes.get_ylim()
    ends = []
    for at, (links, cells) in enumerate(lines.items()):
        place = math.log(cells[-1].bytes_per_cpu_second / 1e6 / low) / math.log(high / low)
        words = "no links" if not links else f"{links} link{'s' * (links > 1)}"
        ends.append(Ending(place, words, LINE_COLOURS[at % 6]))
    label_ends(axes, ends, inches=SIZES_HEIGHT - 0.9)


def _size(size: int) -> str:
    return f"{size:,} B" if size < 1_000 else f"{size / 1_000:g} KB"
