"""A container as of a snapshot: read by columns, by selection, or object by object."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Generic, cast, overload

import numpy as np

from .._data.casts import Values
from .._exceptions import ClosedError, InvalidError, NotFoundError, WrongTypeError
from .._lazy import ak
from .._objects.changes import entries_of
from .._oid import Oid, OidRange, are_oids
from .._positions import Positions, check_count, checked_slice, is_number, positions_of
from .._query.meant_constants import stored_values
from .._query.paths import Expressions
from .._query.selection import Selection, Where
from .._schema.classes import definition_of
from .object_values import ObjectValues

if TYPE_CHECKING:
    import dask.dataframe
    from typing_extensions import TypeVar

    from .._snapshots import Snapshot
    from ..display import Display
    from .partitions import Partition

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

C = TypeVar("C")

__all__ = ["View"]

BLOCK_ENTRIES = 256
"""Number of neighbouring objects that a loop over objects reads at once."""


class View(ObjectValues, Generic[T]):
    """A container as of a snapshot, or a range of its entries.

    A view never changes: later commits are seen through later snapshots. ``View[Event]`` is one of objects of
    the class `Event`, see :meth:`of`.
    """

    @property
    def num_entries(self) -> int:
        """Number of objects."""
        return len(self)

    def __repr__(self) -> str:
        try:
            size = f"{len(self):,} objects of class {self.definition.name} as of csn {self.snapshot.csn}"
        except ClosedError:
            size = "of a closed federation"
        return f"<View {self.name!r}: {size}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _view_at, (self.snapshot, self.name, self._window.start, self._window.stop, self._recast_to)

    # Objects, one by one.

    @overload
    def __getitem__(self, index: int | Oid) -> T: ...
    @overload
    def __getitem__(self, index: slice | Sequence[int] | Sequence[Oid] | np.ndarray[Any, Any]) -> View[T]: ...
    @overload
    def __getitem__(self, index: str) -> ak.Array: ...
    def __getitem__(self, index: Any) -> T | View[T] | ak.Array:
        """Return an object by its position, a field by its name, or a view of some of the objects.

        Parameters
        ----------
        index
            A position, an OID, or the dotted name of a field; for a view, as in NumPy: a slice, a mask with
            a truth value for each object, positions, which may be negative, or OIDs. A new view reads nothing
            yet.

        Raises
        ------
        IndexError
            If a position is out of range, or a mask is of another length.
        NotFoundError
            If the field does not exist; near misses are named.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": [5, 6, 7, 8]})
        >>> view = fed["d/numbers"]
        >>> view[2].n, view["n"].to_list(), view[1:]["n"].to_list()
        (7, [5, 6, 7, 8], [6, 7, 8])
        >>> view[[-1, 0]]["n"].to_list(), view[view["n"] > 6]["n"].to_list()
        ([8, 5], [7, 8])
        """
        if type(index) is int or is_number(index):
            return self.object_at(self._entry(index))
        if isinstance(index, str):
            return self._field(index)
        if isinstance(index, slice) and checked_slice(index, self.name).step in (None, 1):
            return self._sliced(index)
        if isinstance(index, Oid):
            return self.object_at(int(self._entries_of_oids([index])[0]))
        if are_oids(index):
            return self._with_entries(self._entries_of_oids(index))
        return self._at(positions_of(index, len(self), self.name))

    def _entries_of_oids(self, oids: Any) -> Values:
        """Return the entries of OIDs, each of which is an object of this view."""
        entries = entries_of(oids, self._place)
        strange = entries[~np.isin(entries, self.entries())]
        if len(strange):
            self.object_at(int(strange[0]))  # Unless it does not exist, or was deleted.
            raise NotFoundError(f"object {self.oid(int(strange[0]))} is not in this view of {self.name}")
        return entries

    def _at(self, positions: Positions) -> View[T]:
        return self._with_entries(self._entries_at(positions))

    def _with_entries(self, entries: Values) -> View[T]:
        from .picked import PickedView  # That module imports this one.

        return PickedView(self, entries)

    def _selected_by(self, where: Where) -> View[T]:
        return self if where is None else self._with_entries(self.entries(where))

    @property
    def _place(self) -> tuple[int, int]:
        return self._handle.database, self._handle.container

    def _sliced(self, index: slice) -> View[T]:
        return self._within(self._slice(index))

    def _within(self, window: range) -> View[T]:
        """Return a view of a range of entries."""
        part: View[T] = View(self.snapshot, self.name, self._handle, window)
        part._recast_to = self._recast_to
        part._definition = self.definition
        return part

    def _entries_at(self, positions: Positions) -> Values:
        """Return the entries of the objects at some positions."""
        if self._live is None:
            return positions.astype(np.uint64) + np.uint64(self._window.start)
        return self.entries()[positions]

    def __iter__(self) -> Iterator[T]:
        runs = iter([self._window]) if self._live is None else self._live.runs
        try:
            for run in runs:
                for start in range(run.start, run.stop, BLOCK_ENTRIES):
                    self._layouts = {}
                    yield from self._handle.objects(self, start, min(start + BLOCK_ENTRIES, run.stop))
        finally:
            self._layouts = None

    def object_at(self, entry: int) -> T:
        """Return the object at an entry of the container, which may lie outside the range of this view.

        Raises
        ------
        NotFoundError
            If the container has no such entry, or the object was deleted.
        """
        found: T | None = self._handle.object_at(self, entry)
        if found is not None:
            return found
        if not is_number(entry):
            raise WrongTypeError(f"entries are whole numbers, not {entry!r}")
        if not 0 <= entry < self._handle.entries:
            raise NotFoundError(
                f"entry {entry} does not exist: {self.name} has {self._handle.entries:,} in this snapshot"
            )
        raise NotFoundError(f"object {self.oid(entry)} of {self.name} was deleted")

    def of(self, cls: type[C]) -> View[C]:
        """Return this view as one of objects of a declared class, for type checkers and editors.

        Objects are instances of their class without it, see :class:`Object`.

        Raises
        ------
        WrongTypeError
            If the objects are not of this class.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> @fb.persistent
        ... class Event:
        ...     run: fb.uint32
        >>> with fed.transaction() as txn:
        ...     events = txn.database("d", create=True).container("events", Event, create=True)
        ...     oid = events.append(Event(run=7))
        >>> events: fb.View[Event] = fed["d/events"].of(Event)
        >>> events[0].run
        7
        """
        if not issubclass(self._object_class(), cls):
            raise WrongTypeError(
                f"objects of {self.name} are of class {self.definition.name}, not {cls.__qualname__}"
            )
        return cast("View[C]", self)

    def oid(self, entry: int) -> Oid:
        """Return the OID of an entry of the container."""
        return Oid(self._handle.database, self._handle.container, entry)

    @property
    def oids(self) -> OidRange:
        """OIDs of all entries of this view, including those of deleted objects."""
        return OidRange(self._handle.database, self._handle.container, self._window.start, self._window.stop)

    def _entry(self, index: int) -> int:
        live = self._live
        try:
            return self._window[index] if live is None else live.entry(range(len(live))[index])
        except IndexError:
            raise self._no_position(index) from None

    def _no_position(self, index: int) -> IndexError:
        return IndexError(f"position {index} is out of range: {self.name} has {len(self)} objects here")

    def _slice(self, index: slice) -> range:
        """Return the range of entries from the first to the last object of a slice."""
        positions = range(len(self))[index]
        if self._live is None or not positions:
            return self._window[index] if self._live is None else self._window[:0]
        return range(self._live.entry(positions[0]), self._live.entry(positions[-1]) + 1)

    def entries(self, where: Where = None) -> Values:
        """Return the entries in the container of all objects, or of those that meet a condition.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": [5, 6, 7]})
        >>> fed["d/numbers"].entries("n > 5")
        array([1, 2], dtype=uint64)
        """
        selection = Selection.of(where, self.definition)
        if selection is None:
            return self._entries_within(self._window.start, self._window.stop)
        return self._scan(selection, self._window).entries()

    def as_class(self, version: Any) -> View:
        """Return a view of the same objects as objects of another version of their class.

        In a newer version, added fields have their default, and renamed or widened fields their old values.
        An older version is possible where it can hold all values.

        Parameters
        ----------
        version
            Number of the version, or the persistent class of that version.

        Raises
        ------
        InvalidError
            If the version cannot hold the values of a field; the text names the field.
        NotFoundError
            If the class has no such version.
        """
        number = version if isinstance(version, int) else definition_of(version).version
        view = View(self.snapshot, self.name, self._handle.as_class(number), self._window)
        view._recast_to = number
        return view

    def find(self, /, **values: Any) -> T:
        """Return the first object with the given values of fields.

        With an index over the fields this takes microseconds; without one, entries are read until one
        matches. Fields with dotted names are given as ``**{"header.run": 7}``; the value of a link is the OID
        of its target.

        Raises
        ------
        NotFoundError
            If no object has these values, or a field does not exist.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": [5, 6, 7]})
        ...     numbers.create_index("by_n", "n")
        >>> fed["d/numbers"].find(n=6).oid
        Oid(1, 1, 1)
        """
        entry = self._first_found(stored_values(values, self.definition))
        if entry is None:
            shown = ", ".join(f"{name}={value!r}" for name, value in values.items())
            raise NotFoundError(f"{self.name} has no object with {shown} as of this snapshot")
        return self.object_at(entry)

    def find_all(self, /, **values: Any) -> list[T]:
        """Return all objects with the given values of fields, in order; see :meth:`find`."""
        return [self.object_at(entry) for entry in self._found(stored_values(values, self.definition))]

    def _first_found(self, values: dict[str, Any]) -> int | None:
        if len(self._window) == self._handle.entries:
            return self._handle.find(values)
        return next(iter(self._found(values)), None)

    def _found(self, values: dict[str, Any]) -> list[int]:
        found = np.frombuffer(memoryview(self._handle.find_all(values)), np.uint64).tolist()
        return [entry for entry in found if entry in self._window]

    def display(self, where: Where = None, *, count: int = 10, referrers: bool = False) -> Display:
        """Return the first objects in 3D, to step through; see :class:`femtobarn.display.Display`.

        Parameters
        ----------
        where
            Condition on the objects; all if not given.
        count
            Limit of the objects: each may need megabytes of the page.
        referrers
            Whether objects that link to them are shown, too.

        Raises
        ------
        InvalidError
            If there is no object, none meets the condition, or `count` is less than 1.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Hit", "fields": [{"name": axis, "type": "float32"} for axis in "xyz"]}
        ...     hits = txn.database("d", create=True).container("hits", form, create=True)
        ...     oids = hits.extend({"x": [0, 1, 2], "y": [1, 1, 1], "z": [2, 0, 1]})
        >>> fed["d/hits"].display("x > 0")
        <Display of 2 objects, from d/hits 1 on>
        """
        from ..display import display  # That room imports this one.

        check_count(count, "display")
        if count < 1:
            raise InvalidError(f"count={count}: a display needs at least one object")
        return display(self._selected_by(where).head(count), referrers=referrers)

    def partitions(self, size: int | str = "100 MB", columns: Expressions = None) -> list[Partition]:
        """Return ranges of the objects, for tasks in other processes and on other machines.

        They end where clusters do, so that no two tasks read one page. A partition is less than 2 KB when
        pickled, and opens the federation where it is used. The process that made it keeps the snapshot as
        long as it has the partition; one that is kept in a file needs a tag or the retention.

        Parameters
        ----------
        size
            Stored bytes of a partition, such as ``"100 MB"``, at least those of a cluster; or a limit of its
            entries, which divides clusters, too.
        columns
            The fields whose bytes count for `size`, as for :meth:`arrays`; all if not given.

        Raises
        ------
        InvalidError
            If the size is less than 1, or the changes of a transaction that is open would be passed on.
        UnsupportedError
            If the view has the objects that a mask or positions picked.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     numbers = txn.database("d", create=True).container("numbers", form, create=True)
        ...     oids = numbers.extend({"n": range(5)})
        >>> [part.arrays("n", library="np")["n"].sum() for part in fed["d/numbers"].partitions(2)]
        [np.int64(1), np.int64(5), np.int64(4)]
        """
        from .partitions import divided  # Few programs divide views.

        return divided(self, size, columns)

    def to_dask_dataframe(
        self, expressions: Expressions = None, where: Where = None, *, size: int | str = "100 MB"
    ) -> dask.dataframe.DataFrame:
        """Return the objects as a data frame of Dask; only the columns that a computation uses are read.

        Parameters
        ----------
        expressions, where
            As for :meth:`arrays`. Fields of records are columns with dotted names.
        size
            As for :meth:`partitions`.

        Raises
        ------
        ModuleNotFoundError
            If Dask is not installed: ``pip install femtobarn[dask]``.
        """
        from ..dask import to_dataframe  # That module imports this one, and Dask.

        return to_dataframe(self, expressions, where, size=size)

    def to_dask_awkward(
        self, expressions: Expressions = None, where: Where = None, *, size: int | str = "100 MB"
    ) -> Any:
        """Return the objects as an array of dask-awkward; only the columns that a computation uses are read.

        `expressions` and `where` are as for :meth:`arrays`, without computed columns; `size` as for
        :meth:`partitions`.

        Raises
        ------
        ModuleNotFoundError
            If dask-awkward is not installed, which needs a Dask from before 2025.4.
        """
        from .._dask_arrays import to_awkward  # That module imports dask-awkward.

        return to_awkward(self, expressions, where, size)

    def indexes(self) -> list[dict[str, Any]]:
        """Return the name, fields, number of keys and bytes of each index, and whether keys are unique."""
        return self._handle.indexes()


def _view_at(snapshot: Snapshot, name: str, start: int, stop: int, version: int | None) -> View:
    part = snapshot[name]._within(range(start, stop))
    return part if version is None else part.as_class(version)
