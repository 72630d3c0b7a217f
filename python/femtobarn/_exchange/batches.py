"""Reads trees ahead of the writer, in the order of their entries, in one thread or in worker processes.

Branches of plain numbers are read by all processors in either case. What uproot reads is Python's work, which
only processes do side by side; their columns come through pipes.

Invariants
----------
1. Batches come in the order of the trees and of their entries, whoever reads them.
2. No more than one batch for each reader and two more are held.
3. What a reader raises is raised here; processes end with this one, however it ends.
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
from .._exceptions import StorageError
from .._schema.types import Definition, Record
from .._schema.unions import fitted

if TYPE_CHECKING:
    from ..importers import TreeSource

__all__ = ["read_batches"]


class _Reader:
    """Sources of which one at a time is open."""

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
            layout = fitted(layout, record)
        return columns_of(layout, record)


def read_batches(
    sources: Sequence[TreeSource], records: Sequence[Record], *, batch_bytes: int, jobs: int
) -> Generator[tuple[int, Tree]]:
    """Read all entries of trees.

    Parameters
    ----------
    records
        The class that each tree's objects are to be of.
    batch_bytes
        Uncompressed bytes of a batch, about.
    jobs
        Processes that read; with 1 it is a thread of this one.

    Yields
    ------
    The number of a tree, and columns of its next entries.
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
            "a process that reads has ended: there was no memory for it, it was killed, or it was started "
            "by a script without `if __name__ == '__main__':`; try with jobs=1"
        ) from error


_LOCAL = threading.local()
"""The reader of each thread that reads."""


_Made = tuple[Sequence["TreeSource"], Sequence[Record], int]
"""What a reader is made of."""


@contextmanager
def _readers(jobs: int, made: _Made) -> Generator[Executor]:
    """A thread that reads, or processes; afterwards they are gone, whatever they were still to read."""
    with tempfile.NamedTemporaryFile(prefix="femtobarn-import-") as file:
        executor: Executor
        if jobs > 1:
            # Through a pipe it would hang where it is more than the pipe holds and the process ends before
            # it reads, as those do that a script without `if __name__ == "__main__":` starts.
            pickle.dump(made, file)
            file.flush()
            context = multiprocessing.get_context("spawn")
            executor = ProcessPoolExecutor(jobs, context, initializer=_begin_process, initargs=(file.name,))
        else:
            executor = ThreadPoolExecutor(1, "import", initializer=_begin, initargs=made)
        try:
            yield executor
        finally:
            executor.shutdown(cancel_futures=True)


def _begin(sources: Sequence[TreeSource], records: Sequence[Record], threads: int) -> None:
    _LOCAL.reader = _Reader(sources, records, threads)


def _begin_process(path: str) -> None:
    """Leave Ctrl-C to the process that writes, and end when it does."""
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
