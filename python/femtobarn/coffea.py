"""Events for coffea: NanoEvents over views, whose columns are read when they are used; executors, filesets.

A container shows the names of NanoAOD, whether it was imported from there or not: ``nMuon`` is the number of
items of the collection ``Muon``, ``Muon_pt`` the member ``pt`` of these, ``MET_pt`` that of a record. For the
schemas of PHYSLITE and EDM4hep it shows the names of those.
"""

from __future__ import annotations

import gc
import json
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import awkward as ak
import cloudpickle
import numpy as np
from coffea.nanoevents import EDM4HEPSchema, NanoAODSchema, NanoEventsFactory, PHYSLITESchema
from coffea.nanoevents.mapping.base import BaseSourceMapping
from coffea.nanoevents.util import tuple_to_key
from coffea.processor import ProcessorABC, accumulate
from coffea.processor.executor import WorkItem

from ._exceptions import InvalidError
from ._views.coffea_columns import NANOAOD, PHYSLITE, PODIO, Column, columns_and_form, podio_types
from ._views.partitions import Partition, ranges

if TYPE_CHECKING:
    from ._snapshots import Snapshot
    from ._views.view import View

__all__ = ["FailedPartition", "events", "fileset", "run", "work_items"]

Dataset: TypeAlias = "View | Partition | Sequence[Partition]"


@dataclass(frozen=True)
class FailedPartition:
    """A partition at which a processor failed; see :func:`run`."""

    dataset: str
    partition: Partition
    error: str
    """The exception, with the lines where it was raised."""


def events(
    view: View | Partition,
    schemaclass: Any = NanoAODSchema,
    *,
    metadata: Mapping[str, Any] | None = None,
    access_log: list[Any] | None = None,
) -> ak.Array:
    """Return the objects of a view as NanoEvents. Each column is read when it is first used.

    Parameters
    ----------
    view
        A view of events, or a partition of one.
    schemaclass
        A schema of coffea: ``NanoAODSchema``, ``BaseSchema``, or ``PHYSLITESchema`` or ``EDM4HEPSchema`` for
        events that were imported from such a file.
    metadata
        The contents of ``events.metadata``.
    access_log
        A list to which coffea appends the columns that it reads.

    Raises
    ------
    InvalidError
        If two fields would have one name.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> @fb.persistent
    ... class Muon:
    ...     pt: fb.float32
    >>> @fb.persistent
    ... class Event:
    ...     run: fb.uint32
    ...     Muon: list[Muon]
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> with fed.transaction() as txn:
    ...     writer = txn.database("d", create=True).container("events", Event, create=True)
    ...     oids = writer.extend({"run": [1, 2], "Muon": [[{"pt": 31.5}], []]})
    >>> from coffea.nanoevents import BaseSchema
    >>> events = fb.coffea.events(fed["d/events"], BaseSchema)
    >>> events.nMuon.to_list(), events.Muon_pt.to_list()
    ([1, 0], [[31.5], []])
    """
    found = view.view if isinstance(view, Partition) else view
    is_podio = issubclass(schemaclass, EDM4HEPSchema)
    naming = PODIO if is_podio else PHYSLITE if issubclass(schemaclass, PHYSLITESchema) else NANOAOD
    columns, text = columns_and_form(found, naming)
    mapping = _ViewMapping(found, columns, access_log)
    form = json.loads(text) | (podio_types(found) if is_podio else {})
    form["parameters"] = {"__doc__": found.name, "metadata": dict(metadata or {})}
    key = tuple_to_key((found.snapshot.federation.uuid, found.name, f"0-{len(found)}"))
    # Arrays hold their factory, not the other way round.
    return NanoEventsFactory(schemaclass(form), mapping, key, mode="virtual").events()


def run(
    processor: Any,
    datasets: Mapping[str, Dataset],
    *,
    executor: Any = None,
    schemaclass: Any = NanoAODSchema,
    size: int | str = "100 MB",
    failed: list[FailedPartition] | None = None,
) -> Any:
    """Run a processor of coffea over partitions, and return its merged output.

    Parameters
    ----------
    processor
        A ``ProcessorABC``, or a function of events. ``events.metadata`` has the name of the dataset.
    datasets
        Views, or partitions, by the names of datasets.
    executor
        One of coffea's: ``IterativeExecutor()``, ``FuturesExecutor(workers=4)``,
        ``DaskExecutor(client=client)``, or ``ParslExecutor()`` after ``parsl.load(config)``; by default all
        partitions are processed in this process.
    schemaclass
        As for :func:`events`.
    size
        How large the partitions of views are, as for :meth:`femtobarn.View.partitions`.
    failed
        A list to which partitions are added at which the processor failed; the output is then that of all
        other partitions. Without it, the first failure ends the run.

    Raises
    ------
    InvalidError
        If there are no events, or `failed` was given and the processor failed at all partitions.

    Examples
    --------
    >>> import awkward as ak, femtobarn as fb, tempfile
    >>> from coffea.nanoevents import BaseSchema
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> with fed.transaction() as txn:
    ...     form = {"name": "Event", "fields": [{"name": "run", "type": "uint32"}]}
    ...     events = txn.database("d", create=True).container("events", form, create=True)
    ...     oids = events.extend({"run": [1, 2, 4]})
    >>> def total(events):
    ...     return {events.metadata["dataset"]: int(ak.sum(events.run))}
    >>> fb.coffea.run(total, {"data": fed["d/events"]}, schemaclass=BaseSchema, size=2)
    {'data': 7}
    """
    items = [(name, part) for name, dataset in datasets.items() for part in _parts_of(dataset, size)]
    if not items:
        raise InvalidError("there are no events to process: the datasets are empty")
    process = partial(_process, cloudpickle.dumps(processor), schemaclass, failed is not None)
    with _only_new_garbage():
        if executor is None:
            found = accumulate(map(process, items))
        else:
            found, error = executor(items, process, None)
            if isinstance(error, BaseException):
                raise error
    if failed is not None:
        errors = found.get("errors", {})
        keyed = {(name, part.key): part for name, part in items}
        failed += [FailedPartition(key[0], keyed[key], errors[key]) for key in keyed if key in errors]
        if "output" not in found:
            raise InvalidError(f"the processor failed at all {len(items)} partitions: {failed[-1].error}")
    output = found["output"]
    return processor.postprocess(output) if isinstance(processor, ProcessorABC) else output


@contextmanager
def _only_new_garbage() -> Iterator[None]:
    """Leave the objects that exist out of garbage collections.

    An array of events has thousands of objects, so collections of all objects are frequent, while coffea and
    its packages have some hundred thousand objects, none of which becomes garbage meanwhile.
    """
    if gc.get_freeze_count():  # The program has its own reasons.
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def fileset(
    snapshot: Snapshot,
    names: str | Sequence[str] | Mapping[str, str | Sequence[str]],
    *,
    url: str | None = None,
    size: int | str = "100 MB",
    metadata: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Return files at a server for coffea's own readers, as its preprocessing would; no file is opened.

    Each file is a database as of the snapshot, whatever is committed later, and is divided where clusters
    end. coffea's ``apply_to_fileset`` takes the result; for a ``Runner`` see :func:`work_items`. coffea then
    reads all entries, also those of deleted objects. The snapshot needs a tag or the retention as long as
    the jobs run.

    Parameters
    ----------
    snapshot
        The snapshot. Its federation is opened at a server, or `url` is given.
    names
        Containers or globs, each container a dataset; or those of each dataset, by its name.
    url
        The ``root://`` address of the federation, if it is opened otherwise here.
    size
        How large the steps are, as for :meth:`femtobarn.View.partitions`.
    metadata
        Additions to coffea's own ``events.metadata``, by dataset.

    Raises
    ------
    NotFoundError
        If no container has a name; near misses are named.
    InvalidError
        If no server is known, or a dataset has two containers of one database.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> form = {"name": "Event", "fields": [{"name": "run", "type": "uint32"}]}
    >>> with fed.transaction() as txn:
    ...     events = txn.database("run7", create=True).container("events", form, create=True)
    ...     oids = events.extend({"run": [1, 2, 4]})
    >>> files = fb.coffea.fileset(fed.snapshot(), {"data": "run7/*"}, url="root://host//lhc.fed")
    >>> [(url, file["object_path"], file["steps"]) for url, file in files["data"]["files"].items()]
    [('root://host//lhc.fed/run7.root?fb.csn=1', 'events', [[0, 3]])]
    """
    address = snapshot.federation.path if url is None else url
    if not address.startswith(("root://", "roots://")) or "," in address:
        raise InvalidError(
            f"coffea reads from one server: {address!r} is not the URL of one; give url='root://host//name'"
        )
    datasets = names if isinstance(names, Mapping) else {name: name for name in _found(snapshot, names)}
    uuids = {each["name"]: str(each["uuid"]) for each in snapshot.databases()}
    filesets: dict[str, Any] = {}
    for dataset, paths in datasets.items():
        files: dict[str, Any] = {}
        for path in _found(snapshot, paths):
            database, _, container = path.partition("/")
            file = f"{address.rstrip('/')}/{database}.root?fb.csn={snapshot.csn}"
            if file in files:
                both = f"{files[file]['object_path']!r} and {container!r} of database {database!r}"
                text = f"dataset {dataset!r} has {both}: coffea reads one of a file; make two datasets"
                raise InvalidError(text)
            files[file] = {"object_path": container, "uuid": uuids[database], **_steps(snapshot[path], size)}
        filesets[dataset] = {"files": files, "metadata": dict((metadata or {}).get(dataset, {}))}
    return filesets


def _steps(view: View, size: int | str) -> dict[str, Any]:
    steps = [[part.start, part.stop] for part, _ in ranges(view, size)]
    return {"steps": steps or [[0, 0]], "num_entries": len(view._window)}


def _found(snapshot: Snapshot, names: str | Sequence[str]) -> list[str]:
    return snapshot._matching([names] if isinstance(names, str) else names)


def work_items(fileset: Mapping[str, Any]) -> list[WorkItem]:
    """Return the steps of a fileset for a ``Runner`` of coffea, which opens no file to find them.

    ``Runner(executor, schema=BaseSchema).run(fb.coffea.work_items(files), processor)["out"]`` runs a
    processor over them.

    Examples
    --------
    >>> import femtobarn as fb
    >>> file = {"object_path": "events", "steps": [[0, 2], [2, 3]], "num_entries": 3, "uuid": "0" * 32}
    >>> items = fb.coffea.work_items({"data": {"files": {"root://host//lhc.fed/run7.root": file}}})
    >>> [(item.dataset, item.treename, item.entrystart, item.entrystop) for item in items]
    [('data', 'events', 0, 2), ('data', 'events', 2, 3)]
    """
    return [
        WorkItem(
            dataset, url, file["object_path"], *step, UUID(file["uuid"]).bytes, each.get("metadata") or None
        )
        for dataset, each in fileset.items()
        for url, file in each["files"].items()
        for step in file["steps"]
    ]


def _parts_of(dataset: Dataset, size: int | str) -> Sequence[Partition]:
    if isinstance(dataset, Partition):
        return [dataset]
    return dataset if isinstance(dataset, Sequence) else dataset.partitions(size)


def _process(pickled: bytes, schemaclass: Any, may_fail: bool, item: tuple[str, Partition]) -> dict[str, Any]:
    """Return the output of a processor for one partition, or the error if it may fail."""
    name, part = item
    processor = cloudpickle.loads(pickled)
    function = processor.process if isinstance(processor, ProcessorABC) else processor
    try:
        found = events(part, schemaclass, metadata={"dataset": name, "partition": part.key})
        output = function(found)
        if output is None:
            raise InvalidError(f"the processor returned None for {part.key}, which cannot be accumulated")
        return {"output": output}
    except Exception:
        if not may_fail:
            raise
        return {"errors": {(name, part.key): traceback.format_exc()}}


class _ViewMapping(BaseSourceMapping):  # type: ignore[misc]
    """The columns of a view for coffea, which asks for the buffers that it needs."""

    def __init__(self, view: View, columns: dict[str, Column], access_log: list[Any] | None) -> None:
        super().__init__(None, 0, len(view), cache={}, access_log=access_log, virtual=True)
        self._view = view
        self.columns = columns
        self._last: tuple[str, ak.Array] | None = None

    @classmethod
    def _extract_base_form(cls, source: View) -> dict[str, Any]:
        form: dict[str, Any] = json.loads(columns_and_form(source, NANOAOD)[1])
        return form

    def key_root(self) -> str:
        return "FemtobarnMapping:"

    def _column_source(self, uuid: str, path_in_source: str) -> View:
        return self._view

    def get_column_handle(self, columnsource: View, name: str, allow_missing: bool) -> str | None:
        return name if name in self.columns or not allow_missing else None

    def extract_column(
        self, columnhandle: str | None, start: int, stop: int, allow_missing: bool, **options: Any
    ) -> Any:
        if columnhandle is None:
            missing = ak.index.Index64(np.full(stop - start, -1, np.int64))
            return ak.contents.IndexedOptionArray(missing, ak.contents.NumpyArray(np.empty(0, np.bool_)))
        if self._last is None or self._last[0] != columnhandle:
            # The offsets and the values of a column are asked for one after the other.
            self._last = columnhandle, self.columns[columnhandle].read(self._view)
        return self._last[1]

    def __len__(self) -> int:
        return len(self._view)

    def __iter__(self) -> Iterator[str]:
        return iter(self.columns)
