"""The operations of a federation that imports use, and the result of an import."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .._snapshots import Snapshot
    from .._transactions import Transaction

__all__ = ["ImportTarget", "Imported"]


class ImportTarget(Protocol):
    """A federation, as far as imports use it."""

    def snapshot(self) -> Snapshot:
        """Return the federation as of the newest commit."""

    def transaction(self, *, message: str = "") -> Transaction:
        """Begin a transaction."""

    def classes(self) -> list[dict[str, Any]]:
        """Return the registered class definitions."""

    def _attached_alone(self, file: Path) -> AbstractContextManager[Snapshot]:
        """Attach a ROOT file to a temporary federation in which there is nothing else."""


@dataclass(frozen=True)
class Imported:
    """A tree, RNTuple or table that was imported."""

    container: str
    """The container that its objects went to, as ``"database/container"``."""
    class_name: str
    """Name of their class."""
    entries: int
    """Number of objects."""
    skipped: dict[str, str]
    """Its branches, fields or columns that were left out, with the reason."""
    file: str = ""
    """The file that it is in."""
    tree: str = ""
    """Its name in the file."""
    left_out: dict[str, str] = field(default_factory=dict)
    """Everything else in the file that was not imported, with the reason."""
    links: dict[str, str] = field(default_factory=dict)
    """Its indices that became links, by dotted name, with the collections that they lead to."""
    unlinked: dict[str, str] = field(default_factory=dict)
    """Its indices that stayed numbers, with the reason."""
    lost: dict[str, int] = field(default_factory=dict)
    """How many links of each index lead nowhere, because the collection is shorter or is not in the tree."""
