"""A day of recalls from tape: datasets are asked for at random times, and each drive takes tape after tape.

The databases of a dataset that lie on one tape come back in one visit of a drive, in the order of the tape,
as Femtobarn asks for them (docs/storage.md). Recalls take hours, so they are simulated apart from the
site's minutes.
"""

from __future__ import annotations

from collections.abc import Generator
from random import Random
from typing import Any

import numpy as np
import simpy

from .site_file import Tapes
from .stations import Pool

__all__ = ["simulate_recalls"]

DAY_SECONDS = 86_400.0
DAYS = 3
"""Simulated days. Recalls that were asked for within the first are not counted."""


def simulate_recalls(tapes: Tapes, load: float, *, seed: int = 1) -> dict[str, float]:
    """Return ``median_seconds`` and ``p99_seconds`` of a database's recall, and the drives' ``utilisation``.

    Parameters
    ----------
    load
        Multiple of the described recalls.
    """
    random, env = Random(seed), simpy.Environment()
    drives = Pool(env, tapes.drives, random)
    waits: list[float] = []
    busy_at = [0.0]

    def ask() -> Generator[simpy.Event, Any, None]:
        per_second = load * tapes.bytes_per_day / tapes.database_bytes / tapes.dataset_databases / DAY_SECONDS
        while True:
            yield env.timeout(random.expovariate(per_second))
            for number in range(tapes.dataset_tapes):
                of_tape = len(range(number, tapes.dataset_databases, tapes.dataset_tapes))
                took = _visit(tapes, of_tape, random)
                ended = drives.serve(took[-1])
                if env.now >= DAY_SECONDS:
                    waits.extend(ended - took[-1] + moment for moment in took)

    def watch() -> Generator[simpy.Event, Any, None]:
        yield env.timeout(DAY_SECONDS)
        busy_at[0] = drives.busy()

    env.process(ask())
    env.process(watch())
    env.run(until=DAYS * DAY_SECONDS)
    used = (drives.busy() - busy_at[0]) / tapes.drives / (DAYS - 1) / DAY_SECONDS
    median, high = np.quantile(waits, [0.5, 0.99]) if waits else (0.0, 0.0)
    return {"median_seconds": float(median), "p99_seconds": float(high), "utilisation": min(used, 1.0)}


def _visit(tapes: Tapes, databases: int, random: Random) -> list[float]:
    """The moments of a visit at which its databases have been read."""
    each = tapes.locate_seconds + tapes.database_bytes / tapes.bytes_per_second
    mounted = tapes.mount_seconds * random.uniform(2 / 3, 4 / 3)
    return [mounted + (number + 1) * each for number in range(databases)]
