"""The points of reconstructed tracks, and the distance of each from its track."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import awkward as ak
import numpy as np

import femtobarn
from femtobarn.jagged import Array, Jagged
from femtobarn_demo.reconstruction import Constants
from femtobarn_demo.reconstruction.space_points import wrap
from femtobarn_demo.reconstruction.track_fitting import track_azimuth
from femtobarn_demo.sources.detector.geometry import (
    CURVATURE_PER_MOMENTUM,
    PIXEL,
    STRIP,
    strip_barrel,
)

__all__ = ["PointsOfTracks", "read_points"]

MOMENTUM_MIN, ETA_MAX, STRIPS_MIN = 1.5, 0.9, 8
"""Least transverse momentum (GeV), largest pseudorapidity and least number of strip hits of a track."""

FIELDS = ["raw", "pixel_hits", "strip_hits"]
TRACK_FIELDS = ("pt", "eta", "phi", "charge", "d0", "pixels", "strips")


@dataclass(frozen=True)
class PointsOfTracks:
    """Points of chosen tracks, sorted by track; every array has shape (points,) unless stated.

    Parameters
    ----------
    time
        Time of the event (ns since 1970).
    track
        Number of the track.
    barrel
        0 or 1 for the barrels of the strip tracker, -1 for pixels and disks.
    radius, azimuth, error
        Position (m, rad), and the standard deviation of the azimuth (rad).
    residual
        Azimuth of the point minus that of the track (rad).
    basis
        Shape (points, 3): derivatives of the track's azimuth by its distance from the beam line, azimuth
        and curvature.
    """

    time: Array
    track: Array
    barrel: Array
    radius: Array
    azimuth: Array
    error: Array
    residual: Array
    basis: Array

    @classmethod
    def concatenate(cls, parts: Sequence[PointsOfTracks]) -> PointsOfTracks:
        """Return all points of several parts, with tracks numbered through."""
        tracks = [int(part.track.max(initial=-1)) + 1 for part in parts]
        firsts = np.cumsum([0, *tracks[:-1]])
        moved = [replace(part, track=part.track + first) for part, first in zip(parts, firsts, strict=True)]
        names = [field.name for field in fields(cls)]
        return cls(**{name: np.concatenate([getattr(part, name) for part in moved]) for name in names})


def read_points(snapshot: femtobarn.Snapshot, view: femtobarn.View, job: femtobarn.Job) -> PointsOfTracks:
    """Read the tracks of `Tracks` objects and their points, corrected by the constants of a job."""
    found = view.arrays([*FIELDS, *(f"tracks.{name}" for name in TRACK_FIELDS)])
    times = snapshot.fetch(found.raw, ["time"]).time.to_numpy().astype(np.int64)
    tracks = found.tracks
    tracks = tracks[
        (tracks.pt > MOMENTUM_MIN)
        & (abs(tracks.eta) < ETA_MAX)
        & (ak.num(tracks.strips, axis=2) >= STRIPS_MIN)
    ]
    columns = ("hits.module", "hits.x", "hits.y")
    pixels = Jagged.from_awkward(snapshot.fetch(found.pixel_hits, list(columns)).hits)
    strips = Jagged.from_awkward(snapshot.fetch(found.strip_hits, list(columns)).hits)
    strips = Constants.at(job, times).correct_position(strips)
    event = np.repeat(np.arange(len(tracks)), ak.num(tracks).to_numpy())
    flat = ak.flatten(tracks)
    inner = _picked(pixels, flat.pixels, event, PIXEL.azimuth_resolution)
    outer = _picked(strips, flat.strips, event, STRIP.azimuth_resolution)
    inner["barrel"] = np.full(len(inner.pop("module")), -1)
    outer["barrel"] = strip_barrel(outer.pop("module"))
    parts = (inner, outer)
    rows = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    order = np.argsort(rows["track"], kind="stable")
    rows = {name: column[order] for name, column in rows.items()}
    predicted, basis = _predicted(flat, rows["track"], rows["radius"])
    residual = wrap(rows["azimuth"] - predicted)
    return PointsOfTracks(time=times[event][rows["track"]], residual=residual, basis=basis, **rows)


def _picked(hits: Jagged, indices: ak.Array, event: Array, resolution: float) -> dict[str, Array]:
    """The hits of one detector that tracks refer to by their indices."""
    track = np.repeat(np.arange(len(indices)), ak.num(indices).to_numpy())
    row = hits.offsets[:-1][event[track]] + ak.flatten(indices).to_numpy().astype(np.int64)
    x, y = (hits[name][row].astype(np.float64) for name in ("x", "y"))
    radius = np.hypot(x, y)
    return {
        "track": track,
        "module": hits["module"][row],
        "radius": radius,
        "azimuth": np.arctan2(y, x),
        "error": resolution / radius,
    }


def _predicted(tracks: ak.Array, of: Array, radius: Array) -> tuple[Array, Array]:
    """Azimuths of tracks at the radii of their points, and the derivatives by the parameters."""
    pt, phi, d0 = (tracks[name].to_numpy().astype(np.float64)[of] for name in ("pt", "phi", "d0"))
    curvature = tracks.charge.to_numpy()[of] * CURVATURE_PER_MOMENTUM / pt
    predicted, basis = track_azimuth(radius, d0, phi, curvature)
    return predicted, np.stack(basis, axis=1)
