"""Reconstruction of raw events: tracks, clusters, jets and tags.

Works on batches, so that NumPy's cost per call is shared by many events, and on the raw objects alone:
the labels of the simulation are never read. ::

    found = reconstruct(headers, raw_links, parts)
    tracks = found.tracks()                        # awkward, of the class Tracks

Needs the extra `demo`.
"""

from femtobarn_demo.reconstruction.events import NEEDED, Reconstruction, reconstruct
from femtobarn_demo.reconstruction.model import CONTAINERS, RECONSTRUCTED_CLASSES

__all__ = ["CONTAINERS", "NEEDED", "RECONSTRUCTED_CLASSES", "Reconstruction", "reconstruct"]
