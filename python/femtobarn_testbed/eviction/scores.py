"""Policies that give each file a score, and evict the file with the lowest."""

from __future__ import annotations

import math
from collections.abc import Iterator

from .policy import DAY_SECONDS, Policy
from .traces import Trace, next_accesses

__all__ = ["Bound", "DynamicAgeing", "GreedyDualSizeFrequency", "RecencyFrequency", "SecondLast"]

HALF_LIFE_SECONDS = 3 * DAY_SECONDS
"""LRFU: the time after which an access counts half; of 3, 7, 14 and 30 days the best on made-up traces."""


class Scored(Policy):
    """The file with the lowest score; of equal ones the one that was accessed longest ago."""

    def __init__(self, trace: Trace, capacity: int, seed: int) -> None:
        super().__init__(trace, capacity, seed)
        self.scores: dict[int, tuple[float, int]] = {}

    def enter(self, at: int, file: int) -> None:
        self.scores[file] = (self.score(at, file), at)

    def hit(self, at: int, file: int) -> None:
        self.scores[file] = (self.score(at, file), at)

    def score(self, at: int, file: int) -> float:
        """Return the score of a file after an access to it."""
        raise NotImplementedError

    def victims(self) -> Iterator[int]:
        for file in sorted(self.scores, key=self.scores.__getitem__):
            self.leave(file)
            yield file

    def leave(self, file: int) -> None:
        """Forget a victim."""
        del self.scores[file]


class DynamicAgeing(Scored):
    """LFU-DA: the file with the lowest count of accesses since it entered, to which the score of the last
    victim is added at each access [Arlitt 2000]. So files that were once popular leave in the end."""

    def __init__(self, trace: Trace, capacity: int, seed: int) -> None:
        super().__init__(trace, capacity, seed)
        self.age = 0.0
        self.counts: dict[int, int] = {}

    def score(self, at: int, file: int) -> float:
        self.counts[file] = self.counts.get(file, 0) + 1
        return self.age + self.counts[file] * self.value(file)

    def value(self, file: int) -> float:
        """Return the cost of staging a file, divided by its size: 1 if the cost is the number of bytes."""
        return 1.0

    def leave(self, file: int) -> None:
        self.age = self.scores[file][0]
        super().leave(file)
        del self.counts[file]


class GreedyDualSizeFrequency(DynamicAgeing):
    """GDSF: like LFU-DA, but the count is divided by the size, so large files leave first [Cherkasova 1998].
    It saves requests, not bytes."""

    def value(self, file: int) -> float:
        return 1e9 / float(self.sizes[file])


class SecondLast(Scored):
    """LRU-2: the file whose last access but one is longest ago, before all those with a single one
    [O'Neil 1993]. An access within a day of the last one that counted does not count: it is correlated. The
    times of files that left are remembered."""

    def __init__(self, trace: Trace, capacity: int, seed: int) -> None:
        super().__init__(trace, capacity, seed)
        self.days: dict[int, tuple[float, float]] = {}

    def score(self, at: int, file: int) -> float:
        now = self.times[at]
        before, last = self.days.get(file, (float("-inf"), float("-inf")))
        if now - last >= DAY_SECONDS:
            before, last = last, now
            self.days[file] = (before, last)
        return before


class RecencyFrequency(Scored):
    """LRFU: the file with the fewest accesses, where an access counts half after a half-life [Lee 2001], and
    not if it is within a day of the last one that counted. The counts of files that left are remembered."""

    def __init__(self, trace: Trace, capacity: int, seed: int) -> None:
        super().__init__(trace, capacity, seed)
        self.days: dict[int, tuple[float, float]] = {}
        self.start = self.times[0] if self.times else 0.0

    def score(self, at: int, file: int) -> float:
        """Return log2 of the count, aged to the start of the trace. All counts age alike, so this orders
        files at any later moment."""
        now = self.times[at]
        count, last = self.days.get(file, (0.0, float("-inf")))
        if now - last >= DAY_SECONDS:
            count = count * 2.0 ** ((last - now) / HALF_LIFE_SECONDS) + 1.0
            last = now
            self.days[file] = (count, last)
        return math.log2(count) + (last - self.start) / HALF_LIFE_SECONDS


class Bound(Scored):
    """The file whose next access is farthest in the future [Belady 1966]. For files of one size no policy
    stages less; for others the bound is approximate."""

    def __init__(self, trace: Trace, capacity: int, seed: int) -> None:
        super().__init__(trace, capacity, seed)
        self.following = next_accesses(trace)

    def score(self, at: int, file: int) -> float:
        return -float(self.following[at])
