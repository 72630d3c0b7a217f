"""Reconstruction of raw events: tracks, clusters, jets and tags.

Works on batches, so that many events share the cost of a NumPy call, and reads the raw objects and their
`constants` of calibration, never the labels of the simulation. From below: `space_points`,
`track_candidates`, `track_finding`, `track_fitting`; `clusters`, `vertices`, `muons` and `jets` (by
`anti_kt` where FastJet is not installed) use their results, and `events` puts all together into the
classes of `model`. ::

    constants = Constants.at(fed.conditions("final"), headers.time.to_numpy())
    found = reconstruct(headers, raw_links, parts, constants)
    tracks = found.tracks()                        # awkward, of the class Tracks
"""

from femtobarn_demo.reconstruction.constants import GAINS, SERIES, SHIFTS, Constants
from femtobarn_demo.reconstruction.events import NEEDED, Reconstruction, reconstruct
from femtobarn_demo.reconstruction.model import CONTAINERS, RECONSTRUCTED_CLASSES

__all__ = [
    "CONTAINERS",
    "GAINS",
    "NEEDED",
    "RECONSTRUCTED_CLASSES",
    "SERIES",
    "SHIFTS",
    "Constants",
    "Reconstruction",
    "reconstruct",
]
