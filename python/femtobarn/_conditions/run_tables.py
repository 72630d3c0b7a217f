"""Run tables: the run and luminosity block at a time, and the time when a block began."""

from __future__ import annotations

from typing import Any

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError, NotFoundError
from .clocks import moments_of, shown
from .series import Series

__all__ = ["RunTable"]

FIELDS = ("run", "block")


class RunTable:
    """A series on the clock ``time`` with the run and luminosity block at each time.

    It lets a job with the times of events look up series on the clock ``run``, and the reverse. It is read
    whole when it is made.

    Parameters
    ----------
    series
        Its conditions have the integers ``run`` and ``block``; each is valid for the time of one block.

    Raises
    ------
    InvalidError
        If the series is on another clock, has other fields, or has a block twice.

    Examples
    --------
    >>> import femtobarn as fb, numpy as np, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> @fb.persistent
    ... class Block:
    ...     run: fb.uint32
    ...     block: fb.uint32
    >>> with fed.transaction() as txn:
    ...     blocks = txn.series("daq/blocks", Block, create=True)
    ...     oids = blocks.extend({"run": [7, 7], "block": [1, 2]}, since=[100, 200], until=[200, 300])
    >>> table = fb.RunTable(fed.conditions()["daq/blocks"])
    >>> table.runs_at([150, 250]).tolist() == [7 << 32 | 1, 7 << 32 | 2]
    True
    >>> table.times_of((np.array([7, 7]), np.array([2, 1]))).tolist()
    [200, 100]
    """

    def __init__(self, series: Series) -> None:
        names = set(series.definition.record.by_name)
        if series.clock != "time" or not names.issuperset(FIELDS):
            raise InvalidError(
                f"{series.path} is not a run table: it must be on the clock 'time', and have the fields "
                "run and block"
            )
        self.path = series.path
        intervals = series.intervals()
        entries = [interval.entry for interval in intervals if interval.entry is not None]
        columns = series.fetch(entries, list(FIELDS), library="np")
        self._since = np.array([interval.since for interval in intervals], np.int64)
        self._until = np.array([interval.until for interval in intervals], np.int64)
        self._runs = moments_of((columns["run"], columns["block"]), "run")
        self._by_run = np.argsort(self._runs, kind="stable")
        self._sorted_runs = self._runs[self._by_run]
        if (twice := np.flatnonzero(self._sorted_runs[1:] == self._sorted_runs[:-1])).size:
            block = shown(int(self._sorted_runs[twice[0]]), "run")
            raise InvalidError(f"{series.path} has block {block} twice, so that its time is ambiguous")

    def runs_at(self, times: Any) -> Values:
        """Return the run and block at many times, as the integers of the clock ``run``.

        Raises
        ------
        NotFoundError
            If no block was taken at a time.
        """
        moments = moments_of(times, "time")
        places = np.searchsorted(self._since, moments, "right") - 1
        is_taken = (places >= 0) & (moments < np.append(self._until, 0)[places])
        if not is_taken.all():
            moment = shown(int(moments[np.argmin(is_taken)]), "time")
            raise NotFoundError(f"{self.path}: no luminosity block was taken at {moment}")
        return self._runs[places]

    def times_of(self, runs: Any) -> Values:
        """Return when many blocks began, in nanoseconds UTC.

        Parameters
        ----------
        runs
            Moments of the clock ``run``, as for :meth:`Series.at`.

        Raises
        ------
        NotFoundError
            If the table does not have a block.
        """
        wanted = moments_of(runs, "run")
        places = np.searchsorted(self._sorted_runs, wanted)
        found = np.append(self._sorted_runs, -1)[places] == wanted
        if not found.all():
            block = shown(int(wanted[np.argmin(found)]), "run")
            raise NotFoundError(f"{self.path} does not have run and luminosity block {block}")
        return self._since[self._by_run[places]]

    def __len__(self) -> int:
        return len(self._since)

    def __repr__(self) -> str:
        return f"<RunTable {self.path!r}: {len(self):,} luminosity blocks>"
