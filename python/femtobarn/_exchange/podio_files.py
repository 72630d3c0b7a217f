"""Events in the layout of podio's files, which podio's readers open.

Such a file has an RNTuple for each category of events, and one called ``podio_metadata`` with a single entry
about them: the data models, and the name, number and class of each collection. All records have their C++
classes, so that readers need the dictionaries of these classes. Events that were imported from a file of
podio have its metadata in the container of that name.

Source: podio, ``doc/storage_details.md``, ``src/RNTupleReader.cc`` and ``src/rootUtils.h``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property, reduce
from typing import Any

import numpy as np

from .._exceptions import CorruptError, InvalidError, NotFoundError, UnsupportedError, near_misses
from .._lazy import ak
from .._query.paths import Expressions, expand
from .._schema.types import TUPLE, Definition, Field, Fixed, List, Node, Primitive, Record, String
from ..datamodel import Model
from ..datamodel.collections import PARAMETERS, CollectionInfo
from ..datamodel.outline import SECTIONS, section
from .exports import Exported

__all__ = ["METADATA", "PodioLayout", "PodioMetadata"]

METADATA = "podio_metadata"
"""Name of the RNTuple, and of the container, with podio's data about events."""

COLLECTIONS = "___CollectionTypeInfo"
"""End of the name of the field with the collections of a category."""

BUILD, MODELS, CATEGORIES = "PodioBuildVersion", "EDMDefinitions", "availableCategories"
"""Fields with the version of podio, the data models, and the categories."""

VERSION = "___Version"
"""End of the name of the field with the version of a data model."""

NUMBERS = List(Primitive("uint16"))
"""Major, minor and patch number of a version."""

INFO = List(
    Record(
        "podio::root_utils::CollectionWriteInfo",
        (
            Field("collectionID", Primitive("uint32")),
            Field("dataType", String()),
            Field("isSubset", Primitive("bool")),
            Field("schemaVersion", Primitive("uint32")),
            Field("name", String()),
            Field("storageType", String()),
        ),
    )
)

PAIRS = List(Record(TUPLE, (Field("_0", String()), Field("_1", String()))))
"""Names of data models, and their definitions as JSON."""


@dataclass(frozen=True)
class PodioLayout:
    """The fields of the events of a category."""

    definition: Definition
    """The fields, whose records have their C++ classes."""
    collections: tuple[CollectionInfo, ...]
    absent: tuple[str, ...]
    """Fields of parameters that the events lack."""

    @property
    def paths(self) -> list[str]:
        """The fields that are read of the events."""
        return [field.name for field in self.definition.fields if field.name not in self.absent]

    def exported(self, events: Exported) -> Exported:
        """Return events, of which the fields of :attr:`paths` are exported, in this layout."""
        return Exported(self.definition, events.entries, map(self._completed, events.batches), typed=True)

    def _completed(self, batch: ak.Array) -> ak.Array:
        offsets = ak.index.Index64(np.zeros(len(batch) + 1, np.int64))
        for name in self.absent:
            none = ak.contents.ListOffsetArray(offsets, ak.contents.EmptyArray())
            batch = ak.with_field(batch, ak.Array(none), name)
        return batch


@dataclass(frozen=True)
class PodioMetadata:
    """The metadata that podio stores about the events of files."""

    container: str
    """The container that it was read from."""
    version: tuple[int, ...]
    """Version of podio that wrote the files."""
    definitions: dict[str, str]
    """The data models as JSON, by name."""
    versions: dict[str, tuple[int, ...]]
    """Versions of the data models that have one."""
    collections: dict[str, dict[str, CollectionInfo]]
    """The collections of each category by name."""

    @classmethod
    def of(cls, rows: Iterable[tuple[str, Mapping[str, Any]]]) -> PodioMetadata:
        """Return the merged metadata of the entries of containers.

        Parameters
        ----------
        rows
            The name of a container of metadata, and an entry of it: one for each file that was imported.

        Raises
        ------
        InvalidError
            If there is none, or they contradict each other.
        UnsupportedError
            If they were written by a version of podio before 1.3.
        """
        read = [cls._read(container, row) for container, row in rows]
        if not read:
            raise InvalidError(f"{METADATA} is empty: it does not describe the events")
        return reduce(cls._joined, read)

    @classmethod
    def _read(cls, container: str, row: Mapping[str, Any]) -> PodioMetadata:
        infos = {name.removesuffix(COLLECTIONS): row[name] for name in row if name.endswith(COLLECTIONS)}
        parts = {each.name for each in fields(CollectionInfo)}
        are_known = all(isinstance(each, dict) and set(each) == parts for of in infos.values() for each in of)
        if not are_known or not {BUILD, MODELS} <= set(row):
            raise UnsupportedError(
                f"{container} describes collections as podio did before version 1.3; read and write the file "
                "with a newer podio, and import that file"
            )
        pairs = ((each["_0"], each["_1"]) if isinstance(each, dict) else each for each in row[MODELS])
        return cls(
            container,
            _numbers(row[BUILD]),
            dict(pairs),
            {name.removesuffix(VERSION): _numbers(row[name]) for name in row if name.endswith(VERSION)},
            {
                category: {each["name"]: CollectionInfo(**each) for each in of}
                for category, of in infos.items()
            },
        )

    def _joined(self, other: PodioMetadata) -> PodioMetadata:
        collections = dict(self.collections)
        for category, infos in other.collections.items():
            collections[category] = self._agreed(collections.get(category, {}), infos, "collection")
        return PodioMetadata(
            self.container,
            max(self.version, other.version),
            self._agreed(self.definitions, other.definitions, "data model"),
            {**self.versions, **other.versions},
            collections,
        )

    def _agreed(self, ours: dict[str, Any], theirs: dict[str, Any], what: str) -> dict[str, Any]:
        for name in ours.keys() & theirs.keys():
            if ours[name] != theirs[name]:
                raise InvalidError(
                    f"{self.container} has files that differ in the {what} {name!r}, which podio keeps once "
                    "in a file; export their events to one file each"
                )
        return {**ours, **theirs}

    @cached_property
    def model(self) -> Model:
        """The data models as one: names of classes have their namespaces."""
        merged: dict[str, dict[str, Any]] = {}
        for model, text in self.definitions.items():
            try:
                sections = dict(json.loads(text))
            except (TypeError, ValueError) as error:
                raise CorruptError(
                    f"{self.container}: data model {model!r} cannot be read: {error}"
                ) from error
            for name in SECTIONS[2:]:
                merged.setdefault(name, {}).update(section(sections, name, f"data model {model!r}", dict))
        return Model(merged)

    def layout(
        self, category: str, definition: Definition, expressions: Expressions, fields: Sequence[str]
    ) -> PodioLayout:
        """Return the layout of events.

        Parameters
        ----------
        category
            Their category: the name of their container.
        definition
            Their class.
        expressions
            The collections to export, by their names or those of fields that belong to them; None for all.
        fields
            Names of the fields that are stored in the events.

        Raises
        ------
        CorruptError
            If a data model in the metadata cannot be read.
        InvalidError
            If a field belongs to no collection, is a part of one, or is not as the data model has it.
        NotFoundError
            If the metadata lack the category, or the events lack a field of a collection.
        """
        if category not in self.collections:
            hint = near_misses(category, self.collections)
            raise NotFoundError(f"{self.container} does not describe {category!r}{hint}")
        infos = self.collections[category].values()
        fields_of = {info.name: info.fields(self.model) for info in infos}
        owners = {field: name for name, of_collection in fields_of.items() for field in of_collection}
        firsts = {name: next(iter(of_collection)) for name, of_collection in fields_of.items()}
        chosen: set[str] = set()
        for path in fields if expressions is None else expand(_renamed(expressions, firsts), definition):
            if path in owners:
                chosen.add(owners[path])
            elif path not in PARAMETERS:
                raise self._homeless(path, category)
        nodes = {
            field: node for name in fields_of if name in chosen for field, node in fields_of[name].items()
        }
        stored = definition.record.by_name
        for name, node in {**nodes, **PARAMETERS}.items():
            self._check(name, stored.get(name), node, owners.get(name))
        made = tuple(Field(name, node) for name, node in {**nodes, **PARAMETERS}.items())
        return PodioLayout(
            Definition(definition.name, definition.version, made),
            tuple(info for info in infos if info.name in chosen),
            tuple(name for name in PARAMETERS if name not in stored),
        )

    def _homeless(self, path: str, category: str) -> InvalidError:
        top, _, below = path.partition(".")
        if below:
            return InvalidError(f"podio's files have whole collections; name {top!r} instead of {path!r}")
        return InvalidError(
            f"{path!r} belongs to no collection of {category!r} that {self.container} knows; name the "
            "collections to export"
        )

    def _check(self, name: str, stored: Node | None, wanted: Node, owner: str | None) -> None:
        if owner is not None and stored is None:
            raise NotFoundError(f"collection {owner!r} needs the field {name!r}, which the events lack")
        if stored is not None and not _is_stored_as(stored, wanted):
            shown = "is missing in some events" if str(stored).endswith("| None") else f"is {stored}"
            raise InvalidError(
                f"field {name!r} {shown}, but {wanted} in the data model of {self.container}; to leave the "
                "collection out, name the others"
            )

    def exported(self, layouts: Mapping[str, PodioLayout]) -> Exported:
        """Return the entry about events in the given layouts, by their categories."""
        pairs = [{"_0": name, "_1": text} for name, text in self.definitions.items()]
        entry: dict[str, tuple[Node, Any]] = {
            BUILD: (NUMBERS, list(self.version)),
            MODELS: (PAIRS, pairs),
            **{f"{name}{VERSION}": (NUMBERS, list(version)) for name, version in self.versions.items()},
            CATEGORIES: (List(String()), list(layouts)),
            **{
                f"{name}{COLLECTIONS}": (INFO, list(map(asdict, layout.collections)))
                for name, layout in layouts.items()
            },
        }
        definition = Definition(METADATA, 1, tuple(Field(name, node) for name, (node, _) in entry.items()))
        batch = ak.Array([{name: value for name, (_, value) in entry.items()}])
        return Exported(definition, 1, iter([batch]), typed=True)


def _renamed(expressions: Expressions, names: Mapping[str, str]) -> Expressions:
    """Return expressions with other names for some fields."""
    if expressions is None or callable(expressions):
        return expressions
    items = [expressions] if isinstance(expressions, str) else list(expressions)
    return [names.get(each, each) for each in items]


def _numbers(version: Any) -> tuple[int, ...]:
    """Return a version, which is a record in trees and a list in RNTuples."""
    return tuple(version.values() if isinstance(version, dict) else version)


def _is_stored_as(stored: Node, wanted: Node) -> bool:
    """Tell whether values have a type, whatever their classes are called and their numbers mean."""
    if isinstance(stored, List) and isinstance(wanted, List):
        return _is_stored_as(stored.item, wanted.item)
    if isinstance(stored, Fixed) and isinstance(wanted, Fixed):
        return stored.size == wanted.size and _is_stored_as(stored.item, wanted.item)
    if isinstance(stored, Record) and isinstance(wanted, Record):
        ours, theirs = stored.by_name, wanted.by_name
        return set(ours) == set(theirs) and all(_is_stored_as(ours[each], theirs[each]) for each in theirs)
    if isinstance(stored, Primitive) and isinstance(wanted, Primitive):
        return stored.name == wanted.name
    return isinstance(stored, String) and isinstance(wanted, String)
