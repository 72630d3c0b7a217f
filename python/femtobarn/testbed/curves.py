"""Pictures of rates: over the number of clients, beside the most that could be, and what the papers measured.

A line is a variant; it is named at its end, with the number of clients at which it bends and what limits it.
Dotted is what as many clients could do at most, if they waited for nothing and the disks that are played
gave all they can. Hollow points are the papers'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from ..report.style import BLUE, CORAL, GREY, INK, SAND, TEAL, VIOLET, clean, picture
from .papers import Paper, paper_of

__all__ = ["LINES_MAX", "colours", "draw_bars", "draw_curves", "label_ends"]

LINES_MAX = 6
"""With more variants bars are drawn, at the largest number of clients."""

LINE_COLOURS = (BLUE, SAND, TEAL, VIOLET, CORAL, GREY)
MARKERS = "os^DvP"
BEHIND_TEXT: Any = {"facecolor": "white", "alpha": 0.75, "pad": 0.8, "linewidth": 0}

Run = Mapping[str, Any]


@dataclass(frozen=True)
class Panel:
    """One of the quantities over the number of clients."""

    unit: str
    quantity: str
    value: Callable[[Mapping[str, Any]], float | None]
    scale: float
    height: float


def _rate(name: str) -> Callable[[Mapping[str, Any]], float | None]:
    return lambda point: float(point["throughput"][name])


PANELS = (
    Panel("MB/s", "bytes_per_second", _rate("bytes_per_second"), 1e6, 3.3),
    Panel("events/s", "events_per_second", _rate("events_per_second"), 1.0, 2.0),
    Panel("tags/s", "tags_per_second", _rate("tags_per_second"), 1.0, 2.0),
    Panel("databases/s", "pairs_per_second", _rate("pairs_per_second"), 1.0, 2.6),
    Panel("time in computation (%)", "efficiency", lambda point: point["efficiency"], 0.01, 1.8),
)


def colours(run: Run) -> dict[str, str]:
    """The colour of each variant, by its name."""
    return {name: LINE_COLOURS[at % len(LINE_COLOURS)] for at, name in enumerate(run["played"])}


def by_variant(run: Run) -> dict[str, list[Mapping[str, Any]]]:
    """The points of each variant, by ascending number of clients."""
    found: dict[str, list[Mapping[str, Any]]] = {name: [] for name in run["played"]}
    for point in sorted(run["points"], key=lambda point: point["clients"]):
        found[point["variant"]].append(point)
    return {name: points for name, points in found.items() if points}


def draw_curves(run: Run) -> Figure:
    """What clients did together, over their number: a panel for each quantity that there is."""
    panels = _panels(run)
    paper = paper_of(run)
    most = _most(run, paper)
    figure = picture(10.0, 0.7 + sum(panel.height for panel in panels))
    heights = [panel.height for panel in panels]
    rows = figure.subplots(len(panels), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    for axes, panel in zip(rows, panels, strict=True):
        ends = _draw_lines(axes, run, panel)
        top = _top(run, paper, panel)
        axes.set(xlim=(0, 1.03 * most), ylim=(0, 1.12 * top))
        if panel.quantity == "bytes_per_second":
            _draw_most(axes, run, 1.03 * most, top)
        _draw_paper(axes, paper, panel, most)
        label_ends(axes, ends)
        clean(axes, y=panel.unit)
        axes.yaxis.set_major_formatter("{x:,.10g}")
    rows[-1].set_xlabel("clients")
    rows[0].set_title(run["title"])
    figure.align_ylabels()
    return figure


def _panels(run: Run) -> list[Panel]:
    """What there is to show; at least one."""
    shown = [panel for panel in PANELS if any(panel.value(point) for point in run["points"])]
    return shown or [PANELS[1]]


def _most(run: Run, paper: Paper | None) -> float:
    """The largest number of clients that is shown."""
    theirs = [point.clients for point in paper.points if point.clients] if paper else []
    bends = [clients for clients, _ in paper.bends] if paper else []
    return float(max(*(point["clients"] for point in run["points"]), *theirs, *bends, 1))


def _top(run: Run, paper: Paper | None, panel: Panel) -> float:
    if panel.quantity == "efficiency":
        return 100.0
    ours = [(panel.value(point) or 0.0) / panel.scale for point in run["points"]]
    theirs = [point.value / panel.scale for point in _points(paper, panel.quantity)]
    return float(max(*ours, *theirs, 1e-9))


def _points(paper: Paper | None, quantity: str) -> list[Any]:
    return [point for point in paper.points if point.quantity == quantity] if paper else []


def _draw_lines(axes: Axes, run: Run, panel: Panel) -> list[tuple[float, str, str]]:
    """A line for each variant; returns where they end, what they are called, and their colours."""
    ends = []
    is_first = panel is _panels(run)[0]
    for at, (name, points) in enumerate(by_variant(run).items()):
        colour = colours(run)[name]
        there = [(point["clients"], panel.value(point)) for point in points]
        x, y = (
            [float(c) for c, v in there if v is not None],
            [v / panel.scale for _, v in there if v is not None],
        )
        if not x:
            continue
        axes.plot(
            x,
            y,
            "-",
            marker=MARKERS[at % len(MARKERS)],
            markersize=5.5,
            color=colour,
            linewidth=2.0,
            zorder=4,
        )
        ends.append((y[-1], _title(name, run["knees"].get(name)) if is_first else fill(name, 26), colour))
        knee = run["knees"].get(name)
        if knee and knee["clients"] and knee["rate"] == panel.quantity:
            axes.plot(
                knee["clients"], knee["best"] / panel.scale, "|", markersize=15, markeredgewidth=2.2,
                color=colour, zorder=5,
            )  # fmt: skip
    return ends


def _title(name: str, knee: Mapping[str, Any] | None) -> str:
    """A variant's name, where it bends, and what limits it."""
    if not knee:
        return fill(name, 26)
    bend = f"bends at {knee['clients']:.0f}: " if knee["clients"] else "limit: "
    return f"{fill(name, 26)}\n{bend}{knee['limit']}"


def label_ends(axes: Axes, ends: Sequence[tuple[float, str, str]]) -> None:
    """Name lines at the right edge of a panel, beside where they end, one under the other."""
    low, high = axes.get_ylim()
    inches = axes.get_figure().get_figheight() if axes.get_figure() else 4.0  # type: ignore[union-attr]
    line = 0.19 / (inches * axes.get_position().height)
    wanted = sorted(((end - low) / (high - low), text, colour) for end, text, colour in ends)
    sizes = [line * (text.count("\n") + 1) + 0.35 * line for _, text, _ in wanted]
    places = _spread([place for place, _, _ in wanted], sizes)
    for place, (_, text, colour) in zip(places, wanted, strict=True):
        axes.annotate(
            text, (1.0, place), (8, 0), xycoords="axes fraction", textcoords="offset points",
            va="center", color=colour, fontsize=9.5, linespacing=1.15, annotation_clip=False,
        )  # fmt: skip


def _spread(places: Sequence[float], sizes: Sequence[float]) -> list[float]:
    """Move ascending places apart as little as need be, so that things of these sizes do not overlap."""
    found: list[float] = []
    for place, size in zip(places, sizes, strict=True):
        least = found[-1] + 0.5 * (sizes[len(found) - 1] + size) if found else size / 2
        found.append(max(place, least))
    over = found[-1] + sizes[-1] / 2 - 1.0 if found else 0.0
    for at in range(len(found) - 1, -1, -1):
        if over <= 0:
            break
        most = (
            found[at + 1] - 0.5 * (sizes[at + 1] + sizes[at]) if at + 1 < len(found) else 1.0 - sizes[at] / 2
        )
        found[at] = min(found[at], most)
    return found


def _draw_most(axes: Axes, run: Run, right: float, top: float) -> None:
    """Dotted: what could be reached at most, once for variants that have it in common."""
    drawn = set()
    clients = np.linspace(0.0, right, 400)
    for name, played in run["played"].items():
        ideal, raw = played["ideal_bytes_per_second_per_client"], played["raw_bytes_per_second"]
        if (ideal, raw) in drawn or not (ideal or raw):
            continue
        drawn.add((ideal, raw))
        limit = np.minimum(clients * ideal if ideal else np.inf, raw or np.inf) / 1e6
        limit = np.broadcast_to(limit, clients.shape)
        axes.plot(clients, limit, ":", color=colours(run)[name], linewidth=1.5, zorder=3)
        if raw and raw / 1e6 <= 1.1 * top:
            axes.annotate(
                f"disks that are played: {raw / 1e6:,.0f} MB/s", (0.0, raw / 1e6), (6, 3),
                textcoords="offset points", color=GREY, fontsize=9,
            )  # fmt: skip


def _draw_paper(axes: Axes, paper: Paper | None, panel: Panel, most: float) -> None:
    """Hollow points, and lines where the paper says no number of clients."""
    for point in _points(paper, panel.quantity):
        value = point.value / panel.scale
        label = f"paper: {value:,.3g}{'%' * (panel.quantity == 'efficiency')}, {point.label}"
        if point.clients is None:
            axes.axhline(value, color=INK, linewidth=1.0, linestyle=(0, (6, 3)), zorder=2)
            place, offset, side = 0.0, (6, 4), "left"
        else:
            axes.plot(point.clients, value, "o", markersize=9, fillstyle="none", color=INK, zorder=6)
            is_right = point.clients > 0.55 * most
            place, side = float(point.clients), "right" if is_right else "left"
            offset = (-9, -11) if is_right else (9, -11)
        axes.annotate(
            label, (place, value), offset, textcoords="offset points", ha=side, color=INK, fontsize=9,
            va="center" if point.clients else "bottom", zorder=7, bbox=BEHIND_TEXT,
        )  # fmt: skip
    for clients, of in paper.bends if paper and panel.quantity == "bytes_per_second" else ():
        axes.axvline(clients, color=INK, linewidth=1.0, linestyle=(0, (6, 3)), zorder=2)
        axes.annotate(
            f"paper: bends at {clients},\n{of}", (clients, 1.0), (5, -4), xycoords=("data", "axes fraction"),
            textcoords="offset points", va="top", fontsize=9,
        )  # fmt: skip


def draw_bars(run: Run) -> Figure:
    """Each variant at the largest number of clients that all have, as bars with ratios to the first."""
    points = largest(run)
    panels = [panel for panel in _panels(run) if panel.quantity != "efficiency"][:1] + [
        panel for panel in _panels(run) if panel.quantity == "efficiency"
    ]
    figure = picture(10.0, 1.2 + 0.36 * len(points))
    columns = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    names = [point["variant"] for point in points]
    for axes, panel in zip(columns, panels, strict=True):
        values = [(panel.value(point) or 0.0) / panel.scale for point in points]
        shades = [BLUE, *["#9db9ee"] * (len(points) - 1)]
        axes.barh(range(len(points)), values, height=0.62, color=shades)
        for row, value in enumerate(values):
            ratio = f"   x {value / values[0]:.2f}" if row and values[0] else ""
            axes.text(value, row, f" {value:,.4g}{ratio}", va="center", fontsize=9.5)
        axes.set_xlim(0, 1.35 * max(*values, 1e-9))
        axes.set_yticks(range(len(points)), names)
        clean(axes, x=panel.unit, grid="x")
        axes.spines["left"].set_visible(False)
    columns[0].invert_yaxis()
    columns[0].tick_params(axis="y", labelcolor=INK)
    columns[0].set_title(f"{run['title']}, {points[0]['clients']} clients" if points else run["title"])
    return figure


def largest(run: Run) -> list[Mapping[str, Any]]:
    """Of each variant the point with the largest number of clients that all have, or its own largest."""
    groups = by_variant(run)
    shared = set.intersection(*({point["clients"] for point in points} for points in groups.values()))
    at = max(shared, default=None)
    return [
        next((point for point in points if point["clients"] == at), points[-1]) for points in groups.values()
    ]
