"""Topological clusters of calorimeter cells.

Cells are summed to towers on the grid of the hadronic calorimeter. A tower that is a local maximum
above the seed threshold starts a cluster. Rings of neighbours above the growth threshold join it; a tower
next to several clusters joins that of its hardest neighbour.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from femtobarn.jagged import Array, Jagged, offsets_of
from femtobarn_demo.reconstruction.space_points import wrap
from femtobarn_demo.sources.detector.geometry import ECAL, HCAL, Calorimeter

__all__ = ["Clusters", "find_clusters"]

SEED_THRESHOLD, GROWTH_THRESHOLD = 0.5, 0.1
"""Transverse energies (GeV)."""

RINGS = 3
_NEIGHBOURS = [(i, j) for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]


@dataclass(frozen=True)
class Clusters:
    """Clusters by event.

    Parameters
    ----------
    rows
        Columns ``energy``, ``em``, ``had`` (GeV), ``eta``, ``phi``, ``width`` (in eta), ``towers``.
    ecal, hcal
        Indices of every cluster's cells in the event's collections.
    label
        Shape (events, rows, columns of towers): cluster within the event plus 1, 0 for none.
    """

    rows: Jagged
    ecal: Jagged
    hcal: Jagged
    label: Array

    def at(self, event: Array, eta: Array, azimuth: Array) -> Array:
        """The cluster (index within the event, -1 for none) that covers a direction."""
        row, column = _tower(eta, azimuth)
        found: Array = self.label[event, row, column] - 1
        return np.where(np.abs(eta) < HCAL.eta_max, found, -1)


def find_clusters(ecal: Jagged, hcal: Jagged) -> Clusters:
    """Cluster the cells of a batch of events."""
    em_tower, had_tower = _towers_of(ecal, ECAL), _towers_of(hcal, HCAL)
    shape = (len(ecal), HCAL.cells_eta, HCAL.cells_phi)
    em = np.bincount(em_tower, ecal["energy"], int(np.prod(shape))).reshape(shape)
    had = np.bincount(had_tower, hcal["energy"], int(np.prod(shape))).reshape(shape)
    eta = (np.arange(HCAL.cells_eta) + 0.5) * HCAL.pitch - HCAL.eta_max
    transverse = (em + had) / np.cosh(eta)[:, None]
    label, owners = _seed(transverse)
    _grow(label, transverse)
    rows = _measure(label, em, had, eta, owners)
    numbers = np.where(label > 0, label - 1 + rows.offsets[:-1, None, None], -1).reshape(-1)
    return Clusters(
        rows,
        _members(numbers[em_tower], ecal, rows.rows),
        _members(numbers[had_tower], hcal, rows.rows),
        label,
    )


def _tower(eta: Array, azimuth: Array) -> tuple[Array, Array]:
    """Row and column of the tower in a direction."""
    row = np.clip(np.floor((eta + HCAL.eta_max) / HCAL.pitch), 0, HCAL.cells_eta - 1).astype(np.int64)
    column = np.floor(azimuth / HCAL.pitch).astype(np.int64) % HCAL.cells_phi
    return row, column


def _towers_of(cells: Jagged, grid: Calorimeter) -> Array:
    """Shape (cells,): the tower of each cell, counted through all events."""
    eta = ((cells["cell"] >> 10) + 0.5) * grid.pitch - grid.eta_max
    row, column = _tower(eta, ((cells["cell"] & 1023) + 0.5) * grid.pitch)
    number: Array = (cells.owners * HCAL.cells_eta + row) * HCAL.cells_phi + column
    return number


def _shifted(grid: Array, rows: int, columns: int) -> Array:
    """The grid as seen from a neighbour: azimuth is periodic, pseudorapidity ends in zeros."""
    moved = np.roll(grid, columns, axis=2) if columns else grid
    if rows == 0:
        return moved
    result = np.zeros_like(moved)
    if rows > 0:
        result[:, rows:] = moved[:, :-rows]
    else:
        result[:, :rows] = moved[:, -rows:]
    return result


def _seed(transverse: Array) -> tuple[Array, Array]:
    """Labels of the local maxima, and the event of each."""
    highest = transverse > SEED_THRESHOLD
    for neighbour in _NEIGHBOURS:
        # Of two equal neighbours only the later counts as a maximum.
        other = _shifted(transverse, *neighbour)
        highest &= transverse >= other if neighbour > (0, 0) else transverse > other
    event, row, column = np.nonzero(highest)
    label = np.zeros(transverse.shape, np.int32)
    label[event, row, column] = np.arange(len(event)) - offsets_of(event, len(transverse))[event] + 1
    return label, event


def _grow(label: Array, transverse: Array) -> None:
    """Add rings to the clusters, in place."""
    worthy = transverse > GROWTH_THRESHOLD
    for _ in range(RINGS):
        best, choice = np.zeros_like(transverse), np.zeros_like(label)
        inside = np.where(label > 0, transverse, 0.0)
        for neighbour in _NEIGHBOURS:
            energy = _shifted(inside, *neighbour)
            better = energy > best
            best[better] = energy[better]
            choice[better] = _shifted(label, *neighbour)[better]
        joins = worthy & (label == 0)
        label[joins] = choice[joins]


def _measure(label: Array, em: Array, had: Array, eta: Array, owners: Array) -> Jagged:
    """Energies, directions and widths of the clusters."""
    offsets = offsets_of(owners, len(label))
    event, row, column = np.nonzero(label)
    cluster = offsets[event] + label[event, row, column] - 1
    count = len(owners)
    em_energy, had_energy = em[event, row, column], had[event, row, column]
    weight = em_energy + had_energy
    energy = np.bincount(cluster, weight, count)
    mean = np.bincount(cluster, weight * eta[row], count) / energy
    spread = np.bincount(cluster, weight * eta[row] ** 2, count) / energy - mean**2
    azimuth = (column + 0.5) * HCAL.pitch
    sine = np.bincount(cluster, weight * np.sin(azimuth), count)
    cosine = np.bincount(cluster, weight * np.cos(azimuth), count)
    columns = {
        "energy": energy,
        "em": np.bincount(cluster, em_energy, count),
        "had": np.bincount(cluster, had_energy, count),
        "eta": mean,
        "phi": wrap(np.arctan2(sine, cosine)),
        "width": np.sqrt(np.maximum(spread, 0.0)),
        "towers": np.bincount(cluster, minlength=count).astype(np.uint16),
    }
    return Jagged(offsets, columns)


def _members(cluster: Array, cells: Jagged, clusters: int) -> Jagged:
    """The cells of each cluster, as indices in the event's collection."""
    inside = cluster >= 0
    index = cells.positions[inside].astype(np.uint32)
    return Jagged.from_rows(cluster[inside], clusters, {"index": index})
