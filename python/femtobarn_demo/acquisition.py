"""Steps (b) and (c): processes that write raw events, and processes that reconstruct them.

Each writer owns a run and a database, and commits every few batches. The number of batches in a
transaction is random, since writers that start together would otherwise commit together.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import femtobarn
from femtobarn.linking import Target, links
from femtobarn_demo.reconstruction import CONTAINERS as RECONSTRUCTED
from femtobarn_demo.reconstruction import (
    NEEDED,
    RECONSTRUCTED_CLASSES,
    Constants,
    Reconstruction,
    reconstruct,
)
from femtobarn_demo.sources import CONTAINERS, PARTS, RAW_CLASSES, EventPool, RawEvents

__all__ = [
    "Block",
    "blocks_of",
    "database_of",
    "prepare_reconstruction",
    "prepare_writer",
    "reconstruct_block",
    "reconstruction_of",
    "target_of",
    "write_block",
    "writer_of",
]

BATCH_EVENTS = 12
"""Events that are written together: as many as a client of the GIOD tests held in memory."""

TRANSACTION_BATCHES = 8
"""Mean number of batches in a transaction."""

RECONSTRUCTION_EVENTS = 50
"""Events that are reconstructed together."""

Work = Callable[[Callable[[int], None]], tuple[int, int]]
"""Does the work and reports its progress in events; returns the numbers of objects and bytes."""


@dataclass(frozen=True)
class Block:
    """Events ``start:stop`` of a run, which are reconstructed together."""

    run: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


def blocks_of(run: int, events: int) -> list[Block]:
    """All blocks of a run."""
    starts = range(0, events, RECONSTRUCTION_EVENTS)
    return [Block(run, start, min(start + RECONSTRUCTION_EVENTS, events)) for start in starts]


def database_of(run: int, global_tag: str | None = None) -> str:
    """Name of the database with the raw events of a run, or with those reconstructed under a global tag."""
    return f"run{run}-{global_tag}" if global_tag else f"run{run}"


def prepare_writer(
    federation: str, cache: Path, pool_events: int, run: int, events: int, period: int
) -> Work:
    """Prepare a process that writes the raw events of one run, at a mean distance of `period` (ns)."""
    pool = EventPool.load(cache, events=pool_events, progress=False)
    return writer_of(femtobarn.open(federation), pool, run, events, period)


def writer_of(fed: femtobarn.Federation, pool: EventPool, run: int, events: int, period: int) -> Work:
    """Return the work that writes the raw events of one run from a pool."""
    first = (run - 1) * events
    batches = [
        batch.as_measured()
        for batch in pool.batches(run=run, first=first, events=events, size=BATCH_EVENTS, period=period)
    ]
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
            targets = {part: target_of(writers[part].extend(batch.part(part))) for part in PARTS}
            writers["RawEvent"].extend(batch.headers(targets))
    report_progress(sum(len(batch) for batch in batches))


def prepare_reconstruction(federation: str, blocks: list[Block], global_tag: str) -> Work:
    """Prepare a process that reconstructs blocks with the constants of a global tag."""
    return reconstruction_of(femtobarn.open(federation), blocks, global_tag)


def reconstruction_of(fed: femtobarn.Federation, blocks: list[Block], global_tag: str) -> Work:
    """Return the work that reconstructs blocks, as of now, with the constants of a global tag."""
    job = fed.conditions(global_tag)
    snapshot = fed.snapshot()

    def work(report_progress: Callable[[int], None]) -> tuple[int, int]:
        size = 0
        for block in blocks:
            size += write_block(fed, block, global_tag, reconstruct_block(snapshot, job, block))
            report_progress(len(block))
        return sum(map(len, blocks)) * len(RECONSTRUCTED_CLASSES), size

    return work


def reconstruct_block(snapshot: femtobarn.Snapshot, job: femtobarn.Job, block: Block) -> Reconstruction:
    """Read a block by its links, and reconstruct it with the constants of a job."""
    view = snapshot[f"{database_of(block.run)}/{CONTAINERS['RawEvent']}"][block.start : block.stop]
    headers = view.arrays()
    parts = {part: snapshot.fetch(headers[PARTS[part]]) for part in NEEDED}
    constants = Constants.at(job, headers.time.to_numpy())
    return reconstruct(headers, links(target_of(view.oids), len(headers)), parts, constants)


def write_block(fed: femtobarn.Federation, block: Block, global_tag: str, found: Reconstruction) -> int:
    """Write a reconstructed block in one transaction; return its bytes, those that were read included."""
    with fed.transaction(message=f"run {block.run}: reconstruction from event {block.start}") as txn:
        database = txn.database(database_of(block.run, global_tag), create=True)
        writers = {
            definition["name"]: database.container(RECONSTRUCTED[definition["name"]], definition, create=True)
            for definition in RECONSTRUCTED_CLASSES
        }
        targets: dict[str, Target] = {}
        size = found.bytes_read
        for name, writer in writers.items():
            array = found.objects(name, targets)
            targets[name] = target_of(writer.extend(array))
            size += int(array.nbytes)
    return size


def target_of(oids: Any) -> Target:
    """The objects at consecutive OIDs, for links to them."""
    return Target(oids.database, oids.container, oids.start)
