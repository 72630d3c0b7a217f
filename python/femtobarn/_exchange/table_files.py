"""Parquet and Arrow files, and all other tables that pyarrow reads, as sources of an import."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .._exceptions import CorruptError, DeniedError, InvalidError
from .._schema.meanings import Meaning
from .._schema.names import identifier
from .._schema.types import (
    MAP_ITEM,
    Definition,
    Field,
    Fixed,
    List,
    Node,
    Optional,
    Primitive,
    Record,
    Reduced,
    String,
)
from .file_kinds import stem_of
from .file_source import FileSource

__all__ = ["TableFile", "find_nulls", "open_table", "table_source"]

ARROW_NUMBERS = {
    "float": "float32",
    "double": "float64",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""The stored type of each of Arrow's types of numbers."""

BATCH_ENTRIES = 1 << 16
"""Rows of a batch of a Parquet file."""


@contextmanager
def open_table(path: Path, kind: str) -> Iterator[FileSource]:
    """Open a Parquet or Arrow file.

    The file is read once for where values are missing: that its schema allows nulls says nothing about
    whether there are any, and every optional field costs space.

    Raises
    ------
    CorruptError
        If the file is damaged or of another format.
    DeniedError
        If the file may not be read.
    InvalidError
        If a column is of a type that cannot be stored, or two columns have one name.
    """
    import pyarrow as pa

    try:
        file = _parquet(path) if kind == "parquet" else _arrow(path)
        nulls: set[str] = set()
        for batch in file.batches(None):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                find_nulls(column, name, nulls)
    except PermissionError as error:
        raise DeniedError(f"file {path} may not be read: {error}") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptError(f"{path} is not a {kind} file, or is damaged: {error}") from error
    yield table_source(path, file, nulls)


@dataclass(frozen=True)
class TableFile:
    """A file of Arrow's record batches.

    Attributes
    ----------
    batches
        Called with names of columns, or None for all; yields these columns of all rows, batch by batch.
    """

    schema: Any
    rows: int
    batches: Callable[[list[str] | None], Iterator[Any]]


def table_source(
    path: Path, file: TableFile, nulls: set[str], position: Callable[[], int] | None = None
) -> FileSource:
    """Return a table as a source.

    Parameters
    ----------
    nulls
        Paths of columns, and of members in them, at which values are missing.
    position
        Bytes read so far, of a file whose number of rows is not known; `file.rows` is then its size.

    Raises
    ------
    InvalidError
        If a column is of a type that cannot be stored, or two columns have one name.
    """
    import pyarrow as pa

    # pandas writes the index of a data frame as a column without a name.
    names = {column.name: identifier(column.name or "index") for column in file.schema}
    if len(set(names.values())) != len(file.schema):
        raise InvalidError(f"{path} has columns of the same name; rename them")
    fields = tuple(
        Field(names[each.name], _node_of(each.type, each.name, nulls, path)) for each in file.schema
    )
    columns = {field: name for name, field in names.items()}

    def batches(chosen: list[str]) -> Iterator[Any]:
        for batch in file.batches([columns[name] for name in chosen]):
            parts = (_decoded(batch[columns[name]]) for name in chosen)
            yield pa.table(dict(zip(chosen, parts, strict=True)))

    stem = stem_of(path)
    return FileSource(stem, Definition(identifier(stem), 1, fields), file.rows, "", batches, position)


def _parquet(path: Path) -> TableFile:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    return TableFile(
        file.schema_arrow,
        file.metadata.num_rows,
        lambda columns: file.iter_batches(BATCH_ENTRIES, columns=columns),
    )


def _arrow(path: Path) -> TableFile:
    import pyarrow as pa

    file = pa.ipc.open_file(path)

    def batches(columns: list[str] | None) -> Iterator[Any]:
        for number in range(file.num_record_batches):
            batch = file.get_batch(number)
            yield batch if columns is None else batch.select(columns)

    return TableFile(file.schema, sum(batch.num_rows for batch in batches(None)), batches)


def find_nulls(array: Any, path: str, found: set[str]) -> None:
    """Add the paths below an Arrow array at which values are missing."""
    import pyarrow as pa

    if array.null_count:
        found.add(path)
        array = array.drop_null()
    if pa.types.is_map(array.type):
        find_nulls(array.items, f"{path}.value", found)
    elif _is_list(array.type):
        find_nulls(array.flatten(), f"{path}[]", found)
    elif pa.types.is_struct(array.type):
        for position in range(array.type.num_fields):
            find_nulls(array.field(position), f"{path}.{array.type.field(position).name}", found)


def _node_of(type_: Any, path: str, nulls: set[str], file: Path) -> Node:
    """Return the stored type of an Arrow column: optional where values are missing."""
    node = _value_node(type_, path, nulls, file)
    return Optional(node) if path in nulls else node


def _value_node(type_: Any, path: str, nulls: set[str], file: Path) -> Node:
    import pyarrow as pa

    kinds = pa.types
    if kinds.is_dictionary(type_):
        return _value_node(type_.value_type, path, nulls, file)
    if kinds.is_string(type_) or kinds.is_large_string(type_):
        return String()
    if kinds.is_binary(type_) or kinds.is_large_binary(type_):
        return List(Primitive("byte"))
    if kinds.is_float16(type_):
        return Reduced("float16")
    if kinds.is_timestamp(type_):
        return Primitive("int64", Meaning("datetime"))
    if kinds.is_date(type_):
        return Primitive("int32", Meaning("date"))
    if kinds.is_map(type_):
        key = _value_node(type_.key_type, f"{path}.key", nulls, file)
        value = _node_of(type_.item_type, f"{path}.value", nulls, file)
        return List(Record(MAP_ITEM, (Field("_0", key), Field("_1", value))))
    if str(type_) in ARROW_NUMBERS:
        return Primitive(ARROW_NUMBERS[str(type_)])
    if kinds.is_struct(type_) and type_.num_fields:
        fields = (type_.field(position) for position in range(type_.num_fields))
        members = (
            Field(each.name, _node_of(each.type, f"{path}.{each.name}", nulls, file)) for each in fields
        )
        return Record(identifier(path), tuple(members))
    if _is_list(type_):
        item = _node_of(type_.value_type, f"{path}[]", nulls, file)
        is_fixed = kinds.is_fixed_size_list(type_) and isinstance(item, Primitive)
        return Fixed(item, type_.list_size) if is_fixed else List(item)
    raise InvalidError(
        f"column {path!r} of {file} is {type_}, which cannot be stored; cast it first, or leave it out"
    )


def _is_list(type_: Any) -> bool:
    import pyarrow as pa

    return any(
        test(type_) for test in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
    )


def _decoded(array: Any) -> Any:
    """Return a column with its dictionary encoding undone."""
    import pyarrow as pa

    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
