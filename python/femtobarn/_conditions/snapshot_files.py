"""Writing snapshot files: the conditions of a job in one sealed ROOT file, with a manifest that proves them.

Invariants
----------
1. A file of the wanted name appears only when it is complete, durable, and was read back and verified.
2. A series in it has the resolved validities, without overlaps: conditions that newer ones hide are left out.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.arrays import Tree
from .._data.casts import Values
from .._exceptions import (
    DeniedError,
    ExistsError,
    FemtobarnError,
    InvalidError,
    NotFoundError,
    StorageError,
    UnsupportedError,
    check_progress,
    path_text,
)
from .._femtobarn import series_definition
from .._query.projections import Projection
from .._schema.types import ElementLink, Fixed, Link, List, Node, Optional, Record, Variant
from .._views.view import View
from .._writers import Database, definition_json
from .clocks import BEGINNING, FOREVER, moment_of, shown
from .conditions_files import ConditionsFile, Progress, content_hash, in_steps
from .coverages import Coverage, Segments, segments_at, segments_within
from .event_joins import Moments, iterate_moments, moments_by_clock, opened_series
from .jobs import Job
from .manifests import CONTAINER, DEFINITION, Kind, Manifest, SeriesFacts, manifest_object
from .series import Series
from .series_writers import with_validity

if TYPE_CHECKING:
    from .._federations import Federation

__all__ = ["write_job_file", "write_snapshot"]

CLUSTER_SIZE = "2 MiB"
"""Size of a cluster, the unit that a look-up reads."""

COMPRESSION = "zstd"

SERIES_PER_COMMIT = 32
"""Bounds the memory of containers that are being written."""

NAME_MAX = 120
"""Longest name of a container, in characters."""

Ranges = dict[str, tuple[int, int]]
"""The range of each clock."""


def write_snapshot(
    job: Job,
    path: str | os.PathLike[str],
    series: Iterable[str] | None,
    bounds: Any,
    progress: Progress | None,
) -> None:
    """Write the conditions that are valid within ranges of the clocks; see :meth:`Job.write_snapshot`.

    Parameters
    ----------
    bounds
        For each clock the first moment, and the first that is not in the file; None for no bound.
    """
    target = _new_file(path)
    ranges: Ranges = {}
    for clock, (since, until) in bounds.items():
        low = BEGINNING if since is None else moment_of(since, clock)
        high = FOREVER if until is None else moment_of(until, clock)
        if low >= high:
            raise InvalidError(
                f"the range from {shown(low, clock)} to {shown(high, clock)} is empty; it must end after it "
                "begins"
            )
        ranges[clock] = low, high
    opened = _opened(job, series)

    def choose(each: Series) -> Segments:
        return segments_within(each, *ranges[each.clock])

    _write(job, target, "snapshot", opened, ranges, choose, progress)


def write_job_file(
    job: Job,
    path: str | os.PathLike[str],
    events: View | Sequence[View],
    series: Iterable[str] | None,
    moments: Moments | Mapping[str, Moments],
    progress: Progress | None,
) -> None:
    """Write the conditions that are valid at the moments of events; see :meth:`Job.write_job_file`."""
    target = _new_file(path)
    opened = _opened(job, series)
    needed = _needed([events] if isinstance(events, View) else list(events), opened, moments)
    ranges = {clock: (int(each[0]), int(each[-1]) + 1) for clock, each in needed.items() if len(each)}
    _write(job, target, "job", opened, ranges, lambda each: segments_at(each, needed[each.clock]), progress)


def _opened(job: Job, paths: Iterable[str] | None) -> list[Series]:
    """Return the series to write.

    Raises
    ------
    UnsupportedError
        If a class has links.
    """
    if isinstance(job, ConditionsFile):
        raise InvalidError(f"{job.file} is a snapshot file itself; write another one from the federation")
    opened = opened_series(job, paths)
    for series in opened:
        for field in series.definition.fields:
            if _has_links(field.type):
                raise UnsupportedError(
                    f"{series.path} has links in the field {field.name}, whose objects would not be in the "
                    "file; name the series to write, without this one"
                )
    return opened


def _has_links(node: Node) -> bool:
    if isinstance(node, List | Optional | Fixed):
        return _has_links(node.item)
    if isinstance(node, Record):
        return any(_has_links(field.type) for field in node.fields)
    if isinstance(node, Variant):
        return any(map(_has_links, node.alternatives))
    return isinstance(node, Link | ElementLink)


def _needed(
    events: Sequence[View], opened: Sequence[Series], moments: Moments | Mapping[str, Moments]
) -> dict[str, Values]:
    """Return the moments of events on the clocks of series, sorted and each once."""
    of_clocks = moments_by_clock(opened, moments)
    found: dict[str, list[Values]] = {clock: [np.empty(0, np.int64)] for clock in of_clocks}
    for view in events:
        for batch in iterate_moments(view, of_clocks):
            for clock, each in batch.items():
                found[clock].append(np.unique(each))
    return {clock: np.unique(np.concatenate(parts)) for clock, parts in found.items()}


def _write(
    job: Job,
    target: Path,
    kind: Kind,
    opened: Sequence[Series],
    ranges: Ranges,
    choose: Callable[[Series], Segments],
    progress: Progress | None,
) -> None:
    check_progress(progress, "done, total")
    database = _container_name(target.stem, set())
    names: dict[str, str] = {}
    for series in opened:
        names[series.path] = _container_name(series.path, {CONTAINER, "_femtobarn", *names.values()})
    facts: list[SeriesFacts] = []
    with _published(job.federation, target) as federation:
        for first in range(0, len(opened), SERIES_PER_COMMIT):
            part = opened[first : first + SERIES_PER_COMMIT]
            with federation.transaction(message=f"conditions of {job.federation.name}") as txn:
                place = txn.database(database, create=True)
                covered = [_write_series(place, names[each.path], each, choose(each)) for each in part]
            snapshot = federation.snapshot()
            for series, coverage in zip(part, covered, strict=True):
                facts.append(_facts(snapshot[f"{database}/{names[series.path]}"], series, coverage))
                if progress is not None:
                    progress(len(facts), len(opened))
        manifest = manifest_object(_manifest(job, kind, ranges, facts))
        with federation.transaction(message="manifest") as txn:
            txn.database(database).container(CONTAINER, DEFINITION, create=True).append(manifest)
        federation.seal(database)


def _write_series(database: Database, name: str, series: Series, segments: Segments) -> Coverage:
    """Write the conditions of a series into a container, and return their coverage."""
    form = json.loads(series_definition(definition_json(series.definition)))
    container = database.container(
        name,
        form,
        create=True,
        cluster_size=CLUSTER_SIZE,
        compression=COMPRESSION,
        _series=(series.clock, "refuse"),
    )
    for columns in _columns(series, segments):
        container.extend_columns(columns)
    return segments.coverage


def _facts(view: View, series: Series, coverage: Coverage) -> SeriesFacts:
    """Return the manifest's entry for a series that was written to a container.

    The hash is that of the container as it reads, because the columns that were written may have values of
    variants that nothing refers to.
    """
    ranges = coverage.ranges
    return SeriesFacts(
        path=series.path,
        container=view.name.rpartition("/")[2],
        clock=series.clock,
        csn=series.csn,
        conditions=len(view),
        covered_since=[since for since, _ in ranges],
        covered_until=[until for _, until in ranges],
        sha256=content_hash(view),
    )


def _columns(series: Series, segments: Segments) -> Iterator[Tree]:
    """Return segments with their conditions, in batches."""
    projection = Projection.of(list(series.definition.record.by_name), series.sources[0].definition)

    def read(start: int, stop: int) -> Tree:
        tree = series._handle.fetch(segments.entry[start:stop].tobytes(), projection.paths)
        validity = (each[start:stop] for each in (segments.since, segments.until, segments.channel))
        return with_validity(projection.arrange(tree), *validity)

    return in_steps(len(segments), read)


def _manifest(job: Job, kind: Kind, ranges: Ranges, facts: list[SeriesFacts]) -> Manifest:
    tag: Mapping[str, Any] = job.global_tag or {"name": "", "state": ""}
    since, until = ranges.get("time", (0, 0))
    since_run, until_run = ranges.get("run", (0, 0))
    return Manifest(
        kind=kind,
        federation=job.federation.name,
        federation_uuid=job.federation.uuid,
        csn=job.csn,
        global_tag=tag["name"],
        global_tag_state=tag["state"],
        since=since,
        until=until,
        since_run=since_run,
        until_run=until_run,
        series=facts,
    )


def _container_name(path: str, taken: set[str]) -> str:
    """Return an unused name for the RNTuple of a series.

    Examples
    --------
    >>> _container_name("tpc.v2/gain", set()), _container_name("tpc/gain", {"tpc_gain"})
    ('tpc_v2_gain', 'tpc_gain_2')
    """
    name = re.sub(r"\W", "_", path)[:NAME_MAX]
    numbered = (f"{name}_{number}" for number in range(2, len(taken) + 3))
    return next(each for each in (name, *numbered) if each not in taken)


@contextmanager
def _published(source: Federation, target: Path) -> Iterator[Federation]:
    """Yield a temporary federation, whose only database becomes the file at the end.

    Raises
    ------
    ExistsError
        If there is a file of that name, also if it was made meanwhile.
    """
    try:
        with source._temporary(target.absolute().parent) as federation:
            yield federation
            (database,) = federation.databases()
            file = Path(database["path"])
            federation.close()
            with source._attached_alone(file) as snapshot:
                ConditionsFile(os.fspath(target), snapshot, lambda: None).verify()
            _rename(file, target)
    except FemtobarnError:
        raise
    except PermissionError as error:
        raise DeniedError(f"{target} cannot be written: {error}") from error
    except OSError as error:
        raise StorageError(f"{target} cannot be written: {error}; nothing of it is left") from error


def _rename(file: Path, target: Path) -> None:
    """Give a file another name in the same file system, durably, unless that name exists."""
    try:
        os.link(file, target)
    except FileExistsError:
        raise _exists(target) from None
    except OSError:
        # This file system has no hard links.
        if os.path.lexists(target):
            raise _exists(target) from None
        file.rename(target)
    for path in (target, target.absolute().parent):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _new_file(path: str | os.PathLike[str]) -> Path:
    """Return the path of a file that can be made."""
    target = Path(path_text(path))
    if os.path.lexists(target):
        raise _exists(target)
    if not target.parent.is_dir():
        raise NotFoundError(f"folder {target.parent} does not exist")
    return target


def _exists(target: Path) -> ExistsError:
    return ExistsError(f"file {target} exists; remove it, or choose another name")
