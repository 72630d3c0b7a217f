"""Jobs: the series that a global tag names, resolved once and the same for ever."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .._exceptions import ClosedError, WrongTypeError, check_text
from .._query.paths import Expressions
from .._snapshots import Snapshot
from .._views.view import View
from .event_joins import Moments, joined_batches
from .series import Series

if TYPE_CHECKING:
    from .._federations import Federation
    from .._femtobarn import JobHandle

__all__ = ["Job"]


class Job(Mapping[str, Series]):
    """The series that a global tag names, by path, as of one commit.

    What is inserted, corrected or tagged later changes nothing of what a job reads.
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
        events: View,
        series: Sequence[str] | Mapping[str, str],
        expressions: Expressions = None,
        where: str | None = None,
        *,
        moments: Moments,
        channel: int = 0,
        required: bool = False,
        step_size: int | str = "64 MB",
    ) -> Iterator[Any]:
        """Iterate over events in batches, each event with the conditions at its moment.

        Parameters
        ----------
        events
            A container of events. ``job.snapshot["run7/events"]`` is of the same commit as the conditions.
        series
            Paths of series, which become fields named as the path with ``_`` for ``/``; or a mapping from
            paths to names of fields.
        expressions, where, step_size
            Fields and selection of the events, and the size of a batch, as for :meth:`View.iterate`.
        moments
            Where the moments of events are: a field with integers of the series' clock, a pair of fields with
            run and luminosity block, or a function that returns the moments of a batch, such as
            ``lambda batch: batch.seconds * 1_000_000_000``.
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

    def __getitem__(self, path: str) -> Series:
        series = self._series.get(path)
        if series is None:
            if not isinstance(path, str):
                raise WrongTypeError(
                    f'series are found by their paths, such as job["tpc/gain"], not {path!r}'
                )
            check_text(path, "series")
            handle = self._handle.series(path)
            snapshot = Snapshot(self.federation, handle.snapshot)
            view = View(snapshot, handle.view.name, handle.view)
            series = self._series[path] = Series(path, view, handle)
        return series

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
