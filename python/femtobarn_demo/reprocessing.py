"""The second pass of reconstruction, and the proof that the first one can be repeated.

A block of the second pass is reconstructed with the new constants. Then the job of the first pass runs again
on some blocks, as of its global tag, and all its columns are compared with those that were stored.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import awkward as ak
import numpy as np

import femtobarn
from femtobarn.jagged import Array
from femtobarn.linking import Target
from femtobarn_demo.acquisition import (
    Block,
    database_of,
    prepare_reconstruction,
    reconstruct_block,
    target_of,
)
from femtobarn_demo.calibration import FINAL, PROMPT, residuals_of, responses_of
from femtobarn_demo.reconstruction import CONTAINERS, RECONSTRUCTED_CLASSES, Reconstruction

__all__ = [
    "Passes",
    "Reprocessed",
    "combined",
    "compare_passes",
    "digest",
    "prepare_reprocessing",
    "repeat_block",
]


@dataclass(frozen=True)
class Reprocessed:
    """The result of a process.

    Parameters
    ----------
    objects, bytes
        Objects that were made, and the bytes of these and of the objects that were read.
    digests
        Of each block that was reconstructed again: digests of its columns as stored, and as made again.
    """

    objects: int
    bytes: int
    digests: list[tuple[str, str]]


def prepare_reprocessing(
    federation: str, blocks: list[Block], tag: str, repeated: list[Block], first_tag: str
) -> Callable[[Callable[[int], None]], Reprocessed]:
    """Prepare a process that reconstructs blocks under a global tag, and repeats the first pass on others."""
    second_pass = prepare_reconstruction(federation, blocks, tag)
    fed = femtobarn.open(federation)
    job = fed.conditions(first_tag)
    snapshot = fed.snapshot()

    def work(report_progress: Callable[[int], None]) -> Reprocessed:
        objects, size = second_pass(report_progress)
        digests = []
        for block in repeated:
            found = reconstruct_block(snapshot, job, block)
            digests.append(repeat_block(found, snapshot, block, first_tag))
            size += found.bytes_read
            report_progress(len(block))
        objects += sum(map(len, repeated)) * len(RECONSTRUCTED_CLASSES)
        return Reprocessed(objects, size, digests)

    return work


def repeat_block(
    found: Reconstruction, snapshot: femtobarn.Snapshot, block: Block, first_tag: str
) -> tuple[str, str]:
    """Return digests of a block: as the first pass stored it, and as it was reconstructed again."""
    targets: dict[str, Target] = {}
    stored, again = [], []
    for definition in RECONSTRUCTED_CLASSES:
        name = definition["name"]
        view = snapshot[f"{database_of(block.run, first_tag)}/{CONTAINERS[name]}"][block.start : block.stop]
        stored.append(view.arrays())
        again.append(found.objects(name, targets))
        targets[name] = target_of(view.oids)
    return digest(stored), digest(again)


def combined(results: Sequence[Reprocessed]) -> str:
    """The digest of all blocks that were reconstructed again.

    Raises
    ------
    RuntimeError
        If a block differs from the stored one.
    """
    total = hashlib.sha256()
    for stored, again in ((stored, again) for each in results for stored, again in each.digests):
        if stored != again:
            raise RuntimeError(f"the first pass gives {again} instead of {stored} when it is repeated")
        total.update(again.encode())
    return total.hexdigest()


@dataclass(frozen=True)
class Passes:
    """The effects of two passes' constants on the same events; each has the first and the second pass.

    Parameters
    ----------
    responses
        Electromagnetic energies of clusters divided by those in a perfect detector.
    residuals
        Shape (2, points): azimuths (rad) and distances from their tracks (m) of points in one layer.
    """

    responses: tuple[Array, Array]
    residuals: tuple[Array, Array]


def compare_passes(fed: femtobarn.Federation, blocks: Sequence[Block]) -> Passes:
    """Compare the blocks of the second pass with the same blocks of the first one."""
    snapshot = fed.snapshot()
    responses: list[list[Array]] = [[], []]
    residuals: list[list[Array]] = [[], []]
    for run in sorted({block.run for block in blocks}):
        mine = [np.arange(block.start, block.stop) for block in blocks if block.run == run]
        for number, tag in enumerate((PROMPT, FINAL)):
            clusters, tracks = (
                snapshot[f"{database_of(run, tag)}/{CONTAINERS[name]}"] for name in ("Clusters", "Tracks")
            )
            if tag == PROMPT:
                clusters, tracks = clusters[np.concatenate(mine)], tracks[np.concatenate(mine)]
            responses[number].append(responses_of(snapshot, clusters))
            residuals[number].append(residuals_of(snapshot, tracks, fed.conditions(tag)))
    first, second = (
        (np.concatenate(responses[number]), np.concatenate(residuals[number], axis=1)) for number in (0, 1)
    )
    return Passes((first[0], second[0]), (first[1], second[1]))


def digest(arrays: list[ak.Array]) -> str:
    """The SHA-256 of all columns of arrays: names, types, lengths of lists, and values."""
    total = hashlib.sha256()
    for array in arrays:
        for name, column in _columns("", ak.to_layout(ak.to_packed(array))):
            total.update(f"{name} {column.dtype} {column.shape}".encode())
            total.update(np.ascontiguousarray(column).data)
    return total.hexdigest()


def _columns(name: str, layout: Any) -> Iterator[tuple[str, Array]]:
    """The columns of a layout. Whether links may be missing is part of the class, not of the values."""
    while layout.is_option or layout.is_indexed:
        if layout.is_option and (missing := layout.mask_as_bool(valid_when=False)).any():
            yield f"{name}?", missing
        layout = layout.project()
    if layout.is_record:
        for field in layout.fields:
            yield from _columns(f"{name}.{field}", layout[field])
    elif layout.is_list and not layout.is_regular:
        packed = layout.to_packed()
        yield f"{name}[]", np.diff(np.asarray(packed.offsets)).astype(np.int64)
        yield from _columns(f"{name}[]", packed.content)
    else:
        yield name, ak.to_numpy(layout)
