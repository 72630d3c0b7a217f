"""What an import does before it copies anything: which tree goes into which container, and of what class.

Trees that go into one container become one class: that of the container, or the next version of it, with all
fields that any of them has.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from .._exceptions import InvalidError
from .._schema.types import Definition, Field, Record, plain_name
from .._schema.unions import required, union
from .origins import CONTAINER, ORIGIN, Origin, identity_of

if TYPE_CHECKING:
    from .._snapshots import Snapshot
    from ..importers import TreeSource

__all__ = ["Classes", "Part", "Target", "Wish", "definitions_of", "parts_of"]

OPEN_FILES_MAX = 8
"""Files that stay open from looking at them to reading them."""


@dataclass(frozen=True)
class Wish:
    """Options of an import; see :meth:`femtobarn.Federation.import_trees`."""

    trees: Sequence[str] | None = None
    database: str | None = None
    container: str | None = None
    class_name: str | None = None
    only: list[str] | None = None
    grouping: bool = True
    again: bool = False
    jobs: int = 1
    batch_bytes: int = 64_000_000


class Target(NamedTuple):
    """A container to import into."""

    database: str
    container: str

    def __str__(self) -> str:
        return f"{self.database}/{self.container}"


@dataclass(frozen=True)
class Part:
    """A tree that is to be imported, and where to."""

    file: str
    identity: str
    source: TreeSource
    target: Target
    left_out: dict[str, str]

    @property
    def origin(self) -> Origin:
        return Origin(self.file, self.identity, self.source.tree)

    @cached_property
    def record(self) -> Record:
        return Definition.from_json(self.source.definition).record


class Classes:
    """The classes of a federation, and those that an import adds."""

    def __init__(self, known: Iterable[dict[str, Any]]) -> None:
        self._known = [Definition.from_json(each) for each in known]

    def named(self, name: str, fields: tuple[Field, ...], database: str) -> Definition:
        """Return the class of this plain name and these fields, or a new one, named as in docs/format.md."""
        namesakes = [each for each in self._known if plain_name(each.name) == plain_name(name)]
        same = [each for each in namesakes if each.fields == fields]
        if same:
            return max(same, key=lambda each: (each.name == name, each.version))
        taken = {each.name for each in namesakes}
        with_origin = f"{plain_name(name)}@{database}"
        names = chain([name, with_origin], (f"{with_origin}-{number}" for number in count(2)))
        return self._added(Definition(next(each for each in names if each not in taken), 1, fields))

    def evolved(self, there: Definition, fields: tuple[Field, ...]) -> Definition:
        """Return a later version of a class, with these fields: one that is registered, or the next."""
        versions = {each.version: each.fields for each in self._known if each.name == there.name}
        same = [version for version in versions if version > there.version and versions[version] == fields]
        if same:
            return Definition(there.name, min(same), fields)
        return self._added(Definition(there.name, max(versions, default=there.version) + 1, fields))

    def _added(self, definition: Definition) -> Definition:
        self._known.append(definition)
        return definition


def parts_of(places: Sequence[tuple[str, str | None]], wish: Wish, snapshot: Snapshot) -> list[Part]:
    """Look at all files, and decide which tree goes where."""
    from ..importers import require_matches

    stays_open = wish.jobs == 1 and len(places) <= OPEN_FILES_MAX
    stems = _stems([path for path, _ in places], wish)
    parts: list[Part] = []
    names: set[str] = set()
    for path, tree in places:
        found, branches = _parts_of(path, [tree] if tree is not None else wish.trees, stems[path], wish)
        parts += found
        names |= branches
        for part in [] if stays_open else found:
            part.source.close()
    require_matches(names, wish.only or [])
    _check_targets({part.target for part in parts}, snapshot)
    targets = dict.fromkeys(part.target for part in parts)
    records = {target: _records_of(target, parts, snapshot) for target in targets}
    return [_regrouped(part, records[part.target], wish, stays_open=stays_open) for part in parts]


def _check_targets(targets: set[Target], snapshot: Snapshot) -> None:
    """Refuse to import into the container of origins, or beside another one of that name."""
    for target in targets:
        if target.container == CONTAINER:
            raise InvalidError(
                f"{target} is where the database keeps which files its objects came from; give container="
            )
        kept = f"{target.database}/{CONTAINER}"
        if kept in snapshot and snapshot[kept].definition.name != ORIGIN.name:
            raise InvalidError(
                f"container {kept} has objects of class {snapshot[kept].definition.name}, but imports keep "
                "there which files they came from; rename it, or give another database="
            )


def _stems(paths: list[str], wish: Wish) -> dict[str, str]:
    """The database of each file; no two that are called the same may meet in one unawares."""
    if wish.database is not None:
        return dict.fromkeys(paths, wish.database)
    stems: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        stem = Path(path).stem
        if stem in stems:
            raise InvalidError(f"{stems[stem]} and {path} would go into one database {stem!r}; name it")
        stems[stem] = path
    return {path: Path(path).stem for path in paths}


def _parts_of(
    path: str, trees: Sequence[str] | None, database: str, wish: Wish
) -> tuple[list[Part], set[str]]:
    """Return the trees of a file to be imported, and the names of all branches where only some are wanted."""
    from ..importers import open_trees

    sources, left_out, uuid, names = open_trees(path, trees, only=wish.only, grouping=wish.grouping)
    identity = identity_of(path, uuid)
    for what, name in (("container", wish.container), ("class", wish.class_name)):
        if name is not None and len(sources) > 1 and "{tree}" not in name:
            raise InvalidError(
                f"{path} has several trees ({', '.join(source.tree for source in sources)}), which "
                f"{what} {name!r} cannot hold; name one, or write {{tree}} into the name: '{name}_{{tree}}'"
            )
    parts = [
        Part(path, identity, source, Target(database, _named(wish.container, source)), left_out)
        for source in sources
    ]
    return parts, names


def _named(pattern: str | None, source: TreeSource) -> str:
    name = source.definition["name"]
    return name if pattern is None else pattern.replace("{tree}", name)


def _records_of(target: Target, parts: list[Part], snapshot: Snapshot) -> set[str]:
    """Names of the records in what is in a container and in all that goes into it."""
    records = [part.record for part in parts if part.target == target]
    if str(target) in snapshot:
        records.append(snapshot[str(target)].definition.record)
    fields = (field for record in records for field in record.fields)
    return {field.name for field in fields if isinstance(required(field.type), Record)}


def _regrouped(part: Part, records: set[str], wish: Wish, *, stays_open: bool) -> Part:
    """Group flat branches as they are in others that go into the same container."""
    from ..importers import open_trees

    names = {each["name"] for each in part.source.definition["fields"]}
    apart = {name for name in records - names if any(each.startswith(f"{name}_") for each in names)}
    if not wish.grouping or not apart:
        return part
    [source], *_ = open_trees(part.file, [part.source.tree], only=wish.only, records=apart)
    if not stays_open:
        source.close()
    return replace(part, source=source)


def definitions_of(
    parts: list[Part], snapshot: Snapshot, wish: Wish, classes: Iterable[dict[str, Any]]
) -> dict[Target, Definition]:
    """The class of each container: what it has and what is in any tree that goes into it."""
    by_target: dict[Target, list[Part]] = {}
    for part in parts:
        by_target.setdefault(part.target, []).append(part)
    known, made = Classes(classes), {}
    for target, sources in by_target.items():
        there = snapshot[str(target)].definition if str(target) in snapshot else None
        classes_there = [(f"container {target}", there.record)] if there is not None else []
        read = [(f"{part.file}:{part.source.tree}", part.record) for part in sources]
        fields = union(classes_there + read).fields
        name = _named(wish.class_name, sources[0].source)
        if there is None:
            made[target] = known.named(name, fields, target.database)
        elif wish.class_name is not None and name not in (there.name, plain_name(there.name)):
            raise InvalidError(f"container {target} has objects of class {there.name}, not {name}")
        elif there.fields == fields:
            made[target] = there
        else:
            made[target] = known.evolved(there, fields)
    return made
