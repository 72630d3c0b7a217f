"""Events of containers as a file in podio's layout; see :mod:`femtobarn._exchange.podio_files`."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._bars import ProgressOption
from .._exceptions import InvalidError, NotFoundError, near_misses, path_text
from .._exchange.exports import export_objects, format_of
from .._exchange.origins import CONTAINER as ORIGINS
from .._exchange.podio_files import METADATA, PodioMetadata
from .._query.paths import Expressions
from .._query.selection import Where
from .requests import Request

if TYPE_CHECKING:
    from .columns import Columns

__all__ = ["categories", "check_layout", "export_podio", "metadata_of"]

LAYOUTS = ("podio",)


def check_layout(
    layout: str, path: str | os.PathLike[str], format: str | None, aliases: Mapping[str, str] | None
) -> None:
    """Check the arguments of an export in a layout.

    Raises
    ------
    InvalidError
        If there is no such layout, or it cannot be that of the file.
    """
    if layout not in LAYOUTS:
        raise InvalidError(f"layout {layout!r} does not exist{near_misses(layout, LAYOUTS)}")
    if format_of(Path(path_text(path)), format) != "root":
        raise InvalidError("podio's layout is that of ROOT files; give the file the suffix .root")
    if aliases:
        raise InvalidError("podio's layout has only collections, and no computed columns; leave out aliases")


def categories(views: Mapping[str, Columns]) -> dict[str, tuple[Columns, range]]:
    """Return the containers with events, given by their paths, by their names: categories in podio's layout.

    Raises
    ------
    InvalidError
        If two containers have one name.
    """
    events: dict[str, tuple[Columns, range]] = {}
    for path, view in views.items():
        category = path.rpartition("/")[2]
        if category in events:
            raise InvalidError(f"{', '.join(views)}: a file of podio has one category of each name")
        if category not in (METADATA, ORIGINS):
            events[category] = view, view._window
    return events


def export_podio(
    events: Mapping[str, tuple[Columns, range]],
    path: str | os.PathLike[str],
    expressions: Expressions,
    where: Where,
    *,
    step_size: int | str = "64 MB",
    progress: ProgressOption = None,
) -> int:
    """Export events to a file in podio's layout, and return their number.

    Parameters
    ----------
    events
        By category, a container and the entries of it.
    path, expressions, where, step_size, progress
        As for :meth:`femtobarn.View.export`.
    """
    metadata = PodioMetadata.of(row for view, _ in events.values() for row in metadata_of(view))
    exported, layouts = {}, {}
    for category, (view, part) in events.items():
        layout = metadata.layout(category, view.definition, expressions, view.stored_fields)
        request = Request.of(view.definition, layout.paths, where)
        exported[category] = layout.exported(view._exported(request, part, step_size))
        layouts[category] = layout
    exported[METADATA] = metadata.exported(layouts)
    return export_objects(exported, path, format="root", progress=progress) - 1


def metadata_of(view: Columns) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the metadata of the files that the objects of a container came from.

    Raises
    ------
    NotFoundError
        If there is no container of such metadata.
    """
    for snapshot, name in zip(view.snapshots, view.container_names, strict=True):
        container = f"{name.partition('/')[0]}/{METADATA}"
        if container not in snapshot:
            raise NotFoundError(
                f"podio's layout needs the container {container}, which describes the collections of {name}; "
                "import it from the same file as the events, such as by import_trees"
            )
        yield from ((container, row) for row in snapshot[container].arrays().to_list())
