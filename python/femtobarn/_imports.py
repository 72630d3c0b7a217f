"""Importing a tree into a container: one file, one transaction."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._exceptions import check_progress
from ._types import Definition

if TYPE_CHECKING:
    from ._federations import Federation

__all__ = ["Imported", "import_tree"]


@dataclass(frozen=True)
class Imported:
    """A tree that was imported."""

    container: str
    """Where its objects are, as ``"database/container"``."""
    class_name: str
    """Name of their class."""
    entries: int
    """Number of objects."""
    skipped: dict[str, str]
    """Branches that were left out, with the reason."""


def import_tree(
    federation: Federation,
    path: str | os.PathLike[str],
    tree: str | None = None,
    *,
    database: str | None = None,
    container: str | None = None,
    only: list[str] | None = None,
    batch_bytes: int = 32_000_000,
    progress: Callable[[int, int], None] | None = None,
) -> Imported:
    """Copy a tree into a new container; see :meth:`femtobarn.Federation.import_tree`."""
    from .importers import open_tree

    check_progress(progress, "done, total")
    source = open_tree(path, tree, only=only)
    definition = numbered(Definition.from_json(source.definition), federation.classes())
    place = database or Path(os.fspath(path)).stem
    name = container or definition.name
    with federation.transaction(message=f"import {os.fspath(path)}") as txn:
        writer = txn.database(place, create=True).container(name, definition, create=True)
        before = len(writer)
        for batch in source.batches(size=batch_bytes):
            oids = writer.extend(batch)
            if progress is not None:
                progress(oids.stop - before, source.entries)
    skipped = {item.branch: item.reason for item in source.skipped}
    return Imported(f"{place}/{name}", definition.name, source.entries, skipped)


def numbered(definition: Definition, classes: list[dict[str, Any]]) -> Definition:
    """Return a class with the version under which its fields are registered, or else the next one."""
    versions = {
        known.version: known.fields
        for known in map(Definition.from_json, classes)
        if known.name == definition.name
    }
    same = [version for version, fields in versions.items() if fields == definition.fields]
    return replace(definition, version=max(same) if same else max(versions, default=0) + 1)
