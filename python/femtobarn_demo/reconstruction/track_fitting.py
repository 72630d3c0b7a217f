"""The final fit of tracks: five parameters at the beam line and their covariance.

The azimuthal parameters (d0, phi, curvature) and the longitudinal ones (z0, slope) are fitted separately,
which is exact as long as d0 is small compared with the radius of the innermost layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from femtobarn.jagged import Array
from femtobarn_demo.reconstruction.space_points import Points, wrap
from femtobarn_demo.reconstruction.track_candidates import SINE_MAX, arc_length
from femtobarn_demo.reconstruction.track_finding import FoundTracks
from femtobarn_demo.sources.detector.geometry import CURVATURE_PER_MOMENTUM

__all__ = ["FittedTracks", "fit_tracks", "track_azimuth"]

ITERATIONS = 2
PARAMETERS = 5


@dataclass(frozen=True)
class FittedTracks:
    """Tracks at the beam line, sorted by event; arrays have shape (tracks,) unless stated.

    Parameters
    ----------
    event
        Event within the batch.
    momentum, charge
        Transverse momentum (GeV), sign of the charge.
    d0, phi, z0, slope
        Distance from the beam line (m), azimuth (rad), position along it (m), pz / pt.
    covariance
        Shape (tracks, 15): the lower triangle, row by row, of the covariance of (d0, phi, signed
        curvature in 1/m, z0, slope).
    chi2, freedom
        Chi-squared of the fit, and its degrees of freedom.
    """

    event: Array
    momentum: Array
    charge: Array
    d0: Array
    phi: Array
    z0: Array
    slope: Array
    covariance: Array
    chi2: Array
    freedom: Array

    def __len__(self) -> int:
        return len(self.event)

    @property
    def eta(self) -> Array:
        """Pseudorapidity."""
        return np.arcsinh(self.slope)

    @property
    def energy(self) -> Array:
        """Energy with the mass of a pion (GeV)."""
        return np.sqrt(self.momentum**2 * (1.0 + self.slope**2) + 0.13957**2)


class _Rows:
    """A row for each point of each track, and sums of rows over each track."""

    def __init__(self, points: Points, found: FoundTracks) -> None:
        self.track, surface = np.nonzero(found.point >= 0)
        point = found.point[self.track, surface]
        self.tracks = len(found)
        self.radius, self.azimuth, self.z = (a[point] for a in (points.radius, points.azimuth, points.z))
        self.azimuth_weight = points.azimuth_error[point] ** -2.0
        self.z_weight = points.z_error[point] ** -2.0

    def total(self, values: Array) -> Array:
        """The sum of values over each track, shape (tracks,)."""
        return np.bincount(self.track, values, self.tracks)

    def solve(self, basis: list[Array], weight: Array, residual: Array) -> tuple[Array, Array]:
        """Least squares: parameter changes of shape (tracks, n) and covariances (tracks, n, n)."""
        size = len(basis)
        normal = np.empty((self.tracks, size, size))
        right = np.empty((self.tracks, size, 1))
        for i in range(size):
            right[:, i, 0] = self.total(weight * basis[i] * residual)
            for j in range(i + 1):
                normal[:, i, j] = normal[:, j, i] = self.total(weight * basis[i] * basis[j])
        covariance = np.linalg.inv(normal)
        return (covariance @ right)[:, :, 0], covariance


def fit_tracks(points: Points, found: FoundTracks) -> FittedTracks:
    """Fit all tracks of a batch."""
    rows = _Rows(points, found)
    transverse, transverse_covariance = _fit_transverse(rows, found)
    d0, phi, curvature = transverse.T
    length = arc_length(curvature[rows.track], rows.radius)
    height, height_covariance = rows.solve([np.ones_like(length), length], rows.z_weight, rows.z)
    z0, slope = height.T
    predicted, _ = _azimuth(rows, d0, phi, curvature)
    azimuth_chi2 = rows.total(rows.azimuth_weight * wrap(rows.azimuth - predicted) ** 2)
    z_chi2 = rows.total(rows.z_weight * (rows.z - z0[rows.track] - slope[rows.track] * length) ** 2)
    return FittedTracks(
        event=found.event,
        momentum=CURVATURE_PER_MOMENTUM / np.maximum(np.abs(curvature), 1e-6),
        charge=np.where(curvature >= 0.0, 1, -1),
        d0=d0,
        phi=wrap(phi),
        z0=z0,
        slope=slope,
        covariance=_pack(transverse_covariance, height_covariance),
        chi2=azimuth_chi2 + z_chi2,
        freedom=2 * np.bincount(rows.track, minlength=rows.tracks) - PARAMETERS,
    )


def _fit_transverse(rows: _Rows, found: FoundTracks) -> tuple[Array, Array]:
    """Fit (d0, phi, curvature), shape (tracks, 3), by Gauss-Newton iteration."""
    parameters = np.stack([np.zeros(len(found)), found.phi, found.curvature], axis=1)
    covariance = np.zeros((len(found), 3, 3))
    for _ in range(ITERATIONS):
        predicted, basis = _azimuth(rows, *parameters.T)
        step, covariance = rows.solve(basis, rows.azimuth_weight, wrap(rows.azimuth - predicted))
        parameters = parameters + step
    return parameters, covariance


def _azimuth(rows: _Rows, d0: Array, phi: Array, curvature: Array) -> tuple[Array, list[Array]]:
    """Predicted azimuths, shape (rows,), and their derivatives by the three parameters."""
    of = rows.track
    return track_azimuth(rows.radius, d0[of], phi[of], curvature[of])


def track_azimuth(radius: Array, d0: Array, phi: Array, curvature: Array) -> tuple[Array, list[Array]]:
    """Azimuths of tracks at a radius, and their derivatives by d0, phi and curvature; all of one shape."""
    sine = np.clip(curvature * radius, -SINE_MAX, SINE_MAX)
    cosine = np.sqrt(1.0 - sine**2)
    by_d0 = (1.0 - 2.0 * sine**2) / (radius * cosine)
    return phi - np.arcsin(sine) + d0 * by_d0, [by_d0, np.ones_like(sine), -radius / cosine]


def _pack(transverse: Array, height: Array) -> Array:
    """The lower triangle of the covariance of all parameters; curvature is doubled to the inverse radius."""
    scale = np.array([1.0, 1.0, 2.0])
    whole = np.zeros((len(transverse), PARAMETERS, PARAMETERS))
    whole[:, :3, :3] = transverse * scale[:, None] * scale[None, :]
    whole[:, 3:, 3:] = height
    row, column = np.tril_indices(PARAMETERS)
    return whole[:, row, column].astype(np.float32)
