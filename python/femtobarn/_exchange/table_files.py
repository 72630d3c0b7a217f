"""Copies of files that others made: Parquet and Arrow files, RNTuples of ROOT files."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._exceptions import (
    CorruptError,
    DeniedError,
    InvalidError,
    NotFoundError,
    check_progress,
    near_misses,
)
from .._femtobarn import identify as _identify
from .._query.paths import Expressions, expand
from .._query.projections import part_of
from .._schema.types import (
    ELEMENT_LINK_MEMBERS,
    LINK_MEMBERS,
    Definition,
    ElementLink,
    Field,
    Fixed,
    Link,
    List,
    Node,
    Optional,
    Primitive,
    Record,
    Reduced,
    String,
    Variant,
)
from .exports import format_of
from .import_plan import Classes
from .imports import Imported
from .origins import Origin, identity_of, refuse_known, remember

if TYPE_CHECKING:
    from .._federations import Federation

__all__ = ["import_file"]

ARROW_NUMBERS = {
    "float": "float32",
    "double": "float64",
    "bool": "bool",
    **{f"{sign}int{bits}": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}
"""Names of Arrow's numbers, and the types they are stored as."""

BATCH_ENTRIES = 1 << 16
"""Rows that are read at once."""


@dataclass(frozen=True)
class _Source:
    """What a file holds: a class, the number of objects, and these in batches."""

    name: str
    definition: Definition
    entries: int
    tree: str
    batches: Callable[[list[str]], Iterator[Any]]


def import_file(
    federation: Federation,
    path: str | os.PathLike[str],
    *,
    database: str | None = None,
    container: str | None = None,
    class_name: str | None = None,
    ntuple: str | None = None,
    expressions: Expressions = None,
    again: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Imported:
    """Copy a file into a container; see :meth:`femtobarn.Federation.import_file`."""
    check_progress(progress, "done, total")
    file = Path(os.fspath(path))
    kind = format_of(file, None)
    if not file.exists():
        known = [each.name for each in file.parent.glob("*.*")] if file.parent.is_dir() else []
        raise NotFoundError(f"file {file} does not exist{near_misses(file.name, known)}")
    if ntuple is not None and kind != "root":
        raise InvalidError(f"{file.name} is not a ROOT file, and has no RNTuple {ntuple!r}")
    opened = _ntuple(file, ntuple) if kind == "root" else _table(file, kind)
    with opened as source:
        paths = expand(expressions, source.definition)
        if kind != "root":
            # Columns are read whole.
            paths = list(dict.fromkeys(each.partition(".")[0] for each in paths))
        place, name = database or file.stem, container or source.name
        chosen = part_of(source.definition, paths)
        classes = Classes(federation.classes())
        definition = classes.named(class_name or chosen.name, chosen.fields, place)
        uuid = _identify(str(file))["uuid"] if kind == "root" else None
        origin = Origin(str(file), identity_of(str(file), uuid), source.tree)
        origins = [] if again else [origin]
        refuse_known(federation.snapshot(), origins)
        with federation.transaction(message=f"import {file}") as txn:
            writer = txn.database(place, create=True).container(name, definition, create=True)
            refuse_known(federation.snapshot(), origins)  # Another process may have imported it meanwhile.
            before = len(writer)
            for batch in source.batches(paths):
                oids = writer.extend(batch)
                if progress is not None:
                    progress(oids.stop - before, source.entries)
            added = len(writer) - before
            remember(txn, place, origin, writer, before, added)
    return Imported(f"{place}/{name}", definition.name, added, {}, str(file), source.tree)


@contextmanager
def _table(path: Path, kind: str) -> Iterator[_Source]:
    """A Parquet or Arrow file."""
    import pyarrow as pa

    try:
        file = _parquet(path) if kind == "parquet" else _arrow(path)
        nulls: set[str] = set()
        for batch in file.batches(None):
            for name, column in zip(batch.schema.names, batch.columns, strict=True):
                _find_nulls(column, name, nulls)
    except PermissionError as error:
        raise DeniedError(f"file {path} may not be read: {error}") from error
    except (pa.ArrowInvalid, OSError) as error:
        raise CorruptError(f"{path} is not a {kind} file, or is damaged: {error}") from error
    names = {column.name: _identifier(column.name) for column in file.schema}
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

    yield _Source(path.stem, Definition(_identifier(path.stem), 1, fields), file.rows, "", batches)


@dataclass(frozen=True)
class _TableFile:
    schema: Any
    rows: int
    batches: Callable[[list[str] | None], Iterator[Any]]


def _parquet(path: Path) -> _TableFile:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(path)
    return _TableFile(
        file.schema_arrow,
        file.metadata.num_rows,
        lambda columns: file.iter_batches(BATCH_ENTRIES, columns=columns),
    )


def _arrow(path: Path) -> _TableFile:
    import pyarrow as pa

    file = pa.ipc.open_file(path)

    def batches(columns: list[str] | None) -> Iterator[Any]:
        for number in range(file.num_record_batches):
            batch = file.get_batch(number)
            yield batch if columns is None else batch.select(columns)

    return _TableFile(file.schema, sum(batch.num_rows for batch in batches(None)), batches)


def _find_nulls(array: Any, path: str, found: set[str]) -> None:
    """Gather the places where values are missing; that a file allows it says little."""
    import pyarrow as pa

    if array.null_count:
        found.add(path)
        array = array.drop_null()
    if _is_list(array.type):
        _find_nulls(array.flatten(), f"{path}[]", found)
    elif pa.types.is_struct(array.type):
        for position in range(array.type.num_fields):
            _find_nulls(array.field(position), f"{path}.{array.type.field(position).name}", found)


def _node_of(type_: Any, path: str, nulls: set[str], file: Path) -> Node:
    """The type that values of an Arrow column are stored as."""
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
    if str(type_) in ARROW_NUMBERS:
        return Primitive(ARROW_NUMBERS[str(type_)])
    if kinds.is_struct(type_) and type_.num_fields:
        fields = (type_.field(position) for position in range(type_.num_fields))
        members = (
            Field(each.name, _node_of(each.type, f"{path}.{each.name}", nulls, file)) for each in fields
        )
        return Record(_identifier(path), tuple(members))
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
    """The values of a column that is kept as numbers of a dictionary."""
    import pyarrow as pa

    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def _identifier(name: str) -> str:
    from ..importers.types import identifier

    return identifier(name)


@contextmanager
def _ntuple(path: Path, name: str | None) -> Iterator[_Source]:
    """An RNTuple of a ROOT file, read as a database that is attached to a federation of its own."""
    from .._federations import create

    with tempfile.TemporaryDirectory() as folder:
        federation = create(Path(folder) / "import.fed")
        with federation:
            attached = federation.attach(path.absolute(), "file")
            if name is None and len(attached.containers) > 1:
                raise InvalidError(f"{path} has RNTuples {', '.join(attached.containers)}; name one")
            if name is not None and name not in attached.containers:
                raise NotFoundError(f"{path} has no RNTuple {name!r}{near_misses(name, attached.containers)}")
            view = federation[f"file/{name or attached.containers[0]}"]
            record = _without_links(view.definition.record)
            fields = record.fields if isinstance(record, Record) else ()
            tree = name or attached.containers[0]
            definition = Definition(view.definition.name, 1, fields)
            yield _Source(_identifier(tree), definition, len(view), tree, view.iterate)


def _without_links(node: Node) -> Node:
    """The type with links as the records that they are stored as: they lead nowhere elsewhere."""
    if isinstance(node, Link | ElementLink):
        members = LINK_MEMBERS if isinstance(node, Link) else ELEMENT_LINK_MEMBERS
        return Record("", tuple(Field(name, Primitive(kind)) for name, kind in members))
    if isinstance(node, Record):
        fields = (Field(each.name, _without_links(each.type), each.description) for each in node.fields)
        return Record(node.class_name, tuple(fields))
    if isinstance(node, List):
        return List(_without_links(node.item))
    if isinstance(node, Optional):
        return Optional(_without_links(node.item))
    return Variant(tuple(map(_without_links, node.alternatives))) if isinstance(node, Variant) else node
