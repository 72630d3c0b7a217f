"""The plot of hot files: rates, bytes in caches and clients at servers, since the file became hot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from femtobarn_reports.style import BLUE, CORAL, GREY, INK, SAND, TEAL, VIOLET, clean, picture

from .phases import totals_of

__all__ = ["draw_hot_files"]

Run = Mapping[str, Any]
Point = Mapping[str, Any]

COLOURS = (INK, BLUE, TEAL, SAND, VIOLET, CORAL)
DASHED = (0, (4, 3))


def draw_hot_files(run: Run) -> Figure:
    """Draw three panels, one above the other, for each variant."""
    points = run["points"]
    figure = picture(max(10.0, 6.0 * len(points)), 7.6)
    rows = {"height_ratios": (2.0, 1.0, 1.2)}
    panels = figure.subplots(3, len(points), sharex="col", sharey="row", squeeze=False, gridspec_kw=rows)
    for column, point in enumerate(points):
        rates, kept, clients = panels[:, column]
        _draw_rates(rates, point)
        _draw_by_server(kept, point, "kept_bytes", 1e-6)
        _draw_by_server(clients, point, "clients", 1.0)
        if len(points) > 1:
            rates.set_title(point["variant"])
        clean(rates, y="MB/s" if not column else "")
        clean(kept, y="MB in each cache" if not column else "")
        clean(clients, x="seconds since the file became hot", y="clients" if not column else "")
        for axes in (rates, kept, clients):
            axes.set_ylim(bottom=0.0)
            for _, start, _ in _phases(point):
                axes.axvline(start, color=GREY, linewidth=0.8)
        for name, start, _ in _phases(point):
            rates.annotate(
                name, (start, 1.0), (4, -4), xycoords=("data", "axes fraction"), textcoords="offset points",
                va="top", color=GREY, fontsize=9.5,
            )  # fmt: skip
    handles, labels = panels[2, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels))
    return figure


def _phases(point: Point) -> Iterator[tuple[str, float, Mapping[str, Any]]]:
    """Each phase with its beginning, in seconds since the file became hot."""
    start = -float(point["phases"]["before"]["seconds"])
    for name, phase in point["phases"].items():
        yield name, start, phase
        start += phase["seconds"]


def _draw_rates(axes: Axes, point: Point) -> None:
    """Draw the rate of all clients, and of one server for comparison."""
    moments: list[float] = []
    rates: list[float] = []
    for _, start, phase in _phases(point):
        totals = totals_of(phase)
        moments += [start + second + 0.5 for second in range(len(totals))]
        rates += [total / 1e6 for total in totals]
    axes.plot(moments, rates, color=INK, linewidth=1.3)
    one_server = point["one_server_bytes_per_second"] / 1e6
    for times, label in ((1.0, "one server"), (point["aim"], f"{point['aim']:g} times one server")):
        axes.axhline(times * one_server, color=CORAL, linewidth=1.0, linestyle=DASHED)
        axes.annotate(
            label, (1.0, times * one_server), (-2, 3), xycoords=("axes fraction", "data"),
            textcoords="offset points", ha="right", color=CORAL, fontsize=9.5,
        )  # fmt: skip


def _draw_by_server(axes: Axes, point: Point, series: str, scale: float) -> None:
    """Draw a line for each server. Those that are counted have the same colours in all panels."""
    servers = list(point["phases"]["hot"]["opened"])
    for name in point["phases"]["hot"]["series"][series]:
        moments: list[float] = []
        values: list[float] = []
        for _, start, phase in _phases(point):
            of_phase: Sequence[int] = phase["series"][series][name]
            moments += [start + second for second in range(len(of_phase))]
            values += [value * scale for value in of_phase]
        colour = COLOURS[servers.index(name) % len(COLOURS)]
        axes.plot(moments, values, color=colour, linewidth=1.3, label=name)
