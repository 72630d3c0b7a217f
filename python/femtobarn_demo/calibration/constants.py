"""Putting constants into the series, and the global tags that name a version of them."""

from __future__ import annotations

import numpy as np

import femtobarn
from femtobarn.jagged import Array
from femtobarn_demo.reconstruction import GAINS, SERIES, SHIFTS
from femtobarn_demo.sources.detector.geometry import ECAL_SECTORS, STRIP_BARRELS

__all__ = ["FINAL", "PROMPT", "put_final", "put_nominal"]

PROMPT, FINAL = "prompt", "final"
"""Global tags of the first and of the second pass."""


def put_nominal(fed: femtobarn.Federation, start: int) -> None:
    """Make the series with nominal constants, valid from a time (ns) on, and freeze `PROMPT`."""
    with fed.transaction(message="nominal constants") as txn:
        gains, shifts = (txn.series(path, definition, create=True) for path, definition in SERIES.items())
        gains.extend({"value": np.ones(ECAL_SECTORS)}, since=start, channel=np.arange(ECAL_SECTORS))
        still = np.zeros(len(STRIP_BARRELS))
        shifts.extend({"x": still, "y": still}, since=start, channel=np.arange(len(STRIP_BARRELS)))
    fed.conditions.create_tag(PROMPT, state="frozen", message="first pass")


def put_final(fed: femtobarn.Federation, edges: Array, gains: Array, shifts: Array) -> None:
    """Put measured constants, which hide the nominal ones, and freeze `FINAL`.

    Parameters
    ----------
    edges
        Shape (intervals + 1,): where the intervals of the run begin and end (ns since 1970).
    gains, shifts
        Shape (intervals, sectors) and (intervals, barrels, 2), as `measure_gains` and `measure_shifts`
        return them.
    """
    with fed.transaction(message="constants measured with the first pass") as txn:
        for path, columns in (
            (GAINS, {"value": gains}),
            (SHIFTS, {"x": shifts[:, :, 0], "y": shifts[:, :, 1]}),
        ):
            intervals, channels = next(iter(columns.values())).shape
            txn.series(path).extend(
                {name: np.ravel(values) for name, values in columns.items()},
                since=np.repeat(edges[:-1], channels),
                until=np.repeat(edges[1:], channels),
                channel=np.tile(np.arange(channels), intervals),
            )
    fed.conditions.create_tag(FINAL, state="frozen", message="second pass")
