"""Track finding: seeds of two pixel points are followed through all layers, then compete for shared points.

Passes differ in the layers of their seeds. Each uses only points that earlier passes left over, so the
easy tracks, found first, reduce the combinations for the hard ones. The simulation's labels are never read.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from femtobarn.jagged import Array
from femtobarn_demo.reconstruction.space_points import SURFACES, Points, Surfaces, wrap
from femtobarn_demo.reconstruction.track_candidates import SINE_MAX, Candidates, arc_length
from femtobarn_demo.sources.detector.geometry import CURVATURE_PER_MOMENTUM, PIXEL, Barrel, Disk

__all__ = ["MOMENTUM_MIN", "FoundTracks", "find_tracks"]

MOMENTUM_MIN = 0.4
"""Least transverse momentum of a seed (GeV)."""

CURVATURE_MAX = CURVATURE_PER_MOMENTUM / MOMENTUM_MIN
BEAM_Z_MAX = 0.25
"""Largest distance from the centre at which a seed points to the beam line (m)."""

SLOPE_MAX = 6.5
"""Largest slope of a seed: sinh of the pseudorapidity."""

CHI2_MAX = 20.0
"""Largest chi-squared of a point that is added (2 degrees of freedom)."""

WINDOW_SIGMAS = 5.0
PIXELS_MIN, POINTS_MIN = 3, 6
SHARING_ROUNDS = 3
SHARED_MAX = 0.3
"""Largest share of a track's points that may also belong to better tracks."""

_PIXEL_LAYERS = len(PIXEL.barrels) + len(PIXEL.disks)
_NEAR_NEGATIVE, _NEAR_POSITIVE = 4, 7
"""Surfaces of the pixel disks closest to the centre."""

PASSES: tuple[tuple[tuple[int, int], ...], ...] = (
    ((0, 1),),
    ((0, 2), (1, 2)),
    ((0, _NEAR_NEGATIVE), (0, _NEAR_POSITIVE)),
    ((0, _NEAR_NEGATIVE + 1), (0, _NEAR_POSITIVE + 1), (1, _NEAR_NEGATIVE), (1, _NEAR_POSITIVE)),
)
"""Pairs of surfaces that give seeds, for each pass."""


@dataclass(frozen=True)
class FoundTracks:
    """Tracks before the final fit, sorted by event; arrays have shape (tracks,) unless stated.

    Parameters
    ----------
    event
        Event within the batch.
    point
        Shape (tracks, surfaces): the point on each surface, -1 for none.
    phi, curvature, z0, slope
        Parameters at the beam line (rad, 1/m, m, 1), see `track_candidates`.
    """

    event: Array
    point: Array
    phi: Array
    curvature: Array
    z0: Array
    slope: Array

    def __len__(self) -> int:
        return len(self.event)


def find_tracks(points: Points) -> FoundTracks:
    """Find the tracks of a batch of events."""
    free = np.ones(len(points), bool)
    passes: list[Candidates] = []
    for pairs in PASSES:
        surfaces = Surfaces(points, free)
        seeds = [_seeds(points, surfaces, inner, outer) for inner, outer in pairs]
        inner, outer = (np.concatenate(ends) for ends in zip(*seeds, strict=True))
        tracks = _resolve_sharing(_follow(Candidates(points, inner, outer), surfaces), len(points))
        free[tracks.point[tracks.point >= 0]] = False
        passes.append(tracks)
    order = np.argsort(np.concatenate([tracks.event for tracks in passes]), kind="stable")
    names = ("event", "point", "phi", "curvature", "z0", "slope")
    return FoundTracks(**{name: np.concatenate([getattr(t, name) for t in passes])[order] for name in names})


def _seeds(points: Points, surfaces: Surfaces, inner: int, outer: int) -> tuple[Array, Array]:
    """Pairs of points that are compatible with a particle from the beam line."""
    starts = surfaces.on(inner)
    reach = _outer_radius(outer) - _outer_radius(inner)
    window = np.full(len(starts), 1.1 * CURVATURE_MAX * reach)
    which, second = surfaces.near(outer, points.event[starts], points.azimuth[starts], window)
    first = starts[which]
    distance = points.radius[second] - points.radius[first]
    farther = distance > 1e-3
    first, second, distance = first[farther], second[farther], distance[farther]
    slope = (points.z[second] - points.z[first]) / distance
    origin = points.z[first] - slope * points.radius[first]
    turn = np.abs(wrap(points.azimuth[second] - points.azimuth[first]))
    good = (
        (np.abs(origin) < BEAM_Z_MAX) & (np.abs(slope) < SLOPE_MAX) & (turn < 1.1 * CURVATURE_MAX * distance)
    )
    return first[good], second[good]


def _outer_radius(surface: int) -> float:
    layer = SURFACES[surface].layer
    return layer.radius if isinstance(layer, Barrel) else layer.outer


def _follow(candidates: Candidates, surfaces: Surfaces) -> Candidates:
    """Add points layer by layer, and keep the candidates with enough points."""
    for surface in range(_PIXEL_LAYERS):
        _visit(candidates, surfaces, surface)
    candidates = candidates.take(candidates.points_count(slice(0, _PIXEL_LAYERS)) >= PIXELS_MIN)
    for surface in range(_PIXEL_LAYERS, len(SURFACES)):
        _visit(candidates, surfaces, surface)
    return candidates.take(candidates.points_count() >= POINTS_MIN)


def _visit(candidates: Candidates, surfaces: Surfaces, surface: int) -> None:
    """Add to each candidate the best compatible point of a surface."""
    crossing, length = _crossing(candidates, surface)
    if len(crossing) == 0:
        return
    azimuth, error = candidates.azimuth(crossing, length)
    layer = SURFACES[surface].layer
    curvature = np.abs(candidates.curvature[crossing])
    stagger = 0.01 * curvature * layer.radius if isinstance(layer, Barrel) else 0.0
    window = WINDOW_SIGMAS * error + stagger + 1e-3
    which, point = surfaces.near(surface, candidates.event[crossing], azimuth, window)
    which = crossing[which]
    chi2 = candidates.compatibility(which, point)
    good = chi2 < CHI2_MAX
    which, point, chi2 = which[good], point[good], chi2[good]
    order = np.lexsort((chi2, which))
    which, best = np.unique(which[order], return_index=True)
    candidates.add(which, point[order][best], chi2[order][best])


def _crossing(candidates: Candidates, surface: int) -> tuple[Array, Array]:
    """Candidates that cross the surface and have no point there yet, and the arc length to it."""
    layer = SURFACES[surface].layer
    missing = candidates.point[:, surface] < 0
    if isinstance(layer, Barrel):
        return _crossing_barrel(candidates, layer, missing)
    return _crossing_disk(candidates, layer, missing)


def _crossing_barrel(candidates: Candidates, layer: Barrel, missing: Array) -> tuple[Array, Array]:
    """Among the candidates that miss a point: those that cross a barrel, and the arc length to it."""
    end = layer.half_length + 0.02
    # The arc is longer than the radius, so a candidate that is beyond the end there never comes back.
    may = missing & (np.abs(candidates.curvature) * layer.radius < SINE_MAX)
    may &= np.abs(candidates.slope) * layer.radius - np.abs(candidates.z0) < end
    chosen = np.flatnonzero(may)
    length = arc_length(candidates.curvature[chosen], np.full(len(chosen), layer.radius))
    inside = np.abs(candidates.z0[chosen] + candidates.slope[chosen] * length) < end
    return chosen[inside], length[inside]


def _crossing_disk(candidates: Candidates, layer: Disk, missing: Array) -> tuple[Array, Array]:
    """Among the candidates that miss a point: those that cross a disk, and the arc length to it."""
    away = np.where(np.abs(candidates.slope) < 1e-3, 1e-3, candidates.slope)
    length = (layer.z - candidates.z0) / away
    turn = candidates.curvature * length
    # The radius is at most the arc length.
    chosen = np.flatnonzero(missing & (length > layer.inner - 0.01) & (np.abs(turn) < np.arcsin(SINE_MAX)))
    length, turn = length[chosen], turn[chosen]
    bend = np.where(np.abs(turn) < 1e-6, 1.0, np.sin(turn) / np.where(turn == 0.0, 1.0, turn))
    inside = (length * bend > layer.inner - 0.01) & (length * bend < layer.outer + 0.01)
    return chosen[inside], length[inside]


def _resolve_sharing(candidates: Candidates, points: int) -> Candidates:
    """Drop the candidates that share too many points with better ones."""
    length = candidates.points_count()
    order = np.lexsort((candidates.chi2 / length, -length))
    chosen = candidates.take(order)
    for _ in range(SHARING_ROUNDS):
        track, surface = np.nonzero(chosen.point >= 0)
        point = chosen.point[track, surface]
        best = np.full(points, len(chosen))
        np.minimum.at(best, point, track)
        shared = np.bincount(track, best[point] < track, len(chosen))
        keep = shared <= SHARED_MAX * np.bincount(track, minlength=len(chosen))
        if keep.all():
            break
        chosen = chosen.take(keep)
    return chosen
