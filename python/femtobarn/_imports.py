"""Importing trees into containers: any number of files, one transaction."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from ._batches import read_batches
from ._exceptions import InvalidError, NotFoundError, check_progress
from ._origins import Origin, identity_of, refuse_known, remember
from ._types import Definition, Record
from ._unions import required, union

if TYPE_CHECKING:
    from ._federations import Federation
    from ._snapshots import Snapshot
    from ._transactions import ContainerWriter, Transaction
    from .importers import TreeSource

__all__ = ["Files", "Imported", "expanded", "import_trees", "main_tree", "numbered", "split_place"]

Files = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]
"""A file or several, each also as a pattern, and as ``FILE:TREE``."""

OPEN_FILES_MAX = 8
"""Files that stay open from looking at them to reading them; one with thousands of branches takes 10 MB."""


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


@dataclass(frozen=True)
class Wish:
    """What is to become of files; see :meth:`femtobarn.Federation.import_trees`."""

    trees: Sequence[str] | None = None
    database: str | None = None
    container: str | None = None
    class_name: str | None = None
    only: list[str] | None = None
    grouping: bool = True
    again: bool = False
    jobs: int = 1
    batch_bytes: int = 64_000_000


class _Target(NamedTuple):
    """A container to import into."""

    database: str
    container: str

    def __str__(self) -> str:
        return f"{self.database}/{self.container}"


@dataclass(frozen=True)
class _Part:
    """A tree that is to be imported, and where to."""

    file: str
    identity: str
    source: TreeSource
    target: _Target
    left_out: dict[str, str]

    @property
    def origin(self) -> Origin:
        return Origin(self.file, self.identity, self.source.tree)


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
    parts = _parts(places, wish, federation.snapshot())
    named = f"{len(places)} files" if len(places) > 1 else places[0][0]
    origins = [] if wish.again else [part.origin for part in parts]
    refuse_known(federation.snapshot(), origins)
    with federation.transaction(message=f"import {named}") as txn:
        snapshot = federation.snapshot()
        definitions = _definitions(parts, snapshot, wish, federation.classes())
        writers = _writers(txn, definitions, snapshot)
        # Once more, now that the containers are locked: another process may have imported the same file.
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
    from .importers.files import USUAL_NAMES

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


def numbered(definition: Definition, classes: list[dict[str, Any]]) -> Definition:
    """Return a class with the version under which its fields are registered, or else the next one."""
    versions = _versions(definition.name, classes)
    same = [version for version, fields in versions.items() if fields == definition.fields]
    return replace(definition, version=max(same) if same else max(versions, default=0) + 1)


def _versions(name: str, classes: list[dict[str, Any]]) -> dict[int, Any]:
    known = map(Definition.from_json, classes)
    return {each.version: each.fields for each in known if each.name == name}


def _parts(places: Sequence[tuple[str, str | None]], wish: Wish, snapshot: Snapshot) -> list[_Part]:
    """Look at all files, and decide which tree goes where."""
    stays_open = wish.jobs == 1 and len(places) <= OPEN_FILES_MAX
    stems = _stems([path for path, _ in places], wish)
    parts: list[_Part] = []
    for path, tree in places:
        parts += _parts_of(path, [tree] if tree is not None else wish.trees, stems[path], wish)
        if not stays_open:
            for part in parts:
                part.source.close()
    return [_regrouped(part, _records_of(part.target, parts, snapshot), wish) for part in parts]


def _stems(paths: list[str], wish: Wish) -> dict[str, str]:
    """The database of each file; no two that are called the same may meet in one unawares."""
    if wish.database is not None:
        return dict.fromkeys(paths, wish.database)
    stems: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        stem = Path(path).stem
        if stem in stems and "{tree}" not in (wish.container or ""):
            raise InvalidError(f"{stems[stem]} and {path} would go into one database {stem!r}; name it")
        stems[stem] = path
    return {path: Path(path).stem for path in paths}


def _parts_of(path: str, trees: Sequence[str] | None, database: str, wish: Wish) -> list[_Part]:
    from .importers import open_trees

    sources, left_out, uuid = open_trees(path, trees, only=wish.only, grouping=wish.grouping)
    identity = identity_of(path, uuid)
    names = [source.tree for source in sources]
    for what, name in (("container", wish.container), ("class", wish.class_name)):
        if name is not None and len(sources) > 1 and "{tree}" not in name:
            raise InvalidError(
                f"{path} has several trees ({', '.join(names)}), which {what} {name!r} cannot hold; name "
                f"one, or write {{tree}} into the name: '{name}_{{tree}}'"
            )
    return [
        _Part(path, identity, source, _Target(database, _named(wish.container, source)), left_out)
        for source in sources
    ]


def _named(pattern: str | None, source: TreeSource) -> str:
    name = source.definition["name"]
    return name if pattern is None else pattern.replace("{tree}", name)


def _records_of(target: _Target, parts: list[_Part], snapshot: Snapshot) -> set[str]:
    """Names of the records in what is in a container and in all that goes into it."""
    records = [_record(part.source) for part in parts if part.target == target]
    if str(target) in snapshot:
        records.append(snapshot[str(target)].definition.record)
    fields = (field for record in records for field in record.fields)
    return {field.name for field in fields if isinstance(required(field.type), Record)}


def _regrouped(part: _Part, records: set[str], wish: Wish) -> _Part:
    """Group flat branches as they are in others that go into the same container."""
    from .importers import open_trees

    names = {each["name"] for each in part.source.definition["fields"]}
    apart = {name for name in records - names if any(each.startswith(f"{name}_") for each in names)}
    if not wish.grouping or not apart:
        return part
    [source], _, _ = open_trees(part.file, [part.source.tree], only=wish.only, records=apart)
    return replace(part, source=source)


def _definitions(
    parts: list[_Part], snapshot: Snapshot, wish: Wish, classes: list[dict[str, Any]]
) -> dict[_Target, Definition]:
    """The class of each container: what it has and what is in any tree that goes into it."""
    made: dict[_Target, Definition] = {}
    for target in dict.fromkeys(part.target for part in parts):
        sources = [part for part in parts if part.target == target]
        there = snapshot[str(target)].definition if str(target) in snapshot else None
        classes_there = [(f"container {target}", there.record)] if there is not None else []
        read = [(f"{part.file}:{part.source.tree}", _record(part.source)) for part in sources]
        fields = union(classes_there + read).fields
        name = _named(wish.class_name, sources[0].source)
        if there is None:
            made[target] = numbered(Definition(name, 1, fields), classes)
        elif wish.class_name is not None and name != there.name:
            raise InvalidError(f"container {target} has objects of class {there.name}, not {name}")
        elif there.fields == fields:
            made[target] = there
        else:
            made[target] = Definition(there.name, max(_versions(there.name, classes)) + 1, fields)
        classes = [*classes, made[target].to_json()]
    return made


def _record(source: TreeSource) -> Record:
    return Definition.from_json(source.definition).record


def _writers(
    txn: Transaction, definitions: dict[_Target, Definition], snapshot: Snapshot
) -> dict[_Target, ContainerWriter]:
    return {
        target: txn.database(target.database, create=True).container(
            target.container, definition, create=True, evolve=str(target) in snapshot
        )
        for target, definition in definitions.items()
    }


def _copy(
    parts: list[_Part],
    writers: dict[_Target, ContainerWriter],
    definitions: dict[_Target, Definition],
    txn: Transaction,
    wish: Wish,
    progress: Callable[[int, int], None] | None,
) -> None:
    """Append all objects, and remember where they came from."""
    total, done = sum(part.source.entries for part in parts), 0
    firsts: dict[int, int] = {}
    batches = read_batches(
        [part.source for part in parts],
        [definitions[part.target].record for part in parts],
        batch_bytes=wish.batch_bytes,
        jobs=wish.jobs,
    )
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
