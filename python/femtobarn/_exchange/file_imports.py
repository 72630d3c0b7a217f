"""A Parquet or Arrow file, or an RNTuple, copied into a container in one transaction, with its origin.

A file that was imported before is refused, unless it is to be imported again.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

from .._exceptions import InvalidError, check_progress, missing_file
from .._femtobarn import identify
from .._query.paths import Expressions, expand
from .._query.projections import part_of
from .exports import Progress, format_of
from .file_source import FileSource
from .import_plan import KnownClasses
from .import_target import Imported, ImportTarget
from .ntuples import open_ntuple
from .origins import Origin, identity_of, record_origin, refuse_imported
from .table_files import open_table

__all__ = ["FileOptions", "import_file"]


@dataclass(frozen=True)
class FileOptions:
    """Options of :meth:`femtobarn.Federation.import_file`, which documents them."""

    database: str | None = None
    container: str | None = None
    class_name: str | None = None
    ntuple: str | None = None
    expressions: Expressions = None
    again: bool = False
    progress: Progress | None = None


def import_file(federation: ImportTarget, file: Path, options: FileOptions) -> Imported:
    """Copy a file into a container; see :meth:`femtobarn.Federation.import_file`."""
    check_progress(options.progress, "done, total")
    kind = format_of(file, None)
    with _open(federation, file, kind, options.ntuple) as source:
        paths = expand(options.expressions, source.definition)
        if kind != "root":
            # A column of a table is read with all its members.
            paths = list(dict.fromkeys(each.partition(".")[0] for each in paths))
        uuid = identify(str(file))["uuid"] if kind == "root" else None
        origin = Origin(str(file), identity_of(str(file), uuid), source.tree)
        return _copy(federation, source, paths, origin, options)


def _open(
    federation: ImportTarget, file: Path, kind: str, ntuple: str | None
) -> AbstractContextManager[FileSource]:
    if not file.exists():
        raise missing_file(file, f"*{file.suffix}")
    if kind == "root":
        return open_ntuple(file, ntuple, federation._attached_alone)
    if ntuple is not None:
        raise InvalidError(f"{file.name} cannot have an RNTuple {ntuple!r}: RNTuples are in .root files")
    return open_table(file, kind)


def _copy(
    federation: ImportTarget, source: FileSource, paths: list[str], origin: Origin, options: FileOptions
) -> Imported:
    """Append the objects of a source to a container, and record where they came from."""
    database, name = options.database or Path(origin.file).stem, options.container or source.name
    chosen = part_of(source.definition, paths)
    classes = KnownClasses(federation.classes())
    definition = classes.named(options.class_name or chosen.name, chosen.fields, database)
    origins = [] if options.again else [origin]
    refuse_imported(federation.snapshot(), origins)
    with federation.transaction(message=f"import {origin.file}") as txn:
        writer = txn.database(database, create=True).container(name, definition, create=True)
        # The container is locked from here on; a process that held it before may have imported the same file.
        refuse_imported(federation.snapshot(), origins)
        before = len(writer)
        for batch in source.batches(paths):
            oids = writer.extend(batch)
            if options.progress is not None:
                options.progress(oids.stop - before, source.entries)
        added = len(writer) - before
        record_origin(txn, database, origin, writer, before, added)
    return Imported(f"{database}/{name}", definition.name, added, {}, origin.file, source.tree)
