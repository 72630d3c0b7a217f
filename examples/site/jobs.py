"""What the workers of the cluster do: tasks of Dask, which sends this file to them.

A task is told where the federation is, or gets a partition or a fork, which know it. It reads and writes at
the server that has the database.
"""

import time
from typing import Any, NamedTuple

import awkward as ak
import numpy as np

import femtobarn as fb
from femtobarn_demo.acquisition import blocks_of, reconstruction_of, writer_of
from femtobarn_demo.calibration import PROMPT
from femtobarn_demo.sources import EventPool, ParametricGenerator

SKIM = "skim/pairs"
PERIOD = 36_000_000_000
"""Time between events (ns)."""


@fb.persistent
class Pair:
    """Two muons of an event."""

    run: fb.uint32
    event: fb.uint64
    mass: fb.float32


class Selected(NamedTuple):
    """What a task of the selection returns: its receipt, and when it began and ended (s since 1970)."""

    receipt: fb.Receipt
    began: float
    ended: float


def take_run(url: str, run: int, events: int) -> int:
    """Write the raw events of a run, then what is reconstructed from them; return the bytes of the former."""
    pool = EventPool.made_by(ParametricGenerator(run), events=events, seed=run)
    with fb.open(url) as fed:
        _, size = writer_of(fed, pool, run, events, PERIOD)(lambda _: None)
        reconstruction_of(fed, blocks_of(run, events), PROMPT)(lambda _: None)
    return size


def select(fork: fb.Fork, part: Any) -> Selected:
    """Write the pairs of muons among a part of the tags. However often it runs, they count once."""
    began = time.time()
    tags = part.arrays(["run", "event", "tracks.tracks"], where="n_muons == 2")
    with fork.task(part.key) as task:
        task[SKIM].extend({"run": tags.run, "event": tags.event, "mass": masses(tags["tracks"].tracks)})
    return Selected(task.receipt, began, time.time())


def masses(tracks: ak.Array) -> np.ndarray[Any, Any]:
    """Return the mass of the two muons of each event (GeV), from the tracks that links lead to."""
    first, second = (tracks[tracks.muon][:, number] for number in (0, 1))
    angles = np.cosh(first.eta - second.eta) - np.cos(first.phi - second.phi)
    found: np.ndarray[Any, Any] = ak.to_numpy(np.sqrt(2 * first.pt * second.pt * angles))
    return found
