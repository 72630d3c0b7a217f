"""The origins of imported objects: the container ``imports`` of a database, of class ``ImportedFile``.

The transaction that imports also writes this container, which moves, is backed up and is sealed with its
database.

Invariants
----------
1. Imported objects and their origin are committed together, or neither is.
2. A file is identified by its UUID, which copies and renamed files share, or else by the SHA-256 of its
   bytes; never by its name. A file that was compressed again, or merged, is another file.
3. Rows about a dropped container are ignored, so that its file can be imported again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._exceptions import ExistsError
from .._schema.types import Definition, Field, Primitive, String
from .import_target import ImportTarget

if TYPE_CHECKING:
    from .._snapshots import Snapshot
    from .._transactions import Transaction
    from .._writers import ContainerWriter

__all__ = [
    "CONTAINER",
    "ORIGIN",
    "Origin",
    "create_origins",
    "identity_of",
    "record_origin",
    "refuse_imported",
]

CONTAINER = "imports"
"""Name of the container in each database."""

ORIGIN = Definition(
    "ImportedFile",
    1,
    (
        Field("file", String(), "where it was imported from"),
        Field("identity", String(), "its UUID, or sha256: and the digest of its bytes"),
        Field("tree", String(), "name of the tree or RNTuple in it, empty for a table"),
        Field("container", Primitive("uint32"), "number of the container, as in OIDs"),
        Field("first", Primitive("uint64"), "entry of the first object that came from it"),
        Field("entries", Primitive("uint64"), "number of objects that came from it"),
    ),
)


@dataclass(frozen=True)
class Origin:
    """A tree or table of a file, as it is recorded."""

    file: str
    identity: str
    tree: str


def identity_of(path: str, uuid: str | None) -> str:
    """Return a text that is the same for two files only if one is a copy of the other.

    Parameters
    ----------
    uuid
        The UUID in the file, if it has one. Without, all of its bytes are read.
    """
    if uuid:
        return uuid
    with Path(path).open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def refuse_imported(snapshot: Snapshot, origins: Iterable[Origin]) -> None:
    """Refuse trees that were imported before, or are given twice.

    Raises
    ------
    ExistsError
        If one was; the text names the container of its objects.
    """
    wanted: dict[tuple[str, str], str] = {}
    for origin in origins:
        key = origin.identity, origin.tree
        if key in wanted:
            same = "is given twice" if wanted[key] == origin.file else f"is the same file as {wanted[key]}"
            raise ExistsError(f"{origin.file} {same}; again=True imports it all the same")
        wanted[key] = origin.file
    identities = {identity for identity, _ in wanted}
    if not identities:
        return
    for place, row in _recorded(snapshot, identities):
        file = wanted.get((row["identity"], row["tree"]))
        if file is not None:
            tree = f"tree {row['tree']!r} of {file}" if row["tree"] else file
            known = "" if row["file"] == file else f" as {row['file']}"
            raise ExistsError(
                f"{tree} was imported already{known}: {row['entries']:,} objects are in {place}; again=True "
                "(--again) imports it all the same"
            )


def create_origins(federation: ImportTarget, databases: Iterable[str]) -> None:
    """Make the container of origins in the existing databases that lack it, each in a transaction of its own.

    Were it made in the transactions that import, two first imports into a database would conflict.
    """
    snapshot = federation.snapshot()
    there = {row["name"] for row in snapshot.databases()}
    for database in there.intersection(databases):
        if f"{database}/{CONTAINER}" not in snapshot:
            with federation.transaction(message=f"origins of objects imported into {database}") as txn:
                txn.database(database).container(CONTAINER, ORIGIN, create=True)


def record_origin(
    txn: Transaction, database: str, origin: Origin, writer: ContainerWriter, first: int, entries: int
) -> None:
    """Record that `entries` objects of a container, from entry `first` on, came from `origin`."""
    imports = txn.database(database).container(CONTAINER, ORIGIN, create=True)
    imports.append(
        {
            "file": origin.file,
            "identity": origin.identity,
            "tree": origin.tree,
            "container": writer.container_id,
            "first": first,
            "entries": entries,
        }
    )


def _recorded(snapshot: Snapshot, identities: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows about files with some identities, each with the container of its objects."""
    for database in [row["name"] for row in snapshot.databases()]:
        containers = {row["id"]: row for row in snapshot.containers(database)}
        if not any(row["name"] == CONTAINER and row["class"] == ORIGIN.name for row in containers.values()):
            continue
        view = snapshot[f"{database}/{CONTAINER}"]
        for row in view.arrays().to_list():
            if row["identity"] in identities and row["container"] in containers:
                yield f"{database}/{containers[row['container']]['name']}", row
