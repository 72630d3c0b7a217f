"""Scans: the entries that a condition selects, and fields of these, chunk by chunk.

The columns of a chunk stay in the processor's cache from reading to their last use. Threads scan several
chunks at once. Columns that only a later step of the condition needs are read in chunks where an entry meets
the steps before it. Fields with one number per entry are read only in chunks with a selected entry: the whole
chunk, or the selected entries one by one, whichever costs less.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from .._data.arrays import Tree
from .._data.casts import Values
from .._data.results import awkward_of
from .._lazy import ak
from .._query.paths import whole_link
from .._query.projections import Projection
from .._query.selection import COUNT, Selection, steps_of
from .._schema.types import DTYPES, Primitive, Reduced

if TYPE_CHECKING:
    from .column_reader import ColumnReader

__all__ = ["Scan", "in_threads", "is_flat", "parts_of"]

CHUNK_ENTRIES = 1 << 18
"""Entries of a chunk: a few columns of a chunk fit a processor's cache."""

THREADS_MAX = 8
"""Most threads of a scan."""

READ_BYTES_PER_SECOND = 6e9
"""Assumed speed of reading the columns of a chunk."""

SEEK_SECONDS = 3e-6
"""Assumed cost of one seek, for each field."""

T = TypeVar("T")


class Scan:
    """A condition on the entries in some ranges of a view."""

    def __init__(self, view: ColumnReader, selection: Selection, ranges: Iterable[range]) -> None:
        self._view = view
        self._steps = steps_of(selection)
        self._chunks = parts_of(ranges)

    def entries(self) -> Values:
        """Return the selected entries, in order."""
        return np.concatenate([np.empty(0, np.uint64), *in_threads(self._entries_of, self._chunks)])

    def columns(self, paths: list[str]) -> Tree:
        """Return fields with one number per entry, of the selected entries, in order."""
        found = in_threads(lambda chunk: self._columns_of(chunk, paths), self._chunks)
        parts = [self._view.read_tree(paths, 0, 0), *found]
        names = parts[0][2]
        contents = []
        for position in range(len(names)):
            kind = parts[0][3][position][1]
            numbers = [np.frombuffer(part[3][position][2], DTYPES[kind]) for part in parts if part[1]]
            contents.append(("primitive", kind, np.concatenate([np.empty(0, DTYPES[kind]), *numbers])))
        return ("record", sum(part[1] for part in parts), names, tuple(contents))

    def _mask(self, chunk: range, live: int) -> Values:
        """Return a mask of the selected objects of a chunk, which has `live` objects."""
        mask = np.ones(live, np.bool_)
        for step in self._steps:
            mask = mask & step.evaluate(self._condition_columns(step, chunk), live)
            if not mask.any():
                break
        return mask

    def _entries_of(self, chunk: range) -> Values:
        entries = self._view._entries_within(chunk.start, chunk.stop)
        return entries[self._mask(chunk, len(entries))]

    def _columns_of(self, chunk: range, paths: list[str]) -> Tree:
        live = self._view._live
        count = len(chunk) if live is None else len(live.within(chunk.start, chunk.stop))
        positions = np.flatnonzero(self._mask(chunk, count))
        if not len(positions):
            return ("record", 0, (), ())
        seek_seconds = len(positions) * len(paths) * SEEK_SECONDS
        if live is None and seek_seconds < len(chunk) * len(paths) * 4 / READ_BYTES_PER_SECOND:
            return self._view._handle.fetch((positions + chunk.start).astype(np.uint64).tobytes(), paths)
        _, _, names, contents = self._view.read_tree(paths, chunk.start, chunk.stop)
        taken = [(*each[:2], np.frombuffer(each[2], DTYPES[each[1]])[positions]) for each in contents]
        return ("record", len(positions), names, tuple(taken))

    def _condition_columns(self, step: Selection, chunk: range) -> dict[str, Values]:
        view, columns = self._view, {}
        if step.fields:
            paths = {whole_link(path, view.definition): None for path in step.fields}
            tree = view.read_tree(list(paths), chunk.start, chunk.stop)
            columns = {path: self._column(tree, path) for path in step.fields}
        for path in step.collections:
            counts = view._handle.counts(path, chunk.start, chunk.stop)
            columns[COUNT + path] = np.frombuffer(memoryview(counts), np.int64)
        function = step.function
        if function is not None:
            from .lazy_arrays import lazy_array  # This imports awkward.

            return step.computed(lazy_array(view, chunk, function.paths))
        if step.terms:
            projection = Projection.of(step.paths_of_terms, view.definition.as_stored)
            tree = view.read_tree(projection.paths, chunk.start, chunk.stop)
            columns |= step.computed(view._awkward(projection, tree))
        return columns

    def _column(self, tree: Tree, path: str) -> Values:
        column = tree
        for name in path.split("."):
            if column[0] != "record":
                break
            column = column[3][column[2].index(name)]
        if column[0] == "primitive":
            return np.frombuffer(column[2], DTYPES[column[1]])
        array: Any = awkward_of(tree, None)  # Without the class, null links are zeros instead of missing.
        for name in path.split("."):
            array = array[name]
        values: Values = ak.to_numpy(
            array
        )  # A masked array where the record that holds the field is missing.
        return values


def parts_of(ranges: Iterable[range]) -> list[range]:
    """Divide ranges of entries into chunks."""
    return [
        range(start, min(start + CHUNK_ENTRIES, part.stop))
        for part in ranges
        for start in range(part.start, part.stop, CHUNK_ENTRIES)
    ]


def in_threads(function: Callable[[range], T], chunks: list[range]) -> Iterator[T]:
    """Yield a function's result for each chunk, in order; several threads call it."""
    threads = min(len(os.sched_getaffinity(0)), THREADS_MAX, len(chunks))
    if threads < 2:
        yield from map(function, chunks)
        return
    from concurrent.futures import ThreadPoolExecutor  # Programs that read few objects do without.

    with ThreadPoolExecutor(threads, "femtobarn-scan") as pool:
        yield from pool.map(function, chunks)


def is_flat(view: ColumnReader, paths: list[str]) -> bool:
    """Tell whether all fields are numbers of the objects themselves, one per entry."""
    fields = view.definition.record.by_name
    return all(isinstance(fields.get(path), Primitive | Reduced) for path in paths)
