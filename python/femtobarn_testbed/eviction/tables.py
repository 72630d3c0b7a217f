"""Texts and tables of a replay: the bytes that each policy staged, and its byte hit rates."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from .policies import BASE, BOUND

__all__ = [
    "Cell",
    "cells_of",
    "describe_disks",
    "describe_trace",
    "ranked",
    "ratio_table",
    "staged_table",
]

Run = Mapping[str, Any]
Table = tuple[list[str], list[list[str]]]


@dataclass(frozen=True)
class Cell:
    """A policy on a trace and a disk."""

    trace: str
    policy: str
    cache_percent: int
    byte_hit_rate: float
    staged_bytes: float
    ratio: float
    """Bytes staged, divided by those that :data:`BASE` stages."""


def cells_of(run: Run) -> list[Cell]:
    """Return a cell for each point of a run, in their order."""
    base = {
        (point["variant"], point["cache_percent"]): point["staged_bytes"]
        for point in run["points"]
        if point["policy"] == BASE
    }
    cells = []
    for point in run["points"]:
        staged, of_base = point["staged_bytes"], base[point["variant"], point["cache_percent"]]
        cells.append(
            Cell(
                trace=point["variant"],
                policy=point["policy"],
                cache_percent=point["cache_percent"],
                byte_hit_rate=point["byte_hit_rate"],
                staged_bytes=staged,
                ratio=staged / of_base if of_base else math.inf if staged else 1.0,
            )
        )
    return cells


def ranked(cells: list[Cell]) -> list[str]:
    """Return the names of policies by their mean ratios, the bound last."""
    names = list(dict.fromkeys(cell.policy for cell in cells))
    return sorted(names, key=lambda name: (name == BOUND, _mean_ratio(cells, name)))


def _mean_ratio(cells: list[Cell], policy: str) -> float:
    """The geometric mean of a policy's ratios."""
    ratios = [cell.ratio for cell in cells if cell.policy == policy]
    return math.exp(sum(math.log(max(ratio, 1e-9)) for ratio in ratios) / len(ratios))


def ratio_table(run: Run) -> Table:
    """Tabulate bytes staged relative to :data:`BASE`: a row for each trace and disk, and one for the
    geometric mean; a column for each policy, the best first."""
    cells = cells_of(run)
    names = ranked(cells)
    rows: dict[str, dict[str, str]] = {}
    for cell in cells:
        row = rows.setdefault(f"{cell.trace}, {cell.cache_percent} %", {})
        row[cell.policy] = f"{cell.ratio:.2f}"
    rows["mean"] = {name: f"{_mean_ratio(cells, name):.3f}" for name in names}
    head = [f"bytes staged, {BASE} = 1", *names]
    return head, [[place, *(row[name] for name in names)] for place, row in rows.items()]


def staged_table(run: Run) -> Table:
    """Tabulate byte hit rates and bytes staged: a row for each trace and policy, a column for each disk."""
    cells = cells_of(run)
    percents = list(dict.fromkeys(cell.cache_percent for cell in cells))
    rows: dict[tuple[str, str], list[str]] = {}
    for cell in cells:
        row = rows.setdefault((cell.trace, cell.policy), [cell.trace, cell.policy])
        row.append(f"{cell.byte_hit_rate:.1%}; {cell.staged_bytes / 1e12:,.1f} TB")
    return ["trace", "policy", *(f"{percent} % of all bytes" for percent in percents)], list(rows.values())


def describe_trace(name: str, facts: Mapping[str, Any]) -> str:
    """Return a line about a trace."""
    return (
        f"{name}: {facts['reads']:,} reads of {facts['read_files']:,} files in {facts['days']:,.0f} days, "
        f"{facts['read_bytes'] / 1e12:,.1f} TB; {facts['writes']:,} files written; all files have "
        f"{facts['distinct_bytes'] / 1e12:,.1f} TB. Of the files that were read, {facts['read_once']:.0%} "
        f"were read once and {facts['read_at_most_twice']:.0%} at most twice."
    )


def describe_disks(run: Run) -> Iterator[str]:
    """Yield lines about the disks and the policies."""
    table = run["parameters"]["replay"]
    yield (
        f"Disks are evicted down to {table['low_percent']} % of their size when a file would take them above "
        f"{table['high_percent']} %. The first {table.get('warm_up_percent', 0)} % of the time do not count."
    )
    yield (
        "No client, server or real file takes part: a trace of whole files is replayed, so there is no noise."
    )
