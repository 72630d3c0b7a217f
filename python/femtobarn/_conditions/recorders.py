"""Recorder: readings put into a series in batches, each of them one transaction.

1. A reading is durable at the latest `every` seconds after it was added, if the commit does not have to wait.
2. Readings are put in the order in which they were added. Of those equal in channel, time and values to the
   last of their channel and time, among the last :data:`WINDOW`, only the first is put.
3. A commit that cannot be made now is tried again, with the same readings.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.casts import Values
from .._exceptions import BusyError, ConflictError, InvalidError, NotFoundError, UnavailableError
from .._schema.classes import definition_of
from .._schema.types import Primitive
from .readings import Readings

if TYPE_CHECKING:
    from .._federations import Federation
    from .jobs import Job
    from .series import Series

__all__ = ["BATCH", "WINDOW", "Recorder", "existing_series"]

BATCH = 500_000
"""Readings of a batch, at most, unless another number is given."""

WINDOW = 10_000
"""Newest conditions of a series with which readings are compared, to find those that come again."""

PAUSE_FIRST, PAUSE_MAX = 0.5, 30.0
"""Seconds before a commit is tried again; each pause is twice as long as the one before, up to the second."""

Tell = Callable[[str], None]


def existing_series(job: Job, path: str) -> Series | None:
    """Return a series, or None if there is no container of that path."""
    try:
        return job[path]
    except NotFoundError:
        return None


class Recorder:
    """Puts readings into a series, which is made with the first batch if it does not exist.

    Raises
    ------
    InvalidError
        If the series exists and has another class, another clock than ``time``, or refuses overlaps.
    """

    def __init__(
        self,
        federation: Federation,
        path: str,
        cls: Any,
        *,
        every: float = 1.0,
        batch: int = BATCH,
        message: str = "",
        tell: Tell = lambda _: None,
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> None:
        self.federation, self.path = federation, path
        self.definition = definition_of(cls)
        self.every, self.batch = every, batch
        self.recorded = self.repeated = self.commits = 0
        """Numbers of readings that were put, of those that came again and were not, and of commits."""
        self.csn: int | None = None
        """The newest commit of this recorder."""
        self._message, self._tell, self._is_stopping = message, tell, is_stopping
        self._parts: list[Readings] = []
        self._waiting = 0
        self._since = self._last_took = 0.0
        series = existing_series(federation.conditions(), path)
        if series is not None and (series.clock != "time" or series.overlap == "refuse"):
            raise InvalidError(
                f"{path} has the clock {series.clock!r} and overlap {series.overlap!r}; values are recorded "
                "into a series with the clock 'time' that takes overlaps"
            )
        self._newest = self._last_put(series)

    def __len__(self) -> int:
        """Return the number of readings that wait for the next commit."""
        return self._waiting

    def add(self, readings: Readings) -> None:
        """Add readings to the next batch."""
        if not len(readings):
            return
        if not self._parts:
            self._since = time.monotonic()
        self._parts.append(readings)
        self._waiting += len(readings)

    def due_in(self) -> float:
        """Return in how many seconds the next commit has to begin; ``every`` if nothing waits."""
        if not self._parts:
            return self.every
        if self._waiting >= self.batch:
            return 0.0
        # A commit that is as long as the last one then ends in time.
        begin = self._since + max(self.every - self._last_took, self.every / 2)
        return max(0.0, begin - time.monotonic())

    def commit(self) -> None:
        """Make the readings that wait durable.

        Raises
        ------
        BusyError, ConflictError, UnavailableError
            If it cannot be made now, and the recorder is stopping.
        """
        if not self._parts:
            return
        batch = Readings.joined(self._parts)
        pause, began = PAUSE_FIRST, time.monotonic()
        while True:
            try:
                self._put(batch)
                break
            except (BusyError, ConflictError, UnavailableError) as error:
                if self._is_stopping():
                    raise
                self._tell(f"{error}; trying again in {pause:g} s")
                time.sleep(pause)
                pause = min(pause * 2, PAUSE_MAX)
                self._catch_up(len(batch))
        self._parts, self._waiting = [], 0
        self._last_took = time.monotonic() - began

    def _put(self, batch: Readings) -> None:
        both = Readings.joined([self._newest, batch])
        is_new = _is_new(both, len(self._newest))
        put = batch.where(is_new)
        if len(put):
            message = self._message or f"record {len(put):,} values of {self.path}"
            with self.federation.transaction(message=message) as txn:
                series = txn.series(self.path, self.definition, create=True, overlap=self._overlap)
                columns = {
                    name: values.tolist() if values.dtype == object else values
                    for name, values in put.fields.items()
                }
                series.extend(columns, since=put.moments, channel=put.channels)
            self.csn = txn.csn
            self.commits += 1
        self.recorded += len(put)
        self.repeated += len(batch) - len(put)
        self._newest = Readings.joined([self._newest, put]).where(slice(-WINDOW, None))

    def _catch_up(self, count: int) -> None:
        """Read the newest conditions: the commit that failed may have been made all the same."""
        try:
            series = existing_series(self.federation.conditions(), self.path)
            self._newest = self._last_put(series, max(count, WINDOW))
        except UnavailableError:
            return

    def _last_put(self, series: Series | None, count: int = WINDOW) -> Readings:
        fields = self.definition.record.by_name
        self._overlap: Any = "open" if series is None else series.overlap
        if series is None:
            empty = {
                name: np.zeros(0, node.dtype if isinstance(node, Primitive) else object)
                for name, node in fields.items()
            }
            return Readings(np.zeros(0, np.int64), np.zeros(0, np.int64), empty)
        stop = series.view._handle.entries
        columns = series.view.arrays(
            ["since", "channel", *fields], entry_start=max(0, stop - count), library="np"
        )
        return Readings(columns["since"], columns["channel"], {name: columns[name] for name in fields})


def _is_new(readings: Readings, known: int) -> Values:
    """Return for all but the first `known` readings whether they differ from the last of their time."""
    order = np.lexsort((readings.moments, readings.channels))
    is_same = (np.diff(readings.channels[order]) == 0) & (np.diff(readings.moments[order]) == 0)
    if not is_same.any():
        return np.ones(len(readings) - known, bool)
    for values in readings.fields.values():
        one, other = values[order[:-1]], values[order[1:]]
        is_equal = one == other
        if values.dtype.kind == "f":
            is_equal |= np.isnan(one) & np.isnan(other)
        is_same &= is_equal.astype(bool)
    is_new = np.ones(len(readings), bool)
    is_new[order[1:][is_same]] = False
    return is_new[known:]
