"""Shifts of the strip tracker's barrels, from the residuals of points to tracks.

A track that is fitted through shifted points bends with them, so its residuals are smaller than the shift.
Therefore tracks and shifts are fitted together: the parameters of each track are eliminated from the
least squares, and what remains are equations for the shifts alone. The pixels define where 0 is.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

import femtobarn
from femtobarn.jagged import Array
from femtobarn_demo.calibration.residuals import PointsOfTracks
from femtobarn_demo.reconstruction import SHIFTS
from femtobarn_demo.sources.detector.geometry import STRIP_BARRELS

__all__ = ["measure_shifts"]

PULL_MAX = 10.0
"""Largest residual of a point (standard deviations); points beyond it belong to other particles."""

TRACKS_MIN = 20
"""Least number of tracks that measure a shift."""


def measure_shifts(points: PointsOfTracks, edges: Array, job: femtobarn.Job) -> Array:
    """Measure the shifts of both barrels in each interval.

    Parameters
    ----------
    points
        The points of tracks of the first pass.
    edges
        Shape (intervals + 1,): where the intervals begin and end (ns since 1970).
    job
        The job of the first pass, whose shifts the points are corrected by.

    Returns
    -------
    Shape (intervals, barrels, 2): x and y (m).
    """
    shifts = np.empty((len(edges) - 1, len(STRIP_BARRELS), 2))
    for number, (since, until) in enumerate(pairwise(edges.tolist())):
        for barrel in range(len(STRIP_BARRELS)):
            applied = job[SHIFTS].at(since, channel=barrel, required=True)
            shifts[number, barrel] = applied.x, applied.y
        chosen = (points.time >= since) & (points.time < until)
        chosen &= np.abs(points.residual) < PULL_MAX * points.error
        shifts[number] += _fit(points, np.flatnonzero(chosen))
    return shifts


def _fit(points: PointsOfTracks, rows: Array) -> Array:
    """Return the fitted shifts of the barrels beyond those applied, shape (barrels, 2)."""
    _, first = np.unique(points.track[rows], return_index=True)
    if len(first) < TRACKS_MIN:
        return np.zeros((len(STRIP_BARRELS), 2))
    local, unknowns = points.basis.shape[1], 2 * len(STRIP_BARRELS)
    columns = [*points.basis[rows].T, *_by_shift(points, rows), points.residual[rows]]
    equations = np.stack(columns, axis=1) / points.error[rows, None]
    products = np.add.reduceat(equations[:, :, None] * equations[:, None, :], first, axis=0)
    own, mixed = products[:, :local, :local], products[:, :local, local:]
    usable = np.linalg.cond(own) < 1.0 / np.finfo(np.float64).eps
    own, mixed, rest = own[usable], mixed[usable], products[usable][:, local:, local:]
    reduced = (rest - mixed.transpose(0, 2, 1) @ np.linalg.solve(own, mixed)).sum(axis=0)
    fitted: Array = np.linalg.solve(reduced[:unknowns, :unknowns], reduced[:unknowns, unknowns])
    return fitted.reshape(len(STRIP_BARRELS), 2)


def _by_shift(points: PointsOfTracks, rows: Array) -> list[Array]:
    """Derivatives of the azimuths of points by the shifts of the barrels in x and y."""
    azimuth, radius, barrel = points.azimuth[rows], points.radius[rows], points.barrel[rows]
    return [
        np.where(barrel == number, direction / radius, 0.0)
        for number in range(len(STRIP_BARRELS))
        for direction in (-np.sin(azimuth), np.cos(azimuth))
    ]
