"""Reconstruction of raw events: tracks, clusters, jets and tags.

Works on batches, so that many events share the cost of a NumPy call, and reads the raw objects alone,
never the labels of the simulation. From below: `space_points`, `track_candidates`, `track_finding`,
`track_fitting`; `clusters`, `vertices`, `muons` and `jets` use their results, and `events` puts all
together into the classes of `model`. ::

    found = reconstruct(headers, raw_links, parts)
    tracks = found.tracks()                        # awkward, of the class Tracks

Needs the extra `demo`.
"""

from femtobarn_demo.reconstruction.events import NEEDED, Reconstruction, reconstruct
from femtobarn_demo.reconstruction.model import CONTAINERS, RECONSTRUCTED_CLASSES

__all__ = ["CONTAINERS", "NEEDED", "RECONSTRUCTED_CLASSES", "Reconstruction", "reconstruct"]
