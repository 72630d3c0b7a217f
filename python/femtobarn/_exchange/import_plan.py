"""The plan of an import, made before anything is copied: the container of each tree, and its class.

Trees that go into one container get one class, which has the fields of all of them: the class of the
container, or the next version of that class.
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

__all__ = ["Destination", "KnownClasses", "PlannedTree", "TreeOptions", "classes_of", "plan_trees"]

OPEN_FILES_MAX = 8
"""An import of more files than this closes each after planning, and opens it again to read it."""


@dataclass(frozen=True)
class TreeOptions:
    """Options of :meth:`femtobarn.Federation.import_trees`, which documents them."""

    trees: Sequence[str] | None = None
    database: str | None = None
    container: str | None = None
    class_name: str | None = None
    only: list[str] | None = None
    grouping: bool = True
    again: bool = False
    jobs: int = 1
    batch_bytes: int = 64_000_000
    links: bool = True


class Destination(NamedTuple):
    """The container that a tree is imported into."""

    database: str
    container: str

    def __str__(self) -> str:
        return f"{self.database}/{self.container}"


@dataclass(frozen=True)
class PlannedTree:
    """A tree of a file, and the container that it is imported into."""

    file: str
    identity: str
    source: TreeSource
    destination: Destination
    left_out: dict[str, str]
    """Everything else in the file that is not imported, with the reason."""

    @property
    def origin(self) -> Origin:
        """The tree as it is recorded in the container ``imports``."""
        return Origin(self.file, self.identity, self.source.tree)

    @cached_property
    def record(self) -> Record:
        """The fields of its objects."""
        return Definition.from_json(self.source.definition).record


class KnownClasses:
    """The classes registered with a federation, and those that an import adds."""

    def __init__(self, known: Iterable[dict[str, Any]]) -> None:
        self._known = [Definition.from_json(each) for each in known]

    def named(self, name: str, fields: tuple[Field, ...], database: str) -> Definition:
        """Return the class with this plain name and these fields, or a new one, named by docs/format.md."""
        namesakes = [each for each in self._known if plain_name(each.name) == plain_name(name)]
        same = [each for each in namesakes if each.fields == fields]
        if same:
            return max(same, key=lambda each: (each.name == name, each.version))
        taken = {each.name for each in namesakes}
        with_origin = f"{plain_name(name)}@{database}"
        names = chain([name, with_origin], (f"{with_origin}-{number}" for number in count(2)))
        return self._added(Definition(next(each for each in names if each not in taken), 1, fields))

    def evolved(self, there: Definition, fields: tuple[Field, ...]) -> Definition:
        """Return the registered later version of a class with these fields, or make the next version."""
        versions = {each.version: each.fields for each in self._known if each.name == there.name}
        same = [version for version in versions if version > there.version and versions[version] == fields]
        if same:
            return Definition(there.name, min(same), fields)
        return self._added(Definition(there.name, max(versions, default=there.version) + 1, fields))

    def _added(self, definition: Definition) -> Definition:
        self._known.append(definition)
        return definition


def plan_trees(
    places: Sequence[tuple[str, str | None]], options: TreeOptions, snapshot: Snapshot
) -> list[PlannedTree]:
    """Open all files, and choose the container of each tree.

    Raises
    ------
    InvalidError
        If two files of one name would share a database, a name cannot hold several trees, or a destination
        is the container of origins.
    NotFoundError
        If a file, a tree or a branch of ``only`` does not exist.
    """
    from ..importers import require_matches

    stays_open = options.jobs == 1 and len(places) <= OPEN_FILES_MAX
    stems = _stems([path for path, _ in places], options)
    plan: list[PlannedTree] = []
    names: set[str] = set()
    for path, tree in places:
        found, branches = _trees_of(path, [tree] if tree is not None else options.trees, stems[path], options)
        plan += found
        names |= branches
        for planned in [] if stays_open else found:
            planned.source.close()
    require_matches(names, options.only or [])
    _check_destinations({planned.destination for planned in plan}, snapshot)
    destinations = dict.fromkeys(planned.destination for planned in plan)
    records = {destination: _records_of(destination, plan, snapshot) for destination in destinations}
    return [
        _regrouped(planned, records[planned.destination], options, stays_open=stays_open) for planned in plan
    ]


def _check_destinations(destinations: set[Destination], snapshot: Snapshot) -> None:
    """Refuse to import into the container of origins, or where another container has its name."""
    for destination in destinations:
        if destination.container == CONTAINER:
            raise InvalidError(
                f"container {destination} is reserved for the origins of imported objects; give container="
            )
        kept = f"{destination.database}/{CONTAINER}"
        if kept in snapshot and snapshot[kept].definition.name != ORIGIN.name:
            raise InvalidError(
                f"container {kept} has objects of class {snapshot[kept].definition.name}, but imports record "
                "the origins of objects there; rename it, or give another database="
            )


def _stems(paths: list[str], options: TreeOptions) -> dict[str, str]:
    """Return the name of the database of each file; two files of one name are refused."""
    if options.database is not None:
        return dict.fromkeys(paths, options.database)
    stems: dict[str, str] = {}
    for path in dict.fromkeys(paths):
        stem = Path(path).stem
        if stem in stems:
            raise InvalidError(
                f"{stems[stem]} and {path} would both go into database {stem!r}; give database="
            )
        stems[stem] = path
    return {path: Path(path).stem for path in paths}


def _trees_of(
    path: str, trees: Sequence[str] | None, database: str, options: TreeOptions
) -> tuple[list[PlannedTree], set[str]]:
    """Return the trees of a file that are imported, and all names that globs of branches may match."""
    from ..importers import open_trees

    sources, left_out, uuid, names = open_trees(
        path, trees, only=options.only, grouping=options.grouping, links=options.links
    )
    identity = identity_of(path, uuid)
    for what, name in (("container", options.container), ("class", options.class_name)):
        if name is not None and len(sources) > 1 and "{tree}" not in name:
            raise InvalidError(
                f"{path} has several trees ({', '.join(source.tree for source in sources)}), which "
                f"{what} {name!r} cannot hold; name one, or write {{tree}} into the name: '{name}_{{tree}}'"
            )
    plan = [
        PlannedTree(
            path, identity, source, Destination(database, _named(options.container, source)), left_out
        )
        for source in sources
    ]
    return plan, names


def _named(pattern: str | None, source: TreeSource) -> str:
    name = source.definition["name"]
    return name if pattern is None else pattern.replace("{tree}", name)


def _records_of(destination: Destination, plan: list[PlannedTree], snapshot: Snapshot) -> set[str]:
    """Return the names of records in a container, as it is and with all trees that go into it."""
    records = [planned.record for planned in plan if planned.destination == destination]
    if str(destination) in snapshot:
        records.append(snapshot[str(destination)].definition.record)
    fields = (field for record in records for field in record.fields)
    return {field.name for field in fields if isinstance(required(field.type), Record)}


def _regrouped(
    planned: PlannedTree, records: set[str], options: TreeOptions, *, stays_open: bool
) -> PlannedTree:
    """Group the flat branches of a tree as another tree of the same container has them."""
    from ..importers import open_trees

    names = {each["name"] for each in planned.source.definition["fields"]}
    apart = {name for name in records - names if any(each.startswith(f"{name}_") for each in names)}
    if not options.grouping or not apart:
        return planned
    [source], *_ = open_trees(
        planned.file, [planned.source.tree], only=options.only, records=apart, links=options.links
    )
    if not stays_open:
        source.close()
    return replace(planned, source=source)


def classes_of(
    plan: list[PlannedTree], snapshot: Snapshot, options: TreeOptions, classes: Iterable[dict[str, Any]]
) -> dict[Destination, Definition]:
    """Return the class of each container: its own fields, and those of all trees that go into it."""
    by_destination: dict[Destination, list[PlannedTree]] = {}
    for planned in plan:
        by_destination.setdefault(planned.destination, []).append(planned)
    known, made = KnownClasses(classes), {}
    for destination, sources in by_destination.items():
        there = snapshot[str(destination)].definition if str(destination) in snapshot else None
        classes_there = [(f"container {destination}", there.record)] if there is not None else []
        read = [(f"{planned.file}:{planned.source.tree}", planned.record) for planned in sources]
        fields = union(classes_there + read).fields
        name = _named(options.class_name, sources[0].source)
        if there is None:
            made[destination] = known.named(name, fields, destination.database)
        elif options.class_name is not None and name not in (there.name, plain_name(there.name)):
            raise InvalidError(f"container {destination} has objects of class {there.name}, not {name}")
        elif there.fields == fields:
            made[destination] = there
        else:
            made[destination] = known.evolved(there, fields)
    return made
