"""Exports: objects as ROOT files with RNTuples, as Parquet and as Arrow files.

A file gets its name when it is complete; after an error nothing of it is left. A link is exported as the
record of its numbers.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .._bars import ProgressOption, objects_bar
from .._data.arrays import columns_of
from .._data.results import as_library
from .._exceptions import (
    DeniedError,
    ExistsError,
    FemtobarnError,
    InvalidError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    near_misses,
    path_text,
)
from .._femtobarn import ExportHandle
from .._query.paths import all_paths
from .._schema.types import Definition, Record, Variant, innermost

if TYPE_CHECKING:
    from .._lazy import ak

__all__ = ["Exported", "export_objects"]

SUFFIXES = {".root": "root", ".parquet": "parquet", ".arrow": "arrow", ".feather": "arrow"}
"""The format for each suffix of a file name."""

FORMATS = ("root", "parquet", "arrow")


class _Sink(Protocol):
    """A file to which batches of objects are written."""

    def begin(self, name: str, objects: Exported) -> None:
        """Begin the objects of the next container."""

    def write(self, batch: ak.Array) -> None:
        """Append objects."""

    def close(self) -> None:
        """Complete the file."""


@dataclass(frozen=True)
class Exported:
    """Objects that are exported."""

    definition: Definition
    """Their class, with the fields that are exported."""
    entries: int
    """Their number, or a larger one if a condition selects some of these."""
    batches: Iterator[ak.Array]
    """The objects. The first batch is empty, so that a file without objects also has the fields."""
    typed: bool = False
    """Whether the names of the classes of records are those of C++ classes, into which ROOT reads them."""


def export_objects(
    exported: Mapping[str, Exported],
    path: str | os.PathLike[str],
    *,
    format: str | None = None,
    progress: ProgressOption = None,
) -> int:
    """Export objects to a file, and return their number.

    Parameters
    ----------
    exported
        The objects, by the names of their RNTuples.
    path, format, progress
        As for :meth:`femtobarn.View.export`.
    """
    target = Path(path_text(path))
    kind = format_of(target, format)
    if kind != "root" and len(exported) != 1:
        raise InvalidError(f"a {kind} file holds one container, not {len(exported)}; export to a .root file")
    with _translated_errors(target):
        is_taken = target.exists()
    if is_taken:
        raise ExistsError(f"file {target} exists; remove it, or choose another name")
    total, done = sum(each.entries for each in exported.values()), 0
    with objects_bar(progress, target.name) as tell, _renamed_on_success(target) as partial:
        sink = _SINKS[kind](partial, target.name)
        for name, objects in exported.items():
            sink.begin(name, objects)
            for batch in objects.batches:
                with _translated_errors(target):
                    sink.write(batch)
                done += len(batch)
                if tell is not None:
                    tell(done, total)
        with _translated_errors(target):
            sink.close()
    return done


def format_of(path: Path, given: str | None) -> str:
    """Return the given format of a file, or that of its suffix."""
    if given is not None:
        if given not in FORMATS:
            raise InvalidError(f"format {given!r} does not exist{near_misses(given, FORMATS)}")
        return given
    kind = SUFFIXES.get(path.suffix.lower())
    if kind is None:
        raise InvalidError(
            f"unknown suffix of {path.name}: must be one of {', '.join(SUFFIXES)}; or give format="
        )
    return kind


@contextlib.contextmanager
def _translated_errors(target: Path) -> Iterator[None]:
    """Translate errors of the operating system in other libraries, such as a full disk, to Femtobarn's."""
    try:
        yield
    except FemtobarnError:
        raise
    except FileNotFoundError as error:
        raise NotFoundError(f"folder {target.parent} does not exist") from error
    except PermissionError as error:
        raise DeniedError(f"export to {target}: {error}") from error
    except OSError as error:
        raise StorageError(f"export to {target}: {error}; nothing of it is left") from error


@contextlib.contextmanager
def _renamed_on_success(target: Path) -> Iterator[Path]:
    """Yield a temporary path, which is renamed to the target on success, and removed otherwise."""
    partial = target.with_name(f".{target.name}.{os.getpid()}.part")
    with _translated_errors(target):
        partial.unlink(missing_ok=True)
    try:
        yield partial
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


class _RootSink:
    """A ROOT file with an RNTuple for each container."""

    def __init__(self, path: Path, name: str) -> None:
        self._handle = ExportHandle.create(path, name)
        self._position = -1
        self._record = Record("", ())
        self._names: tuple[str, ...] = ()

    def begin(self, name: str, objects: Exported) -> None:
        definition = objects.definition
        self._record = definition.record
        fields = tuple(replace(field, name=_without_dots(field.name)) for field in definition.fields)
        stored = Definition(definition.name, definition.version, fields)
        self._position = self._handle.add(name, json.dumps(stored.to_json()), objects.typed)
        self._names = tuple(stored.record.by_name)

    def write(self, batch: ak.Array) -> None:
        kind, length, _, contents = columns_of(batch, self._record)
        self._handle.append(self._position, (kind, length, self._names, contents))

    def close(self) -> None:
        self._handle.finish()


def _without_dots(name: str) -> str:
    """Return the name of a field as an RNTuple may have it: a field behind a link may be called after it."""
    return name.replace(".", "_")


class _ArrowSink:
    """An Arrow file of record batches, also known as Feather."""

    def __init__(self, path: Path, name: str) -> None:
        self._path = path
        self._writer: Any = None
        self._schema: Any = None
        self._record = Record("", ())

    def begin(self, name: str, objects: Exported) -> None:
        self._record = objects.definition.record

    def write(self, batch: ak.Array) -> None:
        table = as_library(batch, self._record, "pa")
        if self._schema is None:
            self._schema = table.schema
            self._writer = self._open(table.schema)
        if len(table):
            # Computed columns of a batch may lack missing values that those of another batch have.
            self._writer.write_table(table.cast(self._schema))

    def _open(self, schema: Any) -> Any:
        import pyarrow as pa

        return pa.ipc.new_file(self._path, schema, options=pa.ipc.IpcWriteOptions(compression="zstd"))

    def close(self) -> None:
        self._writer.close()


class _ParquetSink(_ArrowSink):
    """A Parquet file."""

    def begin(self, name: str, objects: Exported) -> None:
        super().begin(name, objects)
        for path, node in all_paths(objects.definition).items():
            inner = innermost(node)
            if isinstance(inner, Variant) or (isinstance(inner, Record) and not inner.fields):
                shown = "of records without members" if isinstance(inner, Record) else node
                raise UnsupportedError(
                    f"{path!r} is {shown}, which Parquet has no type for; leave it out, or export to .root"
                )

    def _open(self, schema: Any) -> Any:
        import pyarrow.parquet as pq

        return pq.ParquetWriter(self._path, schema, compression="zstd")


_SINKS: dict[str, Callable[[Path, str], _Sink]] = {
    "root": _RootSink,
    "parquet": _ParquetSink,
    "arrow": _ArrowSink,
}
