"""Plots of look-ups on a disk, an SSD and in memory, beside the paper's random reads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from femtobarn_reports.style import BLUE, CORAL, INK, TEAL, clean, picture

from .papers import STAR_READS
from .rate_plots import WIDTH, Run, largest
from .summaries import rounded

__all__ = ["draw_storage", "look_up_times"]

STORAGE = {"disk": (CORAL, "o"), "SSD": (BLUE, "s"), "memory": (TEAL, "D")}
"""Colour and marker of each storage, from the slowest to the fastest."""

PAPER = "paper: a random read of 4 KB"

PLACES: tuple[dict[str, Any], ...] = (
    {"xytext": (11, 0), "ha": "left", "va": "center"},
    {"xytext": (0, -16), "ha": "center"},
    {"xytext": (-11, 0), "ha": "right", "va": "center"},
)
"""Where the texts of the slowest, the middle and the fastest storage stand."""


def look_up_times(run: Run) -> dict[str, dict[str, float]]:
    """Return the seconds of a look-up with the most clients: by a job's cached data, then by storage."""
    times: dict[str, dict[str, float]] = {}
    for point in largest(run):
        kept, _, storage = point["variant"].rpartition(", ")
        look_ups = point["operations"].get("look up")
        if look_ups and look_ups["amount"] and storage in STORAGE:
            times.setdefault(kept, {})[storage] = look_ups["seconds"] / look_ups["amount"]
    return times


def draw_storage(run: Run) -> Figure:
    """Draw the time of a look-up on each storage: a row for each set of cached data, and one for the
    paper."""
    rows = {PAPER: {name: 1 / rate for name, rate in STAR_READS.items()}, **look_up_times(run)}
    figure = picture(WIDTH, 1.5 + 0.62 * len(rows))
    axes = figure.subplots()
    for at, (name, times) in enumerate(rows.items()):
        _draw_row(axes, at, times, is_hollow=name == PAPER)
    axes.set_yticks(range(len(rows)), list(rows))
    axes.set_ylim(len(rows) - 0.4, -0.7)
    axes.tick_params(axis="y", labelcolor=INK)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(x=0.24)
    clean(axes, x="ms of a look-up, logarithmic", grid="x")
    clients = max(point["clients"] for point in run["points"])
    axes.set_title(f"{clients} client{'s' * (clients != 1)}", fontsize=10.5)
    handles = [
        Line2D([], [], marker=marker, color=colour, linewidth=0, markersize=7, label=name)
        for name, (colour, marker) in STORAGE.items()
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=len(handles))
    return figure


def _draw_row(axes: Axes, at: int, times: Mapping[str, float], *, is_hollow: bool) -> None:
    """Draw the times of a row; beside each stands by which factor it is less than the slowest storage's."""
    slowest = next(iter(times.values()))
    axes.plot([1e3 * min(times.values()), 1e3 * max(times.values())], [at, at], color="#b6bcc6", zorder=1)
    for number, (name, seconds) in enumerate(times.items()):
        colour, marker = STORAGE[name]
        fill = "white" if is_hollow else colour
        axes.plot(
            1e3 * seconds, at, marker, markersize=9, color=colour, markerfacecolor=fill, markeredgewidth=1.6
        )
        text = f"{rounded(1e3 * seconds)} ms" if not number else f"{rounded(slowest / seconds)} times less"
        place = PLACES[0 if not number else 2 if seconds == min(times.values()) else 1]
        axes.annotate(text, (1e3 * seconds, at), textcoords="offset points", fontsize=9, **place)
