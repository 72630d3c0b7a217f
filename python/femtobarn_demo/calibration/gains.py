"""Gains of the electromagnetic calorimeter, from the energies of its cells.

Collisions look the same in all directions around the beam, so the median energy of the cells is that of a
perfect detector in every sector, apart from the sector's gain. Half of the cells have less: rare hard
jets do not move it.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import femtobarn
from femtobarn.jagged import Array, Jagged
from femtobarn_demo.sources.detector.geometry import ECAL_SECTORS, ecal_sector

__all__ = ["REFERENCE", "measure_gains"]

REFERENCE = 0.2221
"""Median energy of a cell in a perfect detector (GeV), of 500 other events of Pythia."""


def measure_gains(
    snapshot: femtobarn.Snapshot, raw: Sequence[str], edges: Array, reference: float = REFERENCE
) -> Array:
    """Measure the gain of each sector in each interval.

    Parameters
    ----------
    raw
        The containers of `RawEvent` objects.
    edges
        Shape (intervals + 1,): where the intervals begin and end (ns since 1970).
    reference
        Median energy of a cell in a perfect detector (GeV).

    Returns
    -------
    Shape (intervals, sectors); the nominal gain, 1, where there are no cells.
    """
    intervals = len(edges) - 1
    samples: list[list[Array]] = [[] for _ in range(intervals * ECAL_SECTORS)]
    for name in raw:
        headers = snapshot[name].arrays(["time", "ecal"])
        found = snapshot.fetch(headers.ecal, ["cells.cell", "cells.energy"])
        cells = Jagged.from_awkward(found.cells)
        interval = np.searchsorted(edges, headers.time.to_numpy().astype(np.int64), side="right") - 1
        group = interval[cells.owners] * ECAL_SECTORS + ecal_sector(cells["cell"])
        order = np.argsort(group, kind="stable")
        ends = np.cumsum(np.bincount(group, minlength=len(samples)))
        for sample, energies in zip(samples, np.split(cells["energy"][order], ends[:-1]), strict=True):
            sample.append(energies)
    medians = [
        np.median(energies) if len(energies) else reference for energies in map(np.concatenate, samples)
    ]
    return np.array(medians, np.float64).reshape(intervals, ECAL_SECTORS) / reference
