"""Policies of queues in the order of entry, with marks on accessed files: S3-FIFO and SIEVE."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterator

from .policy import Policy
from .traces import Trace

__all__ = ["S3Fifo", "Sieve"]

SMALL_SHARE = 0.1
"""Share of the disk for the small queue; the ghost queue remembers as many bytes as the main queue has."""

COUNT_MAX = 3
PROMOTED_ABOVE = 1
"""Hits in the small queue above which a file goes to the main queue."""


class S3Fifo(Policy):
    """S3-FIFO [Yang 2023]: a file enters a small queue, and the main queue if it was hit there or comes back
    soon after it left. The main queue gives another round for each hit, at most three."""

    def __init__(self, trace: Trace, capacity: int, seed: int) -> None:
        super().__init__(trace, capacity, seed)
        self.small: OrderedDict[int, None] = OrderedDict()
        self.main: OrderedDict[int, None] = OrderedDict()
        self.ghost: OrderedDict[int, None] = OrderedDict()
        self.small_bytes = self.ghost_bytes = 0
        self.hits: dict[int, int] = {}

    def enter(self, at: int, file: int) -> None:
        self.hits[file] = 0
        if file in self.ghost:
            del self.ghost[file]
            self.ghost_bytes -= self.sizes[file]
            self.main[file] = None
        else:
            self.small[file] = None
            self.small_bytes += self.sizes[file]

    def hit(self, at: int, file: int) -> None:
        self.hits[file] = min(self.hits[file] + 1, COUNT_MAX)

    def victims(self) -> Iterator[int]:
        while self.small or self.main:
            is_small = self.small and (not self.main or self.small_bytes >= SMALL_SHARE * self.capacity)
            file = self._from_small() if is_small else self._from_main()
            if file is not None:
                del self.hits[file]
                yield file

    def _from_small(self) -> int | None:
        """The oldest file of the small queue, or None if it has gone to the main queue."""
        file, _ = self.small.popitem(last=False)
        self.small_bytes -= self.sizes[file]
        if self.hits[file] > PROMOTED_ABOVE:
            self.hits[file] = 0
            self.main[file] = None
            return None
        self.ghost[file] = None
        self.ghost_bytes += self.sizes[file]
        while self.ghost_bytes > (1 - SMALL_SHARE) * self.capacity:
            forgotten, _ = self.ghost.popitem(last=False)
            self.ghost_bytes -= self.sizes[forgotten]
        return file

    def _from_main(self) -> int | None:
        """The oldest file of the main queue, or None if it has gone to the end of that queue."""
        file, _ = self.main.popitem(last=False)
        if self.hits[file]:
            self.hits[file] -= 1
            self.main[file] = None
            return None
        return file


class Sieve(Policy):
    """SIEVE [Zhang 2024]: a hand goes through the queue from the oldest file to the newest and again from the
    start; it takes the mark from marked files, which stay where they are, and evicts the others."""

    def __init__(self, trace: Trace, capacity: int, seed: int) -> None:
        super().__init__(trace, capacity, seed)
        self.passed: deque[int] = deque()
        self.ahead: deque[int] = deque()
        """Files that the hand has passed in this round, and those ahead: together the queue, oldest first."""
        self.marked: set[int] = set()

    def enter(self, at: int, file: int) -> None:
        self.ahead.append(file)

    def hit(self, at: int, file: int) -> None:
        self.marked.add(file)

    def victims(self) -> Iterator[int]:
        while self.ahead:
            file = self.ahead.popleft()
            is_marked = file in self.marked
            if is_marked:
                self.marked.remove(file)
                self.passed.append(file)
            # A file that enters now is newer than all that was passed.
            if not self.ahead:
                self.ahead, self.passed = self.passed, self.ahead
            if not is_marked:
                yield file
