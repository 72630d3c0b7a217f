"""Steps (b) and (c): processes that write raw events, and processes that reconstruct them.

Each writer owns a run and a database, and commits every few batches. The number of batches in a
transaction is random, since writers that start together would otherwise commit together.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import awkward as ak
import numpy as np

import femtobarn
from femtobarn.linking import Target, links
from femtobarn_demo.reconstruction import CONTAINERS as RECONSTRUCTED
from femtobarn_demo.reconstruction import NEEDED, RECONSTRUCTED_CLASSES, reconstruct
from femtobarn_demo.sources import CONTAINERS, PARTS, RAW_CLASSES, EventPool, RawEvents

__all__ = ["database_of", "prepare_reconstruction", "prepare_writer"]

BATCH_EVENTS = 12
"""Events that are written together: as many as a client of the GIOD tests held in memory."""

TRANSACTION_BATCHES = 8
"""Mean number of batches in a transaction."""

RECONSTRUCTION_EVENTS = 50

Work = Callable[[Callable[[int], None]], tuple[int, int]]
"""Does the work and reports its progress in events; returns the numbers of objects and bytes."""


def database_of(run: int, *, reconstructed: bool = False) -> str:
    """Name of the database of a run."""
    return f"run{run}-reco" if reconstructed else f"run{run}"


def prepare_writer(federation: str, cache: Path, pool_events: int, run: int, events: int) -> Work:
    """Prepare a process that writes the raw events of one run."""
    pool = EventPool.load(cache, events=pool_events, progress=False)
    fed = femtobarn.open(federation)
    first = (run - 1) * events
    batches = list(pool.batches(run=run, first=first, events=events, size=BATCH_EVENTS))
    random = np.random.default_rng(run)

    def work(report_progress: Callable[[int], None]) -> tuple[int, int]:
        start = 0
        while start < len(batches):
            stop = start + max(1, round(TRANSACTION_BATCHES * random.uniform(0.5, 1.5)))
            _write(fed, run, batches[start:stop], report_progress)
            start = stop
        return events * len(RAW_CLASSES), sum(batch.nbytes for batch in batches)

    return work


def _write(
    fed: femtobarn.Federation, run: int, batches: list[RawEvents], report_progress: Callable[[int], None]
) -> None:
    """Write batches in one transaction, parts first, so that headers can link to them."""
    with fed.transaction(message=f"run {run}: raw events from {batches[0].first}") as txn:
        database = txn.database(database_of(run), create=True)
        writers = {
            definition["name"]: database.container(CONTAINERS[definition["name"]], definition, create=True)
            for definition in RAW_CLASSES
        }
        for batch in batches:
            targets = {part: _target(writers[part].extend(batch.part(part))) for part in PARTS}
            writers["RawEvent"].extend(batch.headers(targets))
    report_progress(sum(len(batch) for batch in batches))


def prepare_reconstruction(federation: str, runs: list[int]) -> Work:
    """Prepare a process that reconstructs some runs, each into a database of its own."""
    fed = femtobarn.open(federation)
    snapshot = fed.snapshot()

    def work(report_progress: Callable[[int], None]) -> tuple[int, int]:
        size = 0
        events = 0
        for run in runs:
            headers = snapshot[f"{database_of(run)}/{CONTAINERS['RawEvent']}"]
            for start in range(0, len(headers), RECONSTRUCTION_EVENTS):
                stop = min(start + RECONSTRUCTION_EVENTS, len(headers))
                size += _reconstruct(fed, snapshot, run, headers[start:stop])
                report_progress(stop - start)
            events += len(headers)
        return events * len(RECONSTRUCTED_CLASSES), size

    return work


def _reconstruct(
    fed: femtobarn.Federation, snapshot: femtobarn.Snapshot, run: int, view: femtobarn.View
) -> int:
    """Read a batch by its links, reconstruct it, and write the results in one transaction."""
    headers = view.arrays()
    parts = {part: snapshot.fetch(headers[PARTS[part]]) for part in NEEDED}
    raw = links(_target(view.oids), len(headers))
    found = reconstruct(headers, raw, parts)
    with fed.transaction(message=f"run {run}: reconstruction from event {view.oids.start}") as txn:
        database = txn.database(database_of(run, reconstructed=True), create=True)
        writers = {
            definition["name"]: database.container(RECONSTRUCTED[definition["name"]], definition, create=True)
            for definition in RECONSTRUCTED_CLASSES
        }
        tracks, clusters = found.tracks(), found.clusters()
        at_tracks = _target(writers["Tracks"].extend(tracks))
        at_clusters = _target(writers["Clusters"].extend(clusters))
        jets = found.jets(at_tracks, at_clusters)
        at_jets = _target(writers["Jets"].extend(jets))
        tags = found.tags(at_tracks, at_clusters, at_jets)
        writers["Tag"].extend(tags)
    return _bytes([headers, *parts.values(), tracks, clusters, jets, tags])


def _target(oids: Any) -> Target:
    return Target(oids.database, oids.container, oids.start)


def _bytes(arrays: list[ak.Array]) -> int:
    return sum(int(array.nbytes) for array in arrays)
