"""Views of the objects that a mask or positions pick."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from .._data.casts import Values
from .._exceptions import UnsupportedError
from .._oid import OidArray
from .._positions import Positions, checked_slice
from .._query.paths import Expressions
from .._query.projections import Projection
from .._query.selection import Selection, Where
from .view import T, View

if TYPE_CHECKING:
    from .._lazy import ak
    from .partitions import Partition

__all__ = ["PickedView"]


class PickedView(View[T]):
    """Objects of a view in the order of the positions that picked them; an object may occur several times.

    Positions, slices, ``entry_start`` and ``entry_stop`` count the picked objects. A condition is evaluated
    for every entry between the first and the last picked one of the range.
    """

    def __init__(self, view: View[T], entries: Values) -> None:
        window = range(int(entries.min()), int(entries.max()) + 1) if len(entries) else range(0)
        super().__init__(view.snapshot, view.name, view._handle, window)
        self._recast_to = view._recast_to
        self._whole: View[T] = view._whole if isinstance(view, PickedView) else view
        self._picked = entries

    def __len__(self) -> int:
        return len(self._picked)

    def __iter__(self) -> Iterator[T]:
        return map(self.object_at, self._picked.tolist())

    def __reduce__(self) -> tuple[Any, ...]:
        return PickedView, (self._between(), self._picked)

    @property
    def oids(self) -> OidArray:  # type: ignore[override]
        """OIDs of the objects, in their order."""
        return OidArray(self._handle.database, self._handle.container, self._picked.copy())

    def entries(self, where: Where = None) -> Values:
        """Return the entries in the container of all objects, or of those that meet a condition."""
        selection = Selection.of(where, self.definition)
        return self._picked.copy() if selection is None else self._selected(self._picked, selection)

    def partitions(self, size: int | str = "100 MB", columns: Expressions = None) -> list[Partition]:
        """Refuse: picked objects are not ranges. Divide the whole view, and pick in each partition.

        Raises
        ------
        UnsupportedError
            Always.
        """
        raise UnsupportedError(
            "picked objects are not ranges of entries; divide the whole view, and pick in each partition"
        )

    def as_class(self, version: Any) -> View:
        """Return a view of the same objects as objects of another version of their class."""
        return PickedView(self._between().as_class(version), self._picked)

    def _between(self) -> View[T]:
        """Return a view of all entries from the first to the last of the picked ones."""
        return self._whole._within(self._window)

    def _object_class(self) -> type[Any]:
        return self._whole._object_class()

    def _entry(self, index: int) -> int:
        try:
            return int(self._picked[index])
        except IndexError:
            raise self._no_position(index) from None

    def _sliced(self, index: slice) -> View[T]:
        return PickedView(self, self._picked[index])

    def _entries_at(self, positions: Positions) -> Values:
        return self._picked[positions]

    def _part(self, entry_start: int | None, entry_stop: int | None) -> range:
        return range(len(self))[checked_slice(slice(entry_start, entry_stop), self.name)]

    def _array_of(self, projection: Projection, selection: Selection | None, part: range) -> ak.Array:
        entries = self._picked[part.start : part.stop]
        if selection is not None:
            entries = self._selected(entries, selection)
        if (entries[1:] > entries[:-1]).all():
            return self._read_entries(projection, entries)
        return self._awkward(projection, self._handle.fetch(entries.tobytes(), projection.paths))

    def _first_found(self, values: dict[str, Any]) -> int | None:
        return next(iter(self._found(values)), None)

    def _found(self, values: dict[str, Any]) -> list[int]:
        found = set(super()._found(values))
        return [entry for entry in self._picked.tolist() if entry in found]
