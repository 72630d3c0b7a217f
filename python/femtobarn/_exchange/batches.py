"""Read-ahead of trees for the thread that writes, in one thread or in worker processes.

Branches of plain numbers are read by all processors in either case. Other branches are read by uproot, in
Python, which only processes run in parallel; they send their columns through pipes.

Invariants
----------
1. Batches come in the order of the trees and of their entries, however many readers there are.
2. At most one batch for each reader, and two more, are in memory.
3. An exception of a reader is raised in the caller. Worker processes end when this process ends, also by a
   kill.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import tempfile
import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING

from .._data.arrays import Tree, columns_of
from .._data.typed_layouts import widened
from .._exceptions import StorageError
from .._schema.types import Definition, Record

if TYPE_CHECKING:
    from ..importers import TreeSource

__all__ = ["read_batches"]


class _Reader:
    """Reads the sources, of which it keeps one open at a time."""

    def __init__(self, sources: Sequence[TreeSource], records: Sequence[Record], threads: int) -> None:
        self._sources = sources
        self._records = records
        self._threads = threads
        self._current = 0

    def read(self, number: int, start: int, stop: int) -> Tree:
        """Return the columns of some entries of a source."""
        if number != self._current:
            self._sources[self._current].close()
            self._current = number
        source, record = self._sources[number], self._records[number]
        layout = source.read(start, stop, threads=self._threads).layout
        if Definition.from_json(source.definition).fields != record.fields:
            layout = widened(layout, record)
        return columns_of(layout, record)


def read_batches(
    sources: Sequence[TreeSource], records: Sequence[Record], *, batch_bytes: int, jobs: int
) -> Generator[tuple[int, Tree]]:
    """Read all entries of trees.

    Parameters
    ----------
    records
        The fields of the class of each tree's objects.
    batch_bytes
        Approximate size of a batch, uncompressed.
    jobs
        Processes that read; with 1, a thread of this process reads.

    Yields
    ------
    The number of a tree, and the columns of its next entries.

    Raises
    ------
    StorageError
        If a worker process was killed.
    """
    spans = [(n, *span) for n, source in enumerate(sources) for span in source.spans(size=batch_bytes)]
    jobs = max(1, min(jobs, len(spans)))
    cores = len(os.sched_getaffinity(0))
    reader = sources, records, max(1, cores // jobs)
    if len(spans) == 1:
        yield spans[0][0], _Reader(*reader).read(*spans[0])
        return
    pending: deque[tuple[int, Future[Tree]]] = deque()
    try:
        with _readers(jobs, reader) as executor:
            for span in spans:
                pending.append((span[0], executor.submit(_read, *span)))
                if len(pending) > jobs:
                    number, future = pending.popleft()
                    yield number, future.result()
            while pending:
                number, future = pending.popleft()
                yield number, future.result()
    except BrokenProcessPool as error:
        raise StorageError(
            "a worker process of the import ended: it ran out of memory, was killed, or was started by a "
            "script without `if __name__ == '__main__':`; try jobs=1"
        ) from error


_LOCAL = threading.local()
"""Has the reader of each thread, as `reader`."""


_ReaderArguments = tuple[Sequence["TreeSource"], Sequence[Record], int]
"""The arguments of a `_Reader`."""


@contextmanager
def _readers(jobs: int, arguments: _ReaderArguments) -> Generator[Executor]:
    """Start one reading thread or `jobs` processes; on leaving, cancel the waiting reads and end them."""
    with tempfile.NamedTemporaryFile(prefix="femtobarn-import-") as file:
        executor: Executor
        if jobs > 1:
            # The arguments go through a file. A pipe would block this process where they are larger than the
            # pipe and the worker ends before it reads, as one started by a script without `if __name__ ==
            # "__main__":` does.
            pickle.dump(arguments, file)
            file.flush()
            context = multiprocessing.get_context("spawn")
            executor = ProcessPoolExecutor(jobs, context, initializer=_begin_process, initargs=(file.name,))
        else:
            executor = ThreadPoolExecutor(1, "import", initializer=_begin, initargs=arguments)
        try:
            yield executor
        finally:
            executor.shutdown(cancel_futures=True)


def _begin(sources: Sequence[TreeSource], records: Sequence[Record], threads: int) -> None:
    _LOCAL.reader = _Reader(sources, records, threads)


def _begin_process(path: str) -> None:
    """Begin a worker process: it ignores Ctrl-C, which the parent handles, and ends with the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _begin(*pickle.loads(Path(path).read_bytes()))


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _read(number: int, start: int, stop: int) -> Tree:
    reader: _Reader = _LOCAL.reader
    return reader.read(number, start, stop)
