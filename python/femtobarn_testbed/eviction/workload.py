"""The table ``[replay]`` of a workload's file, and its run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from femtobarn import InvalidError

from ..toml_parser import Parser, suggestion
from .policies import BASE, POLICIES
from .replay import Disk, replay
from .synthetic import DAY, Site, make_trace
from .traces import Trace, read_trace

__all__ = ["RECORDED", "Replay", "facts_of", "parse_replay", "run_replays"]

RECORDED = "recorded"
"""Name of the variant that a recorded trace makes of all variants."""


@dataclass(frozen=True)
class Replay:
    """A trace, and the disks and policies with which it is replayed."""

    name: str
    settings: Mapping[str, Any]
    site: Site
    recorded: Path | None
    """The file of a recorded trace, which is replayed instead of one of the site's model."""
    cache_percent: tuple[int, ...]
    """Sizes of the disk, in percent of the bytes of all files in the trace."""
    high: float
    low: float
    warm_up: float
    """Share of the trace's time that does not count."""
    policies: tuple[str, ...]


def parse_replay(name: str, table: Parser, settings: Mapping[str, Any]) -> Replay:
    """Return the replay of a variant.

    Raises
    ------
    InvalidError
        If a key is missing, unknown or has a wrong value; the text names it.
    """
    site = table.table("site")
    recorded = table.text("recorded", "")
    done = Replay(
        name=RECORDED if recorded else name,
        settings=settings,
        site=Site(**{field.name: site.number(field.name) for field in fields(Site)}),
        recorded=Path(recorded) if recorded else None,
        cache_percent=tuple(table.wholes("cache_percent")),
        high=table.number("high_percent", above=0.0) / 100.0,
        low=table.number("low_percent", above=0.0) / 100.0,
        warm_up=table.number("warm_up_percent", 0.0) / 100.0,
        policies=tuple(dict.fromkeys([*table.texts("policies"), BASE])),
    )
    site.end()
    table.end()
    if not done.low <= done.high <= 1.0:
        raise InvalidError(f"{table.where}: low_percent must be at most high_percent, and that at most 100")
    if done.warm_up >= 1.0:
        raise InvalidError(f"{table.where}: warm_up_percent must be below 100")
    if done.site.days <= 0.0 or done.site.opens < 1.0 or done.site.set_passes < 1.0:
        raise InvalidError(f"{site.where}: days must be above 0, opens and set_passes at least 1")
    for policy in done.policies:
        if policy not in POLICIES:
            raise InvalidError(f"{table.where}: no policy {policy!r}{suggestion(policy, POLICIES)}")
    return done


def run_replays(
    replays: Sequence[Replay], _: Path, seed: int, progress: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, Any], list[dict[str, Any]]]]:
    """Yield of each replay its name, facts about the trace, and a point for each size of the disk and each
    policy.

    Raises
    ------
    NotFoundError, InvalidError
        If a recorded trace cannot be read, or no read of a trace counts.
    """
    for each in replays:
        yield each.name, *_run_replay(each, seed, progress)


def _run_replay(
    each: Replay, seed: int, progress: Callable[[str], None]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    progress(f"{each.name}: making the trace")
    trace = read_trace(each.recorded) if each.recorded else make_trace(each.site, seed)
    if not len(trace.times):
        raise InvalidError(f"{each.name}: the trace has no accesses")
    start, end = float(trace.times[0]), float(trace.times[-1])
    since = start + each.warm_up * (end - start)
    points = []
    for percent in each.cache_percent:
        disk = Disk(trace.distinct_bytes * percent // 100, each.high, each.low)
        for name in each.policies:
            progress(f"{each.name}, {percent} %: {name}")
            done = replay(trace, POLICIES[name](trace, disk.capacity, seed), disk, since=since)
            if not done.reads:
                raise InvalidError(f"{each.name}: no reads are left after the warm-up")
            points.append(
                {
                    "variant": each.name,
                    "settings": dict(each.settings),
                    "policy": name,
                    "cache_percent": percent,
                    "cache_bytes": disk.capacity,
                    "byte_hit_rate": 1.0 - done.staged_bytes / done.read_bytes,
                    **vars(done),
                }
            )
    return facts_of(trace), points


def facts_of(trace: Trace) -> dict[str, Any]:
    reads = np.bincount(trace.files[~trace.is_write], minlength=len(trace.sizes))
    read = reads[reads > 0]
    return {
        "days": float(trace.times[-1] - trace.times[0]) / DAY,
        "accesses": len(trace.times),
        "writes": int(trace.is_write.sum()),
        "reads": int(reads.sum()),
        "read_bytes": int((reads * trace.sizes).sum()),
        "files": len(trace.sizes),
        "distinct_bytes": trace.distinct_bytes,
        "read_files": len(read),
        "read_once": float((read == 1).mean()) if len(read) else 0.0,
        "read_at_most_twice": float((read <= 2).mean()) if len(read) else 0.0,
    }
