"""All policies by their names, with their publications.

[Arlitt 2000] M. Arlitt et al., Evaluating content management techniques for web proxy caches. [Belady 1966]
L. Belady, A study of replacement algorithms for a virtual-storage computer. [Cherkasova 1998] L. Cherkasova,
Improving WWW proxies performance with Greedy-Dual-Size-Frequency caching policy. [Lee 2001] D. Lee et al.,
LRFU. [O'Neil 1993] E. O'Neil et al., The LRU-K page replacement algorithm. [Yang 2023] J. Yang et al., FIFO
queues are all you need for cache eviction. [Zhang 2024] Y. Zhang et al., SIEVE is simpler than LRU.
"""

from __future__ import annotations

from collections.abc import Mapping

from .policy import FirstIn, LeastRecentlyUsed, Policy, RandomFile, Relatime
from .queues import S3Fifo, Sieve
from .scores import Bound, DynamicAgeing, GreedyDualSizeFrequency, RecencyFrequency, SecondLast

__all__ = ["BASE", "BOUND", "POLICIES"]

BASE = "LRU"
"""The policy that the others are compared with."""

BOUND = "bound"

POLICIES: Mapping[str, type[Policy]] = {
    "random": RandomFile,
    "FIFO": FirstIn,
    BASE: LeastRecentlyUsed,
    "LRU, relatime": Relatime,
    "LRU-2": SecondLast,
    "LFU-DA": DynamicAgeing,
    "LRFU": RecencyFrequency,
    "GDSF": GreedyDualSizeFrequency,
    "S3-FIFO": S3Fifo,
    "SIEVE": Sieve,
    BOUND: Bound,
}
