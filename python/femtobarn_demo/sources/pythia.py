"""Collision events from Pythia 8 as columns of final-state particles.

Every event is one hard proton-proton collision at 14 TeV with a Poisson number of minimum-bias
collisions on top of it (pile-up). Minimum-bias collisions are drawn from a small pool, since generating
each anew would cost ten times as much. All particles start on the beam line: decay lengths in the
transverse plane are neglected.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

from femtobarn.jagged import Array, Jagged, ranges

__all__ = ["Generator", "GeneratorSettings"]

BEAM_SPREAD = 0.045
"""Standard deviation of the collisions' positions along the beam (m)."""

MILLIMETRE = 1.0e-3

MINIMUM_BIAS = ["SoftQCD:inelastic = on"]

TABLES = Path(__file__).parent / "pythia_tables"
"""Integrals over multiparton interactions that Pythia needs for minimum-bias collisions, a file for each
version of Pythia. They take seven seconds of CPU time; a version without a file computes them at each
start."""


@dataclass(frozen=True)
class GeneratorSettings:
    """The physics to generate.

    Parameters
    ----------
    momentum_min
        Least transverse momentum of the hard process (GeV).
    pileup
        Mean number of minimum-bias collisions on top of each hard one.
    pileup_pool
        Number of different minimum-bias collisions to draw from.
    """

    momentum_min: float = 50.0
    pileup: float = 12.0
    pileup_pool: int = 500


class Generator:
    """Makes collision events; one seed gives one sequence of events.

    Parameters
    ----------
    seed
        From 1 to 899,999,999, the range of Pythia.
    """

    def __init__(self, seed: int, settings: GeneratorSettings | None = None) -> None:
        self._settings = settings or GeneratorSettings()
        self._random = np.random.default_rng(seed)
        self._charges: dict[int, float] = {}
        cards = ["HardQCD:all = on", f"PhaseSpace:pTHatMin = {self._settings.momentum_min}"]
        self._pythia = _start_pythia(cards, seed)
        self._pool: Jagged | None = None
        if self._settings.pileup > 0:
            soft = _start_pythia([*MINIMUM_BIAS, *_read_tables()], seed + 1)
            self._pool, _ = self._final_state(soft, self._settings.pileup_pool)

    def generate(self, events: int) -> tuple[Jagged, Array, Array]:
        """Generate a batch.

        Returns
        -------
        particles
            Columns ``pdg``, ``charge`` (e), ``px``, ``py``, ``pz``, ``energy`` (GeV), ``z`` (m, where
            the particle starts) and ``interaction`` (0 is the hard one).
        scale
            Shape (events,), transverse momentum of the hard process (GeV).
        interactions
            Shape (events,), number of collisions in each event.
        """
        hard, scale = self._final_state(self._pythia, events)
        hard.columns["z"][:] += np.repeat(self._beam_positions(events), hard.counts)
        if self._pool is None:
            return hard, scale, np.ones(events, np.uint16)
        soft, counts = self._pileup(self._pool, events)
        return Jagged.concatenate([hard, soft]), scale, (counts + 1).astype(np.uint16)

    def _beam_positions(self, collisions: int) -> Array:
        return self._random.normal(0.0, BEAM_SPREAD, collisions).astype(np.float32)

    def _pileup(self, pool: Jagged, events: int) -> tuple[Jagged, Array]:
        """Particles of the minimum-bias collisions, and how many collisions each event got."""
        counts = self._random.poisson(self._settings.pileup, events)
        total = int(counts.sum())
        picked = pool.take(self._random.integers(0, len(pool), total))
        columns = dict(picked.columns)
        columns["z"] = columns["z"] + np.repeat(self._beam_positions(total), picked.counts)
        numbers = ranges(np.ones(events), counts)
        columns["interaction"] = np.repeat(numbers, picked.counts).astype(np.uint16)
        owners = np.repeat(np.repeat(np.arange(events), counts), picked.counts)
        return Jagged.from_rows(owners, events, columns), counts

    def _final_state(self, pythia: Any, events: int) -> tuple[Jagged, Array]:
        """Run Pythia; the loop over events is its own, in C++."""
        batch = pythia.nextBatch(events)
        record = batch.prt
        final = record[record.status > 0]
        flat = ak.flatten(final)
        pdg = ak.to_numpy(flat.id).astype(np.int32)
        columns = {
            "pdg": pdg,
            "charge": self._charge(pythia, pdg),
            "px": _single_precision(flat.p.px),
            "py": _single_precision(flat.p.py),
            "pz": _single_precision(flat.p.pz),
            "energy": _single_precision(flat.p.e),
            "z": _single_precision(ak.fill_none(flat.vProd.pz, 0.0)) * np.float32(MILLIMETRE),
            "interaction": np.zeros(len(pdg), np.uint16),
        }
        counts = ak.to_numpy(ak.num(final))
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        scale = np.sqrt(_single_precision(batch.info.pT2Hat))
        return Jagged(offsets, columns), scale

    def _charge(self, pythia: Any, pdg: Array) -> Array:
        """Electric charges (e), looked up once for every kind of particle."""
        kinds, inverse = np.unique(pdg, return_inverse=True)
        for kind in kinds:
            if int(kind) not in self._charges:
                self._charges[int(kind)] = pythia.particleData.charge(int(kind))
        return np.array([self._charges[int(kind)] for kind in kinds], np.float32)[inverse]


def _single_precision(values: ak.Array) -> Array:
    column: Array = ak.to_numpy(values).astype(np.float32)
    return column


def write_tables(path: Path) -> None:
    """Let Pythia compute the tables for minimum-bias collisions, always from the same random numbers."""
    writing = [f"MultipartonInteractions:initFile = {path}", "MultipartonInteractions:reuseInit = 1"]
    _start_pythia([*MINIMUM_BIAS, *writing], seed=1)


def tables_of_this_version() -> Path:
    """The file in `TABLES` for the version of Pythia that is installed."""
    import pythia8mc

    version = pythia8mc.Pythia("", False).settings.parm("Pythia:versionNumber")
    return TABLES / f"{version:.3f}.txt"


def _read_tables() -> list[str]:
    """Settings by which Pythia reads the tables, if there is a file for its version."""
    path = tables_of_this_version()
    if not path.exists():
        return []
    return [f"MultipartonInteractions:initFile = {path}", "MultipartonInteractions:reuseInit = 2"]


def _start_pythia(cards: list[str], seed: int) -> Any:
    """A silent Pythia for proton collisions at 14 TeV."""
    import pythia8mc

    pythia = pythia8mc.Pythia("", False)
    common = ["Print:quiet = on", "Beams:eCM = 14000.", "Random:setSeed = on", f"Random:seed = {seed}"]
    for card in [*common, *cards]:
        if not pythia.readString(card):
            raise ValueError(f"pythia refuses the setting {card!r}")
    if not pythia.init():
        raise RuntimeError("pythia did not initialise; run it with Print:quiet = off to see why")
    return pythia
