"""A file of objects, opened for being imported: its class, and its objects in batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from .._schema.types import Definition

__all__ = ["FileSource"]


@dataclass(frozen=True)
class FileSource:
    """A table or an RNTuple that is open for reading."""

    name: str
    """Name of the container to import into, if the user gives none."""
    definition: Definition
    """The class of its objects."""
    entries: int
    """Number of objects."""
    tree: str
    """Name of the RNTuple in its file; empty for a table."""
    batches: Callable[[list[str]], Iterator[Any]]
    """Called with dotted names of fields; yields these fields of all objects, batch by batch."""
