"""Batches of trees as columns, in order, read ahead of who writes them: by a thread, or by processes.

Reading is Python for the most part, and writing is not, so that one thread each keeps two processors busy.
With several processes the columns come through pipes; this process does nothing but write.

Invariants
----------
1. Batches come in the order of the trees and of their entries, whoever reads them.
2. No more than one batch for each reader and two more are held.
3. What a reader raises is raised here; processes end with this one, however it ends.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import TYPE_CHECKING

from ._arrays import Tree, columns_of
from ._exceptions import StorageError
from ._later import ak
from ._types import Definition, Record
from ._unions import fitted

if TYPE_CHECKING:
    from .importers import TreeSource

__all__ = ["read_batches"]


class _Reader:
    """Sources of which one at a time is open."""

    def __init__(self, sources: Sequence[TreeSource], records: Sequence[Record]) -> None:
        self._sources = sources
        self._records = records
        self._current = 0

    def read(self, number: int, start: int, stop: int) -> Tree:
        """Return the columns of some entries of a source."""
        if number != self._current:
            self._sources[self._current].close()
            self._current = number
        source, record = self._sources[number], self._records[number]
        batch = source.read(start, stop)
        if Definition.from_json(source.definition).fields != record.fields:
            return columns_of(ak.Array(fitted(batch.layout, record)), record)
        return columns_of(batch, record)


def read_batches(
    sources: Sequence[TreeSource], records: Sequence[Record], *, batch_bytes: int, jobs: int
) -> Iterator[tuple[int, Tree]]:
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
    if len(spans) == 1:
        yield 0, _Reader(sources, records).read(*spans[0])
        return
    jobs = max(1, min(jobs, len(spans)))
    executor = _processes(sources, records, jobs) if jobs > 1 else _thread(sources, records)
    pending: deque[tuple[int, Future[Tree]]] = deque()
    try:
        for span in spans:
            pending.append((span[0], executor.submit(_read, *span)))
            if len(pending) > jobs:
                yield _next(pending)
        while pending:
            yield _next(pending)
    finally:
        executor.shutdown(cancel_futures=True)


def _next(pending: deque[tuple[int, Future[Tree]]]) -> tuple[int, Tree]:
    number, future = pending.popleft()
    try:
        return number, future.result()
    except BrokenProcessPool as error:
        raise StorageError(
            "a process that reads has ended: there was no memory for it, it was killed, or it was started "
            "by a script without `if __name__ == '__main__':`; try with jobs=1"
        ) from error


_LOCAL = threading.local()
"""The reader of each thread that reads."""


def _thread(sources: Sequence[TreeSource], records: Sequence[Record]) -> Executor:
    return ThreadPoolExecutor(1, "import", initializer=_begin, initargs=(sources, records))


def _processes(sources: Sequence[TreeSource], records: Sequence[Record], jobs: int) -> Executor:
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, context, initializer=_begin_process, initargs=(sources, records))


def _begin(sources: Sequence[TreeSource], records: Sequence[Record]) -> None:
    _LOCAL.reader = _Reader(sources, records)


def _begin_process(sources: Sequence[TreeSource], records: Sequence[Record]) -> None:
    """Leave Ctrl-C to the process that writes, and end when it does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _begin(sources, records)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


def _read(number: int, start: int, stop: int) -> Tree:
    reader: _Reader = _LOCAL.reader
    return reader.read(number, start, stop)
