"""The objects of several containers, one after the other, read as if they were in one."""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.casts import Values
from .._exceptions import InvalidError, NotFoundError
from .._lazy import ak
from .._positions import is_number
from .._query.paths import Expressions
from .._query.projections import Projection
from .._query.selection import Selection, Where
from .._schema.types import Definition, Field, Record, String, paths_of
from .._schema.unions import fitted, union
from .explanations import Explanation
from .summaries import Summaries

if TYPE_CHECKING:
    from .._objects.objects import Object
    from .view import View

__all__ = ["Collection"]


class Collection(Summaries):
    """The objects of several containers, in their order.

    Fields that some containers lack are missing in the objects of these; numbers of different widths get the
    wider type. A further field, :attr:`source`, has the name of the container of each object.
    """

    def __init__(self, views: Sequence[View], source: str = "source") -> None:
        """Make one of views; see :func:`femtobarn.concat`."""
        if not views:
            raise InvalidError("a collection needs at least one container")
        self.views = list(views)
        """The containers, or parts of them."""
        self.source = source
        """Name of the field with the name of the container."""
        first = self.views[0]
        super().__init__(first.snapshot, f"{first.name} and {len(self.views) - 1} others", first._handle)
        self._starts = [0, *itertools.accumulate(len(view._part(None, None)) for view in self.views)]
        self._window = range(self._starts[-1])
        self._joined = union([(view.name, view.definition.record) for view in self.views])
        if source in self._joined.by_name:
            raise InvalidError(f"{source!r} is a field of the objects; give another name as source=")

    @property
    def definition(self) -> Definition:
        """The fields of all objects."""
        first = self.views[0].definition
        return Definition(first.name, first.version, (*self._joined.fields, Field(self.source, String())))

    def __len__(self) -> int:
        return sum(map(len, self.views))

    def __iter__(self) -> Iterator[Object]:
        return itertools.chain.from_iterable(self.views)

    def __getitem__(self, index: Any) -> Any:
        """Return an object by its position, a field by its name, or a collection of a slice without steps."""
        if isinstance(index, str):
            array = self.arrays(index)
            for name in index.split("."):
                array = array[name]
            return array
        if is_number(index):
            return self._object(index)
        if not isinstance(index, slice) or index.step not in (None, 1):
            raise InvalidError("a collection is indexed by a position, a name or a slice without steps")
        wanted = range(len(self))[index]
        parts, before = [], 0
        for view in self.views:
            start, stop = wanted.start - before, wanted.stop - before
            parts.append(view[max(start, 0) : max(stop, 0)])
            before += len(view)
        return Collection([part for part in parts if len(part)] or parts[:1], self.source)

    def _object(self, index: int) -> Object:
        ends = list(itertools.accumulate(map(len, self.views)))
        try:
            position = range(ends[-1])[index]
        except IndexError:
            raise IndexError(f"position {index} is out of range: there are {ends[-1]} objects") from None
        which = bisect.bisect_right(ends, position)
        return self.views[which][position - (ends[which - 1] if which else 0)]

    def __repr__(self) -> str:
        first = self.views[0].name
        return f"<Collection of {len(self.views)} containers, {first!r} first: {len(self):,} objects>"

    def __reduce__(self) -> tuple[Any, ...]:
        return Collection, (self.views, self.source)

    def explain(self, expressions: Expressions = None, where: Where = None) -> Explanation:
        """Tell what :meth:`arrays` would read of all containers."""
        parts = [view.explain(self._known(expressions, view), where) for view in self.views]
        excluded = sum(part.excluded for part in parts)
        return Explanation(len(self._window), excluded, parts[0].condition, parts[0].terms, parts[0].fields)

    def _known(self, expressions: Expressions, view: View) -> list[str]:
        record = Projection.of(expressions, self.definition).record
        return [path for path in _leaves(record) if path != self.source and _has(view.definition, path)]

    def _array_of(self, projection: Projection, selection: Selection | None, part: range) -> ak.Array:
        kept = Record(
            projection.record.class_name,
            tuple(field for field in projection.record.fields if field.name != self.source),
        )
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
        names = [path for path in _leaves(kept) if _has(view.definition, path)]
        chosen = None if selection is None else self._selection_in(view, selection)
        array = view._array_of(Projection.of(names, view.definition), chosen, part)
        layout = fitted(array.layout, kept)
        contents = {name: layout.content(name) for name in layout.fields}
        if self.source in projection.record.by_name:
            contents[self.source] = _repeated(view.name, len(array))
        ordered = [contents[name] for name in projection.record.by_name]
        return ak.Array(
            ak.contents.RecordArray(
                ordered, list(projection.record.by_name), length=len(array), parameters=layout.parameters
            )
        )

    def _selection_in(self, view: View, selection: Selection) -> Selection | None:
        function = selection.function
        try:
            return Selection.of(selection.text if function is None else function.function, view.definition)
        except NotFoundError as error:
            raise NotFoundError(f"{view.name}: {error}") from None

    def _settings(self) -> dict[str, Any]:
        """Return the snapshot in which links are followed; none if there are several."""
        snapshots = {view.snapshot for view in self.views}
        settings = self.snapshot.array_settings
        return settings if len(snapshots) == 1 else {"behavior": settings["behavior"]}


def _leaves(record: Record) -> list[str]:
    """Return the paths of fields that have no fields in them."""
    paths = [path for path, _ in paths_of(record)]
    above = {path.rpartition(".")[0] for path in paths}
    return [path for path in paths if path not in above]


def _has(definition: Definition, path: str) -> bool:
    try:
        Projection.of(path, definition)
    except NotFoundError:
        return False
    return True


def _repeated(text: str, count: int) -> Any:
    index: Values = np.zeros(count, np.int64)
    return ak.contents.IndexedArray(ak.index.Index64(index), ak.Array([text]).layout)
