"""The replay of a trace on a disk with a high and a low mark.

Invariants:

1. Files are staged, kept and evicted as a whole. A read of a file that is not on the disk stages it.
2. When a file would take the disk above the high mark, files leave until it fits below the low mark. It is
   not among them.
3. A file larger than the low mark is staged at each read, and not kept.
4. Reads before `since` fill the disk and do not count.
"""

from __future__ import annotations

from dataclasses import dataclass

from .policy import Policy
from .traces import Trace

__all__ = ["Disk", "Replayed", "replay"]


@dataclass(frozen=True)
class Disk:
    """A disk of which files are evicted."""

    capacity: int
    """Bytes."""
    high: float
    low: float
    """Shares of the capacity: above `high` files leave until it is `low`."""


@dataclass
class Replayed:
    """Counts of reads and stagings."""

    reads: int = 0
    read_bytes: int = 0
    staged: int = 0
    staged_bytes: int = 0
    evicted: int = 0


def replay(trace: Trace, policy: Policy, disk: Disk, *, since: float = float("-inf")) -> Replayed:
    """Replay a trace with a policy that was made for it; reads from `since` (s) on count."""
    done, used = Replayed(), 0
    high, low = disk.high * disk.capacity, disk.low * disk.capacity
    sizes: list[int] = trace.sizes.tolist()
    is_there = bytearray(len(sizes))
    counted = int(trace.times.searchsorted(since))
    accesses = zip(trace.files.tolist(), trace.is_write.tolist(), strict=True)
    for at, (file, is_write) in enumerate(accesses):
        size = sizes[file]
        if at >= counted and not is_write:
            done.reads += 1
            done.read_bytes += size
            if not is_there[file]:
                done.staged += 1
                done.staged_bytes += size
        if is_there[file]:
            policy.hit(at, file)
            continue
        if size > low:
            continue
        if used + size > high:
            for victim in policy.victims():
                is_there[victim] = 0
                used -= sizes[victim]
                done.evicted += at >= counted
                if used + size <= low:
                    break
        policy.enter(at, file)
        is_there[file] = 1
        used += size
    return done
