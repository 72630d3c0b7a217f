"""Records of a client's operations, and their summary over a window.

Times are seconds of the machine's monotonic clock, which all processes share. A histogram's buckets are of
equal ratio, ten for each factor of ten, so histograms are added by adding their counts.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

__all__ = ["BUCKETS_PER_DECADE", "SHORTEST", "Recorder", "merge", "quantile"]

BUCKETS_PER_DECADE = 10
SHORTEST = 1e-6
"""Upper end of the first bucket (s)."""
LONGEST_DECADES = 9


class Recorder:
    """The operations of one client, of any number of kinds."""

    def __init__(self) -> None:
        self._starts: dict[str, array[float]] = {}
        self._ends: dict[str, array[float]] = {}
        self._bytes: dict[str, array[float]] = {}

    def add(self, kind: str, start: float, end: float, size: float = 0.0) -> None:
        """Record an operation and its amount: bytes of payload, or for computation the nominal seconds."""
        if kind not in self._starts:
            self._starts[kind], self._ends[kind], self._bytes[kind] = array("d"), array("d"), array("d")
        self._starts[kind].append(start)
        self._ends[kind].append(end)
        self._bytes[kind].append(size)

    def summary(self, first: float, last: float) -> dict[str, dict[str, Any]]:
        """Return by kind the count and histogram of operations that ended between two times, and the seconds
        and amounts inside them."""
        return {kind: self._summary_of(kind, first, last) for kind in self._starts}

    def _summary_of(self, kind: str, first: float, last: float) -> dict[str, Any]:
        starts, ends = np.frombuffer(self._starts[kind]), np.frombuffer(self._ends[kind])
        inside = np.minimum(ends, last) - np.maximum(starts, first)
        ended = (ends >= first) & (ends < last)
        took = (ends - starts)[ended]
        # An operation across an edge of the window counts for the part inside.
        with np.errstate(divide="ignore", invalid="ignore"):
            share = np.where(ends > starts, inside / (ends - starts), ended).clip(0.0, 1.0)
        return {
            "count": int(ended.sum()),
            "seconds": float(inside.clip(0.0).sum()),
            "amount": float((np.frombuffer(self._bytes[kind]) * share).sum()),
            "longest": float(took.max(initial=0.0)),
            "histogram": _histogram(took),
        }

    def series(self, kinds: Iterable[str], first: float, last: float, step: float) -> list[float]:
        """Return the amounts of some kinds that ended in each step between two times."""
        edges = np.linspace(first, last, max(round((last - first) / step), 1) + 1)
        total = np.zeros(len(edges) - 1)
        for kind in kinds:
            if kind in self._ends:
                ends, amounts = np.frombuffer(self._ends[kind]), np.frombuffer(self._bytes[kind])
                total += np.histogram(ends, edges, weights=amounts)[0]
        return [float(value) for value in total]


def _histogram(took: np.ndarray[Any, np.dtype[np.float64]]) -> list[int]:
    if not took.size:
        return []
    decades = np.log10(np.maximum(took, SHORTEST) / SHORTEST)
    buckets = np.minimum(decades * BUCKETS_PER_DECADE, LONGEST_DECADES * BUCKETS_PER_DECADE)
    return [int(count) for count in np.bincount(buckets.astype(int))]


def merge(summaries: Iterable[Mapping[str, Mapping[str, Any]]]) -> dict[str, dict[str, Any]]:
    """Return the summaries of several clients as one."""
    total: dict[str, dict[str, Any]] = {}
    for summary in summaries:
        for kind, one in summary.items():
            into = total.setdefault(
                kind, {"count": 0, "seconds": 0.0, "amount": 0.0, "longest": 0.0, "histogram": []}
            )
            for name in ("count", "seconds", "amount"):
                into[name] += one[name]
            into["longest"] = max(into["longest"], one["longest"])
            into["histogram"] = _added(into["histogram"], one["histogram"])
    return total


def _added(a: list[int], b: list[int]) -> list[int]:
    long, short = (a, b) if len(a) >= len(b) else (b, a)
    return [value + (short[index] if index < len(short) else 0) for index, value in enumerate(long)]


def quantile(histogram: list[int], share: float) -> float:
    """Return the duration that this share of operations did not exceed, to a bucket's width (26 %).

    Examples
    --------
    >>> round(quantile([0] * 30 + [10], 0.5), 6)
    0.001122
    >>> quantile([], 0.5)
    nan
    """
    total, seen = sum(histogram), 0
    for bucket, count in enumerate(histogram):
        seen += count
        if total and seen >= share * total and count:
            return float(SHORTEST * 10 ** ((bucket + 0.5) / BUCKETS_PER_DECADE))
    return math.nan
