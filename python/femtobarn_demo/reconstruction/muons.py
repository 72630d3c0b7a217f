"""Identification of muons: tracks with matching hits in the muon stations."""

from __future__ import annotations

import numpy as np

from femtobarn.jagged import Array, Jagged
from femtobarn_demo.reconstruction.space_points import AzimuthIndex, wrap
from femtobarn_demo.reconstruction.track_fitting import FittedTracks
from femtobarn_demo.sources.detector.geometry import MUON_RADII, muon_bending

__all__ = ["find_muons"]

MOMENTUM_MIN = 3.0
ETA_MAX = 2.4
AZIMUTH_WINDOW = 0.02
SLOPE_WINDOW = 0.05
"""Largest difference in z over radius between a track and a hit."""

HITS_MIN, STATIONS_MIN = 4, 3
"""Least number of matching hits in a station, and of stations with so many hits for a muon."""


def find_muons(tracks: FittedTracks, hits: Jagged) -> Array:
    """Shape (tracks,), true for muons."""
    muon = np.zeros(len(tracks), bool)
    hard = np.flatnonzero((tracks.momentum > MOMENTUM_MIN) & (np.abs(tracks.eta) < ETA_MAX))
    x, y, z = (hits[name].astype(np.float64) for name in ("x", "y", "z"))
    index = AzimuthIndex(hits.owners, np.arctan2(y, x))
    azimuth = wrap(tracks.phi[hard] - muon_bending(tracks.momentum[hard], tracks.charge[hard]))
    which, hit = index.near(tracks.event[hard], azimuth, np.full(len(hard), AZIMUTH_WINDOW))
    track = hard[which]
    slope = (z[hit] - tracks.z0[track]) / np.hypot(x, y)[hit]
    along = np.abs(slope - tracks.slope[track]) < SLOPE_WINDOW
    station = hits["chamber"][hit] >> 16
    stations = len(MUON_RADII)
    seen = np.bincount((which * stations + station)[along], minlength=len(hard) * stations)
    muon[hard] = (seen.reshape(-1, stations) >= HITS_MIN).sum(axis=1) >= STATIONS_MIN
    return muon
