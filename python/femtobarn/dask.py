"""Dask: data frames over partitions, and tasks that write for one transaction, each exactly once.

A worker is sent a partition or a fork, of less than 2 KB, which opens the federation there.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import dask

from ._exceptions import InvalidError, WrongTypeError
from ._forks import Fork, Receipt, Task
from ._query.paths import Expressions
from ._query.selection import Where
from ._views.partitions import Partition

if TYPE_CHECKING:
    import dask.dataframe

    from ._transactions import Transaction
    from ._views.view import View

__all__ = ["to_dataframe", "write"]

TASKS_PER_THREAD = 16
"""Limit of the tasks for each thread of a cluster: a scheduler needs milliseconds for each task, which may be
more than a partition needs, and with this number no thread waits long for the last task."""
RETRIES = 3
"""Number of retries of a failed task by a distributed scheduler."""


class _Read:
    """Reads a partition as a data frame of pandas; Dask asks for the columns that a computation needs."""

    def __init__(self, columns: list[str], where: Where) -> None:
        self.columns = columns
        self.where = where

    def __call__(self, part: Partition, *, columns: list[str] | None = None) -> Any:
        chosen = self.columns if columns is None else list(columns)
        return part.arrays(chosen, self.where, library="pd")[chosen]

    def __dask_tokenize__(self) -> Any:
        return "femtobarn.read", self.columns, self.where


def to_dataframe(
    view: View, expressions: Expressions = None, where: Where = None, *, size: int | str = "100 MB"
) -> dask.dataframe.DataFrame:
    """Return a view as a data frame of Dask; see :meth:`femtobarn.View.to_dask_dataframe`."""
    import dask.dataframe

    empty = view.arrays(expressions, entry_stop=0, library="pd")
    columns = list(empty.columns)
    parts = view.partitions(size, columns)
    if not parts:
        return dask.dataframe.from_pandas(empty, npartitions=1)
    return dask.dataframe.from_map(_Read(columns, where), parts, meta=empty, label="femtobarn")


def write(
    transaction: Transaction,
    function: Callable[[Any, Task], object],
    partitions: Iterable[Any],
    *,
    links: Iterable[str] = (),
) -> int:
    """Let tasks of Dask write for a transaction; return the number of objects that they wrote.

    Each partition is a task of the fork, and counts once, however often Dask runs it: also if a worker is
    killed while it writes. If there are more than 16 for each thread of a cluster, a task of Dask runs
    several, one after the other. The objects are in the order of the partitions.

    Parameters
    ----------
    transaction
        Tasks can write to its open containers. Nothing is visible before its commit.
    function
        Called on a worker with a partition and its :class:`femtobarn.Task`, to which it writes objects:
        ``task["run7/events"].extend(part.arrays(where="nMuon > 1"))``.
    partitions
        Partitions of a view, a data frame of Dask, whose partitions are data frames of pandas, or any other
        values.
    links
        As for :meth:`femtobarn.Transaction.fork`.

    Raises
    ------
    WrongTypeError
        If `partitions` cannot be walked through.
    InvalidError
        If there are none.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
    >>> with fed.transaction() as txn:
    ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
    ...     oids = numbers.extend({"n": range(5)})
    >>> def select(part, task):
    ...     task["d/large"].extend(part.arrays(where="n > 1"))
    >>> with fed.transaction() as txn:
    ...     large = txn.database("d").container("large", form, create=True)
    ...     fb.dask.write(txn, select, fed["d/numbers"].partitions(2))
    3
    """
    given = partitions.to_delayed() if hasattr(partitions, "to_delayed") else partitions
    if not isinstance(given, Iterable):
        raise WrongTypeError(f"partitions must be iterable, not {type(given).__name__}")
    parts = list(given)
    if not parts:
        raise InvalidError("there are no partitions to write from")
    fork = transaction.fork(links=tuple(links))
    keys = [
        part.key if isinstance(part, Partition) else f"part {number}" for number, part in enumerate(parts)
    ]
    size = 1 if given is not partitions else math.ceil(len(parts) / _most_tasks(len(parts)))
    run = dask.delayed(_run, pure=False, traverse=False)
    starts = range(0, len(parts), size)
    tasks = [run(fork, function, keys[at : at + size], *parts[at : at + size]) for at in starts]
    with dask.annotate(retries=RETRIES):
        receipts = list(itertools.chain.from_iterable(dask.compute(*tasks, optimize_graph=False)))
    transaction.merge(receipts, keys)
    return sum(receipt.num_entries for receipt in receipts)


def _most_tasks(wanted: int) -> int:
    """Return the limit of tasks for Dask: the wanted number, unless they run on a cluster."""
    scheduler = dask.base.get_scheduler()  # The schedulers of threads and processes are functions.
    threads = getattr(getattr(scheduler, "__self__", None), "nthreads", None)
    return wanted if threads is None else TASKS_PER_THREAD * max(sum(threads().values()), 1)


def _run(fork: Fork, function: Callable[[Any, Task], object], keys: list[str], *parts: Any) -> list[Receipt]:
    """Run tasks, one after the other."""
    receipts = []
    for key, part in zip(keys, parts, strict=True):
        with fork.task(key) as task:
            function(part, task)
        receipts.append(task.receipt)
    return receipts
