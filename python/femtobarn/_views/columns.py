"""Fields of many objects as arrays: at once, in batches, and in files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from .._bars import ProgressOption
from .._data.casts import Values
from .._lazy import LazyModule, ak
from .._query.paths import Expressions
from .._query.selection import Where
from .._schema.types import Definition
from .arrow_streams import ArrowStream
from .column_reader import ColumnReader
from .requests import Request, one_of_each

if TYPE_CHECKING:
    import polars

    from .._exchange import exports
    from . import podio
    from .joins import Keys
else:  # Few programs write files.
    exports, podio = LazyModule("femtobarn._exchange.exports"), LazyModule("femtobarn._views.podio")

__all__ = ["Columns"]


class Columns(ColumnReader):
    """The fields of the objects of a container as of a snapshot, or of a range of them."""

    def arrays(
        self,
        expressions: Expressions = None,
        where: Where = None,
        *,
        entry_start: int | None = None,
        entry_stop: int | None = None,
        library: str = "ak",
        aliases: Mapping[str, str] | None = None,
        filter_name: Expressions = None,
        cut: Where = None,
    ) -> Any:
        """Read fields of many objects as arrays.

        Parameters
        ----------
        expressions
            Dotted names, globs (``"Muon_*"``), regular expressions (``"/Muon_.*/"``), a list of
            these, or a function that chooses by name; ``nX`` is the number of items of the collection
            X, ``link.field`` a field of the objects that a link leads to. All fields if not given. The result
            has the fields in this order; without, in the order of the class.
        where
            Condition such as ``"nMuon == 2 and any(Muon.pt > 30)"``; ``nX`` and ``len(X)`` are the number of
            items of the collection X. A comparison with a missing value selects nothing, and neither does its
            ``not``. Or a function that takes an array of some of the objects, and returns a truth value for
            each. The fields of the condition are read first, all others only for the selected entries.
        entry_start, entry_stop
            Range of entries of this view; negative numbers count from the end. Entries of deleted objects are
            left out.
        library
            ``"ak"`` for an awkward array (no copy), ``"np"`` for a dictionary of NumPy arrays,
            ``"pd"`` for a pandas data frame, ``"pa"`` for an Arrow table.
        aliases
            Computed columns, such as ``{"mass": "sqrt(2 * Muon.pt[0] * Muon.pt[1])"}``, with the operations
            of conditions. Expressions and condition may name them; without expressions, they come after the
            fields.
        filter_name, cut
            The same as `expressions` and `where`, as uproot calls them.

        Raises
        ------
        NotFoundError
            If a field does not exist; near misses are named.
        InvalidError
            If the condition is malformed, or has several values for an entry.
        CorruptError
            If a page is damaged.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> @fb.persistent
        ... class Event:
        ...     run: fb.uint32
        ...     pt: list[fb.float32]
        >>> with fed.transaction() as txn:
        ...     events = txn.database("mc", create=True).container("events", Event, create=True)
        ...     oids = events.extend({"run": [1, 1, 2], "pt": [[3.5], [], [1.0, 2.0]]})
        >>> view = fed["mc/events"]
        >>> view.arrays(["pt"], where="run == 1 and npt > 0").to_list()
        [{'pt': [3.5]}]
        >>> view.arrays("run", library="np")
        {'run': array([1, 1, 2], dtype=uint32)}
        """
        request = Request.of(self.definition, expressions, where, library, aliases, filter_name, cut)
        part = self._part(entry_start, entry_stop)
        return request.result(self._array_of(request.projection, request.selection, part))

    def iterate(
        self,
        expressions: Expressions = None,
        where: Where = None,
        *,
        step_size: int | str = "64 MB",
        entry_start: int | None = None,
        entry_stop: int | None = None,
        library: str = "ak",
        aliases: Mapping[str, str] | None = None,
        filter_name: Expressions = None,
        cut: Where = None,
        progress: ProgressOption = None,
    ) -> Iterator[Any]:
        """Read fields batch by batch, with read-ahead of one batch.

        Parameters
        ----------
        step_size
            Entries per batch, or memory per batch, such as ``"64 MB"``. Each batch gives the size of an entry
            for the next one. The other parameters are those of :meth:`arrays`.
        progress
            Called with the entries read so far and the entries in all; True shows a bar, on a terminal or in
            a notebook.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": range(5)})
        >>> [batch.n.to_list() for batch in fed["d/numbers"].iterate(step_size=2)]
        [[0, 1], [2, 3], [4]]
        """
        request = Request.of(self.definition, expressions, where, library, aliases, filter_name, cut)
        part = self._part(entry_start, entry_stop)
        batches = self._batches(request.projection, request.selection, part, step_size, progress)
        return map(request.result, batches)

    def _field(self, path: str) -> Any:
        """Return a field by its dotted name as an array."""
        array = self.arrays(path)
        for name in path.split("."):
            array = array[name]
        return array

    def join(
        self,
        other: Columns,
        on: Keys,
        *,
        name: str = "other",
        expressions: Expressions = None,
        where: Where = None,
        other_expressions: Expressions = None,
        library: str = "ak",
    ) -> Any:
        """Read objects together with those of another view that have the same keys.

        A link does the same without keys, and without reading those of the other view. Objects at the same
        entries need none either: see :meth:`Snapshot.friend`.

        Parameters
        ----------
        other
            Another view or collection, in which at most one object has each key.
        on
            Fields with one value per object, such as ``["run", "event"]``; or a mapping of names in this view
            to names in the other one.
        name
            Name of a field of the result with the fields of the other object; missing if there is none.
        expressions, where, library
            As for :meth:`arrays`.
        other_expressions
            The fields of the other view, all if not given.

        Raises
        ------
        InvalidError
            If a key has several values per object, several objects of `other` have one key, or a field is
            called `name`.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> def form(*names):
        ...     return {"name": names[-1], "fields": [{"name": each, "type": "int32"} for each in names]}
        >>> with fed.transaction() as txn:
        ...     database = txn.database("d", create=True)
        ...     events = database.container("events", form("run", "event"), create=True)
        ...     oids = events.extend({"run": [1, 1, 2], "event": [1, 2, 1]})
        ...     book = database.container("book", form("number", "shift"), create=True)
        ...     oids = book.extend({"number": [1], "shift": [7]})
        >>> array = fed["d/events"].join(fed["d/book"], on={"run": "number"}, name="book")
        >>> array.book.shift.to_list()
        [7, 7, None]
        """
        from .joins import joined  # This imports awkward.

        request = Request.of(self.definition, expressions)
        of_other = Request.of(other.definition, other_expressions)
        return joined(self._selected_by(where), other, on, name, request, of_other, library)

    def _selected_by(self, where: Where) -> Columns:
        """Return the objects that a condition selects."""
        raise NotImplementedError

    def export(
        self,
        path: str | os.PathLike[str],
        expressions: Expressions = None,
        where: Where = None,
        *,
        format: str | None = None,
        layout: str | None = None,
        step_size: int | str = "64 MB",
        entry_start: int | None = None,
        entry_stop: int | None = None,
        aliases: Mapping[str, str] | None = None,
        filter_name: Expressions = None,
        cut: Where = None,
        progress: ProgressOption = None,
    ) -> int:
        """Export the data of :meth:`arrays` to a file of another format; return the number of objects.

        Parameters
        ----------
        path
            A new file: ``.root`` (an RNTuple named after the container, or the first one of a collection),
            ``.parquet``, ``.arrow`` or ``.feather``.
        expressions, where, entry_start, entry_stop, aliases, filter_name, cut
            As for :meth:`arrays`. A link is exported as the record of its numbers; a dictionary as a map, and
            in an RNTuple as one of its own.
        format
            ``"root"``, ``"parquet"`` or ``"arrow"``; by default that of the suffix of `path`.
        layout
            ``"podio"`` for a ROOT file that podio's readers open, of events that were imported from a file of
            podio together with ``podio_metadata``; `expressions` then name whole collections, which are
            written with their relations and vector members.
        step_size
            As for :meth:`iterate`: the amount that is in memory at once.
        progress
            Called with the objects exported so far and the objects in all; True shows a bar, on a terminal or
            in a notebook.

        Raises
        ------
        ExistsError
            If the file exists.
        StorageError
            If the disk is full or fails; nothing of the file is left.
        UnsupportedError
            If the format has no type for a field.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> fed = fb.create(folder + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": range(5)})
        >>> fed["d/numbers"].export(folder + "/large.parquet", where="m > 4", aliases={"m": "2 * n"})
        2
        """
        # A collection is called after its first container, and how many more there are.
        name = self.name.partition(" ")[0].rpartition("/")[2]
        part = self._part(entry_start, entry_stop)
        if layout is not None:
            podio.check_layout(layout, path, format, aliases)
            chosen, where = one_of_each(expressions, where, filter_name, cut)
            events = {name: (self, part)}
            return podio.export_podio(events, path, chosen, where, step_size=step_size, progress=progress)
        request = Request.of(self.definition, expressions, where, "ak", aliases, filter_name, cut)
        exported = self._exported(request, part, step_size)
        return exports.export_objects({name: exported}, path, format=format, progress=progress)

    def to_parquet(
        self,
        path: str | os.PathLike[str],
        expressions: Expressions = None,
        where: Where = None,
        **options: Any,
    ) -> int:
        """Write the data of :meth:`arrays` to a Parquet file, batch by batch.

        It is :meth:`export` with ``format="parquet"``, and has its other parameters.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> folder = tempfile.mkdtemp()
        >>> fed = fb.create(folder + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": range(5)})
        >>> fed["d/numbers"].to_parquet(folder + "/squares.parquet", aliases={"square": "n * n"})
        5
        """
        return self.export(path, expressions, where, format="parquet", **options)

    def to_root(
        self,
        path: str | os.PathLike[str],
        expressions: Expressions = None,
        where: Where = None,
        **options: Any,
    ) -> int:
        """Write the data of :meth:`arrays` to a ROOT file with an RNTuple; see :meth:`to_parquet`."""
        return self.export(path, expressions, where, format="root", **options)

    def _exported(self, request: Request, part: range, step_size: int | str = "64 MB") -> exports.Exported:
        """Return the objects that a request selects in a part of the range, for a file."""

        def batches() -> Iterator[ak.Array]:
            return self._batches(request.projection, request.selection, part, step_size)

        empty = self._array_of(request.projection, None, part[:0])
        record = request.type_of(empty, batches())
        definition = Definition(self.definition.name, self.definition.version, record.fields)
        columns = (request.as_type(each, record) for each in chain([empty], batches()))
        return exports.Exported(definition, min(len(self), len(part)), columns)

    def to_arrow(
        self,
        expressions: Expressions = None,
        where: Where = None,
        *,
        step_size: int | str = "64 MB",
        entry_start: int | None = None,
        entry_stop: int | None = None,
        aliases: Mapping[str, str] | None = None,
        filter_name: Expressions = None,
        cut: Where = None,
    ) -> ArrowStream:
        """Return the data of :meth:`arrays` as a stream that programs with Arrow read batch by batch.

        Polars, DuckDB, DataFusion, pandas, pyarrow and other libraries accept it as a table, and whole views,
        too: ``polars.DataFrame(view)``, or in a query of DuckDB the name of the variable. The parameters are
        those of :meth:`iterate`; `step_size` is the amount that is in memory at once.

        Examples
        --------
        >>> import femtobarn as fb, pyarrow as pa, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": range(5)})
        >>> pa.table(fed["d/numbers"].to_arrow(where="n > 2", aliases={"square": "n * n"})).to_pylist()
        [{'n': 3, 'square': 9}, {'n': 4, 'square': 16}]
        """
        request = Request.of(self.definition, expressions, where, "ak", aliases, filter_name, cut)
        part = self._part(entry_start, entry_stop)
        empty = self._array_of(request.projection, None, part[:0])

        def batches() -> Iterator[ak.Array]:
            return self._batches(request.projection, request.selection, part, step_size)

        return ArrowStream(request, empty, batches, self.name)

    def __arrow_c_schema__(self) -> Any:
        """Return the types of the columns for Arrow's PyCapsule interface."""
        return self.to_arrow().__arrow_c_schema__()

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the objects as a stream of Arrow's PyCapsule interface; see :meth:`to_arrow`."""
        return self.to_arrow().__arrow_c_stream__(requested_schema)

    def lazy(self) -> polars.LazyFrame:
        """Return the objects as a lazy frame of Polars, which reads only the data that a query needs.

        Columns that the query does not use are not read. Conditions that compare a field with a value select
        the clusters and objects that are read. DuckDB scans the frame, too, by the name of its variable, and
        reads the columns that its query uses. A pickle of the frame holds no data.

        Raises
        ------
        ModuleNotFoundError
            If Polars is not installed: ``pip install femtobarn[polars]``.

        Examples
        --------
        >>> import femtobarn as fb, polars as pl, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     fields = [{"name": "n", "type": "int32"}, {"name": "tag", "type": "string"}]
        ...     form = {"name": "Hit", "fields": fields}
        ...     hits = txn.database("d", create=True).container("hits", form, create=True)
        ...     oids = hits.extend({"n": [5, 6, 7], "tag": ["a", "b", "a"]})
        >>> fed["d/hits"].lazy().filter(pl.col("n") > 5).select("tag").collect().to_series().to_list()
        ['b', 'a']
        """
        from .lazy_frames import lazy_frame  # This imports Polars.

        return lazy_frame(self)

    def fetch(
        self, entries: Sequence[int] | Values, expressions: Expressions = None, *, library: str = "ak"
    ) -> Any:
        """Read fields of objects by their entries in the container, in the order given."""
        return self._fetched(self._handle, entries, expressions, library)
