"""Plots of rates over the number of clients, with their upper bound and the papers' points.

A line is a variant; its label gives the number of clients at which it bends, and the limit. The dotted line
is the upper bound: clients that never wait for I/O, and simulated disks at their full rate. Hollow points
are the papers'.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from femtobarn_reports.style import BLUE, CORAL, GREY, INK, SAND, TEAL, VIOLET, clean, picture

from .event_costs import event_costs_of
from .labels import BEHIND_TEXT, Ending, Labels, label_ends
from .papers import Paper, Point, paper_of
from .summaries import rounded

__all__ = ["LINES_MAX", "by_variant", "colours", "draw_bars", "draw_curves", "has_curves", "largest", "split"]

LINES_MAX = 6
"""Largest number of variants drawn as lines; more, or a single number of clients, are drawn as bars."""

LINE_COLOURS = (BLUE, SAND, TEAL, VIOLET, CORAL, GREY)
MARKERS = "os^DvP"

WIDTH = 10.0
"""Width of pictures (inches)."""
PANEL_WIDTH = 7.2
"""Approximate width of their panels, which have the labels of lines beside them."""

MUCH_FASTER = 2.5
"""Ratio to the first variant, and to the paper, above which variants have a picture of their own."""

Run = Mapping[str, Any]


@dataclass(frozen=True)
class Panel:
    """A quantity that is plotted over the number of clients."""

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
    Panel("computing (%)", "efficiency", lambda point: point["efficiency"], 0.01, 1.8),
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
    """Plot the rates of all clients together over their number: a panel for each quantity of the run."""
    panels, paper = _panels(run), paper_of(run)
    right = 1.03 * _largest_number(run, paper)
    heights = [panel.height for panel in panels]
    figure = picture(WIDTH, 0.7 + sum(heights))
    rows = figure.subplots(len(panels), 1, sharex=True, height_ratios=heights, squeeze=False)[:, 0]
    for axes, panel in zip(rows, panels, strict=True):
        top = 1.12 * _top(run, paper, panel)
        axes.set(xlim=(0, right), ylim=(0, top))
        labels = Labels(axes, PANEL_WIDTH, panel.height)
        label_ends(axes, _draw_lines(axes, run, panel, labels), panel.height)
        if panel.quantity == "bytes_per_second":
            _draw_bound(axes, run, labels)
        _draw_paper(axes, paper, panel, labels)
        clean(axes, y=panel.unit)
        axes.yaxis.set_major_formatter("{x:,.10g}")
    rows[-1].set_xlabel("clients")
    rows[-1].xaxis.set_major_locator(MaxNLocator(8, integer=True))
    rows[0].set_title(run["title"])
    figure.align_ylabels()
    return figure


def has_curves(run: Run) -> bool:
    """Whether the run is drawn as lines over the number of clients, and not as bars."""
    is_sweep = len({point["clients"] for point in run["points"]}) > 1
    return len(run["played"]) <= LINES_MAX and (is_sweep or paper_of(run) is not None)


def split(run: Run) -> list[Run]:
    """Return the run as one or two, so that much faster variants do not flatten the other lines.

    The second has the variants that are much faster than the first variant and the paper.
    """
    panel, paper = _panels(run)[0], paper_of(run)
    best = {
        name: max(panel.value(point) or 0.0 for point in points) for name, points in by_variant(run).items()
    }
    theirs = [point.value for point in _points(paper, panel.quantity)]
    limit = MUCH_FASTER * max(*theirs, next(iter(best.values())), 0.0)
    fast = [name for name, rate in best.items() if rate > limit]
    if not fast:
        return [run]
    return [
        _only(run, [name for name in best if name not in fast]),
        {**_only(run, fast), "paper": ""},
    ]


def _only(run: Run, names: Sequence[str]) -> dict[str, Any]:
    """The run with some of its variants."""
    few = {of: {name: run[of][name] for name in names} for of in ("played", "knees")}
    return {**run, **few, "points": [point for point in run["points"] if point["variant"] in names]}


def _panels(run: Run) -> list[Panel]:
    """The panels with data; at least one."""
    shown = [panel for panel in PANELS if any(panel.value(point) for point in run["points"])]
    if len(shown) > 1 and not _points(paper_of(run), "events_per_second") and not _are_events_mixed(run):
        # Jobs that look up conditions are counted by their events, whose payload is small.
        less = "bytes_per_second" if event_costs_of(run) else "events_per_second"
        shown = [panel for panel in shown if panel.quantity != less]
    return shown or [PANELS[1]]


def _are_events_mixed(run: Run) -> bool:
    """Whether there are several kinds of clients; with one kind, events are proportional to bytes."""
    return any(len(point["kinds"]) > 1 for point in run["points"])


def _largest_number(run: Run, paper: Paper | None) -> float:
    """The largest number of clients in the run or its paper."""
    theirs = [point.clients for point in paper.points if point.clients] if paper else []
    bends = [clients for clients, _ in paper.bends] if paper else []
    return float(max(*(point["clients"] for point in run["points"]), *theirs, *bends, 1))


def _top(run: Run, paper: Paper | None, panel: Panel) -> float:
    if panel.quantity == "efficiency":
        return 100.0
    ours = [(panel.value(point) or 0.0) / panel.scale for point in run["points"]]
    theirs = [point.value / panel.scale for point in _points(paper, panel.quantity)]
    return float(max(*ours, *theirs, 1e-9))


def _points(paper: Paper | None, quantity: str) -> list[Point]:
    return [point for point in paper.points if point.quantity == quantity] if paper else []


def _draw_lines(axes: Axes, run: Run, panel: Panel, labels: Labels) -> list[Ending]:
    """Draw a line for each variant, later ones thinner so that earlier ones show; return their ends."""
    ends, top = [], axes.get_ylim()[1]
    for at, (name, points) in enumerate(by_variant(run).items()):
        values = [(point["clients"], panel.value(point)) for point in points]
        x = [float(clients) for clients, value in values if value is not None]
        y = [value / panel.scale for _, value in values if value is not None]
        if not x:
            continue
        colour, knee, thin = colours(run)[name], run["knees"].get(name), 0.75**at
        axes.plot(
            x, y, "-", marker=MARKERS[at % len(MARKERS)], markersize=3 + 5 * thin, color=colour,
            linewidth=1 + 2.4 * thin, zorder=4, clip_on=False,
        )  # fmt: skip
        labels.keep_off(x, y)
        is_first = panel is _panels(run)[0]
        ends.append(Ending(y[-1] / top, _title(name, knee if is_first else None), colour))
        if knee and knee["clients"] and panel.quantity in (knee["rate"], "pairs_per_second"):
            _draw_bend(axes, knee, panel.scale, colour)
    return ends


def _draw_bend(axes: Axes, knee: Mapping[str, Any], scale: float, colour: str) -> None:
    """Mark where linear scaling reaches the best rate."""
    clients, best = knee["clients"], knee["best"] / scale
    axes.plot([0, clients, knee["best_clients"]], [0, best, best], "-", color=colour, linewidth=0.7, zorder=3)
    axes.plot(clients, best, "|", markersize=17, markeredgewidth=2.2, color=colour, zorder=5)


def _title(name: str, knee: Mapping[str, Any] | None) -> str:
    """A variant's name, its bend and its limit."""
    if not knee:
        return fill(name, 26)
    bend = f"bends at {knee['clients']:.0f}: " if knee["clients"] else "limit: "
    return f"{fill(name, 26)}\n{bend}{knee['limit']}"


def _draw_bound(axes: Axes, run: Run, labels: Labels) -> None:
    """Draw the upper bound as a dotted line, once for variants that share it."""
    right, top = axes.get_xlim()[1], axes.get_ylim()[1]
    drawn = set()
    for simulation in run["played"].values():
        ideal, raw = simulation["ideal_bytes_per_second_per_client"], simulation["raw_bytes_per_second"]
        if (ideal, raw) in drawn or not (ideal or raw):
            continue
        drawn.add((ideal, raw))
        clients = np.linspace(0.0, right, 300)
        limit = np.minimum(clients * ideal if ideal else np.inf, raw or np.inf) / 1e6
        limit = np.where(limit <= top, np.broadcast_to(limit, clients.shape), np.nan)
        axes.plot(clients, limit, ":", color=INK, linewidth=1.4, zorder=5)
        labels.keep_off(clients, limit)
    raws = sorted({one["raw_bytes_per_second"] / 1e6 for one in run["played"].values()} - {0.0})
    for raw in raws:
        if raw <= top:
            labels.name(0.0, raw, f"all disks: {raw:,.0f} MB/s")


def _draw_paper(axes: Axes, paper: Paper | None, panel: Panel, labels: Labels) -> None:
    """Draw the paper's points as hollow circles, or as lines where it states no number of clients."""
    for point in _points(paper, panel.quantity):
        value = point.value / panel.scale
        label = f"paper: {value:,.3g}{'%' * (panel.quantity == 'efficiency')}, {point.label}"
        if point.clients is None:
            axes.axhline(value, color=INK, linewidth=1.0, linestyle=(0, (6, 3)), zorder=2)
            labels.name(0.0, value, label)
        else:
            axes.plot(
                point.clients, value, "o", markersize=9, markerfacecolor="white", markeredgewidth=1.6,
                color=INK, zorder=6,
            )  # fmt: skip
            labels.name(point.clients, value, label)
    for clients, of in paper.bends if paper and panel.quantity == "bytes_per_second" else ():
        axes.axvline(clients, color=INK, linewidth=1.0, linestyle=(0, (6, 3)), zorder=2)
        is_right = clients > 0.6 * axes.get_xlim()[1]
        axes.annotate(
            f"paper: bends at {clients},\n{of}", (clients, 0.0), (-5 if is_right else 5, 6), va="bottom",
            xycoords=("data", "axes fraction"), textcoords="offset points", fontsize=9,
            ha="right" if is_right else "left", bbox=BEHIND_TEXT, zorder=7,
        )  # fmt: skip


def draw_bars(run: Run) -> Figure:
    """Draw bars: each variant at the largest common number of clients, its ratio to the first, its limit."""
    points = largest(run)
    panels = [panel for panel in _panels(run) if panel.quantity != "efficiency"][:1] + [
        panel for panel in _panels(run) if panel.quantity == "efficiency"
    ]
    figure = picture(WIDTH, 1.2 + 0.36 * len(points))
    columns = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    names = [point["variant"] for point in points]
    for axes, panel in zip(columns, panels, strict=True):
        values = [(panel.value(point) or 0.0) / panel.scale for point in points]
        shades = [BLUE, *["#9db9ee"] * (len(points) - 1)]
        axes.barh(range(len(points)), values, height=0.62, color=shades)
        for row, value in enumerate(values):
            ratio = f"   ×{value / values[0]:.2f}" if row and values[0] else ""
            limit = f"   {points[row]['verdict']['limit']}" if axes is columns[0] else ""
            axes.text(value, row, f" {rounded(value)}{ratio}{limit}", va="center", fontsize=9.5)
        axes.set_xlim(0, (2.1 if axes is columns[0] else 1.4) * max(*values, 1e-9))
        axes.set_yticks(range(len(points)), names)
        clean(axes, x=panel.unit, grid="x")
        axes.spines["left"].set_visible(False)
    columns[0].invert_yaxis()
    columns[0].tick_params(axis="y", labelcolor=INK)
    columns[0].set_title(f"{run['title']}, {points[0]['clients']} clients" if points else run["title"])
    return figure


def largest(run: Run) -> list[Mapping[str, Any]]:
    """The point of each variant with the largest number of clients in common, else with its own largest."""
    groups = by_variant(run)
    shared = set.intersection(*({point["clients"] for point in points} for points in groups.values()))
    at = max(shared, default=None)
    return [
        next((point for point in points if point["clients"] == at), points[-1]) for points in groups.values()
    ]
