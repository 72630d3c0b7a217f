"""The stream data of [STAR]: events in several files, series of conditions, and jobs that need both.

Each file has events of the whole time, as each trigger's stream has. A job has some selected events: the next
ones file by file, or the next ones in the order of time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import femtobarn as fb

from .data import Payloads
from .scenario import Step, Stream
from .sources import Sources

__all__ = ["StreamReader", "prepare_stream"]

DATABASE = "conditions"
SECOND = 10**9
DAY = 86_400 * SECOND
ORDERS = {"list": "number", "time": "time"}
"""The field of the events whose order the jobs of a plan have, by the order of a step."""

BATCH_EVENTS = 100
"""Events that a job reads at once."""


@fb.persistent
class StreamEvent:
    """An event of a stream."""

    number: fb.int64
    time: fb.int64
    value: fb.float32
    payload: list[fb.float32]


@fb.persistent
class Calibration:
    """A condition."""

    payload: list[fb.float32]


def prepare_stream(
    federation: fb.Federation, stream: Stream, folder: Path, place: str | None
) -> Iterator[int]:
    """Write events, series, and the plans of jobs into a folder; yield the payload of each part.

    The beginnings of validities differ from series to series, so that they do not all end at once. The series
    are on the disk `place`, if there is one, the events always elsewhere.
    """
    payloads = Payloads(seed=1)
    random = np.random.default_rng(3)
    for file in range(stream.files):
        count = stream.events // stream.files
        columns = {
            "number": file * count + np.arange(count),
            "time": np.sort(random.integers(0, stream.days * DAY, count)),
            "value": random.random(count, np.float32),
            "payload": payloads.many(count, stream.size),
        }
        with federation.transaction(message="events") as txn:
            txn.database(f"stream{file}", create=True).container("events", StreamEvent, create=True).extend(
                columns
            )
        yield count * stream.size
    yield _write_series(federation, stream, payloads, place)
    job = federation.conditions()
    files = [job.snapshot[f"stream{file}/events"] for file in range(stream.files)]
    for order, moments in ORDERS.items():
        where = f"value < {stream.fraction}"
        plan = job.plan_jobs(files, where=where, moments=moments, events_per_job=stream.events_per_job)
        plan.write(_plan_file(folder, order))


def _write_series(federation: fb.Federation, stream: Stream, payloads: Payloads, place: str | None) -> int:
    """Write series whose validities are of one length each, from the shortest to the longest."""
    written = 0
    lengths = np.geomspace(stream.shortest_seconds, stream.longest_seconds, stream.series)
    with federation.transaction(message="conditions") as txn:
        txn.database(DATABASE, create=True, place=place)
        for number, seconds in enumerate(lengths):
            length = int(seconds * SECOND)
            since = np.arange(-number * length // stream.series, stream.days * DAY, length)
            series = txn.series(f"{DATABASE}/series{number}", Calibration, create=True)
            columns = {"payload": payloads.many(len(since), stream.condition_size)}
            series.extend(columns, since=since, until=since + length)
            written += len(since) * stream.condition_size
    return written


def _plan_file(folder: Path, order: str) -> Path:
    return folder / f"plan-{order}.json"


class StreamReader:
    """One client's jobs: their events one by one, with the conditions of all series at the moment of each.

    A job opens the federation anew, so that it begins without anything that an earlier one has read.

    Parameters
    ----------
    places
        The locations that each job opens, one job after the other.
    options
        Arguments of ``fb.open``.
    add
        Receives an operation that has just ended: its kind, its start and its amount.
    """

    def __init__(
        self,
        step: Step,
        places: Iterator[Sequence[str]],
        options: Mapping[str, Any],
        folder: Path,
        random: np.random.Generator,
        add: Callable[[str, float, float], object],
    ) -> None:
        self._places, self._options, self._add = places, options, add
        self._file = _plan_file(folder, step.order)
        self._look_up = {"nothing": self._ask, "one": self._keep_one, "all": self._keep_all}[step.keep]
        self._random = random
        self._numbers: list[int] = []
        self._events: Iterator[tuple[int, int]] = iter(())
        self._federation: fb.Federation | None = None
        self._job: fb.Job
        self._paths: list[str] = []
        self._kept: dict[str, tuple[fb.Interval, Any]] = {}
        self._sources = Sources()

    def next_event(self) -> None:
        """Read the next event, and look up its conditions."""
        start = time.monotonic()
        event = next(self._events, None)
        if event is None:
            self._open()
            self._add("open job", start, 0.0)
            start = time.monotonic()
            event = next(self._events)
        moment, size = event
        self._add("read", start, size)
        start = time.monotonic()
        self._look_up(moment)
        self._add("look up", start, len(self._paths))
        self._sources.events += 1

    def sources(self) -> Sources:
        """Return statistics of the reads of all jobs so far. No event may follow."""
        self.close()
        return self._sources

    def close(self) -> None:
        """Close the federation of the last job."""
        if self._federation is not None:
            self._sources.add(self._federation.read_statistics())
            self._federation.close()
            self._federation = None

    def _open(self) -> None:
        """Begin the next job."""
        self.close()
        self._federation = fb.open(next(self._places), **self._options)
        plan = fb.load_plan(self._file, self._federation)
        if not self._numbers:
            self._numbers = self._random.permutation(len(plan)).tolist()
        self._job = self._federation.conditions()
        self._paths = list(self._job)
        self._kept = {}
        self._events = _events_of(plan[self._numbers.pop()])

    def _ask(self, moment: int) -> None:
        """Ask for every condition, keeping nothing."""
        assert self._federation is not None
        job = self._federation.conditions()
        for path in self._paths:
            _used(job[path].at(moment, required=True))

    def _keep_one(self, moment: int) -> None:
        """Ask for the conditions whose last interval does not have the moment."""
        assert self._federation is not None
        job = None
        for path in self._paths:
            interval, condition = self._kept.get(path, (fb.Interval(0, 0, None), None))
            if not interval.since <= moment < interval.until:
                job = self._federation.conditions() if job is None else job
                condition = job[path].at(moment, required=True)
                _used(condition)
                self._kept[path] = job[path].interval(moment), condition

    def _keep_all(self, moment: int) -> None:
        """Let the job keep all intervals that it has read."""
        for path in self._paths:
            _used(self._job[path].at(moment, required=True))


def _events_of(planned: fb.PlannedJob) -> Iterator[tuple[int, int]]:
    """Yield the moment and the bytes of each event of a job, in its order."""
    import awkward as ak  # clients that do not look up conditions start faster without it

    for batch in planned.iterate(["time", "payload"], step_size=BATCH_EVENTS):
        sizes = 4 * ak.num(batch.payload)
        yield from zip(batch.time.to_list(), sizes.tolist(), strict=True)


def _used(condition: Any) -> None:
    """Read a condition's values, as the physics does."""
    len(condition.payload)
