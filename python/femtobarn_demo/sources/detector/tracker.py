"""Space points of charged particles in the pixel and strip trackers.

Particles follow exact helices from the beam line; a layer registers each crossing with an efficiency
of 98.5 % and smears it by its resolution. Energy loss, scattering and the second half turn of slow
particles are left out.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from femtobarn.jagged import Array, Jagged
from femtobarn_demo.sources.detector.geometry import (
    CURVATURE_PER_MOMENTUM,
    PIXEL,
    STRIP,
    Barrel,
    Disk,
    Tracker,
)

__all__ = ["simulate_tracker"]

EFFICIENCY = 0.985
MOMENTUM_MIN = 0.08
ETA_MAX = 2.6
MODULE_STAGGER = 0.004
"""Spread of the modules' radii in a barrel layer, as a share of its radius."""

NOISE = {"PixelHits": 60, "StripHits": 350}
"""Mean number of noise hits in an event."""

IN_DISK, IS_NOISE = 1, 8


@dataclass(frozen=True)
class _Helices:
    """Charged particles as helices from the beam line; every array has shape (particles,)."""

    event: Array
    label: Array
    azimuth: Array
    curvature: Array
    slope: Array
    z: Array

    def __len__(self) -> int:
        return len(self.event)


@dataclass(frozen=True)
class _Crossings:
    """Crossings of helices with a layer: particle number, radius, azimuth and z."""

    particle: Array
    radius: Array
    azimuth: Array
    z: Array


def simulate_tracker(particles: Jagged, random: np.random.Generator) -> dict[str, Jagged]:
    """Hits of a batch of events.

    Parameters
    ----------
    particles
        Final-state particles as `Generator.generate` gives them.

    Returns
    -------
    The columns of `PixelHits` and `StripHits`.
    """
    helices = _helices(particles)
    events = len(particles)
    return {
        "PixelHits": _simulate(helices, events, PIXEL, "size", NOISE["PixelHits"], random),
        "StripHits": _simulate(helices, events, STRIP, "width", NOISE["StripHits"], random),
    }


def _helices(particles: Jagged) -> _Helices:
    """The charged particles within the acceptance of the tracker."""
    px, py = particles["px"].astype(np.float64), particles["py"].astype(np.float64)
    momentum = np.maximum(np.hypot(px, py), 1e-9)
    slope = particles["pz"] / momentum
    keep = (particles["charge"] != 0) & (momentum > MOMENTUM_MIN) & (np.abs(slope) < np.sinh(ETA_MAX))
    curvature = particles["charge"] * CURVATURE_PER_MOMENTUM / momentum
    return _Helices(
        event=particles.owners[keep],
        label=particles.positions[keep],
        azimuth=np.arctan2(py, px)[keep],
        curvature=curvature[keep],
        slope=slope[keep],
        z=particles["z"][keep].astype(np.float64),
    )


def _simulate(
    helices: _Helices,
    events: int,
    tracker: Tracker,
    size_name: str,
    noise: int,
    random: np.random.Generator,
) -> Jagged:
    """All layers of one tracker, and its noise."""
    parts: list[dict[str, Array]] = []
    for barrel in tracker.barrels:
        crossings = _cross_barrel(helices, barrel, random)
        parts.append(_measure(helices, crossings, tracker, barrel.number, 0, random))
    for disk in tracker.disks:
        crossings = _cross_disk(helices, disk)
        parts.append(_measure(helices, crossings, tracker, disk.number, IN_DISK, random))
    parts.append(_noise(events, tracker, noise, random))
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    owners = columns.pop("event")
    columns[size_name] = columns.pop("extent")
    return Jagged.from_rows(owners, events, columns)


def _cross_barrel(helices: _Helices, barrel: Barrel, random: np.random.Generator) -> _Crossings:
    """Crossings of a cylinder whose modules are staggered in radius."""
    radius = barrel.radius * (1.0 + MODULE_STAGGER * random.uniform(-1.0, 1.0, len(helices)))
    sine = helices.curvature * radius
    reached = np.flatnonzero(np.abs(sine) < 1.0)
    turn = np.arcsin(sine[reached])
    z = helices.z[reached] + helices.slope[reached] * turn / helices.curvature[reached]
    inside = np.abs(z) < barrel.half_length
    particle = reached[inside]
    azimuth = helices.azimuth[particle] - turn[inside]
    return _Crossings(particle, radius[particle], azimuth, z[inside])


def _cross_disk(helices: _Helices, disk: Disk) -> _Crossings:
    """Crossings of a plane; a particle that has turned by more than a quarter circle is lost."""
    length = (disk.z - helices.z) / np.where(helices.slope == 0.0, 1e-9, helices.slope)
    turn = helices.curvature * length
    reached = np.flatnonzero((length > 0.0) & (np.abs(turn) < np.pi / 2.0))
    radius = np.sin(turn[reached]) / helices.curvature[reached]
    inside = (radius > disk.inner) & (radius < disk.outer)
    particle = reached[inside]
    azimuth = helices.azimuth[particle] - turn[particle]
    return _Crossings(particle, radius[inside], azimuth, np.full(len(particle), disk.z))


def _measure(
    helices: _Helices,
    crossings: _Crossings,
    tracker: Tracker,
    layer: int,
    flags: int,
    random: np.random.Generator,
) -> dict[str, Array]:
    """The hits that a layer registers of these crossings."""
    seen = random.random(len(crossings.particle)) < EFFICIENCY
    particle, radius = crossings.particle[seen], crossings.radius[seen]
    count = len(particle)
    azimuth = crossings.azimuth[seen] + tracker.azimuth_resolution / radius * random.standard_normal(count)
    z = crossings.z[seen]
    if not flags & IN_DISK:
        z = z + tracker.z_resolution * random.standard_normal(count)
    charge = np.clip(random.gamma(4.0, 250.0, count), 0, 65535)
    hits = _hits(layer, radius, azimuth, z, charge, 1 + random.poisson(1.5, count), flags)
    return hits | {"event": helices.event[particle], "particle": helices.label[particle].astype(np.int32)}


def _noise(events: int, tracker: Tracker, mean: int, random: np.random.Generator) -> dict[str, Array]:
    """Noise hits, at random in all layers."""
    layers: list[Barrel | Disk] = [*tracker.barrels, *tracker.disks]
    counts = random.poisson(mean * events / len(layers), len(layers))
    parts = [_layer_noise(layer, count, random) for layer, count in zip(layers, counts, strict=True)]
    columns = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    columns["event"] = random.integers(0, events, int(counts.sum()))
    columns["particle"] = np.full(int(counts.sum()), -1, np.int32)
    return columns


def _layer_noise(layer: Barrel | Disk, count: int, random: np.random.Generator) -> dict[str, Array]:
    """Noise hits spread evenly over one layer."""
    azimuth = random.uniform(-np.pi, np.pi, count)
    if isinstance(layer, Barrel):
        radius = np.full(count, layer.radius)
        z = random.uniform(-layer.half_length, layer.half_length, count)
    else:
        radius = np.sqrt(random.uniform(layer.inner**2, layer.outer**2, count))
        z = np.full(count, layer.z)
    flags = IS_NOISE | (IN_DISK if isinstance(layer, Disk) else 0)
    charge = random.gamma(2.0, 90.0, count)
    return _hits(layer.number, radius, azimuth, z, charge, np.ones(count), flags)


def _hits(
    layer: int, radius: Array, azimuth: Array, z: Array, charge: Array, extent: Array, flags: int
) -> dict[str, Array]:
    """Columns of hits from their positions."""
    sector = ((azimuth % (2.0 * np.pi)) * 20.0).astype(np.uint32)
    ring = (np.abs(z) * 64.0 + radius * 16.0).astype(np.uint32)
    return {
        "module": (np.uint32(layer << 24) | (sector << 12) | ring).astype(np.uint32),
        "x": (radius * np.cos(azimuth)).astype(np.float32),
        "y": (radius * np.sin(azimuth)).astype(np.float32),
        "z": z.astype(np.float32),
        "charge": charge.astype(np.uint16),
        "extent": extent.astype(np.uint8),
        "flags": np.full(len(radius), flags, np.uint8),
    }
