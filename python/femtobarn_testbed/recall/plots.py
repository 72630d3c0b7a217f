"""The plot of recalls: the work of each drive, and the wait of each client beside its fair share."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from femtobarn_reports.style import BLUE, CORAL, GREY, INK, SAND, TEAL, VIOLET, clean, picture

__all__ = ["draw_recalls"]

Run = Mapping[str, Any]
Point = Mapping[str, Any]

PARTS = (("mount", "mounting", CORAL), ("locate", "winding", SAND), ("transfer", "reading", BLUE))
MARKERS = "osD^v"
COLOURS = (INK, TEAL, VIOLET, BLUE, SAND)
ROW_INCHES = 0.24


def draw_recalls(run: Run) -> Figure:
    """Draw a panel for each variant with a row for each drive, and beside them the waiting times."""
    points = run["points"]
    drives = len(points[0]["drives"])
    figure = picture(11.5, max(1.2 + len(points) * (0.75 + ROW_INCHES * drives), 4.2))
    grid = figure.add_gridspec(len(points), 2, width_ratios=(2.1, 1.0))
    panels = [figure.add_subplot(grid[row, 0]) for row in range(len(points))]
    longest = max(point["seconds"] for point in points) / 60
    for axes, point in zip(panels, points, strict=True):
        _draw_drives(axes, point)
        axes.set_xlim(0.0, 1.01 * longest)
        clean(axes, x="minutes" if axes is panels[-1] else "", grid="x")
        axes.set_title(
            f"{point['variant']}: {point['mounts']:,} mounts, {point['seconds'] / 60:,.0f} minutes"
        )
    waits = figure.add_subplot(grid[:, 1])
    _draw_waits(waits, points)
    handles: list[Any] = [Patch(color=colour, label=label) for _, label, colour in PARTS]
    handles += [
        Line2D([], [], marker=_of(MARKERS, at), color=_of(COLOURS, at), linewidth=0, label=point["variant"])
        for at, point in enumerate(points)
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _draw_drives(axes: Axes, point: Point) -> None:
    """Draw the work of each drive by time."""
    drives = range(len(point["drives"]))
    for drive in drives:
        bars = [bar for one in point["work"] if one["drive"] == drive for bar in _bars(one)]
        colours = [colour for _, colour in bars]
        axes.broken_barh([span for span, _ in bars], (drive - 0.4, 0.8), color=colours, linewidth=0)
    axes.set_yticks(drives, [f"drive {drive + 1}" for drive in drives])
    axes.set_ylim(len(drives) - 0.4, -0.6)


def _bars(one: Mapping[str, Any]) -> Iterator[tuple[tuple[float, float], str]]:
    """The beginning and the length of each part of a drive's work, in minutes, and its colour."""
    begin = one["began"] / 60
    for part, _, colour in PARTS:
        minutes = one[f"{part}_seconds"] / 60
        yield (begin, minutes), colour
        begin += minutes


def _draw_waits(axes: Axes, points: list[Point]) -> None:
    """Draw when each client's last file was there, by when it was due."""
    for at, point in enumerate(points):
        fair = [client["fair_seconds"] / 60 for client in point["clients"]]
        waited = [client["seconds"] / 60 for client in point["clients"]]
        axes.plot(fair, waited, _of(MARKERS, at), color=_of(COLOURS, at), markersize=6, alpha=0.85)
    end = 1.05 * max(point["seconds"] for point in points) / 60
    axes.plot([0.0, end], [0.0, end], color=GREY, linewidth=1.0, linestyle=(0, (4, 3)))
    axes.set(xlim=(0.0, end), ylim=(0.0, end))
    clean(axes, x="fair share (minutes)", y="waited (minutes)", title="Each client's last file")


def _of(choices: Any, at: int) -> Any:
    return choices[at % len(choices)]
