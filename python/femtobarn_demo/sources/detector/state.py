"""The true state of the detector by time, which the simulation knows and the reconstruction does not.

The electromagnetic calorimeter loses response during the run, some sectors more than others, and one
sector works at a lower voltage for some hours. The two barrels of the strip tracker move by some tens of
micrometres; pixels and disks do not.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from femtobarn.jagged import Array, Jagged
from femtobarn_demo.sources.detector.geometry import ECAL_SECTORS, ecal_sector, strip_barrel

__all__ = ["HOUR", "WEAK_SECTOR", "as_measured", "true_gains", "true_shifts"]

HOUR = 3_600_000_000_000
"""An hour (ns)."""

LOSS, LOSS_SPREAD, LOSS_HOURS = 0.11, 0.04, 6.0
"""Share of the response that is lost in the end: its mean and variation by sector; time of the loss (h)."""

WEAK_SECTOR, WEAK_HOURS, WEAK_FACTOR = 4, (4.3, 7.0), 0.88
"""The sector with a lower voltage, from when to when (h), and the factor by which its gain is lower."""

DRIFT, SWING = 9.0e-5, 5.0e-5
"""Largest shifts of the barrels (m)."""


def true_gains(hours: Array) -> Array:
    """Measured by true energy of each sector at some times (h since the start); shape (times, sectors)."""
    sector = np.arange(ECAL_SECTORS)
    loss = LOSS + LOSS_SPREAD * np.cos(2.0 * np.pi * (sector - WEAK_SECTOR) / ECAL_SECTORS)
    gains: Array = 1.0 - loss * (1.0 - np.exp(-hours / LOSS_HOURS))[:, None]
    is_weak = (hours >= WEAK_HOURS[0]) & (hours < WEAK_HOURS[1])
    gains[is_weak, WEAK_SECTOR] *= WEAK_FACTOR
    return gains


def true_shifts(hours: Array) -> Array:
    """Shifts in x and y (m) of the inner and the outer barrel; shape (times, 2, 2)."""
    drift = DRIFT * (1.0 - np.exp(-hours / LOSS_HOURS))
    swing = SWING * np.sin(2.0 * np.pi * hours / 12.0)
    inner = np.stack([swing, -0.5 * drift], axis=1)
    outer = np.stack([drift, 0.8 * swing], axis=1)
    return np.stack([inner, outer], axis=1)


def as_measured(parts: Mapping[str, Jagged], hours: Array) -> dict[str, Jagged]:
    """Return the parts of events of a perfect detector as this one measured them at the events' times."""
    cells, strips = parts["EcalCells"], parts["StripHits"]
    gain = true_gains(hours)[cells.owners, ecal_sector(cells["cell"])]
    still = np.zeros((len(hours), 1, 2))
    # A barrel of -1, which are the disks, picks the last row.
    shift = np.concatenate([true_shifts(hours), still], axis=1)[strips.owners, strip_barrel(strips["module"])]
    energy = {"energy": (cells["energy"] * gain).astype(np.float32)}
    position = {
        name: (strips[name] + shift[:, axis]).astype(np.float32) for axis, name in enumerate(("x", "y"))
    }
    return {
        **parts,
        "EcalCells": Jagged(cells.offsets, {**cells.columns, **energy}),
        "StripHits": Jagged(strips.offsets, {**strips.columns, **position}),
    }
