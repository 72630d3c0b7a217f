"""Policies of eviction, which choose the file that leaves the disk next, and those with a single queue.

A policy is notified of every file that enters the disk (`enter`) and of every access to a file on it (`hit`),
and names the files that leave (`victims`), one after the other, until the disk has room.

Invariants:

1. A file is a victim only while it is on the disk. When it is yielded, the policy has forgotten it, but for
   what the policy is said to remember.
2. The same trace, capacity and seed give the same victims.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Iterator

from .traces import Trace

__all__ = ["DAY_SECONDS", "FirstIn", "LeastRecentlyUsed", "Policy", "RandomFile", "Relatime"]

DAY_SECONDS = 86_400.0


class Policy(ABC):
    """Which file leaves.

    Parameters
    ----------
    trace
        For times and sizes; only the bound looks ahead.
    capacity
        Bytes of the disk.
    seed
        Of random choices.
    """

    def __init__(self, trace: Trace, capacity: int, seed: int) -> None:
        self.times: list[float] = trace.times.tolist()
        self.sizes: list[int] = trace.sizes.tolist()
        self.capacity = capacity

    @abstractmethod
    def enter(self, at: int, file: int) -> None:
        """A file was staged or written by the access at this position of the trace."""

    def hit(self, at: int, file: int) -> None:  # noqa: B027 (a policy need not look at hits)
        """A file that is on the disk was accessed."""

    @abstractmethod
    def victims(self) -> Iterator[int]:
        """Yield the files that leave."""


class RandomFile(Policy):
    """Any file."""

    def __init__(self, trace: Trace, capacity: int, seed: int) -> None:
        super().__init__(trace, capacity, seed)
        self.random = random.Random(seed)
        self.files: list[int] = []

    def enter(self, at: int, file: int) -> None:
        self.files.append(file)

    def victims(self) -> Iterator[int]:
        while self.files:
            chosen = self.random.randrange(len(self.files))
            self.files[chosen], self.files[-1] = self.files[-1], self.files[chosen]
            yield self.files.pop()


class FirstIn(Policy):
    """FIFO: the file that entered first."""

    def __init__(self, trace: Trace, capacity: int, seed: int) -> None:
        super().__init__(trace, capacity, seed)
        self.queue: OrderedDict[int, None] = OrderedDict()

    def enter(self, at: int, file: int) -> None:
        self.queue[file] = None

    def victims(self) -> Iterator[int]:
        while self.queue:
            yield self.queue.popitem(last=False)[0]


class LeastRecentlyUsed(FirstIn):
    """LRU: the file whose last access is longest ago."""

    def hit(self, at: int, file: int) -> None:
        self.queue.move_to_end(file)


class Relatime(LeastRecentlyUsed):
    """LRU by the access times of a Linux file system with its default options (``relatime``), which change at
    most once a day."""

    def __init__(self, trace: Trace, capacity: int, seed: int) -> None:
        super().__init__(trace, capacity, seed)
        self.accessed: dict[int, float] = {}

    def enter(self, at: int, file: int) -> None:
        super().enter(at, file)
        self.accessed[file] = self.times[at]

    def hit(self, at: int, file: int) -> None:
        if self.times[at] - self.accessed[file] >= DAY_SECONDS:
            super().hit(at, file)
            self.accessed[file] = self.times[at]
