"""Collections of the objects that a mask, positions or an order pick from a collection."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from .._data.casts import Values
from .._positions import Positions, checked_slice
from .._query.projections import Projection
from .._query.selection import Selection, Where
from .collection import Collection, naming

if TYPE_CHECKING:
    from .._lazy import ak
    from .._objects.objects import Object
    from .explanations import Explanation

__all__ = ["PickedCollection"]


class PickedCollection(Collection):
    """Objects of a collection in the order of the positions that picked them; one may occur several times."""

    def __init__(self, whole: Collection, positions: Positions) -> None:
        super().__init__(whole.views, whole.source, _fields=whole._joined)
        self._picked = positions
        self._window = range(len(positions))

    def __len__(self) -> int:
        return len(self._picked)

    def __iter__(self) -> Iterator[Object]:
        return map(self._object, range(len(self)))

    def __reduce__(self) -> tuple[Any, ...]:
        return PickedCollection, (self._as_collection(), self._picked)

    def explain(self, expressions: Any = None, where: Where = None) -> Explanation:
        """Return the reads that :meth:`arrays` would make of all containers."""
        return self._by_container(self._picked)[0].explain(expressions, where)

    def find_all(self, /, **values: Any) -> list[Object]:
        """Return all objects with the given values of fields, in order; see :meth:`Collection.find`."""
        found = {number: view._found(wanted) for number, view, wanted in self._wanted(values)}

        def have_values(number: int, entries: Values) -> Values:
            return np.isin(entries, np.array(found.get(number, []), np.uint64))

        return [
            self._object(place) for place in np.flatnonzero(self._mask(self._picked, have_values)).tolist()
        ]

    def _first(self, values: dict[str, Any]) -> Object | None:
        return next(iter(self.find_all(**values)), None)

    def _as_collection(self) -> Collection:
        return Collection(self.views, self.source, _fields=self._joined)

    def _object(self, index: int) -> Object:
        try:
            position = int(self._picked[index])
        except IndexError:
            raise self._no_position(index) from None
        return super()._object(position)

    def _sliced(self, index: slice) -> Collection:
        return PickedCollection(self._as_collection(), self._picked[index])

    def _at(self, positions: Positions) -> Collection:
        return PickedCollection(self._as_collection(), self._picked[positions])

    def _part(self, entry_start: int | None, entry_stop: int | None) -> range:
        return range(len(self))[checked_slice(slice(entry_start, entry_stop), self.name)]

    def _selected_by(self, where: Where) -> Collection:
        selection = Selection.of(where, self.definition)
        if selection is None:
            return self
        return PickedCollection(self._as_collection(), self._meeting(self._picked, selection))

    def _array_of(self, projection: Projection, selection: Selection | None, part: range) -> ak.Array:
        positions = self._picked[part.start : part.stop]
        if selection is not None:
            positions = self._meeting(positions, selection)
        parts, order = self._by_container(positions)
        array = parts._array_of(projection, None, parts._part(None, None))
        return array if (np.diff(order) == 1).all() else array[np.argsort(order)]

    def _meeting(self, positions: Positions, selection: Selection) -> Positions:
        """Return those of some positions whose objects meet a condition."""

        def meet_it(number: int, entries: Values) -> Values:
            view = self.views[number]
            chosen = self._selection_in(view, selection)
            with naming(view):
                return np.isin(entries, view._selected(entries, chosen))

        return positions[self._mask(positions, meet_it)]

    def _by_container(self, positions: Positions) -> tuple[Collection, Positions]:
        """Return the objects at some positions in the order of containers, and places in the other order."""
        parts, order = [], [np.empty(0, np.int64)]
        for number, chosen, local in self._divided(positions):
            parts.append(self.views[number]._at(local))
            order.append(chosen)
        views = parts or [self.views[0]._at(positions)]
        return Collection(views, self.source, _fields=self._joined), np.concatenate(order)

    def _mask(self, positions: Positions, test: Callable[[int, Values], Values]) -> Values:
        """Return the truth of a test for each position; it takes the number of a view and entries in it."""
        mask = np.zeros(len(positions), bool)
        for number, chosen, local in self._divided(positions):
            mask[chosen] = test(number, self.views[number]._entries_at(local))
        return mask

    def _divided(self, positions: Positions) -> Iterator[tuple[int, Positions, Positions]]:
        """Yield the number of each view with some of the positions, which these are, and positions in it."""
        ends = np.cumsum([len(view) for view in self.views])
        numbers = np.searchsorted(ends, positions, side="right")
        for number in np.unique(numbers).tolist():
            chosen = np.flatnonzero(numbers == number)
            yield number, chosen, positions[chosen] - (ends[number] - len(self.views[number]))
