"""Columns of the entries of a container: one range at once, or batches that are read ahead.

A reader reads on or seeks, whichever costs less by the constants below, and leaves out the clusters that
cannot meet the condition.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._bars import ProgressOption
from .._data.arrays import Tree
from .._data.casts import Values
from .._data.results import as_library, awkward_of, check_library, tree_nbytes
from .._exceptions import InvalidError, NotFoundError
from .._lazy import ak
from .._objects.live_entries import LiveEntries
from .._positions import checked_slice
from .._query.paths import Expressions, all_paths
from .._query.projections import Projection
from .._query.pruning import ClusterBounds, excluded_ranges, without_ranges
from .._query.selection import COUNT, Selection, Where, steps_of
from .._schema.types import Definition, Record, definition_from_text
from .batches import read_in_batches
from .explanations import Explanation
from .requests import Request
from .scans import Scan, is_flat

if TYPE_CHECKING:
    from .._femtobarn import SeriesHandle, ViewHandle
    from .._snapshots import Snapshot
    from .advice import Advice

__all__ = ["ColumnReader"]

READ_BYTES_PER_SECOND = 1.5e9
"""Assumed speed of reading neighbouring entries."""

SEEK_SECONDS = 3e-6
"""Assumed cost of one seek, for each field."""

PROBE_ENTRIES = 64
"""Entries that are read to estimate the size of an entry, for the choice between reading on and seeking."""


class ColumnReader:
    """Reads columns of a range of the entries of a container, as of a snapshot."""

    def __init__(
        self, snapshot: Snapshot, name: str, handle: ViewHandle, window: range | None = None
    ) -> None:
        self.snapshot = snapshot
        self.name = name
        self._handle = handle
        self._window = range(handle.entries) if window is None else window
        self._definition: Definition | None = None
        self._excluded_by: dict[str, list[range]] = {}
        self._known_live: LiveEntries | None = None
        self._recast_to: int | None = None

    @property
    def definition(self) -> Definition:
        """The class of the objects."""
        if self._definition is None:
            self._definition = definition_from_text(self._handle.definition)
        return self._definition

    @property
    def snapshots(self) -> list[Snapshot]:
        """The snapshots that the objects are read from."""
        return [self.snapshot]

    @property
    def container_names(self) -> list[str]:
        """Names of the containers that the objects are read from, one for each of :attr:`snapshots`."""
        return [self.name]

    @property
    def stored_fields(self) -> list[str]:
        """Names of the fields that are stored in the objects."""
        return self.fields

    @property
    def fields(self) -> list[str]:
        """Names of the fields of an object."""
        return list(self.definition.record.by_name)

    def keys(self) -> list[str]:
        """Return the dotted names of all fields, members of records included."""
        return list(all_paths(self.definition))

    def _ipython_key_completions_(self) -> list[str]:
        return self.keys()

    def typenames(self) -> dict[str, str]:
        """Return the type of each field by its dotted name."""
        return {path: str(node) for path, node in all_paths(self.definition).items()}

    def __len__(self) -> int:
        live = self._live
        return len(self._window) if live is None else len(live)

    @property
    def _live(self) -> LiveEntries | None:
        """The entries of the range that have objects; None if no object of the container is deleted."""
        if self._known_live is None and self._handle.has_deletions:
            ends = self._handle.live_runs(self._window.start, self._window.stop)
            self._known_live = LiveEntries(np.frombuffer(memoryview(ends), np.uint64))
        return self._known_live

    def _part(self, entry_start: int | None, entry_stop: int | None) -> range:
        return self._window[checked_slice(slice(entry_start, entry_stop), self.name)]

    def _entries_within(self, start: int, stop: int) -> Values:
        """Return the entries in ``start:stop`` that have objects."""
        live = self._live
        return np.arange(start, stop, dtype=np.uint64) if live is None else live.within(start, stop)

    def _batches(
        self,
        projection: Projection,
        selection: Selection | None,
        window: range,
        step_size: int | str,
        progress: ProgressOption = None,
    ) -> Iterator[ak.Array]:
        def read(part: range) -> ak.Array:
            return self._array_of(projection, selection, part)

        return read_in_batches(read, window, step_size, progress, self.name)

    def _array_of(self, projection: Projection, selection: Selection | None, part: range) -> ak.Array:
        """Return the fields of the selected objects in a part of the range."""
        if selection is None:
            return self._awkward(projection, self.read_tree(projection.paths, part.start, part.stop))
        scan = self._scan(selection, part)
        if is_flat(self, projection.paths):
            return self._awkward(projection, scan.columns(projection.paths))
        return self._read_entries(projection, scan.entries())

    def _read_entries(self, projection: Projection, entries: Values) -> ak.Array:
        """Return the fields of the objects at `entries`, which ascend."""
        paths = projection.paths
        if not len(entries):
            return self._awkward(projection, self.read_tree(paths, 0, 0))
        first, last = int(entries[0]), int(entries[-1])
        if self._is_sparse(paths, entries):
            return self._awkward(projection, self._handle.fetch(entries.tobytes(), paths))
        array = self._awkward(projection, self.read_tree(paths, first, last + 1))
        if len(entries) == len(array):
            return array
        known = self._entries_within(first, last + 1)
        places = np.searchsorted(known, entries)
        if not np.array_equal(known[places], entries):
            raise NotFoundError(f"an object of {self.name} was deleted, or does not exist")
        return array[places]

    def _is_sparse(self, paths: list[str], entries: Values) -> bool:
        """Tell whether seeking each entry costs less than reading on over the entries between them."""
        first, span = int(entries[0]), int(entries[-1] - entries[0]) + 1
        probe = min(span, PROBE_ENTRIES)
        entry_bytes = tree_nbytes(self.read_tree(paths, first, first + probe)) / probe
        seeks = 1 + int(np.count_nonzero(np.diff(entries) > 1))
        superfluous_seconds = (span - len(entries)) * entry_bytes / READ_BYTES_PER_SECOND
        return seeks * len(paths) * SEEK_SECONDS < superfluous_seconds

    def _selected(self, entries: Values, selection: Selection | None) -> Values:
        """Return those of some entries, in any order, that a selection selects."""
        if selection is None or not len(entries):
            return entries
        between = range(int(entries.min()), int(entries.max()) + 1)
        return entries[np.isin(entries, self._scan(selection, between).entries())]

    def _scan(self, selection: Selection, window: range) -> Scan:
        return Scan(self, selection, without_ranges(window, self._excluded(selection)))

    def _excluded(self, selection: Selection) -> list[range]:
        """Return the ranges of entries that no selected object can be in, by the statistics of clusters."""
        if selection.function is not None:
            return []
        known = self._excluded_by.get(selection.text)
        if known is None:
            known = excluded_ranges(selection, self.definition, self._cluster_bounds)
            self._excluded_by[selection.text] = known
        return known

    def explain(self, expressions: Expressions = None, where: Where = None) -> Explanation:
        """Return the reads that :meth:`View.arrays` would make, without making them.

        The fields that a function as the condition uses are unknown before it runs.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     fields = [{"name": "n", "type": "int32"}, {"name": "tag", "type": "string"}]
        ...     form = {"name": "Hit", "fields": fields}
        ...     hits = txn.database("d", create=True).container("hits", form, create=True)
        ...     oids = hits.extend({"n": [5, 6, 7], "tag": ["a", "b", "a"]})
        >>> fed["d/hits"].explain("n", where="n > 9 and tag == 'a'")
        left out by statistics  3 of 3 entries (100 %)
        condition               reads n of 0 entries; if that can hold, tag
        computed by awkward     tag == 'a'
        selected entries        read n
        """
        request = Request.of(self.definition, expressions, where)
        paths, selection = request.projection.paths, request.selection
        if selection is None:
            return Explanation(len(self._window), 0, (), (), (), tuple(paths))
        left = sum(map(len, without_ranges(self._window, self._excluded(selection))))
        steps = [_read_for(step) for step in steps_of(selection)]
        read = dict.fromkeys(path for step in steps for path in step)
        later = tuple(path for path in read if path not in steps[0])
        terms = tuple(term.text for term in selection.terms.values())
        excluded = len(self._window) - left
        return Explanation(len(self._window), excluded, tuple(read), later, terms, tuple(paths))

    def advise(self, *, bandwidth: str = "200 MB", sample: str = "1 MB") -> Advice:
        """Measure which compression a new container of these objects should have.

        A sample of each stored field is packed with each compression and unpacked again, in memory.

        Parameters
        ----------
        bandwidth
            Bytes a second that the storage delivers to a job. The faster it is, the less compression gains.
        sample
            Bytes of the values of each column that are measured.

        Raises
        ------
        InvalidError
            If `bandwidth` or `sample` is not a size.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Hit", "fields": [{"name": "n", "type": "int32"}]}
        ...     hits = txn.database("d", create=True).container("hits", form, create=True)
        ...     oids = hits.extend({"n": [7] * 100_000})
        >>> advice = fed["d/hits"].advise(bandwidth="1 kB")
        >>> advice.best, advice.fields[0].path, advice.packed["zstd"].stored < 4000
        ('zstd', 'n', True)
        """
        from .advice import advice_of  # Few programs ask for it.

        return advice_of(self._handle, bandwidth, sample)

    def _cluster_bounds(self, column: str) -> ClusterBounds | None:
        """Return the statistics of a column of the selection, or None if the container has none for it."""
        path = column.removeprefix(COUNT)
        above = path.split(".")[:-1]
        parents = (self.definition.resolve(".".join(above[: count + 1])) for count in range(len(above)))
        if not all(isinstance(parent, Record) for parent in parents):
            # Links are stored as other numbers than are read; values in optional records and lists may be
            # missing.
            return None
        found = self._handle.statistics(path if path == column else f"{path}.#")
        if found is None:
            return None
        starts, stops, low, high, has_nan = (memoryview(each) for each in found)
        return ClusterBounds(
            np.frombuffer(starts, np.int64),
            np.frombuffer(stops, np.int64),
            np.frombuffer(low, np.float64),
            np.frombuffer(high, np.float64),
            np.frombuffer(has_nan, np.bool_),
        )

    def read_tree(self, paths: list[str], start: int, stop: int) -> Tree:
        """Return columns of a range of entries, in the order of the engine."""
        return self._handle.read(paths, start, stop)

    def _fetched(
        self,
        handle: ViewHandle | SeriesHandle,
        entries: Sequence[int] | Values,
        expressions: Expressions,
        library: str,
    ) -> Any:
        """Read fields of objects of this view's class by the entries that the handle knows."""
        wanted = np.asarray(entries)
        if wanted.size and (wanted.dtype.kind not in "iu" or wanted.min() < 0):
            raise InvalidError("entries must be integers of 0 or more")
        projection = Projection.of(expressions, self.definition)
        check_library(library)
        tree = handle.fetch(wanted.astype(np.uint64).tobytes(), projection.paths)
        return as_library(self._awkward(projection, tree), projection.record, library)

    def _awkward(self, projection: Projection, tree: Tree) -> ak.Array:
        return awkward_of(projection.arrange(tree), projection.record, **self.snapshot.array_settings)


def _read_for(step: Selection) -> list[str]:
    """Return the fields that are read for a step of a condition."""
    return [*step.fields, *(f"len({path})" for path in step.collections), *step.paths_of_terms]
