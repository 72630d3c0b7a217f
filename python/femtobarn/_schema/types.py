"""Types of fields, class definitions, and both as JSON.

The engine and the catalogue keep class definitions as JSON; a tree of nodes is a type in Python.
:mod:`femtobarn._schema.classes` makes it from annotations, :mod:`femtobarn._data.arrays` matches arrays
against it, and :mod:`femtobarn._data.results` turns columns into arrays by it.

Invariants
----------
1. ``type_from_json(node.to_json()) == node`` for every node.
2. A record's member names are unique, and none is empty.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from .._exceptions import InvalidError, NotFoundError, near_misses
from .._html import html_table
from .leaf_types import DTYPES, NAMED_REDUCED, Node, Primitive, Reduced, String
from .meanings import Meaning

__all__ = [
    "DTYPES",
    "MAP_ITEM",
    "NAMED_REDUCED",
    "TUPLE",
    "Bitset",
    "Definition",
    "ElementLink",
    "Field",
    "Fixed",
    "Link",
    "List",
    "Node",
    "Optional",
    "Primitive",
    "Record",
    "Reduced",
    "String",
    "Variant",
    "definition_from_text",
    "paths_of",
    "plain_name",
    "stored_type",
    "type_from_json",
]

MAP_ITEM = "std::map::value_type"
"""Class of the items of dictionaries: records of ``_0``, the key, and ``_1``, the value."""

TUPLE = "std::tuple"
"""Class of tuples: records of ``_0``, ``_1`` and so on."""

DEFINITIONS_MAX = 1024
"""Definitions that a process keeps parsed."""


@dataclass(frozen=True)
class List(Node):
    """A list of any length."""

    item: Node
    meaning: Meaning | None = None

    @property
    def is_bytes(self) -> bool:
        """Whether values are Python's ``bytes``."""
        return self.item == Primitive("byte")

    @property
    def is_map(self) -> bool:
        """Whether values are dictionaries, of keys ``_0`` and values ``_1``."""
        return isinstance(self.item, Record) and self.item.class_name == MAP_ITEM

    def to_json(self) -> Any:
        form = {"list": self.item.to_json()}
        return form if self.meaning is None else self.meaning.to_json(form)

    def __str__(self) -> str:
        if isinstance(self.item, Record) and self.is_map:
            return str(self.item).replace("tuple", "dict", 1)
        return "bytes" if self.is_bytes else f"{self.meaning or 'list'}[{self.item}]"


@dataclass(frozen=True)
class Fixed(Node):
    """A list of exactly ``size`` items."""

    item: Node
    size: int

    def to_json(self) -> Any:
        return {"array": {"of": self.item.to_json(), "size": self.size}}

    def __str__(self) -> str:
        return f"array[{self.item}, {self.size}]"


@dataclass(frozen=True)
class Bitset(Node):
    """Exactly ``size`` truth values, one bit each on disk."""

    size: int

    def to_json(self) -> Any:
        return {"bitset": self.size}

    def __str__(self) -> str:
        return f"bitset[{self.size}]"


@dataclass(frozen=True)
class Optional(Node):
    """A value that may be missing."""

    item: Node

    def to_json(self) -> Any:
        return {"optional": self.item.to_json()}

    def __str__(self) -> str:
        return f"{self.item} | None"


@dataclass(frozen=True)
class Link(Node):
    """A reference to an object of class ``target``."""

    target: str

    def to_json(self) -> Any:
        return {"link": self.target}

    def __str__(self) -> str:
        return f"link[{self.target}]"


@dataclass(frozen=True)
class ElementLink(Node):
    """A reference to one element of a collection inside an object of class ``target``."""

    target: str

    def to_json(self) -> Any:
        return {"element_link": self.target}

    def __str__(self) -> str:
        return f"element_link[{self.target}]"


@dataclass(frozen=True)
class Variant(Node):
    """A value of one of several types."""

    alternatives: tuple[Node, ...]

    def to_json(self) -> Any:
        return {"variant": [alternative.to_json() for alternative in self.alternatives]}

    def __str__(self) -> str:
        return f"variant[{', '.join(str(alternative) for alternative in self.alternatives)}]"


@dataclass(frozen=True)
class Field:
    """A named member of a class."""

    name: str
    type: Node
    description: str = ""
    was: str = ""
    """Its name in the previous version, if it was renamed."""
    default: bool | int | float | str | None = None
    """Value in objects stored before the field was added, if not zero or empty."""

    def to_json(self) -> dict[str, Any]:
        """Return the member in the JSON form of class definitions."""
        form = {"name": self.name, "type": self.type.to_json()}
        if self.description:
            form["description"] = self.description
        if self.was:
            form["was"] = self.was
        return form if self.default is None else form | {"default": self.default}


@dataclass(frozen=True)
class Record(Node):
    """Named members, each of any type."""

    class_name: str
    fields: tuple[Field, ...]

    @cached_property
    def by_name(self) -> dict[str, Node]:
        """The members' types by name."""
        return {field.name: field.type for field in self.fields}

    def to_json(self) -> Any:
        fields = [field.to_json() for field in self.fields]
        return {"record": {"class": self.class_name, "fields": fields}}

    @property
    def is_tuple(self) -> bool:
        """Whether values are tuples, also the pairs of dictionaries."""
        return self.class_name in (TUPLE, MAP_ITEM)

    def __str__(self) -> str:
        if self.is_tuple:
            return f"tuple[{', '.join(str(field.type) for field in self.fields)}]"
        return self.class_name or f"{{{', '.join(f'{f.name}: {f.type}' for f in self.fields)}}}"


LINK_MEMBERS = (("database", "uint32"), ("container", "uint32"), ("entry", "uint64"))
"""Members of the record that stores a link. A null link has container 0."""

ELEMENT_LINK_MEMBERS = (*LINK_MEMBERS, ("element", "uint32"))
"""Members of the record that stores a link to an element."""


@dataclass(frozen=True)
class Definition:
    """A named and versioned class, as the catalogue registers it."""

    name: str
    version: int
    fields: tuple[Field, ...]

    @cached_property
    def record(self) -> Record:
        """The class as the type of one object."""
        return Record(plain_name(self.name), self.fields)

    def to_json(self) -> dict[str, Any]:
        """Return the definition as JSON, in the form of the catalogue."""
        fields = [field.to_json() for field in self.fields]
        return {"name": self.name, "version": self.version, "fields": fields}

    @cached_property
    def as_stored(self) -> Definition:
        """The class with the types that values are stored as; itself if none of them means something else."""
        fields = stored_fields(self.fields)
        return self if fields == self.fields else Definition(self.name, self.version, fields)

    @classmethod
    def from_json(cls, form: str | dict[str, Any]) -> Definition:
        """Return the definition that JSON in the form of the catalogue describes."""
        body = json.loads(form) if isinstance(form, str) else form
        fields = _fields_from_json(body["fields"])
        return cls(body["name"], body.get("version", 1), fields)

    def _repr_html_(self) -> str:
        """Return a table of the fields for notebooks."""
        rows = ((field.name, field.type, field.description) for field in self.fields)
        return html_table(f"class {self.name}, version {self.version}", ("field", "type", "meaning"), rows)

    def resolve(self, path: str) -> Node:
        """Return the type of the field at a dotted path, which may lead through collections.

        Raises
        ------
        NotFoundError
            If the field does not exist; near misses are named.
        """
        return resolve(self.record, path)

    def type_at(self, path: str) -> Node | None:
        """As :meth:`resolve`, but return None if there is no such field: no similar names are looked for."""
        node: Node | None = self.record
        for part in path.split("."):
            node = None if node is None else _members(innermost(node)).get(part)
        return node


@lru_cache(maxsize=DEFINITIONS_MAX)
def definition_from_text(form: str) -> Definition:
    """Return the definition that a JSON text of the engine describes: the same one for equal texts."""
    return Definition.from_json(form)


def plain_name(class_name: str) -> str:
    """Return the name of a class without the database that it is renamed after, if it was attached.

    Examples
    --------
    >>> plain_name("Events@dimuon")
    'Events'
    """
    return class_name.partition("@")[0]


def resolve(record: Node, path: str) -> Node:
    """Return the type at a dotted path below a record, which may lead through collections.

    Raises
    ------
    NotFoundError
        If the field does not exist; near misses are named.
    """
    node: Node = record
    walked: list[str] = []
    for part in path.split("."):
        members = _members(innermost(node))
        if part not in members:
            where = f" in {'.'.join(walked)}" if walked else ""
            hint = near_misses(part, members) if walked else _suggestion(record, path)
            raise NotFoundError(f"field {part!r} does not exist{where}{hint}")
        walked.append(part)
        node = members[part]
    return node


def _suggestion(record: Node, path: str) -> str:
    """Return the end of an error text: similar fields, also ``Muon.pt`` for the branch name ``Muon_pt``."""
    paths = [each for each, _ in paths_of(record)]
    flat = {each.replace(".", "_"): each for each in paths}
    if path in flat:
        return f"; did you mean {flat[path]!r}?"
    first = path.partition(".")[0]
    return near_misses(first, _members(record), further=paths)


def paths_of(record: Node, prefix: str = "") -> Iterator[tuple[str, Node]]:
    """Yield the dotted name and the type of each field of a record, and of the members of records in it."""
    for name, node in record.by_name.items() if isinstance(record, Record) else ():
        yield prefix + name, node
        yield from paths_of(innermost(node), f"{prefix}{name}.")


def _members(node: Node) -> dict[str, Node]:
    if isinstance(node, Record):
        return node.by_name
    stored = {Link: LINK_MEMBERS, ElementLink: ELEMENT_LINK_MEMBERS}.get(type(node), ())
    return {name: Primitive(kind) for name, kind in stored}


def innermost(node: Node) -> Node:
    """Return the type of the items inside lists, fixed arrays and optional values."""
    while isinstance(node, List | Fixed | Optional):
        node = node.item
    return node


def stored_type(node: Node) -> Node:
    """Return a type without the meaning of its values: the type of the stored values.

    An index in a collection is read as it is stored, so that it stays one.
    """
    if isinstance(node, Primitive | String):
        is_stored = node.meaning is None or node.meaning.is_element
        return node if is_stored else replace(node, meaning=None)
    if isinstance(node, List):
        return List(stored_type(node.item))
    if isinstance(node, Fixed | Optional):
        return replace(node, item=stored_type(node.item))
    if isinstance(node, Record):
        return Record(node.class_name, stored_fields(node.fields))
    return node


def stored_fields(fields: tuple[Field, ...]) -> tuple[Field, ...]:
    """Return fields of stored types; see :func:`stored_type`."""
    return tuple(replace(field, type=stored_type(field.type)) for field in fields)


def _with_meaning(body: dict[str, Any]) -> Node:
    """Return a type with its meaning; without it if this release does not know that."""
    stored, meaning = type_from_json(body["of"]), Meaning.from_json(body)
    if isinstance(stored, Primitive | String | List) and meaning.is_of(str(body["of"])):
        return replace(stored, meaning=meaning)
    return stored


def has_links(node: Node) -> bool:
    """Tell whether values are links, or have some in them."""
    node = innermost(node)
    if isinstance(node, Variant):
        return any(map(has_links, node.alternatives))
    if isinstance(node, Record):
        return any(has_links(field.type) for field in node.fields)
    return isinstance(node, Link | ElementLink)


def type_from_json(form: Any) -> Node:
    """Return the type that the JSON form of class definitions describes.

    Examples
    --------
    >>> str(type_from_json({"list": {"array": {"of": "float32", "size": 3}}}))
    'list[array[float32, 3]]'
    """
    if isinstance(form, str):
        return _named_type(form)
    if isinstance(form, dict) and len(form) == 1:
        ((kind, body),) = form.items()
        reader = _READERS.get(kind)
        if reader is not None:
            node: Node = reader(body)
            return node
    raise InvalidError(f"unknown type {form!r} in a class definition")


def _named_type(name: str) -> Node:
    if name == "string":
        return String()
    if name in NAMED_REDUCED:
        return Reduced(name)
    if name in DTYPES:
        return Primitive(name)
    raise InvalidError(f"type {name!r} does not exist{near_misses(name, [*DTYPES, 'string'])}")


def _fields_from_json(fields: list[dict[str, Any]]) -> tuple[Field, ...]:
    return tuple(_field_from_json(form) for form in fields)


def _field_from_json(form: dict[str, Any]) -> Field:
    type_, description = type_from_json(form["type"]), form.get("description", "")
    return Field(form["name"], type_, description, form.get("was", ""), form.get("default"))


_READERS: dict[str, Any] = {
    "list": lambda body: List(type_from_json(body)),
    "array": lambda body: Fixed(type_from_json(body["of"]), body["size"]),
    "bitset": lambda body: Bitset(body),
    "optional": lambda body: Optional(type_from_json(body)),
    "record": lambda body: Record(body.get("class", ""), _fields_from_json(body["fields"])),
    "meaning": _with_meaning,
    "link": lambda body: Link(body),
    "element_link": lambda body: ElementLink(body),
    "variant": lambda body: Variant(tuple(type_from_json(form) for form in body)),
    "truncated": lambda body: Reduced("truncated", body["bits"]),
    "quantised": lambda body: Reduced("quantised", body["bits"], body["min"], body["max"]),
}
