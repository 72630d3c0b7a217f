"""The constants of calibration that reconstruction applies to a batch, each event with those of its time."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import femtobarn
from femtobarn.definitions import Definition, define
from femtobarn.jagged import Array, Jagged
from femtobarn_demo.sources.detector.geometry import (
    ECAL_SECTORS,
    STRIP_BARRELS,
    ecal_sector,
    strip_barrel,
)

__all__ = ["GAINS", "SERIES", "SHIFTS", "Constants"]

GAINS, SHIFTS = "ecal/gain", "strips/shift"
"""Paths of the two series; the channels are sectors and barrels."""

SERIES: dict[str, Definition] = {
    GAINS: define("EcalGain", ("value", "float64", "measured by true energy")),
    SHIFTS: define("StripShift", ("x", "float64", "m"), ("y", "float64", "m")),
}
"""The series that reconstruction reads, and their classes."""


@dataclass(frozen=True)
class Constants:
    """The constants of a batch.

    Parameters
    ----------
    gains
        Shape (events, sectors): measured by true energy of each sector of the electromagnetic calorimeter.
    shifts
        Shape (events, barrels + 1, 2): shifts of the strip tracker's barrels in x and y (m); the last row, 0,
        is that of the disks.
    """

    gains: Array
    shifts: Array

    @classmethod
    def perfect(cls, events: int) -> Constants:
        """Return those of a detector that needs no calibration."""
        return cls(np.ones((events, ECAL_SECTORS)), np.zeros((events, len(STRIP_BARRELS) + 1, 2)))

    @classmethod
    def at(cls, job: femtobarn.Job, times: Array) -> Constants:
        """Return those that a job reads at the times of events (ns since 1970)."""
        constants = cls.perfect(len(times))
        constants.gains[:] = _look_up(job[GAINS], times, ECAL_SECTORS)["value"]
        shifts = _look_up(job[SHIFTS], times, len(STRIP_BARRELS))
        for axis, name in enumerate(("x", "y")):
            constants.shifts[:, :-1, axis] = shifts[name]
        return constants

    def correct_energy(self, cells: Jagged) -> Jagged:
        """Return the electromagnetic cells with the energies that they would have with a gain of 1."""
        gain = self.gains[cells.owners, ecal_sector(cells["cell"])]
        return Jagged(cells.offsets, {**cells.columns, "energy": cells["energy"] / gain})

    def correct_position(self, strips: Jagged) -> Jagged:
        """Return the strip hits where they would be if the barrels had not moved."""
        shift = self.shifts[strips.owners, strip_barrel(strips["module"])]
        moved = {name: strips[name] - shift[:, axis] for axis, name in enumerate(("x", "y"))}
        return Jagged(strips.offsets, {**strips.columns, **moved})


def _look_up(series: femtobarn.Series, times: Array, channels: int) -> dict[str, Array]:
    """The fields of a series for each time and each channel from 0, each of shape (times, channels)."""
    moments = np.repeat(times.astype(np.int64), channels)
    channel = np.tile(np.arange(channels), len(times))
    found = series.at(moments, channel=channel, required=True)
    return {name: found[name].to_numpy().reshape(len(times), channels) for name in found.fields}
