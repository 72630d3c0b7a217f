"""Effects of constants on events: energies beside a perfect detector's, residuals of points to tracks."""

from __future__ import annotations

import awkward as ak
import numpy as np

import femtobarn
from femtobarn.jagged import Array, Jagged
from femtobarn_demo.calibration.residuals import read_points
from femtobarn_demo.sources import START
from femtobarn_demo.sources.detector.geometry import STRIP, STRIP_BARRELS, ecal_sector
from femtobarn_demo.sources.detector.state import HOUR, true_gains

__all__ = ["LAYER", "residuals_of", "responses_of"]

ENERGY_MIN = 5.0
"""Least electromagnetic energy of a cluster (GeV)."""

LAYER = next(barrel for barrel in STRIP.barrels if barrel.number == STRIP_BARRELS[1][0])
"""The first layer of the outer barrel."""

LAYER_HALF_WIDTH = 0.02
"""Largest distance in radius of a point from its layer (m)."""


def responses_of(snapshot: femtobarn.Snapshot, view: femtobarn.View) -> Array:
    """Electromagnetic energies of `Clusters` objects, divided by those in a perfect detector."""
    found = view.arrays(["raw", "ecal_cells", "clusters.em", "clusters.ecal"])
    times = snapshot.fetch(found.raw, ["time"]).time.to_numpy()
    stored = snapshot.fetch(found.ecal_cells, ["cells.cell", "cells.energy"])
    cells = Jagged.from_awkward(stored.cells)
    hours = (times.astype(np.int64) - START) / HOUR
    true_energy = cells["energy"] / true_gains(hours)[cells.owners, ecal_sector(cells["cell"])]
    event = np.repeat(np.arange(len(found)), ak.num(found.clusters).to_numpy())
    clusters = ak.flatten(found.clusters)
    cluster = np.repeat(np.arange(len(clusters)), ak.num(clusters.ecal).to_numpy())
    row = cells.offsets[:-1][event[cluster]] + ak.flatten(clusters.ecal).to_numpy().astype(np.int64)
    energy = np.bincount(cluster, true_energy[row], len(clusters))
    hard = energy > ENERGY_MIN
    responses: Array = clusters.em.to_numpy()[hard] / energy[hard]
    return responses


def residuals_of(snapshot: femtobarn.Snapshot, view: femtobarn.View, job: femtobarn.Job) -> Array:
    """Azimuths (rad) of the points in `LAYER`, and distances (m) from their tracks; shape (2, points).

    A track bends with shifted points. It does so least where one barrel ends and the next begins.
    """
    points = read_points(snapshot, view, job)
    near = np.abs(points.radius - LAYER.radius) < LAYER_HALF_WIDTH
    azimuth, radius = points.azimuth[near], points.radius[near]
    return np.stack([azimuth, radius * points.residual[near]])
