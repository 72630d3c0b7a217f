"""Energies in the cells of the two calorimeters.

A shower is a number of random shares of the particle's energy, spread sideways by the shower's width
and smeared by the calorimeter's resolution; noise is added, and cells below the read-out threshold are
dropped. The label of a cell is the particle with the largest share in it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from femtobarn.jagged import Array, Jagged, offsets_of
from femtobarn_demo.sources.detector.geometry import (
    CALORIMETER_RADIUS,
    CURVATURE_PER_MOMENTUM,
    ECAL,
    HCAL,
    Calorimeter,
    bending,
)

__all__ = ["simulate_calorimeters"]

MOMENTUM_MIN = CURVATURE_PER_MOMENTUM * CALORIMETER_RADIUS
"""Charged particles below this transverse momentum (GeV) curl up in the tracker."""

PHOTON, ELECTRON, MUON = 22, 11, 13
NEUTRINOS = (12, 14, 16)


@dataclass(frozen=True)
class _Response:
    """The response of a calorimeter.

    Parameters
    ----------
    width
        Lateral spread of a shower (rad).
    shares_max
        Largest number of shares of a shower.
    stochastic, constant
        Terms of the relative resolution: stochastic / sqrt(E / GeV), constant.
    noise
        Mean number of noisy cells in an event.
    threshold
        Energy below which a cell is not read out (GeV).
    """

    grid: Calorimeter
    width: float
    shares_max: int
    stochastic: float
    constant: float
    noise: int
    threshold: float


_ECAL = _Response(ECAL, 0.013, 22, 0.028, 0.003, 220, 0.06)
_HCAL = _Response(HCAL, 0.05, 12, 0.9, 0.06, 120, 0.15)


@dataclass(frozen=True)
class _Deposits:
    """Energies that particles deposit in the calorimeters; every array has shape (particles,)."""

    event: Array
    label: Array
    eta: Array
    azimuth: Array
    electromagnetic: Array
    hadronic: Array


def simulate_calorimeters(particles: Jagged, random: np.random.Generator) -> dict[str, Jagged]:
    """The columns of `EcalCells` and `HcalCells` of a batch of events."""
    deposits = _deposits(particles, random)
    events = len(particles)
    ecal = _shower(deposits, deposits.electromagnetic, events, _ECAL, random)
    hcal = _shower(deposits, deposits.hadronic, events, _HCAL, random)
    gain = np.where(ecal["energy"] > 100.0, 6, 12).astype(np.uint16)
    depth = (1 + _segment(hcal["cell"])).astype(np.uint16)
    return {
        "EcalCells": Jagged(ecal.offsets, {**ecal.columns, "gain": gain}),
        "HcalCells": Jagged(hcal.offsets, {**hcal.columns, "depth": depth}),
    }


def _segment(cell: Array) -> Array:
    """The segment along the shower that a hadronic cell belongs to, 0 to 2."""
    return cell % 3


def _deposits(particles: Jagged, random: np.random.Generator) -> _Deposits:
    """Divide energies between the calorimeters; muons leave a minimum-ionising trace, neutrinos nothing."""
    px, py, pz = (particles[name].astype(np.float64) for name in ("px", "py", "pz"))
    momentum = np.maximum(np.hypot(px, py), 1e-6)
    energy, charge = particles["energy"].astype(np.float64), particles["charge"]
    kind = np.abs(particles["pdg"])
    light, muon = (kind == PHOTON) | (kind == ELECTRON), kind == MUON
    arrives = ~np.isin(kind, NEUTRINOS) & ((charge == 0) | (momentum > MOMENTUM_MIN)) & (energy > 0.1)
    early = np.clip(random.beta(1.3, 2.6, len(energy)), 0.0, 1.0)
    hadron = ~(light | muon)
    turn = np.where(charge != 0, bending(momentum, charge, CALORIMETER_RADIUS), 0.0)
    hadronic = np.where(hadron, energy * (1.0 - early), np.where(muon, np.minimum(energy, 2.0), 0.0))
    electromagnetic = np.where(light, energy, np.where(muon, np.minimum(energy, 0.25), energy * early))
    return _Deposits(
        event=particles.owners,
        label=particles.positions,
        eta=np.arcsinh(np.clip(pz / momentum, -1e5, 1e5)),
        azimuth=np.arctan2(py, px) - turn,
        electromagnetic=np.where(arrives, electromagnetic, 0.0),
        hadronic=np.where(arrives & (hadronic > 0.2), hadronic, 0.0),
    )


def _shower(
    deposits: _Deposits, energies: Array, events: int, response: _Response, random: np.random.Generator
) -> Jagged:
    """Cells of one calorimeter."""
    hit = np.flatnonzero((energies > 0.0) & (np.abs(deposits.eta) < response.grid.eta_max))
    energy = energies[hit]
    relative = np.hypot(response.stochastic / np.sqrt(np.maximum(energy, 0.05)), response.constant)
    energy = np.maximum(energy * (1.0 + relative * random.standard_normal(len(hit))), 0.0)
    shares = np.minimum(response.shares_max, 2 + (energy * 4.0).astype(np.int64))
    owner = np.repeat(np.arange(len(hit)), shares)
    weight = random.exponential(1.0, len(owner))
    portion = energy[owner] * weight / np.bincount(owner, weight, len(hit))[owner]
    spread = response.width * random.standard_normal((2, len(owner)))
    eta, azimuth = deposits.eta[hit][owner] + spread[0], deposits.azimuth[hit][owner] + spread[1]
    key, valid = _cell_keys(deposits.event[hit][owner], eta, azimuth, response.grid)
    label = deposits.label[hit][owner]
    noise_key = _noise_keys(events, response, random)
    noise = response.threshold * (1.0 + random.exponential(1.3, len(noise_key)))
    return _sum_cells(
        np.concatenate([key[valid], noise_key]),
        np.concatenate([portion[valid], noise]),
        np.concatenate([label[valid], np.full(len(noise_key), -1)]),
        events,
        response,
        random,
    )


def _cell_keys(event: Array, eta: Array, azimuth: Array, grid: Calorimeter) -> tuple[Array, Array]:
    """A number for each pair of event and cell, and whether the cell exists."""
    row = np.floor((eta + grid.eta_max) / grid.pitch).astype(np.int64)
    column = np.floor(azimuth / grid.pitch).astype(np.int64) % grid.cells_phi
    valid = (row >= 0) & (row < grid.cells_eta)
    return (event * grid.cells_eta + row) * grid.cells_phi + column, valid


def _noise_keys(events: int, response: _Response, random: np.random.Generator) -> Array:
    cells = events * response.grid.cells_eta * response.grid.cells_phi
    return random.integers(0, cells, random.poisson(response.noise * events))


def _sum_cells(
    key: Array,
    energy: Array,
    label: Array,
    events: int,
    response: _Response,
    random: np.random.Generator,
) -> Jagged:
    """Add up the shares in each cell; the largest share gives the label."""
    order = np.lexsort((-energy, key))
    key, energy, label = key[order], energy[order], label[order]
    cells, first = np.unique(key, return_index=True)
    sums = np.add.reduceat(energy, first) if len(cells) else energy
    keep = sums > response.threshold
    cells, sums, label = cells[keep], sums[keep], label[first][keep]
    grid = response.grid
    event, place = np.divmod(cells, grid.cells_eta * grid.cells_phi)
    row, column = np.divmod(place, grid.cells_phi)
    columns: dict[str, Array] = {
        "cell": ((row << 10) | column).astype(np.uint32),
        "energy": sums.astype(np.float32),
        "time": random.normal(0.0, 0.4, len(cells)).astype(np.float32),
        "flags": np.zeros(len(cells), np.uint16),
        "particle": label.astype(np.int32),
    }
    return Jagged(offsets_of(event, events), columns)
