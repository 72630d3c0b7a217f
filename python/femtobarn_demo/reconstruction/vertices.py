"""Collision vertices: groups of tracks that start at the same position along the beam."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from femtobarn.jagged import Array, offsets_of
from femtobarn_demo.reconstruction.track_fitting import FittedTracks

__all__ = ["Vertices", "find_vertices"]

GAP = 6.0e-4
"""Distance along the beam above which tracks belong to different collisions (m)."""

TRACKS_MIN = 2
MOMENTUM_CAP = 100.0
"""Cap on the momentum of a track (GeV), so that one mismeasured track cannot make a primary vertex."""


@dataclass(frozen=True)
class Vertices:
    """Vertices by event, the primary one (largest sum of squared momenta) first.

    Parameters
    ----------
    offsets
        Shape (events + 1,).
    z
        Shape (vertices,): position along the beam (m).
    tracks
        Shape (vertices,): number of tracks.
    of_track
        Shape (tracks,): index of each track's vertex within its event, -1 for none.
    """

    offsets: Array
    z: Array
    tracks: Array
    of_track: Array


def find_vertices(tracks: FittedTracks, events: int) -> Vertices:
    """Group the tracks of every event."""
    order = np.lexsort((tracks.z0, tracks.event))
    event, z0 = tracks.event[order], tracks.z0[order]
    first = np.ones(len(order), bool)
    first[1:] = (np.diff(z0) > GAP) | (np.diff(event) != 0)
    group = np.cumsum(first) - 1
    groups = int(group[-1]) + 1 if len(group) else 0
    count = np.bincount(group, minlength=groups)
    momentum = np.minimum(tracks.momentum[order], MOMENTUM_CAP)
    hardness = np.bincount(group, momentum**2, groups)
    owner = event[first]
    real = np.flatnonzero(count >= TRACKS_MIN)
    ranked = real[np.lexsort((-hardness[real], owner[real]))]
    offsets = offsets_of(owner[ranked], events)
    number = np.full(groups, -1, np.int64)
    number[ranked] = np.arange(len(ranked)) - offsets[owner[ranked]]
    of_track = np.empty(len(order), np.int16)
    of_track[order] = number[group]
    z = np.bincount(group, z0, groups)[ranked] / count[ranked]
    return Vertices(offsets, z, count[ranked], of_track)
