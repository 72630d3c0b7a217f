"""The calibration job: from the first pass to constants with validities."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

import femtobarn
from femtobarn_demo.calibration.constants import PROMPT, put_final
from femtobarn_demo.calibration.gains import REFERENCE, measure_gains
from femtobarn_demo.calibration.residuals import PointsOfTracks, read_points
from femtobarn_demo.calibration.shifts import measure_shifts
from femtobarn_demo.sources import START
from femtobarn_demo.sources.detector.state import HOUR

__all__ = ["calibrate"]

INTERVALS_MAX, INTERVAL_EVENTS = 12, 12
"""Most intervals of the run, and least number of events in each."""

TRACK_EVENTS = 20
"""Events of each interval whose tracks measure the shifts."""


def calibrate(
    fed: femtobarn.Federation,
    raw: Sequence[str],
    tracks: Sequence[str],
    hours: int,
    *,
    reference: float = REFERENCE,
) -> int:
    """Measure constants by intervals of the run, put them, and freeze the tag of the second pass.

    Parameters
    ----------
    raw, tracks
        The containers of `RawEvent` and `Tracks` objects of the first pass.
    hours
        Length of the run.
    reference
        Median energy of a cell of the electromagnetic calorimeter in a perfect detector (GeV).

    Returns
    -------
    Number of constants.
    """
    job = fed.conditions(PROMPT)
    snapshot = fed.snapshot()
    events = sum(len(snapshot[name]) for name in raw)
    intervals = min(max(events // INTERVAL_EVENTS, 1), INTERVALS_MAX)
    edges = START + np.linspace(0, hours * HOUR, intervals + 1).astype(np.int64)
    step = max(events // (intervals * TRACK_EVENTS), 1)
    points = PointsOfTracks.concatenate(
        [read_points(snapshot, snapshot[name][::step], job) for name in tracks]
    )
    gains = measure_gains(snapshot, raw, edges, reference)
    shifts = measure_shifts(points, edges, job)
    put_final(fed, edges, gains, shifts)
    return gains.size + shifts[:, :, 0].size
