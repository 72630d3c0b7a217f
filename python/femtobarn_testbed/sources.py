"""Statistics of jobs' reads from each cache and from the server."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import femtobarn as fb

__all__ = ["SOURCES", "Sources", "merge_sources", "sources_table"]

SOURCES = ("disk cache", "memcached", "server")
"""All sources, in the order in which a job asks them. A job that had a hit everywhere has not asked the later
ones, so the order of its statistics says nothing about those of others."""

COUNTS = ("hits", "misses", "bytes", "damaged", "failures")


@dataclass
class Sources:
    """Statistics of some jobs' reads, from their beginnings on, and the number of their events."""

    events: int = 0
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    """By name of the source, the numbers of :class:`femtobarn.TierStatistics`."""

    def add(self, statistics: Iterable[fb.TierStatistics]) -> None:
        """Add the reads of one job. Several servers, whose names are URLs, are added up."""
        for each in statistics:
            name = each.name if each.name in SOURCES else "server"
            into = self.counts.setdefault(name, dict.fromkeys(COUNTS, 0))
            for count in COUNTS:
                into[count] += getattr(each, count)


def merge_sources(each: Iterable[Sources | None]) -> dict[str, Any] | None:
    """Return the sums over all clients that look up conditions; None if there is no such client.

    Returns
    -------
    ``events``, and ``sources``: a row for each source that was asked, in the order of :data:`SOURCES`.
    """
    found = [one for one in each if one is not None]
    if not found:
        return None
    rows = []
    for source in SOURCES:
        counts = [one.counts[source] for one in found if source in one.counts]
        if counts:
            sums = {name: sum(count[name] for count in counts) for name in COUNTS}
            rows.append({"name": source, **sums})
    return {"events": sum(one.events for one in found), "sources": rows}


def sources_table(run: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Tabulate the reads of jobs for an event from each source; without rows if a run has no caches."""
    head = ["variant", "clients", "source", "ranges found", "ranges missed", "KB", "damaged", "failures"]
    rows = []
    for point in run["points"]:
        read = point.get("read_from")
        if not read or not read["events"] or len(read["sources"]) < 2:
            continue
        for each in read["sources"]:
            scaled = [each[name] / read["events"] for name in ("hits", "misses")]
            kilobytes = each["bytes"] / 1e3 / read["events"]
            row = [point["variant"], str(point["clients"]), each["name"]]
            row += [f"{value:.3g}" for value in (*scaled, kilobytes)]
            rows.append([*row, str(each["damaged"]), str(each["failures"])])
    return head, rows
