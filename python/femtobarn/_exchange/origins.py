"""Which files the objects of a database came from: its container ``imports``, of class ``ImportedFile``.

It is written by the transaction that imports, and moves, is backed up and is sealed with the database.

Invariants
----------
1. What is imported and what is said about it are committed together, or neither is.
2. A file is known by its UUID, which copies and renamed files share, or else by the SHA-256 of its bytes;
   never by its name. A file that was compressed anew or merged is another one.
3. Rows about a dropped container are ignored, so its file can be imported again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._exceptions import ExistsError
from .._schema.types import Definition, Field, Primitive, String

if TYPE_CHECKING:
    from .._federations import Federation
    from .._snapshots import Snapshot
    from .._transactions import ContainerWriter, Transaction

__all__ = ["CONTAINER", "ORIGIN", "Origin", "identity_of", "prepare", "refuse_known", "remember"]

CONTAINER = "imports"

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
    """A tree of a file, as what is imported from it is remembered."""

    file: str
    identity: str
    tree: str


def identity_of(path: str, uuid: str | None) -> str:
    """Return what tells a file from all others but its copies.

    Parameters
    ----------
    uuid
        The UUID that is in it, if it has one.
    """
    if uuid:
        return uuid
    with Path(path).open("rb") as file:
        return f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"


def refuse_known(snapshot: Snapshot, origins: Iterable[Origin]) -> None:
    """Refuse what was imported before, or is there twice.

    Raises
    ------
    ExistsError
        That says where its objects are.
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
    for place, row in _remembered(snapshot, identities):
        file = wanted.get((row["identity"], row["tree"]))
        if file is not None:
            tree = f"tree {row['tree']!r} of {file}" if row["tree"] else file
            known = "" if row["file"] == file else f" as {row['file']}"
            raise ExistsError(
                f"{tree} was imported already{known}: {row['entries']:,} objects are in {place}; again=True "
                "(--again) imports it all the same"
            )


def prepare(federation: Federation, databases: Iterable[str]) -> None:
    """Have the container in those databases that are there and lack it.

    Were it made by the imports themselves, the later of two first ones into a database could not commit.
    """
    snapshot = federation.snapshot()
    there = {row["name"] for row in snapshot.databases()}
    for database in there.intersection(databases):
        if f"{database}/{CONTAINER}" not in snapshot:
            with federation.transaction(message=f"where {database} keeps what was imported") as txn:
                txn.database(database).container(CONTAINER, ORIGIN, create=True)


def remember(
    txn: Transaction, database: str, origin: Origin, writer: ContainerWriter, first: int, entries: int
) -> None:
    """Say in a transaction where objects of a container came from: some entries, from the first on."""
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


def _remembered(snapshot: Snapshot, identities: set[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """What is remembered of files with some identities, with the container that their objects are in."""
    for database in [row["name"] for row in snapshot.databases()]:
        containers = {row["id"]: row for row in snapshot.containers(database)}
        if not any(row["name"] == CONTAINER and row["class"] == ORIGIN.name for row in containers.values()):
            continue
        view = snapshot[f"{database}/{CONTAINER}"]
        for row in view.arrays().to_list():
            if row["identity"] in identities and row["container"] in containers:
                yield f"{database}/{containers[row['container']]['name']}", row
