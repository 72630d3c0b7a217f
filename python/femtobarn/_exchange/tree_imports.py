"""Trees of ROOT files copied into containers: any number of files, in one transaction."""

from __future__ import annotations

import glob
import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from .._bars import Progress, ProgressOption, check_progress_option, objects_bar
from .._exceptions import InvalidError, NotFoundError, path_text
from .._schema.references import linked_paths
from .._schema.types import Definition
from .batches import read_batches
from .file_kinds import kind_of
from .import_plan import Destination, PlannedTree, TreeOptions, classes_of, plan_trees
from .import_target import Imported, ImportTarget
from .link_counts import LostLinks
from .origins import create_origins, record_origin, refuse_imported

if TYPE_CHECKING:
    from .._snapshots import Snapshot
    from .._transactions import Transaction
    from .._writers import ContainerWriter

__all__ = ["Files", "expand_files", "import_trees", "main_tree", "split_place"]

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""One file or several; each may be a glob, and ``FILE:TREE`` names a tree."""


def import_trees(
    federation: ImportTarget,
    places: Sequence[tuple[str, str | None]],
    options: TreeOptions,
    progress: ProgressOption = None,
) -> list[Imported]:
    """Copy trees of files into containers; see :meth:`femtobarn.Federation.import_trees`."""
    check_progress_option(progress)
    if options.jobs < 1:
        raise InvalidError(f"invalid jobs {options.jobs}: must be 1 or more")
    plan = plan_trees(places, options, federation.snapshot())
    named = f"{len(places)} files" if len(places) > 1 else places[0][0]
    origins = [] if options.again else [planned.origin for planned in plan]
    refuse_imported(federation.snapshot(), origins)
    create_origins(federation, {planned.destination.database for planned in plan})
    with federation.transaction(message=f"import {named}") as txn:
        snapshot = federation.snapshot()
        definitions = classes_of(plan, snapshot, options, federation.classes())
        writers = _writers(txn, definitions, snapshot)
        # Existing containers are locked from here on; a process that held one before may have imported the
        # same file.
        refuse_imported(federation.snapshot(), origins)
        with objects_bar(progress, named) as tell:
            lost = _copy(plan, writers, definitions, txn, options, tell)
    return [
        _imported(planned, definitions[planned.destination], links)
        for planned, links in zip(plan, lost, strict=True)
    ]


def _imported(planned: PlannedTree, definition: Definition, lost: LostLinks) -> Imported:
    references, linked = planned.source.references, linked_paths(definition.record)
    other = f"it is not a link in other objects of {planned.destination}"
    return Imported(
        str(planned.destination),
        definition.name,
        planned.source.entries,
        {item.branch: item.reason for item in planned.source.skipped},
        planned.file,
        planned.source.tree,
        planned.left_out,
        {path: collections for path, collections in references.links.items() if path in linked},
        references.unlinked | {path: other for path in references.links if path not in linked},
        dict(lost.counts),
    )


def main_tree(done: list[Imported]) -> Imported:
    """Return the main tree of a file: the one with a usual name, such as ``Events``, or else the largest."""
    from ..importers.files import USUAL_NAMES

    usual = [each for name in USUAL_NAMES for each in done if each.tree == name]
    return usual[0] if usual else max(done, key=lambda each: each.entries)


def expand_files(files: Files) -> list[tuple[str, str | None]]:
    """Replace globs by the files that match them, and return each file once, with the tree asked for.

    Raises
    ------
    NotFoundError
        If a pattern matches nothing.
    """
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    found: dict[tuple[str, str | None], None] = {}
    for each in [path_text(file) for file in given]:
        path, tree = (each, None) if Path(each).exists() else split_place(each)
        is_pattern = "://" not in path and glob.has_magic(path) and not Path(path).exists()
        # Path.glob takes no absolute patterns.
        matches = sorted(glob.glob(path, recursive=True)) if is_pattern else [path]  # noqa: PTH207
        if not matches:
            raise NotFoundError(f"no file matches {path!r}")
        found |= dict.fromkeys((match, tree) for match in matches)
    if not found:
        raise InvalidError("no files to import; give at least one")
    return list(found)


def split_place(text: str) -> tuple[str, str | None]:
    """Split ``file.root:tree`` as uproot does; the colon of a URL's scheme or port separates nothing.

    Only the datasets of HDF5 files have names with a slash.
    """
    path, colon, tree = text.rpartition(":")
    has_datasets = kind_of(Path(path)) == "hdf5"
    if not colon or tree.startswith("//") or ("/" in tree and not has_datasets) or not path:
        return text, None
    return path, tree


def _writers(
    txn: Transaction, definitions: dict[Destination, Definition], snapshot: Snapshot
) -> dict[Destination, ContainerWriter]:
    return {
        destination: txn.database(destination.database, create=True).container(
            destination.container, definition, create=True, evolve=str(destination) in snapshot
        )
        for destination, definition in definitions.items()
    }


def _copy(
    plan: list[PlannedTree],
    writers: dict[Destination, ContainerWriter],
    definitions: dict[Destination, Definition],
    txn: Transaction,
    options: TreeOptions,
    progress: Progress | None,
) -> list[LostLinks]:
    """Append the objects of all trees, record where they came from, and count the links that lead nowhere."""
    total, done = sum(planned.source.entries for planned in plan), 0
    firsts: dict[int, int] = {}
    sources = [planned.source for planned in plan]
    records = [definitions[planned.destination].record for planned in plan]
    lost = [LostLinks(record) for record in records]
    with closing(
        read_batches(sources, records, batch_bytes=options.batch_bytes, jobs=options.jobs)
    ) as batches:
        for number, columns in batches:
            writer = writers[plan[number].destination]
            before = len(writer)
            firsts.setdefault(number, before)
            writer.extend_columns(columns)
            lost[number].add(columns)
            done += len(writer) - before
            if progress is not None:
                progress(done, total)
    for number, planned in enumerate(plan):
        writer = writers[planned.destination]
        first = firsts.get(number, len(writer))
        record_origin(
            txn, planned.destination.database, planned.origin, writer, first, planned.source.entries
        )
    return lost
