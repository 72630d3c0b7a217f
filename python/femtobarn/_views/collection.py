"""The objects of several containers, one after the other, read as if they were in one."""

from __future__ import annotations

import bisect
import contextlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.casts import Values
from .._data.typed_layouts import widened
from .._exceptions import ClosedError, InvalidError, NotFoundError, UnsupportedError, WrongTypeError
from .._lazy import ak
from .._positions import Positions, checked_slice, is_number, positions_of
from .._query.known_values import with_known
from .._query.meant_constants import stored_values
from .._query.paths import Expressions, all_paths, counted
from .._query.projections import Projection
from .._query.selection import Selection, Where
from .._schema.types import Definition, Field, Record, String, paths_of
from .._schema.unions import union
from .explanations import Explanation
from .requests import Request
from .summaries import Summaries

if TYPE_CHECKING:
    from .._objects.objects import Object
    from .._snapshots import Snapshot
    from .advice import Advice
    from .view import View

__all__ = ["Collection", "concat", "naming"]

NOWHERE = "False"
"""The condition that no object meets."""


class Collection(Summaries):
    """The objects of several containers, in their order.

    A field that some containers lack is missing in their objects; numbers of different widths get the wider
    type. A further field, `source`, has the name of the container of each object.

    A condition may use a field that some containers lack if its comparisons of `source` exclude these
    containers.
    """

    def __init__(self, views: Sequence[View], source: str = "source", _fields: Record | None = None) -> None:
        """Make one of views; see :func:`femtobarn.concat`."""
        self.views = list(views)
        """The containers, or parts of them."""
        self.source = source
        """Name of the field with the name of the container."""
        first = self.views[0]
        others = f" and {len(self.views) - 1} more" if len(self.views) > 1 else ""
        super().__init__(first.snapshot, first.name + others, first._handle)
        self._starts = [0, *itertools.accumulate(len(view._part(None, None)) for view in self.views)]
        self._window = range(self._starts[-1])
        self._joined = _fields or union([(view.name, view.definition.record) for view in self.views])
        if source in self._joined.by_name:
            raise InvalidError(f"{source!r} is a field of the objects; give another name as source=")

    @property
    def definition(self) -> Definition:
        """The fields of all objects."""
        first = self.views[0].definition
        return Definition(first.name, first.version, (*self._joined.fields, Field(self.source, String())))

    @property
    def snapshots(self) -> list[Snapshot]:
        """The snapshots of the containers."""
        return [view.snapshot for view in self.views]

    @property
    def container_names(self) -> list[str]:
        """Names of the containers."""
        return [view.name for view in self.views]

    @property
    def stored_fields(self) -> list[str]:
        """Names of the fields that are stored in the objects: all but :attr:`source`."""
        return list(self._joined.by_name)

    def __len__(self) -> int:
        return sum(map(len, self.views))

    def __iter__(self) -> Iterator[Object]:
        return itertools.chain.from_iterable(self.views)

    def __getitem__(self, index: Any) -> Any:
        """Return an object by its position, a field by its name, or a collection of some of the objects.

        Parameters
        ----------
        index
            As for a :class:`View`: a position or the name of a field; for a collection a slice, a mask with a
            truth value for each object, or positions, which may be negative.
        """
        if isinstance(index, str):
            return self._field(index)
        if is_number(index):
            return self._object(index)
        if isinstance(index, slice) and checked_slice(index, self.name).step in (None, 1):
            return self._sliced(index)
        return self._at(positions_of(index, len(self), self.name))

    def _at(self, positions: Positions) -> Collection:
        from .picked_collection import PickedCollection  # That module imports this one.

        return PickedCollection(self, positions)

    def _sliced(self, index: slice) -> Collection:
        wanted = range(len(self))[index]
        parts, before = [], 0
        for view in self.views:
            start, stop = wanted.start - before, wanted.stop - before
            parts.append(view[max(start, 0) : max(stop, 0)])
            before += len(view)
        return Collection(
            [part for part in parts if len(part)] or parts[:1], self.source, _fields=self._joined
        )

    def _object(self, index: int) -> Object:
        ends = list(itertools.accumulate(map(len, self.views)))
        try:
            position = range(ends[-1])[index]
        except IndexError:
            raise self._no_position(index) from None
        which = bisect.bisect_right(ends, position)
        found: Object = self.views[which][position - (ends[which - 1] if which else 0)]
        return found

    def _no_position(self, index: int) -> IndexError:
        return IndexError(f"position {index} is out of range: there are {len(self)} objects")

    def find(self, /, **values: Any) -> Object:
        """Return the first object with the given values of fields; see :meth:`View.find`.

        A value of :attr:`source` names a container. Containers without one of the fields do not match.

        Raises
        ------
        NotFoundError
            If no object has these values, or no container has such a field.

        Examples
        --------
        >>> import femtobarn as fb, tempfile
        >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
        >>> with fed.transaction() as txn:
        ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
        ...     for name in ("run1", "run2"):
        ...         numbers = txn.database(name, create=True).container("numbers", form, create=True)
        ...         oids = numbers.extend({"n": [1, 2]})
        >>> numbers = fed.collection("run*/numbers")
        >>> numbers.find(n=2).oid, numbers.find(n=2, source="run2/numbers").oid
        (Oid(1, 1, 1), Oid(2, 2, 1))
        """
        found = self._first(values)
        if found is None:
            shown = ", ".join(f"{name}={value!r}" for name, value in values.items())
            raise NotFoundError(f"no object of {self.name} has {shown}")
        return found

    def find_all(self, /, **values: Any) -> list[Object]:
        """Return all objects with the given values of fields, in order; see :meth:`find`."""
        return [
            view.object_at(entry) for _, view, wanted in self._wanted(values) for entry in view._found(wanted)
        ]

    def _first(self, values: dict[str, Any]) -> Object | None:
        for _, view, wanted in self._wanted(values):
            entry = view._first_found(wanted)
            if entry is not None:
                found: Object = view.object_at(entry)
                return found
        return None

    def _wanted(self, values: dict[str, Any]) -> Iterator[tuple[int, View, dict[str, Any]]]:
        """Yield containers that may have objects with values of fields: number, view, and values there."""
        for path in values:
            self.definition.resolve(path)
        wanted = {path: value for path, value in values.items() if path != self.source}
        for number, view in enumerate(self.views):
            is_meant = values.get(self.source, view.name) == view.name
            if is_meant and all(_has_field(view, path) for path in wanted):
                yield number, view, stored_values(wanted, view.definition)

    def __repr__(self) -> str:
        try:
            size = f"{len(self):,} objects"
        except ClosedError:
            size = "of a closed federation"
        return f"<Collection {self.name!r}: {size}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Collection, (self.views, self.source, self._joined)

    def explain(self, expressions: Expressions = None, where: Where = None) -> Explanation:
        """Explain the reads of :meth:`arrays` in all containers."""
        selection = Selection.of(where, self.definition)
        parts = [self._explained_in(view, self._known(expressions, view), selection) for view in self.views]
        entries, excluded = sum(part.entries for part in parts), sum(part.excluded for part in parts)
        shown = next((part for part in parts if part.excluded < part.entries), parts[0])
        return replace(shown, entries=entries, excluded=excluded)

    def _explained_in(self, view: View, names: list[str], selection: Selection | None) -> Explanation:
        where = None if selection is None else self._where_in(view, selection)
        if where != NOWHERE:
            with naming(view):
                return view.explain(names, where)
        explanation = view.explain(names)
        return replace(explanation, excluded=explanation.entries)

    def advise(self, *, bandwidth: str = "200 MB", sample: str = "1 MB") -> Advice:
        """Refuse: each container has a compression of its own.

        Raises
        ------
        UnsupportedError
            Always.
        """
        raise UnsupportedError("each container has a compression of its own; use views[0].advise")

    def fetch(self, entries: Any, expressions: Expressions = None, *, library: str = "ak") -> Any:
        """Refuse: each container counts its own entries. Use :meth:`arrays`, or ``collection[position]``.

        Raises
        ------
        UnsupportedError
            Always.
        """
        raise UnsupportedError("each container has entries of its own; use arrays, or views[0].fetch")

    def _known(self, expressions: Expressions, view: View) -> list[str]:
        record = Request.of(self.definition, expressions).projection.record
        return self._paths_in(view, self._without_source(record))

    def _without_source(self, record: Record) -> Record:
        fields = (field for field in record.fields if field.name != self.source)
        return Record(record.class_name, tuple(fields))

    def _paths_in(self, view: View, record: Record) -> list[str]:
        """Return the fields of a record that a container has, or else the records around them."""
        if record is view.definition.record or record.fields == view.definition.record.fields:
            return list(record.by_name)
        known = {*all_paths(view.definition)}
        found: dict[str, None] = {}
        for path in _leaves(record):
            if path in known or counted(path, view.definition) is not None:
                found[path] = None
                continue
            above = next((each for each in _above(path) if each in known), None)
            if above is not None:
                found[above] = None
        return list(found)

    def _selected_by(self, where: Where) -> Collection:
        selection = Selection.of(where, self.definition)
        if selection is None:
            return self
        parts = []
        for view in self.views:
            with naming(view):
                parts.append(view._selected_by(self._where_in(view, selection)))
        return Collection(parts, self.source, _fields=self._joined)

    def _array_of(self, projection: Projection, selection: Selection | None, part: range) -> ak.Array:
        kept = self._without_source(projection.record)
        arrays = []
        for number, view in enumerate(self.views):
            start = max(part.start, self._starts[number]) - self._starts[number]
            stop = min(part.stop, self._starts[number + 1]) - self._starts[number]
            if start < stop:
                arrays.append(self._array_in(view, view._part(start, stop), projection, kept, selection))
        if not arrays:
            view = self.views[0]
            arrays.append(self._array_in(view, view._part(0, 0), projection, kept, None))
        layout = ak.concatenate(arrays, highlevel=False) if len(arrays) > 1 else arrays[0].layout
        return ak.Array(layout, **self._settings())

    def _array_in(
        self, view: View, part: range, projection: Projection, kept: Record, selection: Selection | None
    ) -> ak.Array:
        """Return the fields of one container, with those that it lacks and the source."""
        chosen = None if selection is None else self._selection_in(view, selection)
        names = self._paths_in(view, kept)
        with naming(view):
            array = view._array_of(Projection.of(names, view.definition), chosen, part)
        layout = widened(array.layout, kept)
        contents = dict(zip(layout.fields, layout.contents, strict=True))
        if self.source in projection.record.by_name:
            contents[self.source] = _repeated(view.name, len(array))
        names = list(projection.record.by_name)
        ordered = [contents[name] for name in names]
        return ak.Array(
            ak.contents.RecordArray(ordered, names, length=len(array), parameters=layout.parameters)
        )

    def _selection_in(self, view: View, selection: Selection) -> Selection | None:
        with naming(view):
            return Selection.of(self._where_in(view, selection), view.definition)

    def _where_in(self, view: View, selection: Selection) -> Where:
        """Return the rest of a condition in one container, where the value of `source` is known."""
        if selection.function is None:
            left = with_known(selection.text, self.source, view.name)
            return left if isinstance(left, str) else None if left else NOWHERE
        function = selection.function.function

        @wraps(function)
        def with_source(array: ak.Array) -> Any:
            return function(ak.with_field(array, ak.Array(_repeated(view.name, len(array))), self.source))

        return with_source

    def _settings(self) -> dict[str, Any]:
        """Return the snapshot in which links are followed; none if there are several."""
        # Copies of a federation have its identity, and may have gone different ways.
        snapshots = {(id(snapshot.federation), snapshot.csn) for snapshot in self.snapshots}
        settings = self.snapshot.array_settings
        return settings if len(snapshots) == 1 else {"behavior": settings["behavior"]}


@contextlib.contextmanager
def naming(view: View) -> Iterator[None]:
    """Name the container in the errors of a condition."""
    try:
        yield
    except (InvalidError, NotFoundError) as error:
        raise type(error)(f"{view.name}: {error}") from error.__cause__


def _has_field(view: View, path: str) -> bool:
    try:
        view.definition.resolve(path)
    except NotFoundError:
        return False
    return True


def _leaves(record: Record) -> list[str]:
    """Return the paths of fields that have no fields in them."""
    paths = [path for path, _ in paths_of(record)]
    above = {path.rpartition(".")[0] for path in paths}
    return [path for path in paths if path not in above]


def _above(path: str) -> list[str]:
    """Return the paths of the records around a field, the innermost first."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1)]


def _repeated(text: str, count: int) -> Any:
    index: Values = np.zeros(count, np.int64)
    return ak.contents.IndexedArray(ak.index.Index64(index), ak.Array([text]).layout)


def concat(views: Sequence[View], *, source: str = "source") -> Collection:
    """Return the objects of several views, also of several federations, as if they were in one container.

    A field that some containers lack is missing in their objects.

    Parameters
    ----------
    source
        Name of a field with the name of the container of each object.

    Raises
    ------
    InvalidError
        If there is no view, or a field has types that cannot be merged.
    WrongTypeError
        If an argument is not a view.

    Examples
    --------
    >>> import femtobarn as fb, tempfile
    >>> fed = fb.create(tempfile.mkdtemp() + "/lhc.fed")
    >>> with fed.transaction() as txn:
    ...     form = {"name": "Number", "fields": [{"name": "n", "type": "int32"}]}
    ...     for name in ("run1", "run2"):
    ...         numbers = txn.database(name, create=True).container("numbers", form, create=True)
    ...         oids = numbers.extend({"n": [1, 2]})
    >>> numbers = fb.concat([fed["run1/numbers"], fed["run2/numbers"][1:]])
    >>> numbers.arrays().to_list()[1:]
    [{'n': 2, 'source': 'run1/numbers'}, {'n': 2, 'source': 'run2/numbers'}]
    """
    from .view import View  # That module is not needed to read a collection.

    is_list = isinstance(views, Iterable) and not isinstance(views, View | Collection)
    given: list[Any] = list(views) if is_list else [views]
    if not all(isinstance(view, View) for view in given):
        raise WrongTypeError("concat takes a list of views, such as [fed['run1/events'], fed['run2/events']]")
    if not isinstance(source, str) or not source or "." in source:
        raise InvalidError(f"{source!r} cannot be the name of a field; give another one as source=")
    if not given:
        raise InvalidError("a collection needs at least one container")
    return Collection(given, source)
