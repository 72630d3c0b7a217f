"""Data of any kind, appended to a container: objects one by one, arrays at once, views batch by batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from ._data.arrays import Tree, columns_of
from ._data.arrow import is_arrow_stream
from ._exceptions import InvalidError
from ._schema.types import Record, has_links, paths_of
from ._views.columns import Columns

__all__ = ["append_all"]


def append_all(
    data: Any,
    record: Record,
    federation_uuid: str,
    append: Callable[[Any], object],
    extend: Callable[[Tree], object],
) -> None:
    """Append data to a container.

    Parameters
    ----------
    data
        As for :meth:`ContainerWriter.extend`.
    record
        The class of the container's objects.
    federation_uuid
        The federation of the container, in which links lead to objects.
    append, extend
        Append one object, and columns of many.
    """
    if _are_objects(data):
        for item in data:
            append(item)
    elif isinstance(data, Columns):
        _check_links(data, record, federation_uuid)
        for batch in data.iterate(data.stored_fields):
            extend(columns_of(batch, record))
    else:
        extend(columns_of(data, record))


def _check_links(data: Columns, record: Record, federation_uuid: str) -> None:
    """Refuse links of another federation, which would lead to other objects here."""
    if any(snapshot.federation.uuid != federation_uuid for snapshot in data.snapshots):
        links = [path for path, node in paths_of(record) if has_links(node)]
        if links:
            raise InvalidError(
                f"field {links[0]!r} has links, which lead to objects of another federation; copy these "
                "first, or attach their databases"
            )


def _are_objects(data: Any) -> bool:
    if isinstance(data, Iterator):
        return not is_arrow_stream(data)
    return isinstance(data, list | tuple) and bool(data) and hasattr(type(data[0]), "__femtobarn__")
