"""Whether measurements grow: the slope of Theil and Sen, with its interval by Kendall's statistic.

The slope is the median of the slopes of all pairs of points, which a third of outliers does not move.
Neighbouring samples of a process resemble each other, so that an interval for independent ones would be too
narrow: each point is the median of the samples of one of at most `POINTS_MAX` equal times.

A series fails if both are so: the interval's lower end is above zero, so that it grows; and the growth over
the time that was looked at is more than its rule allows, so that the growth matters. The longer a run, the
smaller the leak that it finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["POINTS_MIN", "Rule", "Series", "Trend", "trend_of"]

POINTS_MAX = 40
POINTS_MIN = 12
"""Fewer points than these tell nothing: the run was too short."""
SECONDS_MIN = 120.0
"""So does less time than this, in which what starts is not over."""
QUANTILE = 2.576
"""Of the normal distribution, for an interval of 99 %."""

Array = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Rule:
    """How much a series may grow over the time that is looked at: the larger of the two."""

    share: float
    """Of its median."""
    amount: float
    """In its unit."""


@dataclass(frozen=True)
class Series:
    """Samples of one quantity."""

    name: str
    unit: str
    rule: Rule
    times: Sequence[float]
    """Seconds since the begin of the run."""
    values: Sequence[float]
    lives: Sequence[int]
    """Which samples belong together: those of a server until it is started again."""


@dataclass(frozen=True)
class Trend:
    """What became of a series."""

    name: str
    unit: str
    points: int
    level: float
    """The median."""
    growth: float
    """By the slope, over the time that was looked at."""
    low: float
    high: float
    """The interval of the growth."""
    allowed: float
    verdict: str
    """``flat``, ``grows`` or ``short``: too few points, or too little time, to tell."""

    def __str__(self) -> str:
        between = f"between {self.low:+.3g} and {self.high:+.3g}"
        return (
            f"{self.name}: {self.verdict}; {self.level:.4g} {self.unit}, {self.growth:+.3g} in the run "
            f"({between}), {self.allowed:.3g} allowed"
        )


def trend_of(series: Series, warm_up: float) -> Trend:
    """Return the trend of a series behind its first `warm_up` seconds, and behind as many of each life."""
    times, values, lives = points_of(series, warm_up)
    level = float(np.median(values)) if len(values) else 0.0
    allowed = max(series.rule.share * abs(level), series.rule.amount)
    slopes, deviation = pairs_of(times, values, lives)
    if len(times) < POINTS_MIN or not len(slopes) or times[-1] - times[0] < SECONDS_MIN:
        return Trend(series.name, series.unit, len(times), level, 0.0, 0.0, 0.0, allowed, "short")
    span = float(times[-1] - times[0])
    beyond = QUANTILE * deviation / 2
    middle = (len(slopes) - 1) / 2
    low = slopes[max(int(np.floor(middle - beyond)), 0)] * span
    high = slopes[min(int(np.ceil(middle + beyond)), len(slopes) - 1)] * span
    growth = float(np.median(slopes)) * span
    verdict = "grows" if low > 0 and growth > allowed else "flat"
    return Trend(
        series.name, series.unit, len(times), level, growth, float(low), float(high), allowed, verdict
    )


def points_of(series: Series, warm_up: float) -> tuple[Array, Array, Array]:
    """Return the medians of the samples by time and life: their times, values and lives."""
    times, values = np.asarray(series.times, float), np.asarray(series.values, float)
    lives = np.asarray(series.lives, float)
    began = {life: times[lives == life].min() for life in set(lives.tolist())}
    late = times >= np.array([max(began[life], 0.0) + warm_up for life in lives.tolist()])
    times, values, lives = times[late], values[late], lives[late]
    if not len(times):
        return times, values, lives
    width = max(float(times.max() - times.min()) / POINTS_MAX, 1e-9)
    places = np.minimum((times - times.min()) // width, POINTS_MAX - 1)
    keys = sorted({*zip(lives.tolist(), places.tolist(), strict=True)}, key=lambda key: (key[1], key[0]))
    found = [
        (np.median(times[chosen]), np.median(values[chosen]), life)
        for life, place in keys
        for chosen in [(lives == life) & (places == place)]
    ]
    columns = np.array(found, float).T
    return columns[0], columns[1], columns[2]


def pairs_of(times: Array, values: Array, lives: Array) -> tuple[Array, float]:
    """Return the slopes of pairs within a life, in order, and the deviation of Kendall's statistic."""
    slopes: list[Array] = []
    variance = 0.0
    for life in np.unique(lives):
        x, y = times[lives == life], values[lives == life]
        first, second = np.triu_indices(len(x), 1)
        slopes.append((y[second] - y[first]) / np.maximum(x[second] - x[first], 1e-9))
        variance += len(x) * (len(x) - 1) * (2 * len(x) + 5) / 18
    return np.sort(np.concatenate(slopes)) if slopes else np.empty(0), float(np.sqrt(variance))
