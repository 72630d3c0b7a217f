"""Collision events from a few distributions, with NumPy alone, for installations without Pythia.

An event is a pair of jets, or a Z boson that decays to two muons beside a jet, with soft collisions on top
(pile-up). Sizes and shapes are like those of real events; the physics is coarser than that of `pythia`.
"""

from __future__ import annotations

import numpy as np

from femtobarn.jagged import Array, Jagged

__all__ = ["ParametricGenerator"]

BEAM_SPREAD = 0.045
"""Standard deviation of the collisions' positions along the beam (m)."""

MOMENTUM_MIN, MOMENTUM_MAX, MOMENTUM_POWER = 50.0, 500.0, 4.0
"""Range of the transverse momentum of the hard process (GeV), which falls with this power of it."""

Z_SHARE, Z_MASS, Z_WIDTH = 0.3, 91.19, 2.495
"""Share of the events with a Z boson, its mass and its width (GeV)."""

JET_SPREAD = 0.08
"""Standard deviation of the distance of a jet's particles from its axis, in pseudorapidity and azimuth."""

SOFT_PARTICLES, SOFT_MOMENTUM, SOFT_ETA_MAX = 30, 0.5, 4.0
"""Mean number of particles in a soft collision, their mean transverse momentum (GeV), and their range."""

SPECIES = {
    211: (1, 0.1396, 0.30),
    -211: (-1, 0.1396, 0.30),
    22: (0, 0.0, 0.24),
    321: (1, 0.4937, 0.04),
    -321: (-1, 0.4937, 0.04),
    2112: (0, 0.9396, 0.04),
    2212: (1, 0.9383, 0.04),
}
"""Charge, mass (GeV) and share of each kind of particle in jets and soft collisions, by its PDG number."""

MUON, MUON_MASS = 13, 0.1057


class ParametricGenerator:
    """Makes collision events; one seed gives one sequence of events.

    Parameters
    ----------
    pileup
        Mean number of soft collisions on top of each hard one.
    """

    def __init__(self, seed: int, *, pileup: float = 4.0) -> None:
        self._random = np.random.default_rng(seed)
        self._pileup = pileup

    def generate(self, events: int) -> tuple[Jagged, Array, Array]:
        """Generate a batch, as `femtobarn_demo.sources.pythia.Generator.generate` does."""
        random = self._random
        scale = MOMENTUM_MIN * (1 - random.random(events)) ** (-1 / MOMENTUM_POWER)
        scale = np.minimum(scale, MOMENTUM_MAX)
        soft = random.poisson(self._pileup, events)
        azimuth, eta = random.uniform(-np.pi, np.pi, events), random.normal(0, 1, (2, events))
        has_z = random.random(events) < Z_SHARE
        every, dijet = np.arange(events), np.flatnonzero(~has_z)
        bosons = np.flatnonzero(has_z)
        rows = [
            self._jets(every, scale, eta[0], azimuth),
            self._jets(dijet, scale[dijet], eta[1][dijet], azimuth[dijet] + np.pi),
            self._muon_pairs(bosons, scale[bosons], eta[1][bosons], azimuth[bosons] + np.pi),
            self._soft_collisions(soft),
        ]
        columns = {name: np.concatenate([each[name] for each in rows]) for name in rows[0]}
        starts = random.normal(0, BEAM_SPREAD, (events, int(soft.max(initial=0)) + 1))
        columns["z"] = starts[columns["event"], columns["interaction"]].astype(np.float32)
        particles = Jagged.from_rows(columns.pop("event"), events, columns)
        return particles, scale.astype(np.float32), (soft + 1).astype(np.uint16)

    def _jets(self, event: Array, momentum: Array, eta: Array, azimuth: Array) -> dict[str, Array]:
        """The particles of one jet in each of some events."""
        random = self._random
        jet = np.repeat(np.arange(len(event)), random.poisson(4 + 4 * np.log(momentum / 10)) + 2)
        # Of the particles that share a jet's momentum, few have most of it.
        share = random.exponential(1, len(jet)) ** 1.5
        share /= np.bincount(jet, share, len(event))[jet]
        around = random.normal(0, JET_SPREAD, (2, len(jet)))
        return self._particles(
            event[jet], momentum[jet] * share, eta[jet] + around[0], azimuth[jet] + around[1]
        )

    def _soft_collisions(self, collisions: Array) -> dict[str, Array]:
        """The particles of the soft collisions of all events, of which `collisions` are the numbers."""
        random = self._random
        event = np.repeat(np.arange(len(collisions)), collisions)
        number = np.arange(len(event)) - np.repeat(np.cumsum(collisions) - collisions, collisions) + 1
        owner = np.repeat(np.arange(len(event)), random.poisson(SOFT_PARTICLES, len(event)))
        momentum = random.exponential(SOFT_MOMENTUM, len(owner))
        eta = random.uniform(-SOFT_ETA_MAX, SOFT_ETA_MAX, len(owner))
        azimuth = random.uniform(-np.pi, np.pi, len(owner))
        return self._particles(event[owner], momentum, eta, azimuth, number[owner])

    def _particles(
        self, event: Array, momentum: Array, eta: Array, azimuth: Array, interaction: Array | None = None
    ) -> dict[str, Array]:
        """Particles of random kinds; of the hard collision unless the number of another is given."""
        kinds = np.array(list(SPECIES))
        charge, mass, share = np.array(list(SPECIES.values())).T
        kind = self._random.choice(len(kinds), len(event), p=share / share.sum())
        vector = _vector(momentum, eta, azimuth)
        number = np.zeros(len(event)) if interaction is None else interaction
        return _rows(event, kinds[kind], charge[kind], mass[kind], vector, number)

    def _muon_pairs(self, event: Array, momentum: Array, eta: Array, azimuth: Array) -> dict[str, Array]:
        """The muons of Z bosons, whose decays have no preferred direction in the boson's frame."""
        random, count = self._random, len(event)
        mass = np.clip(Z_MASS + Z_WIDTH / 2 * random.standard_cauchy(count), 40, 150)
        cosine, angle = random.uniform(-1, 1, count), random.uniform(-np.pi, np.pi, count)
        sine = np.sqrt(1 - cosine**2)
        along = np.array([sine * np.cos(angle), sine * np.sin(angle), cosine]) * mass / 2
        boson = _vector(momentum, eta, azimuth)
        energy = np.sqrt((boson**2).sum(axis=0) + mass**2)
        sign = np.array([[[1]], [[-1]]])
        # A boost by the boson's momentum, for both muons at once: shape (muons, components, events).
        parallel = sign[:, 0] * (boson * along).sum(axis=0) / (energy + mass)
        muons = sign * along + boson * ((parallel + mass / 2) / mass)[:, None]
        charges = np.repeat([-1, 1], count)
        return _rows(
            np.tile(event, 2),
            -charges * MUON,
            charges,
            np.full(2 * count, MUON_MASS),
            np.concatenate(list(muons), axis=1),
            np.zeros(2 * count),
        )


def _vector(momentum: Array, eta: Array, azimuth: Array) -> Array:
    """Momenta of shape (3, particles) from transverse ones."""
    return np.array([momentum * np.cos(azimuth), momentum * np.sin(azimuth), momentum * np.sinh(eta)])


def _rows(
    event: Array, kind: Array, charge: Array, mass: Array, momentum: Array, interaction: Array
) -> dict[str, Array]:
    columns = dict(zip(("px", "py", "pz"), momentum, strict=True))
    columns["energy"] = np.sqrt((momentum**2).sum(axis=0) + mass**2)
    columns["charge"] = charge
    return {
        "event": event,
        "pdg": kind.astype(np.int32),
        "interaction": interaction.astype(np.uint16),
        **{name: column.astype(np.float32) for name, column in columns.items()},
    }
