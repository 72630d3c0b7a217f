"""The display of one event, across the beam and along it.

Everything drawn comes from stored objects: space points and calorimeter cells from raw objects, helices
and jets from reconstructed objects; a track's points are found by the indices that it stores.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import awkward as ak
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Circle, Polygon, Rectangle

from femtobarn.jagged import Array
from femtobarn_demo.sources.detector.geometry import (
    CURVATURE_PER_MOMENTUM,
    ECAL,
    HCAL,
    PIXEL,
    STRIP,
    Calorimeter,
)
from femtobarn_reports.style import picture

__all__ = ["EventPicture", "draw_event"]

NIGHT, DETECTOR, POINT = "#0c1222", "#26324d", "#6c7a99"
TEXT, SOFT_TRACK = "#d5dcea", "#7f8fb3"
EM_COLOUR, HAD_COLOUR = "#5fd38d", "#4f9df7"
JET_COLOURS = ("#ffcf56", "#ff6f61", "#c792ea", "#5ce1e6", "#ff9f43", "#a3e635")

TRACK_MOMENTUM_MIN = 0.9
"""Transverse momentum below which a track is not drawn (GeV): slow tracks would cover all others."""

JETS_SHOWN = len(JET_COLOURS)
RADIUS, HALF_LENGTH = 1.22, 2.92
"""Inner radius and half length of the calorimeters (m)."""

TOWER_LENGTH = 0.62
"""Length of the highest tower (m)."""

TOWER_THRESHOLD = 0.4
"""Transverse energy below which a tower is not drawn (GeV)."""


@dataclass(frozen=True)
class EventPicture:
    """The data of one event that are drawn.

    Parameters
    ----------
    title
        Such as "run 7, event 1234".
    points
        Shape (points, 3): pixel and strip points (m), pixels first.
    tracks
        Columns of the tracks: pt (GeV), eta, phi, charge, z0 (m).
    owner
        Shape (points,): the track of each point, -1 for none.
    jet_of_track
        Shape (tracks,): the jet of each track, -1 for none.
    jets
        Shape (jets, 3): pt (GeV), eta, phi; the hardest first.
    em, had
        Shape (cells, 3): transverse energy (GeV), eta, phi.
    """

    title: str
    points: Array
    tracks: dict[str, Array]
    owner: Array
    jet_of_track: Array
    jets: Array
    em: Array
    had: Array
    facts: list[str] = field(default_factory=list)

    @classmethod
    def from_objects(cls, raw: dict[str, Any], tracks: Any, jets: Any) -> EventPicture:
        """Take the objects of one event.

        Parameters
        ----------
        raw
            One object each of PixelHits, StripHits, EcalCells and HcalCells, as awkward records.
        tracks, jets
            One `Tracks` and one `Jets` object.
        """
        pixels, strips = raw["PixelHits"].hits, raw["StripHits"].hits
        columns = {name: ak.to_numpy(tracks.tracks[name]) for name in ("pt", "eta", "phi", "charge", "z0")}
        jet_of_track = np.full(len(columns["pt"]), -1)
        for number, members in enumerate(jets.jets.tracks.element):
            jet_of_track[ak.to_numpy(members)] = number
        shapes = [ak.to_numpy(jets.jets[name]) for name in ("pt", "eta", "phi")]
        return cls(
            title=f"run {int(tracks.run)}, event {int(tracks.event):,}",
            points=np.concatenate([_positions(pixels), _positions(strips)]),
            tracks=columns,
            owner=_owners(tracks.tracks, len(pixels), len(strips)),
            jet_of_track=jet_of_track,
            jets=np.stack(shapes, axis=1) if len(shapes[0]) else np.zeros((0, 3)),
            em=_cells(raw["EcalCells"].cells, ECAL),
            had=_cells(raw["HcalCells"].cells, HCAL),
            facts=[f"{len(pixels) + len(strips):,} space points", f"{len(columns['pt']):,} tracks"],
        )


def draw_event(event: EventPicture) -> Figure:
    """Draw the event in the transverse and in the longitudinal view."""
    figure = picture(15.0, 6.6)
    figure.set_facecolor(NIGHT)
    limit = RADIUS + TOWER_LENGTH + 0.12
    length = HALF_LENGTH + TOWER_LENGTH + 0.12
    across, along = figure.subplots(1, 2, width_ratios=[limit, length])
    _frame(across, (-limit, limit), (-limit, limit), "across the beam")
    _frame(along, (-length, length), (-limit, limit), "along the beam")
    _draw_detector(across, along)
    _draw_jets(across, along, event)
    _draw_points(across, along, event)
    _draw_tracks(across, along, event)
    _draw_towers_across(across, event)
    _draw_towers_along(along, event)
    _draw_legend(figure, event)
    return figure


def _positions(hits: Any) -> Array:
    return np.stack([ak.to_numpy(hits[name]).astype(np.float64) for name in ("x", "y", "z")], axis=1)


def _owners(tracks: Any, pixels: int, strips: int) -> Array:
    """The track of each point, from the indices that tracks store."""
    owner = np.full(pixels + strips, -1)
    for name, first in (("pixels", 0), ("strips", pixels)):
        counts = ak.to_numpy(ak.num(tracks[name]))
        owner[first + ak.to_numpy(ak.flatten(tracks[name]))] = np.repeat(np.arange(len(counts)), counts)
    return owner


def _cells(cells: Any, grid: Calorimeter) -> Array:
    number = ak.to_numpy(cells.cell)
    eta = ((number >> 10) + 0.5) * grid.pitch - grid.eta_max
    azimuth = ((number & 1023) + 0.5) * grid.pitch
    return np.stack([ak.to_numpy(cells.energy) / np.cosh(eta), eta, azimuth], axis=1)


def _frame(axes: Axes, x: tuple[float, float], y: tuple[float, float], name: str) -> None:
    axes.set(xlim=x, ylim=y, aspect="equal", facecolor=NIGHT)
    axes.set_axis_off()
    axes.text(
        0.01, 0.985, name, transform=axes.transAxes, va="top", color=TEXT, fontsize=13, fontweight="bold"
    )
    axes.plot([x[0] + 0.08, x[0] + 0.58], [y[0] + 0.1] * 2, color=TEXT, linewidth=1.6, clip_on=False)
    axes.text(x[0] + 0.33, y[0] + 0.14, "0.5 m", color=TEXT, fontsize=10, ha="center")


def _draw_detector(across: Axes, along: Axes) -> None:
    """Draw the layers as thin lines."""
    for tracker in (PIXEL, STRIP):
        for barrel in tracker.barrels:
            across.add_patch(Circle((0, 0), barrel.radius, fill=False, color=DETECTOR, linewidth=0.6))
            for side in (-1, 1):
                ends = [-barrel.half_length, barrel.half_length]
                along.plot(ends, [side * barrel.radius] * 2, color=DETECTOR, linewidth=0.7)
        for disk in tracker.disks:
            for side in (-1, 1):
                along.plot(
                    [disk.z] * 2, [side * disk.inner, side * disk.outer], color=DETECTOR, linewidth=0.7
                )
    across.add_patch(Circle((0, 0), RADIUS, fill=False, color=DETECTOR, linewidth=1.6))
    along.add_patch(
        Rectangle(
            (-HALF_LENGTH, -RADIUS), 2 * HALF_LENGTH, 2 * RADIUS, fill=False, color=DETECTOR, linewidth=1.6
        )
    )


def _draw_points(across: Axes, along: Axes, event: EventPicture) -> None:
    """Draw the points of drawn tracks in the colour of the track, all others faintly."""
    x, y, z = event.points.T
    height = np.copysign(np.hypot(x, y), y)
    drawn = np.where(event.tracks["pt"] > TRACK_MOMENTUM_MIN, event.jet_of_track, -1)
    jet = np.append(drawn, -1)[event.owner]
    loose = (jet < 0) | (jet >= JETS_SHOWN)
    for axes, horizontal, vertical in ((across, x, y), (along, z, height)):
        axes.scatter(horizontal[loose], vertical[loose], s=1.1, color=POINT, linewidths=0, alpha=0.75)
        for number in range(min(len(event.jets), JETS_SHOWN)):
            mine = jet == number
            axes.scatter(
                horizontal[mine], vertical[mine], s=7, color=JET_COLOURS[number], linewidths=0, zorder=4
            )


def _draw_tracks(across: Axes, along: Axes, event: EventPicture) -> None:
    """Draw helices up to the calorimeters, tracks in jets on top."""
    fast = np.flatnonzero(event.tracks["pt"] > TRACK_MOMENTUM_MIN)
    paths = {int(track): _helix(event, int(track)) for track in fast}
    jet = event.jet_of_track
    groups = [(SOFT_TRACK, 0.6, 0.45, [t for t in paths if not 0 <= jet[t] < JETS_SHOWN])]
    groups += [
        (JET_COLOURS[n], 1.25, 0.95, [t for t in paths if jet[t] == n])
        for n in range(min(len(event.jets), JETS_SHOWN))
    ]
    for colour, width, alpha, members in groups:
        for axes, view in ((across, 0), (along, 1)):
            lines = [paths[track][view] for track in members]
            axes.add_collection(LineCollection(lines, colors=colour, linewidths=width, alpha=alpha, zorder=3))


def _helix(event: EventPicture, track: int) -> tuple[Array, Array]:
    """The path of a track in both views, each of shape (steps, 2)."""
    pt, eta, phi, charge, z0 = (float(event.tracks[n][track]) for n in ("pt", "eta", "phi", "charge", "z0"))
    curvature = charge * CURVATURE_PER_MOMENTUM / pt
    radius_max = min(RADIUS, 0.99 / abs(curvature))
    radius = np.linspace(0.0, radius_max, 60)
    turn = np.arcsin(curvature * radius)
    z = z0 + np.sinh(eta) * turn / curvature
    inside = np.abs(z) <= HALF_LENGTH
    radius, turn, z = radius[inside], turn[inside], z[inside]
    x, y = radius * np.cos(phi - turn), radius * np.sin(phi - turn)
    # A track stays on the side of its end: a curve that jumps across the beam would mislead.
    side = np.sign(y[-1]) if len(y) else 1.0
    return np.stack([x, y], axis=1), np.stack([z, side * radius], axis=1)


def _draw_towers_across(axes: Axes, event: EventPicture) -> None:
    bins = HCAL.cells_phi
    em, had = (_sum_azimuth(cells, bins) for cells in (event.em, event.had))
    scale = TOWER_LENGTH / max(float((em + had).max()), 1.0)
    for number in np.flatnonzero(em + had > TOWER_THRESHOLD):
        middle, half = (number + 0.5) * HCAL.pitch, 0.42 * HCAL.pitch
        start = RADIUS
        for energy, colour in ((em[number], EM_COLOUR), (had[number], HAD_COLOUR)):
            stop = start + scale * energy
            corners = [(r, a) for r, a in _wedge(start, stop, middle, half)]
            axes.add_patch(Polygon([(r * np.cos(a), r * np.sin(a)) for r, a in corners], color=colour, lw=0))
            start = stop


def _wedge(start: float, stop: float, middle: float, half: float) -> list[tuple[float, float]]:
    return [(start, middle - half), (start, middle + half), (stop, middle + half), (stop, middle - half)]


def _sum_azimuth(cells: Array, bins: int) -> Array:
    energy, _, azimuth = cells.T
    number = (azimuth % (2 * np.pi) / (2 * np.pi) * bins).astype(int) % bins
    return np.bincount(number, energy, bins)


def _draw_towers_along(axes: Axes, event: EventPicture) -> None:
    """Draw towers: outward on the barrel, along the beam on the end caps."""
    bins, edge = 70, 3.5
    pitch = 2 * edge / bins
    sums = {}
    for name, cells in (("em", event.em), ("had", event.had)):
        energy, eta, azimuth = cells.T
        number = np.floor((eta + edge) / pitch).astype(int)
        upper = np.sin(azimuth) > 0
        inside = (number >= 0) & (number < bins)
        sums[name] = np.bincount((upper * bins + number)[inside], energy[inside], 2 * bins)
    scale = TOWER_LENGTH / max(float((sums["em"] + sums["had"]).max()), 1.0)
    for index in np.flatnonzero(sums["em"] + sums["had"] > TOWER_THRESHOLD):
        side = 1.0 if index >= bins else -1.0
        eta = (index % bins + 0.5) * pitch - edge
        start = 0.0
        for name, colour in (("em", EM_COLOUR), ("had", HAD_COLOUR)):
            stop = start + scale * sums[name][index]
            axes.add_patch(Polygon(_tower_along(eta, 0.42 * pitch, start, stop, side), color=colour, lw=0))
            start = stop


def _tower_along(
    eta: float, half: float, start: float, stop: float, side: float
) -> list[tuple[float, float]]:
    """Corners of a tower between two depths (m) behind the face of the calorimeter."""
    low, high = np.sinh(eta - half), np.sinh(eta + half)
    if abs(np.sinh(eta)) < HALF_LENGTH / RADIUS:
        near, far = RADIUS + start, RADIUS + stop
        return [
            (RADIUS * low, side * near),
            (RADIUS * high, side * near),
            (RADIUS * high, side * far),
            (RADIUS * low, side * far),
        ]
    end = np.sign(eta)
    near, far = end * (HALF_LENGTH + start), end * (HALF_LENGTH + stop)
    first, second = (side * HALF_LENGTH / abs(slope) for slope in (low, high))
    return [(near, first), (near, second), (far, second), (far, first)]


def _draw_jets(across: Axes, along: Axes, event: EventPicture) -> None:
    """Draw the hardest jets as cones."""
    for number, (_, eta, phi) in enumerate(event.jets[:JETS_SHOWN]):
        colour = JET_COLOURS[number]
        reach = RADIUS + TOWER_LENGTH + 0.05
        edges = [(reach * np.cos(a), reach * np.sin(a)) for a in np.linspace(phi - 0.4, phi + 0.4, 24)]
        across.add_patch(Polygon([(0, 0), *edges], color=colour, alpha=0.13, lw=0, zorder=1))
        side = 1.0 if np.sin(phi) > 0 else -1.0
        rim = []
        for angle in np.linspace(eta - 0.4, eta + 0.4, 24):
            length = min(reach, (HALF_LENGTH + TOWER_LENGTH + 0.05) / max(abs(np.sinh(angle)), 1e-6))
            rim.append((length * np.sinh(angle), side * length))
        along.add_patch(Polygon([(0, 0), *rim], color=colour, alpha=0.13, lw=0, zorder=1))


def _draw_legend(figure: Figure, event: EventPicture) -> None:
    handles = [
        Line2D([], [], marker="o", ls="", ms=4, color=POINT, label="space point"),
        Line2D([], [], color=SOFT_TRACK, label=f"track above {TRACK_MOMENTUM_MIN} GeV"),
        Rectangle((0, 0), 1, 1, color=EM_COLOUR, label="electromagnetic energy"),
        Rectangle((0, 0), 1, 1, color=HAD_COLOUR, label="hadronic energy"),
    ]
    handles += [
        Line2D([], [], color=JET_COLOURS[n], lw=3, label=f"jet, {event.jets[n, 0]:.0f} GeV")
        for n in range(min(len(event.jets), JETS_SHOWN))
    ]
    figure.legend(
        handles=handles,
        loc="outside lower center",
        ncols=(len(handles) + 1) // 2,
        labelcolor=TEXT,
        fontsize=10.5,
        handlelength=1.4,
        columnspacing=1.4,
    )
    heading = "  ·  ".join([event.title, *event.facts])
    # Without the line break the layout would put the heading on the figure's edge.
    figure.suptitle(f"\n{heading}", color=TEXT, fontsize=14, x=0.012, ha="left", linespacing=0.5)
