"""The towers of the first trigger level: sums of calorimeter cells, all of them read out."""

from __future__ import annotations

import numpy as np

from femtobarn.jagged import Array, Jagged
from femtobarn_demo.sources.detector.geometry import ECAL, HCAL, TRIGGER_ETA, TRIGGER_PHI, Calorimeter

__all__ = ["simulate_trigger"]

UNIT = 0.5
"""Transverse energy of one count (GeV)."""

COUNTS_MAX = 1023
TOWERS = TRIGGER_ETA * TRIGGER_PHI


def simulate_trigger(ecal: Jagged, hcal: Jagged) -> Jagged:
    """The columns of `TrigTowers`, from the columns of `EcalCells` and `HcalCells`."""
    events = len(ecal)
    em, had = _tower_sums(ecal, ECAL), _tower_sums(hcal, HCAL)
    columns = {
        "tower": np.tile(np.arange(TOWERS, dtype=np.uint16), events),
        "em": em,
        "had": had,
        "fine_grain": ((em > 2 * had) & (em > 4)).astype(np.uint16),
    }
    return Jagged(np.arange(events + 1, dtype=np.int64) * TOWERS, columns)


def _tower_sums(cells: Jagged, grid: Calorimeter) -> Array:
    """Counts of all towers of all events, shape (events * TOWERS,)."""
    pitch = 2.0 * np.pi / TRIGGER_PHI
    eta = (cells["cell"] >> 10) * grid.pitch - grid.eta_max + 0.5 * grid.pitch
    azimuth = ((cells["cell"] & 1023) + 0.5) * grid.pitch
    row = np.clip(((eta + 0.5 * TRIGGER_ETA * pitch) / pitch).astype(np.int64), 0, TRIGGER_ETA - 1)
    column = np.clip((azimuth / pitch).astype(np.int64), 0, TRIGGER_PHI - 1)
    tower = (cells.owners * TRIGGER_ETA + row) * TRIGGER_PHI + column
    sums = np.bincount(tower, cells["energy"] / np.cosh(eta), len(cells) * TOWERS)
    return np.clip(sums / UNIT, 0, COUNTS_MAX).astype(np.uint16)
