"""A toy detector: from final-state particles to the six parts of a raw event."""

from __future__ import annotations

import numpy as np

from femtobarn.jagged import Jagged
from femtobarn_demo.sources.detector.calorimeter import simulate_calorimeters
from femtobarn_demo.sources.detector.muon import simulate_muons
from femtobarn_demo.sources.detector.tracker import simulate_tracker
from femtobarn_demo.sources.detector.trigger import simulate_trigger
from femtobarn_demo.sources.model import columns_of

__all__ = ["simulate"]


def simulate(particles: Jagged, random: np.random.Generator) -> dict[str, Jagged]:
    """Simulate all parts of a batch of raw events.

    Parameters
    ----------
    particles
        Final-state particles as `femtobarn_demo.sources.pythia.Generator.generate` gives them.

    Returns
    -------
    The columns of each of the six parts, of the types that its class declares.
    """
    parts = simulate_tracker(particles, random) | simulate_calorimeters(particles, random)
    parts["MuonHits"] = simulate_muons(particles, random)
    parts["TrigTowers"] = simulate_trigger(parts["EcalCells"], parts["HcalCells"])
    return {part: _in_declared_order(part, rows) for part, rows in parts.items()}


def _in_declared_order(part: str, rows: Jagged) -> Jagged:
    declared = columns_of(part)
    columns = {name: np.ascontiguousarray(rows[name], dtype=dtype) for name, dtype in declared.items()}
    return Jagged(rows.offsets, columns)
