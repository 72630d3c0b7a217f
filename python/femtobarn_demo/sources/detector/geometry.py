"""The geometry of the toy detector. Lengths in metres, fields in tesla.

A cylinder around the beam line (z) in a solenoid field, of the size and granularity of a general
purpose LHC detector: four pixel and ten strip layers in the barrel, three pixel and ten strip disks
on each side, an electromagnetic and a hadronic calorimeter on regular grids in pseudorapidity and
azimuth, four muon stations. Simulation and reconstruction share this description and nothing else.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from femtobarn.jagged import Array

__all__ = [
    "ECAL",
    "ECAL_SECTORS",
    "FIELD",
    "HCAL",
    "MUON_RADII",
    "MUON_SUBLAYERS",
    "PIXEL",
    "STRIP",
    "STRIP_BARRELS",
    "TRIGGER_ETA",
    "TRIGGER_PHI",
    "Barrel",
    "Calorimeter",
    "Disk",
    "Tracker",
    "bending",
    "ecal_sector",
    "muon_bending",
    "strip_barrel",
]

FIELD = 3.8
"""Solenoid field along z (T)."""

CURVATURE_PER_MOMENTUM = 0.299792458 * FIELD / 2.0
"""Half the inverse bending radius times the transverse momentum (GeV/m)."""

CALORIMETER_RADIUS = 1.29
"""Radius at which charged particles enter the electromagnetic calorimeter (m)."""

MUON_RADII = (4.2, 5.0, 6.0, 7.1)
"""Radii of the muon stations (m)."""

MUON_SUBLAYERS = 8
"""Drift layers in a muon station, 2 cm apart."""

TRIGGER_ETA, TRIGGER_PHI = 56, 72
"""Number of trigger towers in pseudorapidity and azimuth."""


@dataclass(frozen=True)
class Barrel:
    """A cylindrical layer: its number, radius and half length (m)."""

    number: int
    radius: float
    half_length: float


@dataclass(frozen=True)
class Disk:
    """A disk: its number, position along the beam and inner and outer radius (m)."""

    number: int
    z: float
    inner: float
    outer: float


@dataclass(frozen=True)
class Tracker:
    """A tracking detector: its layers and its resolution along azimuth and beam (m)."""

    barrels: tuple[Barrel, ...]
    disks: tuple[Disk, ...]
    azimuth_resolution: float
    z_resolution: float


@dataclass(frozen=True)
class Calorimeter:
    """A grid of square cells in pseudorapidity and azimuth."""

    eta_max: float
    cells_phi: int

    @property
    def pitch(self) -> float:
        """Width of a cell in azimuth (rad) and in pseudorapidity."""
        return 2.0 * np.pi / self.cells_phi

    @property
    def cells_eta(self) -> int:
        """Number of cells along pseudorapidity."""
        return int(2.0 * self.eta_max / self.pitch) + 1


def _disks(first: int, positions: tuple[float, ...], inner: float, outer: float) -> tuple[Disk, ...]:
    """Disks at plus and minus each position, numbered outward, the negative side first."""
    sides = [[Disk(first + i, -z, inner, outer) for i, z in enumerate(positions)]]
    sides.append([Disk(first + 16 + i, z, inner, outer) for i, z in enumerate(positions)])
    return tuple(disk for side in sides for disk in side)


PIXEL = Tracker(
    barrels=tuple(Barrel(1 + i, r, 0.27) for i, r in enumerate((0.030, 0.068, 0.109, 0.160))),
    disks=_disks(40, (0.32, 0.40, 0.50), 0.045, 0.16),
    azimuth_resolution=1.3e-5,
    z_resolution=5.0e-5,
)

STRIP = Tracker(
    barrels=tuple(
        Barrel(1 + i, r, 0.65 if r < 0.6 else 1.09)
        for i, r in enumerate((0.25, 0.34, 0.43, 0.52, 0.61, 0.70, 0.79, 0.88, 0.97, 1.08))
    ),
    disks=_disks(40, (0.80, 0.92, 1.05, 1.28, 1.45, 1.65, 1.90, 2.15, 2.42, 2.70), 0.23, 1.1),
    azimuth_resolution=3.0e-5,
    z_resolution=1.0e-4,
)

STRIP_BARRELS = ((1, 4), (5, 10))
"""First and last layer of the inner and the outer barrel of the strip tracker; each moves as a whole."""

ECAL = Calorimeter(eta_max=3.0, cells_phi=360)
HCAL = Calorimeter(eta_max=5.0, cells_phi=72)

ECAL_SECTORS = 12
"""Sectors of the electromagnetic calorimeter in azimuth; each has a gain of its own."""


def ecal_sector(cell: Array) -> Array:
    """Sectors of cells, from 0."""
    sector: Array = (cell & 1023) // (ECAL.cells_phi // ECAL_SECTORS)
    return sector


def strip_barrel(module: Array) -> Array:
    """Barrels of strip modules: 0 for the inner and 1 for the outer one, -1 for disks."""
    layer = module >> 24
    barrel = np.full(len(layer), -1)
    for number, (first, last) in enumerate(STRIP_BARRELS):
        barrel[(layer >= first) & (layer <= last)] = number
    return barrel


def bending(momentum: Array, charge: Array, radius: float) -> Array:
    """Azimuth (rad) by which a particle from the beam line has turned at a radius (m).

    Parameters
    ----------
    momentum
        Transverse momentum (GeV), any shape.
    charge
        Electric charge (e), the same shape.
    """
    turn: Array = np.arcsin(np.clip(charge * CURVATURE_PER_MOMENTUM * radius / momentum, -1.0, 1.0))
    return turn


def muon_bending(momentum: Array, charge: Array) -> Array:
    """Azimuth (rad) by which a muon has turned at the muon stations: solenoid minus return yoke."""
    turn: Array = np.clip(charge * 0.684 / momentum, -1.0, 1.0)
    return turn
