"""Space points of a batch of events, arranged for pattern recognition.

All events of a batch are searched at once: a point's key combines its event and its azimuth, so one binary
search finds the points near a prediction in the right event. Points near the seam at azimuth +-pi appear
twice, once on either side of it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from femtobarn.jagged import Array, Jagged, ranges
from femtobarn_demo.sources.detector.geometry import PIXEL, STRIP, Barrel, Disk, Tracker

__all__ = ["SURFACES", "AzimuthIndex", "Points", "Surface", "Surfaces", "wrap"]

EVENT_STRIDE = 8.0
"""Distance of the keys of consecutive events (rad); more than a turn and both margins."""

MARGIN = 0.4
"""Range beyond the seam in which points are repeated, and so the widest window (rad)."""

DISK_Z_ERROR = 1.0e-4
"""Uncertainty of a disk's position along the beam (m)."""


@dataclass(frozen=True)
class Surface:
    """A layer of a detector (0: pixel, 1: strip)."""

    detector: int
    layer: Barrel | Disk


def _surfaces(detector: int, tracker: Tracker) -> tuple[Surface, ...]:
    layers: list[Barrel | Disk] = [*tracker.barrels, *tracker.disks]
    return tuple(Surface(detector, layer) for layer in layers)


SURFACES: tuple[Surface, ...] = (*_surfaces(0, PIXEL), *_surfaces(1, STRIP))
"""All layers, roughly in the order in which a track from the beam line crosses them."""


def wrap(angle: Array) -> Array:
    """The same angle between -pi and pi (rad)."""
    wrapped: Array = angle - 2.0 * np.pi * np.rint(angle / (2.0 * np.pi))
    return wrapped


@dataclass(frozen=True)
class Points:
    """Space points of both trackers; every array has shape (points,).

    Parameters
    ----------
    event
        Event within the batch.
    index
        Index in the event's collection of its detector.
    detector
        0 for pixels, 1 for strips.
    radius, azimuth, z
        Position (m, rad, m).
    azimuth_error, z_error
        Standard deviations (rad, m).
    surface
        Index in `SURFACES`.
    """

    event: Array
    index: Array
    detector: Array
    radius: Array
    azimuth: Array
    z: Array
    azimuth_error: Array
    z_error: Array
    surface: Array

    @classmethod
    def from_hits(cls, pixels: Jagged, strips: Jagged) -> Points:
        """Points of `PixelHits` and `StripHits`."""
        parts = [_measured(0, PIXEL, pixels), _measured(1, STRIP, strips)]
        return cls(**{name: np.concatenate([part[name] for part in parts]) for name in parts[0]})

    def __len__(self) -> int:
        return len(self.event)


def _measured(detector: int, tracker: Tracker, hits: Jagged) -> dict[str, Array]:
    """Coordinates, errors and surfaces of one detector's hits."""
    x, y, z = (hits[name].astype(np.float64) for name in ("x", "y", "z"))
    radius = np.hypot(x, y)
    layer = (hits["module"] >> 24).astype(np.int64)
    in_disk = layer >= tracker.disks[0].number
    return {
        "event": hits.owners,
        "index": hits.positions,
        "detector": np.full(len(x), detector, np.uint8),
        "radius": radius,
        "azimuth": np.arctan2(y, x),
        "z": z,
        "azimuth_error": tracker.azimuth_resolution / radius,
        "z_error": np.where(in_disk, DISK_Z_ERROR, tracker.z_resolution),
        "surface": _surface_numbers(detector)[layer],
    }


def _surface_numbers(detector: int) -> Array:
    """From the layer number of a detector to the index in `SURFACES`."""
    numbers = np.full(256, -1, np.int64)
    for number, surface in enumerate(SURFACES):
        if surface.detector == detector:
            numbers[surface.layer.number] = number
    return numbers


class AzimuthIndex:
    """Finds the rows of an event near an azimuth.

    Parameters
    ----------
    event, azimuth
        Shape (rows,): event within the batch; azimuth between -pi and pi (rad).
    """

    def __init__(self, event: Array, azimuth: Array) -> None:
        rows = np.arange(len(event))
        high, low = azimuth > np.pi - MARGIN, azimuth < -np.pi + MARGIN
        row = np.concatenate([rows, rows[high], rows[low]])
        turned = np.concatenate([azimuth, azimuth[high] - 2.0 * np.pi, azimuth[low] + 2.0 * np.pi])
        key = event[row] * EVENT_STRIDE + turned
        order = np.argsort(key)
        self._key, self._row = key[order], row[order]

    def near(self, event: Array, azimuth: Array, window: Array) -> tuple[Array, Array]:
        """All pairs of a prediction and a row in its event and azimuth window.

        Parameters
        ----------
        event, azimuth, window
            Shape (predictions,): event, azimuth between -pi and pi, half width of the window (rad).

        Returns
        -------
        Prediction numbers and row numbers, each of shape (pairs,).
        """
        middle = event * EVENT_STRIDE + azimuth
        half = np.minimum(window, MARGIN)
        first = np.searchsorted(self._key, middle - half)
        counts = np.searchsorted(self._key, middle + half, side="right") - first
        prediction = np.repeat(np.arange(len(event)), counts)
        return prediction, self._row[ranges(first, counts)]


class Surfaces:
    """The points of every surface, ready to be searched.

    Parameters
    ----------
    free
        Shape (points,): points that tracks may use.
    """

    def __init__(self, points: Points, free: Array) -> None:
        rows = np.flatnonzero(free)
        surface = points.surface[rows].astype(np.int16)
        ends = np.cumsum(np.bincount(surface, minlength=len(SURFACES)))
        self._points = np.split(rows[np.argsort(surface, kind="stable")], ends[:-1])
        self._indices = [AzimuthIndex(points.event[own], points.azimuth[own]) for own in self._points]

    def on(self, surface: int) -> Array:
        """The free points of the surface."""
        return self._points[surface]

    def near(self, surface: int, event: Array, azimuth: Array, window: Array) -> tuple[Array, Array]:
        """Like `AzimuthIndex.near`, for the points of one surface."""
        which, row = self._indices[surface].near(event, azimuth, window)
        return which, self._points[surface][row]
