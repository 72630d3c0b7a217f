"""Importing trees into containers: any number of files, one transaction."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from .._exceptions import InvalidError, NotFoundError, check_progress
from .._schema.types import Definition
from .batches import read_batches
from .import_plan import Part, Target, Wish, definitions_of, parts_of
from .origins import prepare, refuse_known, remember

if TYPE_CHECKING:
    from .._federations import Federation
    from .._snapshots import Snapshot
    from .._transactions import ContainerWriter, Transaction

__all__ = ["Files", "Imported", "expanded", "import_trees", "main_tree", "split_place"]

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A file or several, each also as a pattern, and as ``FILE:TREE``."""


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
    file: str = ""
    """The file it is in."""
    tree: str = ""
    """Its name in the file."""
    left_out: dict[str, str] = field(default_factory=dict)
    """What else is in the file and was not imported, with the reason."""


def import_trees(
    federation: Federation,
    places: Sequence[tuple[str, str | None]],
    wish: Wish,
    progress: Callable[[int, int], None] | None = None,
) -> list[Imported]:
    """Copy trees of files into containers; see :meth:`femtobarn.Federation.import_trees`."""
    check_progress(progress, "done, total")
    if wish.jobs < 1:
        raise InvalidError(f"{wish.jobs} jobs cannot read anything; give 1 or more")
    parts = parts_of(places, wish, federation.snapshot())
    named = f"{len(places)} files" if len(places) > 1 else places[0][0]
    origins = [] if wish.again else [part.origin for part in parts]
    refuse_known(federation.snapshot(), origins)
    prepare(federation, {part.target.database for part in parts})
    with federation.transaction(message=f"import {named}") as txn:
        snapshot = federation.snapshot()
        definitions = definitions_of(parts, snapshot, wish, federation.classes())
        writers = _writers(txn, definitions, snapshot)
        # Once more, now that containers that were there are locked: who held them may have imported the same.
        refuse_known(federation.snapshot(), origins)
        _copy(parts, writers, definitions, txn, wish, progress)
    return [
        Imported(
            str(part.target),
            definitions[part.target].name,
            part.source.entries,
            {item.branch: item.reason for item in part.source.skipped},
            part.file,
            part.source.tree,
            part.left_out,
        )
        for part in parts
    ]


def main_tree(done: list[Imported]) -> Imported:
    """Return the tree of a file that is most likely meant: one of a usual name, or the largest."""
    from ..importers.files import USUAL_NAMES

    usual = [each for name in USUAL_NAMES for each in done if each.tree == name]
    return usual[0] if usual else max(done, key=lambda each: each.entries)


def expanded(files: Files) -> list[tuple[str, str | None]]:
    """Return files and the trees asked for, with patterns replaced by what matches them, each once.

    Raises
    ------
    NotFoundError
        If a pattern matches nothing.
    """
    given = [files] if isinstance(files, str | os.PathLike) else list(files)
    found: dict[tuple[str, str | None], None] = {}
    for each in [os.fspath(file) for file in given]:
        path, tree = (each, None) if Path(each).exists() else split_place(each)
        is_pattern = "://" not in path and glob.has_magic(path) and not Path(path).exists()
        # A pattern may be absolute, which those of pathlib may not.
        matches = sorted(glob.glob(path, recursive=True)) if is_pattern else [path]  # noqa: PTH207
        if not matches:
            raise NotFoundError(f"no file matches {path!r}")
        found |= dict.fromkeys((match, tree) for match in matches)
    if not found:
        raise InvalidError("no file to import was given")
    return list(found)


def split_place(text: str) -> tuple[str, str | None]:
    """Split ``file.root:tree`` as uproot does; a URL has a colon of its own."""
    path, colon, tree = text.rpartition(":")
    if not colon or tree.startswith("//") or "/" in tree or not path:
        return text, None
    return path, tree


def _writers(
    txn: Transaction, definitions: dict[Target, Definition], snapshot: Snapshot
) -> dict[Target, ContainerWriter]:
    return {
        target: txn.database(target.database, create=True).container(
            target.container, definition, create=True, evolve=str(target) in snapshot
        )
        for target, definition in definitions.items()
    }


def _copy(
    parts: list[Part],
    writers: dict[Target, ContainerWriter],
    definitions: dict[Target, Definition],
    txn: Transaction,
    wish: Wish,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Append all objects, and remember where they came from."""
    total, done = sum(part.source.entries for part in parts), 0
    firsts: dict[int, int] = {}
    sources = [part.source for part in parts]
    records = [definitions[part.target].record for part in parts]
    with closing(read_batches(sources, records, batch_bytes=wish.batch_bytes, jobs=wish.jobs)) as batches:
        for number, columns in batches:
            writer = writers[parts[number].target]
            before = len(writer)
            firsts.setdefault(number, before)
            writer.extend_columns(columns)
            done += len(writer) - before
            if progress is not None:
                progress(done, total)
    for number, part in enumerate(parts):
        writer = writers[part.target]
        first = firsts.get(number, len(writer))
        remember(txn, part.target.database, part.origin, writer, first, part.source.entries)
