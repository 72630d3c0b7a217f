"""The small federation of `femtobarn demo`: made in seconds, with the base installation alone.

The steps are those of the large demo, one after the other in this process, on events of
`ParametricGenerator`: raw events, reconstruction under the global tag `prompt`, then measured constants,
which `final` has.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

import femtobarn
from femtobarn_demo.acquisition import blocks_of, database_of, reconstruction_of, writer_of
from femtobarn_demo.calibration import PROMPT, calibrate, put_nominal
from femtobarn_demo.reconstruction import CONTAINERS as RECONSTRUCTED
from femtobarn_demo.sources import CONTAINERS, START, EventPool, ParametricGenerator
from femtobarn_demo.sources.detector.state import HOUR

__all__ = ["SNAPSHOT_TAG", "make_federation"]

RUNS, RUN_EVENTS, HOURS = 2, 300, 12
"""Runs, events of each, and the time over which all events are spread (h)."""

SEED = 1

SNAPSHOT_TAG = "first-pass"
"""The tag of the commit after the first pass of reconstruction."""


def make_federation(folder: str | os.PathLike[str], *, progress: bool = True) -> femtobarn.Federation:
    """Make a federation with raw and reconstructed events, constants of calibration, and a tag.

    Parameters
    ----------
    folder
        Folder to make. It must not exist, or be empty. It is removed again if this does not succeed.
    progress
        Show a progress bar on standard error.

    Raises
    ------
    ExistsError
        If the folder is not empty.
    """
    fed = femtobarn.create(folder)
    try:
        with tqdm(total=2 * RUNS * RUN_EVENTS, unit="event", disable=not progress, leave=False) as bar:
            _fill(fed, bar)
    except BaseException:
        fed.close()
        shutil.rmtree(Path(folder))
        raise
    return fed


def _fill(fed: femtobarn.Federation, bar: tqdm[Any]) -> None:
    """Write, reconstruct and calibrate; `bar` counts each event twice."""

    def report(events: int) -> None:
        bar.update(events)

    runs = range(1, RUNS + 1)
    pool = EventPool.made_by(ParametricGenerator(SEED), events=RUNS * RUN_EVENTS, seed=SEED)
    for run in runs:
        writer_of(fed, pool, run, RUN_EVENTS, HOURS * HOUR // len(pool))(report)
    put_nominal(fed, START)
    blocks = [block for run in runs for block in blocks_of(run, RUN_EVENTS)]
    reconstruction_of(fed, blocks, PROMPT)(report)
    fed.tag(SNAPSHOT_TAG, message="all events, with nominal constants")
    calibrate(
        fed,
        [f"{database_of(run)}/{CONTAINERS['RawEvent']}" for run in runs],
        [f"{database_of(run, PROMPT)}/{RECONSTRUCTED['Tracks']}" for run in runs],
        HOURS,
        # The pool is of a perfect detector; the stored events are of one whose gains change.
        reference=float(np.median(pool.events.parts["EcalCells"]["energy"])),
    )
