"""Forks: many tasks, in any process, write for one transaction, each exactly once.

The transaction forks, tasks write and return receipts, the transaction merges these and commits. A fork and a
receipt are less than 2 KB when pickled; the objects are in the database files already, where no reader sees
them before the commit.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import lru_cache
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ._appending import append_all
from ._exceptions import ClosedError, InvalidError, NotFoundError, WrongTypeError, check_text, near_misses
from ._femtobarn import read_receipt
from ._schema.types import Definition, definition_from_text

if TYPE_CHECKING:
    from ._federations import Federation
    from ._femtobarn import TaskHandle, TransactionHandle

__all__ = ["Fork", "Forking", "Receipt", "Task", "TaskContainer"]

FEDERATIONS_MAX = 4
"""Limit of the federations that a process keeps open between its tasks."""
NAMED_MAX = 5
"""Limit of the tasks that an error names."""


class Receipt:
    """A record of one task's writes, pickled for the transaction; see :meth:`Transaction.merge`."""

    __slots__ = ("_data", "num_entries", "task")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.task, self.num_entries = read_receipt(data)
        """The key of the task, and the number of objects that it wrote."""

    def __reduce__(self) -> tuple[Any, ...]:
        return Receipt, (self._data,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Receipt) and self._data == other._data

    def __hash__(self) -> int:
        return hash(self._data)

    def __repr__(self) -> str:
        return f"<Receipt of task {self.task!r}: {self.num_entries:,} objects>"


class Fork:
    """The right to write for a transaction, which is pickled to tasks; see :meth:`Transaction.fork`."""

    def __init__(self, path: str, uuid: str, data: bytes, federation: Federation | None = None) -> None:
        self._path = path
        self._uuid = uuid
        self._data = data
        self._federation = None if federation is None else (os.getpid(), federation)

    def __reduce__(self) -> tuple[Any, ...]:
        return Fork, (self._path, self._uuid, self._data)

    def task(self, key: str) -> Task:
        """Begin a task, whose objects count once, however often tasks with this key run.

        Parameters
        ----------
        key
            A text of at most 512 bytes, unique among the tasks of the fork, such as the key of a partition.

        Raises
        ------
        InvalidError
            If the key is empty or too long.
        ClosedError
            If the transaction has ended without committing a database that it made, or a database was sealed.
            Other late tasks run, and their receipts are refused.
        """
        check_text(key, "task")
        if self._federation is not None and self._federation[0] == os.getpid():
            federation = self._federation[1]
        else:
            federation = _federation_here(os.getpid(), self._path, self._uuid)
        return Task(key, federation.uuid, federation._handle.begin_task(self._data, key))

    def __repr__(self) -> str:
        return f"<Fork of a transaction on {self._path!r}>"


@lru_cache(maxsize=FEDERATIONS_MAX)
def _federation_here(process: int, path: str, uuid: str) -> Federation:
    """Return the federation of tasks, opened in this process."""
    from ._federations import _reopen  # That module imports this one.

    return _reopen(path, uuid)


class Task:
    """The objects of one task: written at the end of a ``with`` block, or left out by an exception.

    Nothing that a task wrote is visible, or counts, before its receipt was merged and committed.
    """

    def __init__(self, key: str, federation_uuid: str, handle: TaskHandle) -> None:
        self.key = key
        """The key of the task."""
        self._receipt: Receipt | None = None
        self._handle = handle
        self._containers = {
            path: TaskContainer(path, federation_uuid, definition, handle, number)
            for number, (path, definition) in enumerate(handle.containers())
        }

    @property
    def receipt(self) -> Receipt:
        """The receipt that the task returns to the transaction, available after the block.

        Raises
        ------
        ClosedError
            If the task has not ended, or ended with an exception.
        """
        if self._receipt is None:
            raise ClosedError(
                f"task {self.key!r} has no receipt: its block has not ended, or ended with an error"
            )
        return self._receipt

    def __enter__(self) -> Task:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                self._receipt = Receipt(self._handle.finish())
        finally:
            self._handle.abandon()  # Else what could not be written would be kept, and the databases locked.

    def __getitem__(self, path: str) -> TaskContainer:
        """Return a container to write to, such as ``task["run7/events"]``."""
        if path not in self._containers:
            raise NotFoundError(
                f"the fork has no container {path!r}{near_misses(str(path), self._containers)}"
            )
        return self._containers[path]

    def keys(self) -> list[str]:
        """Return the paths of the containers that the task can write to."""
        return list(self._containers)

    def __repr__(self) -> str:
        return f"<Task {self.key!r} on {', '.join(self._containers)}>"


class TaskContainer:
    """A container to which a task appends objects. They get their OIDs from the merge."""

    def __init__(
        self, path: str, federation_uuid: str, definition: str, handle: TaskHandle, number: int
    ) -> None:
        self.path = path
        """The path of the container."""
        self._uuid = federation_uuid
        self._json = definition
        self._handle = handle
        self._number = number

    @property
    def definition(self) -> Definition:
        """The class of the objects."""
        return definition_from_text(self._json)

    def append(self, object: Any) -> None:
        """Append an object of a persistent class, or a dictionary."""
        self._handle.append(self._number, object)

    def extend(self, data: Any) -> None:
        """Append many objects; see :meth:`ContainerWriter.extend`."""
        append_all(
            data,
            self.definition.record,
            self._uuid,
            self.append,
            lambda tree: self._handle.extend(self._number, tree),
        )

    def __repr__(self) -> str:
        return f"<TaskContainer {self.path}>"


class Forking:
    """The part of a transaction that lets tasks write for it."""

    federation: Federation
    _handle: TransactionHandle

    def fork(self, *containers: str, links: Sequence[str] = ()) -> Fork:
        """Let tasks write for this transaction, in other threads, processes, or on other machines.

        The fork is pickled to the tasks, which append to containers of the transaction, and return receipts
        for :meth:`merge`. A task on another machine needs a federation that is opened at a server.

        Parameters
        ----------
        containers
            Their paths, such as ``"run7/events"``; all that the transaction has open if not given.
        links
            Databases that links of the tasks' objects lead to, beside those that the containers link to
            already.

        Raises
        ------
        InvalidError
            If no container is open, or one is a series.
        NotFoundError
            If a container or a database does not exist.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        >>> def write(fork, first):
        ...     with fork.task(f"from {first}") as task:
        ...         task["d/numbers"].extend({"n": range(first, first + 2)})
        ...     return task.receipt
        >>> with fed.transaction() as txn:
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     fork = txn.fork()
        ...     receipts = [write(fork, first) for first in (0, 5, 5)]  # In any processes; one ran twice.
        ...     txn.merge(receipts)
        2
        >>> fed["d/numbers"]["n"].to_list()
        [0, 1, 5, 6]
        """
        for name in (*containers, *links):
            check_text(name, "fork")
        data = self._handle.fork(list(containers), list(links))
        return Fork(self.federation.path, self.federation.uuid, data, self.federation)

    def merge(self, receipts: Iterable[Receipt], tasks: Iterable[str] | None = None) -> int:
        """Append the objects that tasks wrote; return the number of tasks that were not merged before.

        A task counts once, however many runs of it gave receipts. On an error nothing is appended.

        Parameters
        ----------
        receipts
            The receipts of the tasks, in the order of their objects if `tasks` is not given.
        tasks
            The keys of all tasks, in the order of their objects: then a missing receipt is an error, and
            tasks that run again give the same OIDs, whichever ends first.

        Raises
        ------
        InvalidError
            If a receipt is of another transaction, a task has none, or a key stands for two tasks.
        ConflictError
            If a container was dropped or got another class since the fork.
        CorruptError
            If the data that a task wrote are damaged.
        """
        given = list(receipts)
        for each in given:
            if not isinstance(each, Receipt):
                raise WrongTypeError(f"merge takes the receipts of tasks, not {type(each).__name__}")
        if tasks is not None:
            given = _in_order(given, list(tasks))
        return self._handle.merge([each._data for each in given])


def _in_order(receipts: Sequence[Receipt], tasks: Sequence[str]) -> list[Receipt]:
    """Return receipts in the order of the tasks, of which each has one or more."""
    places = {task: place for place, task in enumerate(tasks)}
    if len(places) < len(tasks):
        twice = next(task for task in places if tasks.count(task) > 1)
        raise InvalidError(
            f"the key {twice!r} is given to two tasks, and one of them would be lost; give each its own key"
        )
    unknown = dict.fromkeys(each.task for each in receipts if each.task not in places)
    if unknown:
        raise InvalidError(f"there are receipts of tasks that are not in tasks: {_named(unknown)}")
    missing = places.keys() - {each.task for each in receipts}
    if missing:
        left = [task for task in tasks if task in missing]
        raise InvalidError(
            f"{len(left)} of {len(tasks)} tasks have no receipt: {_named(left)}; run them, or leave them out"
        )
    return sorted(receipts, key=lambda each: places[each.task])


def _named(tasks: Iterable[str]) -> str:
    names = [repr(task) for task in tasks]
    return ", ".join(names[:NAMED_MAX]) + (", ..." if len(names) > NAMED_MAX else "")
