"""Figures of phases: the bytes that clients read, by second and by server.

A block counts in the second in which it arrived. Rates are means over the second half of a phase, when it is
steady.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .clients import Visit

__all__ = ["WINDOW_SECONDS", "emptied_after", "figures_of", "rate_of", "reached_after", "totals_of"]

WINDOW_SECONDS = 5
"""Seconds over which a rate is averaged that is compared with the aim."""
FAILURES_MAX = 5
"""Failures whose text is kept."""


def figures_of(
    visits: Sequence[Visit], seconds: int, names: Mapping[str, str], hot_file: str
) -> dict[str, Any]:
    """Return the figures of a phase.

    Parameters
    ----------
    names
        Names of servers by ``host:port``.
    """
    failures = [visit.failure for visit in visits if visit.failure]
    good = [visit for visit in visits if visit.server in names]
    read = {name: [0] * seconds for name in names.values()}
    clients = {name: [0] * seconds for name in names.values()}
    last: dict[str, float | None] = dict.fromkeys(names.values())
    for visit in good:
        name = names[visit.server]
        if visit.file == hot_file:
            last[name] = max(last[name] or 0.0, visit.opened)
        for moment, size in visit.reads:
            if moment < seconds:
                read[name][int(moment)] += size
        # Clients are counted in the middle of each second.
        for second in range(round(visit.opened), min(round(visit.closed), seconds)):
            clients[name][second] += 1
    return {
        "seconds": seconds,
        "failures": len(failures),
        "failure_texts": failures[:FAILURES_MAX],
        "blocks": sum(len(visit.reads) for visit in visits),
        "opened": _count(names, (visit.server for visit in good)),
        "hot_file_opened": _count(names, (visit.server for visit in good if visit.file == hot_file)),
        "hot_file_last_opened": last,
        "bytes": {name: sum(each) for name, each in read.items()},
        "series": {"bytes": read, "clients": clients},
    }


def _count(names: Mapping[str, str], servers: Iterable[str]) -> dict[str, int]:
    found = Counter(names[server] for server in servers)
    return {name: found[name] for name in names.values()}


def totals_of(phase: Mapping[str, Any]) -> list[int]:
    """Return the bytes from all servers in each second."""
    return [sum(each) for each in zip(*phase["series"]["bytes"].values(), strict=True)]


def rate_of(phase: Mapping[str, Any]) -> float:
    """Return the bytes per second in the second half of a phase."""
    totals = totals_of(phase)
    half = totals[len(totals) // 2 :]
    return sum(half) / len(half)


def reached_after(totals: Sequence[int], rate: float) -> int | None:
    """Return the seconds after which a mean over some seconds first reached a rate; None if none did.

    Examples
    --------
    >>> reached_after([0, 10, 20, 30, 40, 50, 50, 50, 50], 30.0)
    6
    >>> reached_after([10, 10], 30.0)
    """
    for end in range(WINDOW_SECONDS, len(totals) + 1):
        if sum(totals[end - WINDOW_SECONDS : end]) >= rate * WINDOW_SECONDS:
            return end
    return None


def emptied_after(kept: Mapping[str, Sequence[int]]) -> int | None:
    """Return the seconds after which no cache had anything, up to the end; None if one still had.

    Parameters
    ----------
    kept
        Bytes in each cache, at the beginning and after each second.

    Examples
    --------
    >>> emptied_after({"cache 1": [9, 0, 0, 0], "cache 2": [9, 9, 0, 0]})
    2
    >>> emptied_after({"cache 1": [9, 0, 5]})
    """
    totals = [sum(each) for each in zip(*kept.values(), strict=True)]
    if totals[-1]:
        return None
    return next((at + 1 for at in reversed(range(len(totals))) if totals[at]), 0)
