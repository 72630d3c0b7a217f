"""Snapshot files as jobs read them: verified, and with an error at moments outside of their coverage.

Invariants
----------
1. Nothing is returned of a series before its contents were compared with the hash in the manifest, and of the
   manifest before it was compared with its own.
2. A moment outside of the file's coverage is an error, never a gap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any, SupportsIndex

import numpy as np

from .._data.arrays import Tree
from .._data.casts import Values
from .._data.content_hash import ContentHash
from .._data.results import tree_nbytes
from .._exceptions import (
    ClosedError,
    CorruptError,
    InvalidError,
    NotFoundError,
    WrongTypeError,
    check_progress,
    near_misses,
)
from .._femtobarn import SeriesHandle
from .._query.projections import Projection
from .._snapshots import Snapshot
from .._views.view import View
from .channels import channel_of
from .clocks import bound_of
from .coverages import Coverage
from .jobs import Job, ListedSeries
from .manifests import CONTAINER, SeriesFacts, read_manifest
from .series import Interval, Series

__all__ = ["ATTACHED_AS", "ConditionsFile", "content_hash", "in_steps"]

ATTACHED_AS = "file"
"""Name of the file as a database of the federation that it is attached to."""

FIRST_STEP, STEP_BYTES = 1024, 32_000_000
"""The number of conditions in the first read, and the size in bytes up to which later reads grow."""

Progress = Callable[[int, int], None]


class ConditionsFile(Job):
    """The conditions in a snapshot file: a job without federation and network.

    It has all methods of :class:`Job`, except those for events. :func:`femtobarn.open_conditions` opens it.
    """

    def __init__(self, file: str, snapshot: Snapshot, discard: Callable[[], object]) -> None:
        self.file = file
        """Path of the file."""
        self._snapshot = snapshot
        self._discard = discard
        self._series: dict[str, Series] = {}
        path = f"{ATTACHED_AS}/{CONTAINER}"
        if path not in snapshot:
            raise InvalidError(f"{file} is not a snapshot file of conditions: it has no {CONTAINER}")
        self._manifest, self.sha256 = read_manifest(snapshot[path], file)
        """The root hash. Two files with the same one have the same conditions."""
        self._facts = {facts.path: facts for facts in self._manifest.series}

    @property
    def csn(self) -> int:
        """The commit of the federation as of which the conditions were read."""
        return self._manifest.csn

    @property
    def global_tag(self) -> dict[str, Any] | None:
        """The ``name`` and the ``state`` of the global tag when the file was written; None without one."""
        manifest = self._manifest
        if not manifest.global_tag:
            return None
        return {"name": manifest.global_tag, "state": manifest.global_tag_state}

    @property
    def facts(self) -> dict[str, Any]:
        """The manifest, which has the origin of the file, and its contents of each series."""
        return {**asdict(self._manifest), "sha256": self.sha256}

    @property
    def snapshot(self) -> Snapshot:
        """Not in a snapshot file, which has no events.

        Raises
        ------
        InvalidError
            Always.
        """
        raise InvalidError(
            f"{self.file} has conditions only; open the federation or file that has the events"
        )

    def verify(self, *, progress: Progress | None = None) -> None:
        """Read the whole file, and compare every series with its hash.

        Parameters
        ----------
        progress
            Called with the series verified so far and the series in all.

        Raises
        ------
        CorruptError
            If the manifest or a series is damaged; the text names the series.
        """
        check_progress(progress, "done, total")
        for done, facts in enumerate(self._manifest.series, 1):
            self._verified(facts)
            if progress is not None:
                progress(done, len(self))

    def close(self) -> None:
        """Close the file; its series can no longer be read."""
        self._discard()

    def __enter__(self) -> ConditionsFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened_again, (str(Path(self.file).absolute()),)

    def __getitem__(self, path: str) -> Series:
        series = self._series.get(path)
        if series is None:
            if not isinstance(path, str):
                raise WrongTypeError(
                    f'series are found by their paths, such as job["tpc/gain"], not {path!r}'
                )
            if path not in self._facts:
                hint = near_misses(path, self._facts)
                raise NotFoundError(f"{self.file} has no series {path!r}{hint}")
            series = self._series[path] = self._verified(self._facts[path])
        return series

    def _listed(self) -> dict[str, ListedSeries | None]:
        return dict.fromkeys(self._facts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._facts)

    def __len__(self) -> int:
        return len(self._facts)

    def __repr__(self) -> str:
        tag = f"global tag {self._manifest.global_tag!r}" if self._manifest.global_tag else "no global tag"
        return f"<ConditionsFile {self.file!r}: {len(self)} series of {tag} as of csn {self.csn}>"

    def _verified(self, facts: SeriesFacts) -> CoveredSeries:
        """Open a series, and compare it with its entry in the manifest."""
        damaged = f"{self.file} is damaged: series {facts.path} "
        try:
            view = self._snapshot[f"{ATTACHED_AS}/{facts.container}"]
            series = CoveredSeries(view, facts, self._manifest.kind, self.file)
            found = content_hash(view)
        except (CorruptError, InvalidError, NotFoundError) as error:
            raise CorruptError(f"{damaged}cannot be read: {error}") from error
        if (len(view), series.clock, found) != (facts.conditions, facts.clock, facts.sha256):
            raise CorruptError(f"{damaged}does not match its hash; copy the file again")
        return series


class CoveredSeries(Series):
    """A series of which only a part is there."""

    def __init__(self, view: View, facts: SeriesFacts, kind: str, file: str) -> None:
        super().__init__(facts.path, [view], SeriesHandle.open([view._handle]))
        ranges = zip(facts.covered_since, facts.covered_until, strict=True)
        self._coverage = Coverage(ranges)
        self._kind = kind
        self._file = file
        self._sha256 = facts.sha256
        self._is_checked = True

    @property
    def version(self) -> tuple[int, ...]:
        """Numbers from the content hash: series of files with the same ones have the same conditions."""
        return tuple(int(self._sha256[start : start + 16], 16) for start in (0, 16, 32))

    def _moment(self, when: Any) -> int:
        moment = super()._moment(when)
        if not self._coverage.has(moment):
            raise self._outside(moment)
        return moment

    def _moments(self, when: Any) -> Values:
        moments = super()._moments(when)
        outside = self._coverage.first_outside(moments)
        if outside is not None:
            raise self._outside(outside)
        return moments

    def _interval(self, moment: int, channel: int) -> Interval:
        covered = self._coverage.around(moment)
        if covered is None:
            raise self._outside(moment)
        found = super()._interval(moment, channel)
        return Interval(max(found.since, covered[0]), min(found.until, covered[1]), found.entry)

    def segments(
        self, since: Any = None, until: Any = None, *, channel: SupportsIndex = 0
    ) -> tuple[Values, Values, Values]:
        number = channel_of(channel)
        found = []
        for start, stop in self._parts(since, until):
            begins, ends, entries = super().segments(start, stop, channel=number)
            found.append((np.maximum(begins, start), np.minimum(ends, stop), entries))
        none = np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.uint64)
        begins, ends, entries = map(np.concatenate, zip(none, *found, strict=True))
        return begins, ends, entries

    def channels(self, since: Any = None, until: Any = None) -> list[int]:
        found: set[int] = set()
        for start, stop in self._parts(since, until):
            found.update(super().channels(start, stop))
        return sorted(found)

    def _parts(self, since: Any, until: Any) -> list[tuple[int, int]]:
        """Return the covered parts of a range."""
        ends = [None if each is None else bound_of(each, self.clock) for each in (since, until)]
        parts = self._coverage.parts(*ends)
        if parts is None:
            low, high = self._range(since, until)
            raise self._not_covered(f"not from {self.shown(low)} to {self.shown(high)}")
        return parts

    def _outside(self, moment: int) -> InvalidError:
        return self._not_covered(f"not at {self.shown(moment)}")

    def _not_covered(self, what: str) -> InvalidError:
        ranges = self._coverage.ranges
        if self._kind == "job" or len(ranges) != 1:
            return InvalidError(
                f"{self._file} covers {self.path} only at the moments of the events that it was written for, "
                f"{what}; write a job file for these events, or a snapshot file"
            )
        since, until = map(self.shown, ranges[0])
        return InvalidError(
            f"{self._file} covers {self.path} from {since} to {until}, {what}; write a snapshot file with "
            "a wider range"
        )

    def __repr__(self) -> str:
        try:
            count = len(self)
        except ClosedError:
            return f"<Series {self.path!r} of a closed file>"
        return f"<Series {self.path!r} of {self._file}: {count:,} conditions of class {self.definition.name}>"


def _opened_again(file: str) -> ConditionsFile:
    from .._open_conditions import open_conditions  # That module imports this one.

    return open_conditions(file)


def content_hash(view: View) -> str:
    """Return the content hash of a container."""
    projection = Projection.of(None, view.definition)
    content = ContentHash()
    for tree in in_steps(len(view), lambda start, stop: view.read_tree(projection.paths, start, stop)):
        content.add(projection.arrange(tree))
    return content.hexdigest()


def in_steps(count: int, read: Callable[[int, int], Tree]) -> Iterator[Tree]:
    """Read entries in parts of about the same number of bytes; of none, one part."""
    start, step = 0, FIRST_STEP
    while True:
        stop = min(start + step, count)
        tree = read(start, stop)
        yield tree
        if stop == count:
            return
        step = max(1, min(step * 8, (stop - start) * STEP_BYTES // max(tree_nbytes(tree), 1)))
        start = stop
