"""Constants by time beside the truth of the simulation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import femtobarn
from femtobarn.jagged import Array
from femtobarn_demo.calibration.constants import FINAL, PROMPT
from femtobarn_demo.reconstruction import GAINS, SHIFTS, Constants
from femtobarn_demo.sources import START
from femtobarn_demo.sources.detector.state import HOUR, WEAK_SECTOR, true_gains, true_shifts

__all__ = ["Bars", "Timeline", "timelines", "typical_errors"]

POINTS = 600
"""Times at which the truth is drawn and compared."""

MICROMETRE = 1.0e-6

Bars = list[tuple[float, float, float]]
"""Validities of one channel: when each begins and ends (h since the start), and its value."""


@dataclass(frozen=True)
class Timeline:
    """The values of one channel by time.

    Parameters
    ----------
    title, unit
        For readers; the unit may be empty.
    hours, truth
        Shape (times,): times (h since the start), and the true values.
    prompt, final
        The constants under both global tags.
    """

    title: str
    unit: str
    hours: Array
    truth: Array
    prompt: Bars
    final: Bars


def timelines(fed: femtobarn.Federation, hours: float) -> list[Timeline]:
    """Return a gain and a shift by time, in the first `hours` of the run."""
    jobs = fed.conditions(PROMPT), fed.conditions(FINAL)
    times = np.linspace(0.0, hours, POINTS)
    gain, shift = ([_bars(job, *where, hours) for job in jobs] for where in _SHOWN)
    truth = true_gains(times)[:, WEAK_SECTOR], true_shifts(times)[:, 1, 0] / MICROMETRE
    prompt, final = ([(since, until, value / MICROMETRE) for since, until, value in bars] for bars in shift)
    return [
        Timeline(f"Gain of sector {WEAK_SECTOR}", "", times, truth[0], *gain),
        Timeline("Shift of the outer barrel in x", "µm", times, truth[1], prompt, final),
    ]


_SHOWN = ((GAINS, WEAK_SECTOR, "value"), (SHIFTS, 1, "x"))
"""Series, channels and fields that are drawn."""


def _bars(job: femtobarn.Job, path: str, channel: int, field: str, hours: float) -> Bars:
    """The conditions of one channel during the run."""
    series = job[path]
    span = START, START + round(hours * HOUR)
    found = series.intervals(*span, channel=channel)
    since = np.array([max(each.since, span[0]) for each in found], np.int64)
    until = np.array([min(each.until, span[1]) for each in found], np.int64)
    values = series.at(since, [field], channel=channel, required=True)[field].to_list()
    begins, ends = ((moments - START) / HOUR for moments in (since, until))
    return list(zip(begins.tolist(), ends.tolist(), values, strict=True))


def typical_errors(job: femtobarn.Job, hours: float) -> tuple[float, float]:
    """Return how far a job's gains and shifts (m) are from the truth: root mean square of all channels."""
    times = np.linspace(0.0, hours, POINTS, endpoint=False)
    constants = Constants.at(job, START + np.rint(times * HOUR).astype(np.int64))
    gains = constants.gains - true_gains(times)
    shifts = constants.shifts[:, :-1] - true_shifts(times)
    return float(np.sqrt(np.mean(gains**2))), float(np.sqrt(np.mean(shifts**2)))
