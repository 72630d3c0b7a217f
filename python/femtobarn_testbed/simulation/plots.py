"""Pictures of a simulated site: the use of its resources, and the time of commits, over clients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from femtobarn_reports.style import BLUE, CORAL, GREY, INK, SAND, TEAL, VIOLET, clean, picture

from ..labels import Ending, label_ends
from ..verdict import USED_UP

__all__ = ["draw_latencies", "draw_use"]

Run = Mapping[str, Any]

COLOURS = (BLUE, SAND, TEAL, VIOLET, CORAL, GREY, INK)
HEIGHT = 4.2


def draw_use(done: Run) -> Figure:
    """Draw the use of each resource over the number of clients, in the first scenario."""
    points = done["scenarios"][0]["points"]
    clients = [point["clients"] for point in points]
    figure = picture(10.0, HEIGHT)
    axes = figure.subplots()
    axes.set(xlim=(0, clients[-1]), ylim=(0, 100))
    ends = []
    for colour, name in zip(COLOURS, points[0]["utilisation"], strict=False):
        shares = [100 * point["utilisation"][name] for point in points]
        axes.plot(clients, shares, "o-", markersize=4, linewidth=1.8, color=colour, clip_on=False)
        ends.append(Ending(shares[-1] / 100, name, colour))
    axes.axhline(100 * USED_UP, color=INK, linewidth=1.0, linestyle=":")
    label_ends(axes, ends, HEIGHT)
    _finish(axes, "used (%)", done["scenarios"][0]["name"])
    return figure


def draw_latencies(done: Run) -> Figure:
    """Draw the 99 % quantile of commits over the number of clients, a line for each scenario."""
    figure = picture(10.0, HEIGHT)
    axes = figure.subplots()
    axes.set_yscale("log")
    lines = []
    for colour, scenario in zip(COLOURS, done["scenarios"], strict=False):
        points = [point for point in scenario["points"] if point["latency"]["commit"]["p99"]]
        x = [point["clients"] for point in points]
        y = [1e3 * point["latency"]["commit"]["p99"] for point in points]
        if x:
            axes.plot(x, y, "o-", markersize=4, linewidth=1.8, color=colour, clip_on=False)
            lines.append((y[-1], scenario["name"], colour))
    axes.set_xlim(left=0)
    transform = axes.transData + axes.transAxes.inverted()
    ends = [Ending(float(transform.transform((0.0, y))[1]), name, colour) for y, name, colour in lines]
    label_ends(axes, ends, HEIGHT)
    _finish(axes, "commit, 99 % (ms)", "What a commit takes")
    return figure


def _finish(axes: Axes, y: str, title: str) -> None:
    clean(axes, x="clients", y=y, title=title)
    axes.xaxis.set_major_formatter("{x:,.0f}")
