"""Jobs: the series that a global tag names, resolved once and the same for ever."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from .._exceptions import ClosedError, WrongTypeError, check_text
from .._query.paths import Expressions
from .._snapshots import Snapshot
from .._views.view import View
from .event_joins import Moments, joined_batches
from .event_lists import Events
from .job_plans import JobPlan, plan_jobs
from .planned_jobs import PlannedJob
from .proofs import proof_of
from .series import Series

if TYPE_CHECKING:
    from .._federations import Federation
    from .._femtobarn import JobHandle

__all__ = ["Job", "ListedSeries"]


class ListedSeries(NamedTuple):
    """A series as the rows of the catalogue describe it, without opening it."""

    payload: str
    """The class of the conditions."""
    clock: str
    overlap: str
    conditions: int | None
    """As ``len()`` of the series; None on a branch, of which the containers alone know it."""
    csn: int
    """The commit as of which the conditions are read."""
    container: str
    """The container with the last of them."""
    version: list[int]
    """As :attr:`Series.version`."""


class Job(Mapping[str, Series]):
    """The series that a global tag names, by path, as of one commit.

    Conditions and tags that are inserted, corrected or moved later do not change the job's answers.
    """

    def __init__(self, federation: Federation, handle: JobHandle) -> None:
        self.federation = federation
        self._handle = handle
        self._series: dict[str, Series] = {}

    @property
    def csn(self) -> int:
        """The commit as of which series without one of their own are read."""
        return self._handle.csn

    @property
    def global_tag(self) -> dict[str, Any] | None:
        """The global tag as it was when the job was opened; None if the job reads all series."""
        return self._handle.global_tag()

    @property
    def snapshot(self) -> Snapshot:
        """The federation as of the job's commit, for the events."""
        return Snapshot(self.federation, self._handle.snapshot())

    def for_events(
        self,
        events: View | PlannedJob,
        series: Sequence[str] | Mapping[str, str],
        expressions: Expressions = None,
        where: str | None = None,
        *,
        moments: Moments | Mapping[str, Moments],
        channel: int = 0,
        required: bool = False,
        step_size: int | str = "64 MB",
    ) -> Iterator[Any]:
        """Iterate over events in batches, each event with the conditions at its moment.

        Parameters
        ----------
        events
            A container of events. ``job.snapshot["run7/events"]`` is of the same commit as the conditions.
            Or a job of :meth:`plan_jobs`, whose events come in the order of time.
        series
            Paths of series, which become fields named as the path with ``_`` for ``/``; or a mapping from
            paths to names of fields.
        expressions, where, step_size
            Fields and selection of the events, and the size of a batch, as for :meth:`View.iterate`.
        moments
            Where the moments of events are: a field with integers of the series' clock, a pair of fields with
            run and luminosity block, or a function that returns the moments of a batch, such as
            ``lambda batch: batch.seconds * 1_000_000_000``. If the series are on both clocks, a mapping:
            ``{"time": "seconds", "run": ("run", "block")}``.
        channel
            The channel of all series.
        required
            Whether a gap is an error; else the condition is a missing value there.

        Returns
        -------
        iterator of awkward arrays

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> @fb.persistent
        ... class Event:
        ...     time: fb.int64
        ...     adc: fb.float64
        >>> @fb.persistent
        ... class Gain:
        ...     value: fb.float64
        >>> with fed.transaction() as txn:
        ...     events = txn.database("run7", create=True).container("events", Event, create=True)
        ...     oids = events.extend({"time": [5, 15, 25], "adc": [1.0, 1.0, 1.0]})
        ...     gains = txn.series("tpc/gain", Gain, create=True)
        ...     oids = gains.extend({"value": [2.0, 3.0]}, since=[0, 10], until=[10, 30])
        >>> job = fed.conditions()
        >>> for batch in job.for_events(job.snapshot["run7/events"], ["tpc/gain"], moments="time"):
        ...     print((batch.adc * batch.tpc_gain.value).to_list())
        [2.0, 3.0, 3.0]
        """
        return joined_batches(self, events, series, expressions, where, moments, channel, required, step_size)

    def plan_jobs(
        self,
        events: Events,
        series: Iterable[str] | None = None,
        where: str | None = None,
        *,
        moments: Moments | Mapping[str, Moments],
        jobs: int | None = None,
        events_per_job: int | None = None,
        channel: Any = None,
    ) -> JobPlan:
        """Divide events of many containers among jobs in the order of time, and count the saved reads.

        Each job needs the conditions of a short time only, wherever its events lie. All jobs have the same
        number of events, or one more.

        Parameters
        ----------
        events
            Containers with events, or views of some of their events; or OIDs or links, as for
            :meth:`Snapshot.fetch`. An event that is listed twice is planned once.
        series
            Paths of the series that the jobs read; all of this job if not given.
        where
            Plan only events that meet this condition, as for :meth:`View.arrays`.
        moments
            Where the moments of events are, as for :meth:`for_events`. With both clocks the order is that of
            ``time``.
        jobs, events_per_job
            Either the number of jobs, of which there are no more than events, or the events in each.
        channel
            Channels that the jobs read, one or an array; all if not given. Only the counts depend on it.

        Raises
        ------
        InvalidError
            If events have different fields, or the number of jobs is not given.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> forms = [{"name": name, "fields": [{"name": "n", "type": "int64"}]} for name in ("Event", "Gain")]
        >>> with fed.transaction() as txn:
        ...     for name in ("file1", "file2"):
        ...         events = txn.database(name, create=True).container("events", forms[0], create=True)
        ...         oids = events.extend({"n": [5, 15, 25, 35]})
        ...     gains = txn.series("tpc/gain", forms[1], create=True)
        ...     oids = gains.extend({"n": [1, 2, 3, 4]}, since=[0, 10, 20, 30], until=[10, 20, 30, 40])
        >>> job = fed.conditions()
        >>> events = [job.snapshot["file1/events"], job.snapshot["file2/events"]]
        >>> plan = job.plan_jobs(events, moments="n", jobs=4)
        >>> plan
        <JobPlan: 4 jobs with 8 events, which need 4 intervals of conditions instead of 8>
        >>> for batch in job.for_events(plan[1], {"tpc/gain": "gain"}, moments="n"):
        ...     print(batch.n.to_list(), batch.gain.n.to_list())
        [15, 15] [2, 2]
        """
        return plan_jobs(self, events, series, where, moments, jobs, events_per_job, channel)

    def write_snapshot(
        self,
        path: str | os.PathLike[str],
        series: Iterable[str] | None = None,
        *,
        since: Any = None,
        until: Any = None,
        since_run: Any = None,
        until_run: Any = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Write the conditions that this job reads to a file, with which jobs run without the federation.

        It is a sealed ROOT file with one RNTuple for each series; :func:`femtobarn.open_conditions` opens it.

        Parameters
        ----------
        path
            A new file, by custom ``.root``.
        series
            Paths of series; all of this job if not given.
        since, until
            The first moment and the first that is not in the file, for series on the clock ``time``; without
            bounds if not given.
        since_run, until_run
            The same for series on the clock ``run``.
        progress
            Called with the series written so far and the series in all.

        Raises
        ------
        ExistsError
            If the file exists.
        UnsupportedError
            If a class has links, because their targets would not be in the file.
        InvalidError
            If a range is empty.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> fed = fb.create(folder + "/lhc.fed")
        >>> form = {"name": "Flag", "fields": [{"name": "on", "type": "bool"}]}
        >>> with fed.transaction() as txn:
        ...     oid = txn.series("tpc/flag", form, create=True).put({"on": True}, since=50, until=60)
        >>> fed.conditions().write_snapshot(folder + "/flags.root", ["tpc/flag"], since=0, until=100)
        >>> flag = fb.open_conditions(folder + "/flags.root")["tpc/flag"]
        >>> flag.at(55).on, flag.at(70)
        (True, None)
        """
        from .snapshot_files import write_snapshot  # That module imports this one.

        bounds = {"time": (since, until), "run": (since_run, until_run)}
        write_snapshot(self, path, series, bounds, progress)

    def write_job_file(
        self,
        path: str | os.PathLike[str],
        events: View | Sequence[View],
        series: Iterable[str] | None = None,
        *,
        moments: Moments | Mapping[str, Moments],
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Write the conditions that some events need to the smallest file with which they can be processed.

        The file knows the answers around the moments of the events, for all channels, and no others.

        Parameters
        ----------
        path, series, progress
            As for :meth:`write_snapshot`.
        events
            Containers with events, or views of some of their events.
        moments
            Where the moments of events are, as for :meth:`for_events`. If the series are on both clocks, a
            mapping: ``{"time": "seconds", "run": ("run", "block")}``.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> fed = fb.create(folder + "/lhc.fed")
        >>> forms = [{"name": name, "fields": [{"name": "n", "type": "int64"}]} for name in ("Event", "Gain")]
        >>> with fed.transaction() as txn:
        ...     events = txn.database("run7", create=True).container("events", forms[0], create=True)
        ...     oids = events.extend({"n": [5, 7]})
        ...     gains = txn.series("tpc/gain", forms[1], create=True)
        ...     oids = gains.extend({"n": [1, 2]}, since=[0, 10], until=[10, 20])
        >>> job = fed.conditions()
        >>> job.write_job_file(folder + "/run7.root", job.snapshot["run7/events"], moments="n")
        >>> gain = fb.open_conditions(folder + "/run7.root")["tpc/gain"]
        >>> gain.at(6).n, len(gain)
        (1, 1)
        """
        from .snapshot_files import write_job_file  # That module imports this one.

        write_job_file(self, path, events, series, moments, progress)

    def proof(self) -> dict[str, Any]:
        """Return a proof of the conditions that were read: the versions of all series that this job has used.

        It can be stored as JSON beside the results. :meth:`Conditions.reopen` opens the same job again.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> form = {"name": "Flag", "fields": [{"name": "on", "type": "bool"}]}
        >>> with fed.transaction() as txn:
        ...     oid = txn.series("tpc/flag", form, create=True).put({"on": True}, since=50, until=60)
        >>> job = fed.conditions()
        >>> job["tpc/flag"].at(55).on
        True
        >>> proof = job.proof()
        >>> list(proof["series"]), proof["csn"]
        (['tpc/flag'], 1)
        >>> with fed.transaction() as txn:
        ...     oid = txn.series("tpc/flag").put({"on": False}, since=50, until=60)
        >>> fed.conditions.reopen(proof)["tpc/flag"].at(55).on
        True
        """
        return proof_of(self, list(self._series.values()))

    def __getitem__(self, path: str) -> Series:
        series = self._series.get(path)
        if series is None:
            if not isinstance(path, str):
                raise WrongTypeError(
                    f'series are found by their paths, such as job["tpc/gain"], not {path!r}'
                )
            check_text(path, "series")
            handle = self._handle.series(path)
            views = [View(Snapshot(self.federation, each.snapshot), each.name, each) for each in handle.views]
            series = self._series[path] = Series(path, views, handle)
        return series

    def _listed(self) -> dict[str, ListedSeries | None]:
        """Return all series without opening any; None for one whose properties are known only once it is
        open."""
        listed = self._handle.listed()
        return {path: None if facts is None else ListedSeries(*facts) for path, facts in listed}

    def __iter__(self) -> Iterator[str]:
        return iter(self._handle.names())

    def __len__(self) -> int:
        return len(self._handle.names())

    def __repr__(self) -> str:
        try:
            tag = self.global_tag
        except ClosedError:
            return "<Job of a closed federation>"
        name = f"global tag {tag['name']!r}" if tag else "all series"
        return f"<Job with {name} of {self.federation.name!r} as of csn {self.csn}>"

    def __reduce__(self) -> tuple[Any, ...]:
        tag = self.global_tag
        return _job_at, (self.federation, tag and tag["name"], self._handle.resolved_at)


def _job_at(federation: Federation, global_tag: str | None, csn: int) -> Job:
    return federation.conditions(global_tag, csn=csn)
