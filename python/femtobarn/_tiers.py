"""Statistics of a process's reads from the caches in front of a server."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TierStatistics"]


@dataclass(frozen=True)
class TierStatistics:
    """Statistics of reads from a cache, or from the server, since the federation was opened."""

    name: str
    """``disk cache``, ``memcached``, ``server``, or the URL of one of several servers."""
    hits: int
    """Ranges of files that it returned."""
    misses: int
    """Ranges that it was asked for and did not have; 0 for the server."""
    bytes: int
    """Bytes that it returned."""
    damaged: int
    """Pieces that were damaged or forged, which should be 0. They were read from elsewhere, and replaced."""
    failures: int
    """How often it failed or did not answer in time, and was left out for a while."""
