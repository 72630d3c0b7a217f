"""Look-ups and reading through caches; processes of their own import this without the packages of tests."""

from __future__ import annotations

from typing import Any

import numpy as np

import femtobarn as fb

__all__ = ["INTERVALS", "look_up", "read"]

INTERVALS = 40_000
"""Intervals of each of two channels, enough for several windows."""


def look_up(fed: fb.Federation) -> list[float | None]:
    """Values of the series at moments of all windows and gaps, in no order, then those of single events."""
    series = fed.conditions()["tpc/gain"]
    moments = np.random.default_rng(1).integers(0, INTERVALS * 10, 3_000)
    found = [series.at(moments, "value", channel=channel).value.to_list() for channel in (0, 1)]
    events = fed["run7/events"]
    return [*found[0], *found[1], *events.arrays("value").value.to_list(), events[7].value]


def read(url: str, **options: Any) -> tuple[list[float | None], dict[str, fb.TierStatistics]]:
    """Look up in a federation that is opened for it; also return what was read from where."""
    with fb.open(url, threads=1, **options) as fed:
        found = look_up(fed)
        return found, {tier.name: tier for tier in fed.read_statistics()}
