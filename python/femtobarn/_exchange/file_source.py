"""A file of objects, opened for being imported: its class, and its objects in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from .._schema.types import Definition

__all__ = ["FileSource", "RunSource"]


@dataclass(frozen=True)
class RunSource:
    """Data that a file has once for all its events: one object, in a container of its own."""

    definition: Definition
    """Its class."""
    link: str
    """The field of the events that links to it; batches have zeros there."""
    value: Callable[[], dict[str, Any]]
    """Returns the object, when all events were read."""


@dataclass(frozen=True)
class FileSource:
    """A table, an RNTuple or a file of events that is open for reading."""

    name: str
    """Name of the container to import into, if the user gives none."""
    definition: Definition
    """The class of its objects."""
    total: int
    """Number of objects, or of bytes if `position` is given."""
    tree: str
    """Name of the RNTuple or of the dataset in its file; empty for other tables."""
    batches: Callable[[list[str]], Iterator[Any]]
    """Called with dotted names of fields; yields these fields of all objects, batch by batch."""
    position: Callable[[], int] | None = None
    """Bytes read so far of a file that does not say how many objects it has: its progress is in bytes."""
    run: RunSource | None = None
    """Data that the file has once for all its events."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Columns that are left out, with the reason."""
