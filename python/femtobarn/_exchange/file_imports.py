"""A table, an RNTuple or a file of events, copied into a container in one transaction, with its origin.

A file that was imported before is refused, unless it is to be imported again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._bars import ProgressOption, check_progress_option, objects_bar
from .._exceptions import InvalidError, missing_file
from .._femtobarn import identify
from .._query.paths import Expressions, expand
from .._query.projections import part_of
from .csv_files import open_csv
from .file_kinds import KINDS, kind_of, stem_of
from .file_source import FileSource
from .hdf5_files import open_hdf5
from .hepmc_files import open_hepmc
from .import_plan import KnownClasses
from .import_target import Imported, ImportTarget
from .lhe_files import open_lhe
from .ntuples import open_ntuple
from .origins import Origin, identity_of, record_origin, refuse_imported
from .table_files import open_table
from .tree_imports import split_place

if TYPE_CHECKING:
    from .._writers import ContainerWriter

__all__ = ["FileOptions", "import_file"]

RUNS = "runs"
"""Container of data that a file has only once; a name that the user gives for the events precedes it."""


@dataclass(frozen=True)
class FileOptions:
    """Options of :meth:`femtobarn.Federation.import_file`, which documents them."""

    database: str | None = None
    container: str | None = None
    class_name: str | None = None
    ntuple: str | None = None
    expressions: Expressions = None
    again: bool = False
    progress: ProgressOption = None


def import_file(federation: ImportTarget, file: Path, options: FileOptions) -> Imported:
    """Copy a file into a container; see :meth:`femtobarn.Federation.import_file`."""
    check_progress_option(options.progress)
    path, name = (str(file), None) if file.exists() else split_place(str(file))
    file, name = Path(path), options.ntuple or name
    kind = kind_of(file)
    if kind is None:
        raise InvalidError(f"unknown suffix of {file.name}: must be one of {', '.join(KINDS)}")
    with _open(federation, file, kind, name) as source:
        paths = expand(options.expressions, source.definition)
        if kind != "root":
            # A column of a table is read with all its members.
            paths = list(dict.fromkeys(each.partition(".")[0] for each in paths))
        uuid = identify(str(file))["uuid"] if kind == "root" else None
        origin = Origin(str(file), identity_of(str(file), uuid), source.tree)
        return _copy(federation, source, paths, origin, options)


def _open(
    federation: ImportTarget, file: Path, kind: str, name: str | None
) -> AbstractContextManager[FileSource]:
    if not file.exists():
        raise missing_file(file, f"*{file.suffix}")
    if kind == "root":
        return open_ntuple(file, name, federation._attached_alone)
    if kind == "hdf5":
        return open_hdf5(file, name)
    if name is not None:
        raise InvalidError(
            f"{file.name} cannot have an RNTuple or a dataset {name!r}: these are in .root and .h5 files"
        )
    if kind in ("csv", "tsv"):
        return open_csv(file, "," if kind == "csv" else "\t")
    if kind == "lhe":
        return open_lhe(file)
    return open_hepmc(file) if kind == "hepmc" else open_table(file, kind)


def _copy(
    federation: ImportTarget, source: FileSource, paths: list[str], origin: Origin, options: FileOptions
) -> Imported:
    """Append the objects of a source to a container, and record where they came from."""
    database, name = options.database or stem_of(Path(origin.file)), options.container or source.name
    chosen = part_of(source.definition, paths)
    classes = KnownClasses(federation.classes())
    definition = classes.named(options.class_name or chosen.name, chosen.fields, database)
    origins = [] if options.again else [origin]
    refuse_imported(federation.snapshot(), origins)
    with federation.transaction(message=f"import {origin.file}") as txn:
        place = txn.database(database, create=True)
        writer = place.container(name, definition, create=True)
        # The container is locked from here on; a process that held it before may have imported the same file.
        refuse_imported(federation.snapshot(), origins)
        before = len(writer)
        unit = "B" if source.position is not None else " objects"
        with objects_bar(options.progress, origin.file, unit) as tell:
            for batch in _batches(source, paths, writer, classes):
                oids = writer.extend(batch)
                if tell is not None:
                    done = source.position() if source.position is not None else oids.stop - before
                    tell(done, source.total)
        added = len(writer) - before
        record_origin(txn, database, origin, writer, before, added)
    return Imported(f"{database}/{name}", definition.name, added, source.skipped, origin.file, source.tree)


def _batches(
    source: FileSource, paths: list[str], writer: ContainerWriter, classes: KnownClasses
) -> Iterator[Any]:
    """Yield the objects of a source, and append the one with its common data, to which they link."""
    if source.run is None:
        yield from source.batches(paths)
        return
    from ..linking import Target, links

    place, run_class = writer.database, source.run.definition
    name = RUNS if writer.name == source.name else f"{writer.name}_{RUNS}"
    definition = classes.named(run_class.name, run_class.fields, place.name)
    runs = place.container(name, definition, create=True)
    run, link = Target(runs.database_id, runs.container_id, len(runs)), source.run.link
    for batch in source.batches(paths):
        if link in batch:
            batch[link] = links(run, batch[link])
        yield batch
    runs.append(source.run.value())
