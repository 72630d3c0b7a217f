"""Arrays of the fields of a view that are read when they are used: awkward's virtual arrays.

The form of such an array is that of all fields without entries. A part that is read later has nodes of the
same kinds in the same places, so a buffer of it is found by its place: the path of the field, and the
position among the nodes of that field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import awkward as ak

from .._query.paths import all_paths, whole_link
from .._query.projections import Projection
from .._schema.types import Definition, Primitive, Reduced

if TYPE_CHECKING:
    from .._data.casts import Values
    from .column_reader import ColumnReader

__all__ = ["lazy_array"]

Place: TypeAlias = tuple[str, int]
"""Path of a field, and the position of a node of its form."""


def lazy_array(view: ColumnReader, part: range, used: set[str]) -> ak.Array:
    """Return the objects of a part of a view, with fields that are read when they are used.

    Parameters
    ----------
    used
        Paths of fields that are used for sure, which are read at once; those that are read later are added.
    """
    empty = _array_of(Projection.of(None, view.definition), view, range(0))
    form, _, _ = ak.to_buffers(empty, form_key="node{id}")
    buffers = _Buffers(view, part, form, used)
    length = len(view._entries_within(part.start, part.stop))
    return ak.from_buffers(form, length, buffers, **view.snapshot.array_settings)


class _Buffers(Mapping[str, Callable[[], "Values"]]):
    """Functions that return the buffers of a form, by the names that awkward gives to buffers."""

    def __init__(self, view: ColumnReader, part: range, form: ak.forms.Form, used: set[str]) -> None:
        self._view, self._part, self._used = view, part, used
        self._places = _places_of(form, view.definition)
        self._read: dict[tuple[Place, str], Values] = {}
        if used:
            self._load(sorted(used))

    def __getitem__(self, name: str) -> Callable[[], Values]:
        key, _, kind = name.partition("-")
        return partial(self._buffer, self._places[key], kind)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)

    def _buffer(self, place: Place, kind: str) -> Values:
        if (place, kind) not in self._read:
            path = _smallest_field(place[0], self._view.definition)
            self._used.add(path)
            self._load([path])
        return self._read[place, kind]

    def _load(self, paths: list[str]) -> None:
        projection = Projection.of(paths, self._view.definition)
        form, _, buffers = ak.to_buffers(_array_of(projection, self._view, self._part), form_key="node{id}")
        places = _places_of(form, self._view.definition)
        for name, buffer in buffers.items():
            key, _, kind = name.partition("-")
            self._read[places[key], kind] = buffer


def _array_of(projection: Projection, view: ColumnReader, part: range) -> ak.Array:
    """Return fields of a part of a view; every option is an index, whatever values are missing."""
    array = view._awkward(projection, view.read_tree(projection.paths, part.start, part.stop))

    def indexed(layout: Any, **_: Any) -> Any:
        if not layout.is_option:
            return None
        index = layout.to_IndexedOptionArray64()
        return index.copy(content=ak.transform(indexed, index.content, highlevel=False))

    return ak.transform(indexed, array)


def _places_of(form: ak.forms.Form, definition: Definition) -> dict[str, Place]:
    """Return the place of each node of a form by its key."""
    counts: dict[str, int] = {}
    places: dict[str, Place] = {}
    for key, path in _nodes(form, ""):
        field = whole_link(path, definition) if path else path
        counts[field] = counts.get(field, -1) + 1
        places[key] = (field, counts[field])
    return places


def _nodes(form: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield the keys of the nodes of a form, with the paths of their fields."""
    yield form.form_key, path
    if form.is_record:
        for name, content in zip(form.fields, form.contents, strict=True):
            yield from _nodes(content, f"{path}.{name}" if path else name)
    elif form.is_union:
        for content in form.contents:
            yield from _nodes(content, path)
    elif hasattr(form, "content"):
        yield from _nodes(form.content, path)


def _smallest_field(path: str, definition: Definition) -> str:
    """Return the field to read for the lists at a path: a member with numbers if they are of records."""
    below = {name: node for name, node in all_paths(definition).items() if name.startswith(f"{path}.")}
    numbers = [name for name, node in below.items() if isinstance(node, Primitive | Reduced)]
    return whole_link([*numbers, *below, path][0], definition)
