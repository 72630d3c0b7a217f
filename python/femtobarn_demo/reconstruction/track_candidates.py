"""Track candidates that are refitted with every point they gain.

A track from the beam line is, as a function of the radius r, with curvature k (half the inverse
bending radius, signed like the charge) and arc length s(r) = asin(k r) / k::

    azimuth = phi - k s(r)          z = z0 + slope s(r)

Both are straight lines in s, so five running weighted sums for each keep the fit up to date. The arc length
is that of the curvature at the time when the point was added, which is exact enough: the curvature is
known well before s departs from r.
"""

from __future__ import annotations

import numpy as np

from femtobarn.jagged import Array
from femtobarn_demo.reconstruction.space_points import SURFACES, Points, wrap

__all__ = ["Candidates", "arc_length"]

SINE_MAX = 0.97
"""Sine of the largest turn up to which a track is followed."""


def arc_length(curvature: Array, radius: Array) -> Array:
    """Arc length in the transverse plane (m) at a radius (m); finite for straight tracks too."""
    sine = np.clip(curvature * radius, -SINE_MAX, SINE_MAX)
    straight = np.abs(sine) < 1e-6
    length: Array = radius * np.where(straight, 1.0, np.arcsin(sine) / np.where(straight, 1.0, sine))
    return length


class _Line:
    """Weighted straight-line fits, one per candidate, as running sums of shape (5, candidates)."""

    def __init__(self, sums: Array) -> None:
        self._sums = sums

    @classmethod
    def empty(cls, candidates: int) -> _Line:
        return cls(np.zeros((5, candidates)))

    def add(self, which: Array, x: Array, y: Array, error: Array) -> None:
        weight = 1.0 / error**2
        terms = (weight, weight * x, weight * x * x, weight * y, weight * x * y)
        for sums, term in zip(self._sums, terms, strict=True):
            sums[which] += term

    def take(self, which: Array) -> _Line:
        return _Line(self._sums[:, which])

    def solve(self, which: Array) -> tuple[Array, Array]:
        """Intercepts and gradients, each of shape (which,)."""
        w, wx, wxx, wy, wxy = (sums[which] for sums in self._sums)
        determinant = w * wxx - wx * wx
        return (wxx * wy - wx * wxy) / determinant, (w * wxy - wx * wy) / determinant

    def variance(self, which: Array, x: Array) -> Array:
        """Variance of the line at x, shape (which,)."""
        w, wx, wxx = (sums[which] for sums in self._sums[:3])
        variance: Array = (wxx - 2.0 * x * wx + x * x * w) / (w * wxx - wx * wx)
        return variance


class Candidates:
    """Candidates of a whole batch.

    Attributes
    ----------
    event
        Shape (candidates,).
    point
        Shape (candidates, surfaces): the point on each surface, -1 for none.
    phi, curvature, z0, slope
        Shape (candidates,): the parameters of the current fit (rad, 1/m, m, 1).
    chi2
        Shape (candidates,): sum over the points added after the seed.
    """

    def __init__(self, points: Points, inner: Array, outer: Array) -> None:
        """Candidates from pairs of points; ``inner`` and ``outer`` have shape (candidates,)."""
        count = len(inner)
        self._points = points
        self.event = points.event[inner]
        self.point = np.full((count, len(SURFACES)), -1, np.int32)
        self.chi2 = np.zeros(count)
        self._reference = points.azimuth[inner]
        self._azimuths, self._heights = _Line.empty(count), _Line.empty(count)
        self.curvature = _pair_curvature(points, inner, outer)
        self.phi, self.z0, self.slope = np.zeros(count), np.zeros(count), np.zeros(count)
        everyone = np.arange(count)
        for end in (inner, outer):
            self._record(everyone, end)
        self._refit(everyone)

    def __len__(self) -> int:
        return len(self.event)

    def take(self, which: Array) -> Candidates:
        """Some of the candidates, by index or boolean mask."""
        taken = object.__new__(Candidates)
        taken._points = self._points
        names = ("event", "point", "chi2", "_reference", "curvature", "phi", "z0", "slope")
        for name in names:
            setattr(taken, name, getattr(self, name)[which])
        taken._azimuths, taken._heights = self._azimuths.take(which), self._heights.take(which)
        return taken

    def points_count(self, surfaces: slice = slice(None)) -> Array:
        """Shape (candidates,): number of points on the given surfaces."""
        count: Array = (self.point[:, surfaces] >= 0).sum(axis=1)
        return count

    def compatibility(self, which: Array, point: Array) -> Array:
        """Chi-squared (2 degrees of freedom) of adding a point to a candidate, shape (pairs,)."""
        points = self._points
        length = arc_length(self.curvature[which], points.radius[point])
        azimuth = self.phi[which] - self.curvature[which] * length
        height = self.z0[which] + self.slope[which] * length
        azimuth_variance = self._azimuths.variance(which, length) + points.azimuth_error[point] ** 2
        height_variance = self._heights.variance(which, length) + points.z_error[point] ** 2
        pulls: Array = (
            wrap(points.azimuth[point] - azimuth) ** 2 / azimuth_variance
            + (points.z[point] - height) ** 2 / height_variance
        )
        return pulls

    def azimuth(self, which: Array, length: Array) -> tuple[Array, Array]:
        """The predicted azimuth at an arc length and its standard deviation, each of shape (which,)."""
        azimuth = wrap(self.phi[which] - self.curvature[which] * length)
        return azimuth, np.sqrt(self._azimuths.variance(which, length))

    def add(self, which: Array, point: Array, chi2: Array) -> None:
        """Add points to candidates, at most one each, and refit these candidates."""
        self.chi2[which] += chi2
        self._record(which, point)
        self._refit(which)

    def _record(self, which: Array, point: Array) -> None:
        points = self._points
        self.point[which, points.surface[point]] = point
        length = arc_length(self.curvature[which], points.radius[point])
        azimuth = wrap(points.azimuth[point] - self._reference[which])
        self._azimuths.add(which, length, azimuth, points.azimuth_error[point])
        self._heights.add(which, length, points.z[point], points.z_error[point])

    def _refit(self, which: Array) -> None:
        intercept, gradient = self._azimuths.solve(which)
        self.phi[which] = wrap(intercept + self._reference[which])
        self.curvature[which] = -gradient
        self.z0[which], self.slope[which] = self._heights.solve(which)


def _pair_curvature(points: Points, inner: Array, outer: Array) -> Array:
    """Curvature of the circle through the beam line and two points, to third order."""
    near, far = points.radius[inner], points.radius[outer]
    turn = wrap(points.azimuth[outer] - points.azimuth[inner])
    first = -turn / (far - near)
    curvature: Array = first / (1.0 + first**2 * (far**2 + far * near + near**2) / 6.0)
    return curvature
