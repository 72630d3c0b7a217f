"""Importing conditions: a source is read, checked and written in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from .._conditions.payloads import LinkedPayload
from .._exceptions import ConflictError, CorruptError, DeniedError, ExistsError, NotFoundError, check_progress
from .._schema.classes import definition_of
from .._schema.types import Definition
from .import_records import record_import, refuse_existing
from .json_values import columns_from
from .payload_store import PayloadStore
from .readers import opened
from .sources import Format, Options, Source, SourceSeries, SourceTag, kinds_checked

if TYPE_CHECKING:
    from .._federations import Federation
    from .._snapshots import Snapshot
    from .._transactions import Transaction

__all__ = ["ImportedConditions", "import_conditions"]

BATCH = 10_000
"""Conditions that are put at once."""

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class ImportedConditions:
    """The result of an import of conditions."""

    series: dict[str, int]
    """The number of conditions of each series, by path."""
    global_tags: list[str]
    """The global tags that were made or changed."""
    kept: list[str]
    """The global tags that exist, are frozen, and therefore were not changed."""
    csn: int
    """The commit."""


def import_conditions(
    federation: Federation,
    source: str,
    *,
    format: Format | None = None,
    database: str | None = None,
    only: Iterable[str] = (),
    payloads: str | None = None,
    snapshot: str | None = None,
    series: str | None = None,
    cls: Any = None,
    clock: Literal["time", "run"] | None = None,
    overlap: Literal["newest", "open", "refuse"] | None = None,
    end: Literal["inclusive", "exclusive"] | None = None,
    again: bool = False,
    progress: Progress | None = None,
) -> ImportedConditions:
    """Import conditions from a file or a server, in one transaction.

    Payloads go to the container ``payloads``, each once; conditions link to them. All hashes are checked.
    Global tags of the source become global tags.

    Parameters
    ----------
    source
        A file, or the address of a server.
    format
        ``"cms"``, ``"belle2"``, ``"nopayloaddb"``, ``"crest"``, ``"csv"``, ``"json"``, or ``"sqlite"`` for an
        export. A file shows its format by itself; an address only if it ends with ``cdb_rest``.
    database
        The database of the series; by default that of the file, or the name of the system.
    only
        Names of tags to import, of Belle II and nopayloaddb those of global tags; all by default.
    payloads
        The folder or address of the payloads of Belle II or nopayloaddb.
    snapshot
        Of CMS and CREST: a time as the source writes it; conditions that were inserted later are left out.
    series, cls
        Of CSV and JSON lines: the path of the series, and the class of its conditions, inferred if not given.
    clock, overlap
        Of CSV and JSON lines: those of the series. Of nopayloaddb: ``"time"`` if majors are nanoseconds.
    end
        Of nopayloaddb: whether a validity contains its last moment; asked from the server if not given.
    again
        Whether to replace series that were imported from this source. Earlier commits keep them.
    progress
        Function that is called with the number of conditions done, and of all.

    Raises
    ------
    CorruptError, ExistsError
        If the source is damaged, with the row or the file; if a series exists. Nothing is imported then.

    Examples
    --------
    >>> import femtobarn as fb, pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> rows = ["since,value", "2026-01-01T00:00:00Z,1.5", "2026-02-01T00:00:00Z,1.6"]
    >>> count = (folder / "gains.csv").write_text("\\n".join(rows))
    >>> fed = fb.create(folder / "lhc.fed")
    >>> done = fb.import_conditions(fed, str(folder / "gains.csv"), series="tpc/gain")
    >>> fed.conditions()["tpc/gain"].at("2026-01-10T00:00:00Z").value
    1.5
    """
    if progress is not None:
        check_progress(progress, "done, total")
    names = (only,) if isinstance(only, str) else tuple(only)
    options = Options(names, payloads, snapshot, clock, overlap, end, series, cls and _definition(cls))
    with opened(str(source), format, options) as found:
        return _import(federation, found, database, again, progress)


def _import(
    federation: Federation, source: Source, database: str | None, again: bool, progress: Progress | None
) -> ImportedConditions:
    with kinds_checked(source.location):
        tables = source.series()
        paths = _paths(tables, source, database)
        tags = [_located(tag, tables, paths, database or source.system) for tag in source.global_tags()]
    snapshot = federation.snapshot()
    replaced = refuse_existing(
        snapshot, source, [(path, each.tag) for path, each in zip(paths, tables, strict=True)], again
    )
    existing = {tag["name"]: tag["state"] for tag in federation.conditions.tags()}
    if not again and (taken := [tag.name for tag in tags if tag.name in existing]):
        raise ExistsError(f"global tag {taken[0]} exists; again=True (--again) changes it")
    with federation.transaction(message=f"conditions of {source.location}") as txn:
        writer = _Writer(txn, snapshot, source, sum(len(each.rows.since) for each in tables), progress)
        for path, each in zip(paths, tables, strict=True):
            if path in replaced:
                txn.drop(path)
            writer.write(path, each)
    csn = txn.csn
    assert csn is not None
    kept = [tag.name for tag in tags if existing.get(tag.name) == "frozen"]
    changed = [tag for tag in tags if tag.name not in kept]
    for tag in changed:
        _change_tag(federation, tag, csn, existing.get(tag.name))
    counts = {path: len(each.rows.since) for path, each in zip(paths, tables, strict=True)}
    return ImportedConditions(counts, [tag.name for tag in changed], kept, csn)


def _paths(tables: list[SourceSeries], source: Source, database: str | None) -> list[str]:
    """Return the path of each series, and refuse two that are the same."""
    tags: dict[str, str] = {}
    for each in tables:
        path = f"{database or each.database or source.system}/{each.container}"
        if path in tags:
            raise CorruptError(
                f"{source.location}: {tags[path]} and {each.tag} would both become {path}; import one of them"
            )
        tags[path] = each.tag
    if not tags:
        raise NotFoundError(f"{source.location} has no tags to import")
    return list(tags)


def _located(tag: SourceTag, tables: list[SourceSeries], paths: list[str], database: str) -> SourceTag:
    """Return a global tag with paths for the names of containers."""
    known = {each.container: path for path, each in zip(paths, tables, strict=True)}
    known |= {each.tag: path for path, each in zip(paths, tables, strict=True)}
    mapped = {}
    for name, target in tag.series.items():
        path = known[target]
        mapped[path if name == target else f"{database}/{name}"] = path
    return SourceTag(tag.name, mapped, tag.state, tag.message)


def _change_tag(federation: Federation, tag: SourceTag, csn: int, state: str | None) -> None:
    """Make a global tag, or change the existing one, to the series as of a commit."""
    conditions = federation.conditions
    versions = {path: None if path == target else target for path, target in tag.series.items()}
    if state is None:
        conditions.create_tag(tag.name, versions, state=tag.state, csn=csn, message=tag.message)
        return
    if state == "locked":
        conditions.change_tag(tag.name, state="open", message="opened by an import")
    gone = [path for path in conditions.tag(tag.name)["series"] if path not in versions]
    try:
        conditions.change_tag(tag.name, versions, remove=gone, state=tag.state, csn=csn, message=tag.message)
    except DeniedError as error:
        raise DeniedError(f"global tag {tag.name} was frozen during the import: {error}") from None


class _Writer:
    """The series of an import within its transaction."""

    def __init__(
        self, txn: Transaction, snapshot: Snapshot, source: Source, total: int, progress: Progress | None
    ) -> None:
        self._txn = txn
        self._snapshot = snapshot
        self._source = source
        self._stores: dict[str, PayloadStore] = {}
        self._total = total
        self._done = 0
        self._progress = progress

    def write(self, path: str, series: SourceSeries) -> None:
        """Make a series with all of its conditions, and record where they came from."""
        cls = LinkedPayload if series.definition is None else series.definition
        writer = self._txn.series(path, cls, create=True, clock=series.clock, overlap=series.overlap)
        if len(writer):
            raise ConflictError(f"{path} was made by another transaction during the import; import again")
        rows = series.rows
        for first in range(0, len(rows.since), BATCH):
            part = slice(first, first + BATCH)
            writer.extend(
                self._columns(path, series, part),
                since=np.array(rows.since[part], np.int64),
                until=np.array(rows.until[part], np.int64),
                channel=rows.channel[part],
            )
            self._report_progress(len(rows.since[part]))
        record_import(self._txn, self._source, path, series.tag, len(rows.since))

    def _columns(self, path: str, series: SourceSeries, part: slice) -> dict[str, list[Any]]:
        values = series.rows.values[part]
        if series.definition is not None:
            return columns_from(values, series.definition, self._source.location)
        database = path.partition("/")[0]
        if database not in self._stores:
            self._stores[database] = PayloadStore(self._txn, self._snapshot, database)
        store = self._stores[database]
        links = [store.link(self._source, key) for key in values]
        return {"payload": links, "source_hash": [key.partition(" ")[0] for key in values]}

    def _report_progress(self, count: int) -> None:
        self._done += count
        if self._progress is not None:
            self._progress(self._done, self._total)


def _definition(cls: Any) -> Definition:
    return Definition.from_json(cls) if isinstance(cls, str | dict) else definition_of(cls)
