"""Hits in the muon stations: muons, rare punch-through hadrons, and neutron background."""

from __future__ import annotations

import numpy as np

from femtobarn.jagged import Array, Jagged
from femtobarn_demo.sources.detector.geometry import MUON_RADII, MUON_SUBLAYERS, muon_bending

__all__ = ["simulate_muons"]

MOMENTUM_MIN = 3.0
PUNCH_THROUGH_ENERGY, PUNCH_THROUGH_CHANCE = 30.0, 0.01
ETA_MAX = 2.4
SUBLAYER_PITCH = 0.02
BACKGROUND = 100
"""Mean number of background hits in an event."""

RESOLUTION = 1.0e-4
"""Resolution of a drift cell (m)."""


def simulate_muons(particles: Jagged, random: np.random.Generator) -> Jagged:
    """The columns of `MuonHits` of a batch of events."""
    penetrating = _penetrating(particles, random)
    parts = [
        _station_hits(particles, penetrating, station, sublayer, random)
        for station in range(len(MUON_RADII))
        for sublayer in range(MUON_SUBLAYERS)
    ]
    parts.append(_background(len(particles), random))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    owners = columns.pop("event")
    return Jagged.from_rows(owners, len(particles), columns)


def _penetrating(particles: Jagged, random: np.random.Generator) -> Array:
    """Indices of the charged particles that reach the muon system."""
    momentum = np.hypot(particles["px"], particles["py"])
    central = np.abs(particles["pz"]) < np.sinh(ETA_MAX) * momentum
    muon = np.abs(particles["pdg"]) == 13
    through = (particles["energy"] > PUNCH_THROUGH_ENERGY) & (
        random.random(len(momentum)) < PUNCH_THROUGH_CHANCE
    )
    charged = particles["charge"] != 0
    return np.flatnonzero(charged & central & (momentum > MOMENTUM_MIN) & (muon | through))


def _station_hits(
    particles: Jagged, which: Array, station: int, sublayer: int, random: np.random.Generator
) -> dict[str, Array]:
    """Hits of the penetrating particles in one sublayer."""
    px, py, pz = (particles[name][which].astype(np.float64) for name in ("px", "py", "pz"))
    momentum = np.hypot(px, py)
    count = len(which)
    radius = MUON_RADII[station] + SUBLAYER_PITCH * sublayer
    azimuth = np.arctan2(py, px) - muon_bending(momentum, particles["charge"][which])
    azimuth = azimuth + RESOLUTION / radius * random.standard_normal(count)
    z = particles["z"][which] + radius * pz / momentum
    slope = 1e-3 * random.standard_normal(count)
    hits = _hits(np.full(count, station), np.full(count, sublayer), radius, azimuth, z, slope, random)
    label = particles.positions[which].astype(np.int32)
    return hits | {"event": particles.owners[which], "particle": label}


def _background(events: int, random: np.random.Generator) -> dict[str, Array]:
    """Neutron hits, at random positions and times."""
    count = int(random.poisson(BACKGROUND * events))
    station = random.integers(0, len(MUON_RADII), count)
    sublayer = random.integers(0, MUON_SUBLAYERS, count)
    radius = np.array(MUON_RADII)[station] + SUBLAYER_PITCH * sublayer
    azimuth = random.uniform(-np.pi, np.pi, count)
    z = random.uniform(-2.0, 2.0, count) * radius
    hits = _hits(station, sublayer, radius, azimuth, z, random.uniform(-0.5, 0.5, count), random)
    event = random.integers(0, events, count)
    return hits | {"event": event, "particle": np.full(count, -1, np.int32)}


def _hits(
    station: Array,
    sublayer: Array,
    radius: Array | float,
    azimuth: Array,
    z: Array,
    slope: Array,
    random: np.random.Generator,
) -> dict[str, Array]:
    """Columns of hits from their positions."""
    sector = ((azimuth % (2.0 * np.pi)) * (12.0 / (2.0 * np.pi))).astype(np.int64)
    return {
        "chamber": ((station << 16) | (sublayer << 12) | sector).astype(np.uint32),
        "x": (radius * np.cos(azimuth)).astype(np.float32),
        "y": (radius * np.sin(azimuth)).astype(np.float32),
        "z": z.astype(np.float32),
        "slope": slope.astype(np.float32),
        "time": random.uniform(0.0, 400.0, len(z)).astype(np.float32),
    }
