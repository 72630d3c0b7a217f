"""Records of imports, by series and source: the container ``condition_imports`` of a database.

The transaction that imports also writes it. The last record of a series counts, as long as the series exists.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from .._exceptions import ExistsError
from .._schema.types import Definition, Field, Primitive, String
from .sources import Source

if TYPE_CHECKING:
    from .._snapshots import Snapshot
    from .._transactions import Transaction

__all__ = ["record_import", "refuse_existing"]

CONTAINER = "condition_imports"

RECORD = Definition(
    "ImportedSeries",
    1,
    (
        Field("system", String(), "kind of the source"),
        Field("location", String(), "file or address of the source"),
        Field("tag", String(), "name of the series in the source"),
        Field("series", String(), "name of the container"),
        Field("conditions", Primitive("uint64"), "number of conditions"),
    ),
)


def refuse_existing(
    snapshot: Snapshot, source: Source, tags: Iterable[tuple[str, str]], again: bool
) -> set[str]:
    """Return the series that exist and may be replaced: those that came from this source, if `again`.

    Parameters
    ----------
    tags
        The path of each series with its name in the source.

    Raises
    ------
    ExistsError
        If another one exists.
    """
    replaced = set()
    known: dict[str, dict[str, dict[str, Any]]] = {}
    for path, tag in tags:
        if path not in snapshot:
            continue
        database, _, container = path.partition("/")
        if database not in known:
            known[database] = _records(snapshot, database)
        record = known[database].get(container)
        if record is None:
            raise ExistsError(
                f"{path} exists and was not imported; import into another database (--database)"
            )
        if (record["system"], record["location"], record["tag"]) != (source.system, source.location, tag):
            raise ExistsError(
                f"{path} was imported from {record['tag']} of {record['location']}; import into another "
                "database "
                "(--database), or drop it first"
            )
        if not again:
            raise ExistsError(
                f"{tag} of {source.location} was imported already: {record['conditions']:,} conditions "
                f"are in {path}; "
                "again=True (--again) replaces them by those that the source has now"
            )
        replaced.add(path)
    return replaced


def _records(snapshot: Snapshot, database: str) -> dict[str, dict[str, Any]]:
    path = f"{database}/{CONTAINER}"
    if path not in snapshot:
        return {}
    return {row["series"]: row for row in snapshot[path].arrays().to_list()}


def record_import(txn: Transaction, source: Source, path: str, tag: str, conditions: int) -> None:
    """Record that a series came from a source."""
    database, _, container = path.partition("/")
    txn.database(database).container(CONTAINER, RECORD, create=True).append(
        {
            "system": source.system,
            "location": source.location,
            "tag": tag,
            "series": container,
            "conditions": conditions,
        }
    )
