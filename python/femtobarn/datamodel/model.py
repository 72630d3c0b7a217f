"""A data model: its sections as definitions, and these as Python classes.

The parts of a model are stored as follows:

- a component is a record, stored within its owner;
- a datatype is a class, its members in the order of the sections of :data:`SECTIONS_OF_DATATYPE`;
- a relation to one is a link, a relation to many a list of links;
- an interface is not stored: a link to it is a link to an object of any of its types;
- a link of the section ``links`` is a class with the links ``from`` and ``to`` and a ``weight``;
- an array of components is a list, because a fixed array of records has no name in ROOT.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from .._exceptions import InvalidError, NotFoundError, near_misses
from .._schema.classes import stored_default
from .._schema.types import Definition, Field, Fixed, Link, List, Node, Primitive, Record, type_from_json
from .evolution import Evolution
from .instances import Instance, class_of
from .members import ARRAY_MAX, BUILTIN_TYPES, Member, parse_member
from .outline import read_outline, section

__all__ = ["Model", "load_model"]

MEMBERS_MAX = 10_000
"""Members of a class, those of its components and of theirs written out."""
DEPTH_MAX = 32
"""Components within each other."""

SECTIONS_OF_DATATYPE = ("Members", "VectorMembers", "OneToOneRelations", "OneToManyRelations")


class Model(Mapping[str, type[Instance]]):
    """The classes of a data model by full name, and by the name without its namespace if that is unique.

    Examples
    --------
    >>> model = Model({"components": {"Point": {"Members": ["float x [mm]", "float y [mm]"]}},
    ...                "datatypes": {"my::Hit": {"Members": ["Point at", "int cell{-1} // of the grid"]}}})
    >>> model["my::Hit"](at=model.Point(x=1.5))
    Hit(at=Point(x=1.5, y=0.0), cell=-1)
    >>> list(model)
    ['my::Hit']
    """

    def __init__(
        self, source: str | os.PathLike[str] | Mapping[str, Any], *, upstream: Model | None = None
    ) -> None:
        body = read_outline(source)
        self._datatypes = section(body, "datatypes", "the model", dict)
        self.schema_version = _schema_version(body)
        """Version of the model, and of its classes that differ from the registered ones."""
        self.upstream = upstream
        """The model that defines types which this one uses; None if there is none."""
        reader = _Reader(body, upstream, self.schema_version)
        self.interfaces: dict[str, tuple[str, ...]] = reader.interfaces
        """Names of the types that each interface stands for."""
        self.definitions: dict[str, Definition] = reader.definitions()
        """Definitions of the datatypes and links, by full name."""
        self.components: dict[str, type[Instance]] = reader.classes
        """Classes of the components, including those of upstream."""
        self.classes: dict[str, type[Instance]] = {
            name: class_of(definition, reader.defaults[name], self.components)
            for name, definition in self.definitions.items()
        }
        """Classes of the datatypes and links."""
        self._defaults = reader.defaults

    def __getitem__(self, name: str) -> type[Instance]:
        known = {**self.components, **self.classes}
        if name in known:
            return known[name]
        found = [cls for full, cls in known.items() if full.rpartition("::")[2] == name]
        if len(found) == 1:
            return found[0]
        raise NotFoundError(f"the model has no class {name!r}{near_misses(name, known)}")

    def __getattr__(self, name: str) -> type[Instance]:
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            return self[name]
        except NotFoundError as error:
            raise AttributeError(str(error)) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self.classes)

    def __len__(self) -> int:
        return len(self.classes)

    def __contains__(self, name: object) -> bool:
        return name in self.classes

    def __repr__(self) -> str:
        return f"<Model: schema version {self.schema_version}, {len(self)} classes>"

    def sections(self, datatype: str) -> dict[str, list[str]]:
        """Return the names of the members of a datatype, by the sections that declare them.

        Examples
        --------
        >>> form = {"Members": ["float energy"], "OneToOneRelations": ["my::Hit next"]}
        >>> Model({"datatypes": {"my::Hit": form}}).sections("my::Hit")
        {'Members': ['energy'], 'VectorMembers': [], 'OneToOneRelations': ['next'], 'OneToManyRelations': []}
        """
        form = section(self._datatypes, datatype, "the model", dict)
        return {
            key: [parse_member(text, datatype).name for text in section(form, key, datatype, list)]
            for key in SECTIONS_OF_DATATYPE
        }

    def registered(self, known: list[Definition], evolution: Evolution | None = None) -> Model:
        """Return the model with the versions of its classes in a federation.

        Parameters
        ----------
        known
            The registered classes.
        evolution
            The members that were renamed.

        Raises
        ------
        InvalidError
            If a class differs from its newest registered version, and the version of the model is not higher;
            or if the renamed members are not those of the model.
        """
        evolution = Evolution({}) if evolution is None else evolution
        made = [Record(name, definition.fields) for name, definition in self.definitions.items()]
        parts = [cls.__femtobarn__.record() for cls in self.components.values()]
        evolution.check([*made, *parts], self.schema_version)
        numbered = {
            name: _numbered(definition, [each for each in known if each.name == name], evolution)
            for name, definition in self.definitions.items()
        }
        model = Model.__new__(Model)
        vars(model).update(vars(self))
        model.definitions = numbered
        model.classes = {
            name: class_of(definition, self._defaults[name], self.components)
            for name, definition in numbered.items()
        }
        return model


def load_model(
    source: str | os.PathLike[str] | Mapping[str, Any],
    *,
    upstream: Model | str | os.PathLike[str] | None = None,
) -> Model:
    """Read a data model written for podio.

    Parameters
    ----------
    source
        Path of the YAML file, or its content as a mapping.
    upstream
        The model that defines components and datatypes which this one uses.

    Raises
    ------
    InvalidError
        If the data model is malformed; the text names the class and the declaration.
    NotFoundError
        If the file does not exist.
    """
    if upstream is not None and not isinstance(upstream, Model):
        upstream = Model(upstream)
    return Model(source, upstream=upstream)


class _Reader:
    """Makes definitions of the sections of a model."""

    def __init__(self, body: Mapping[str, Any], upstream: Model | None, version: int) -> None:
        self._version = version
        self._components = section(body, "components", "the model", dict)
        self._datatypes = section(body, "datatypes", "the model", dict)
        self._links = section(body, "links", "the model", dict)
        interfaces = section(body, "interfaces", "the model", dict)
        self.classes: dict[str, type[Instance]] = dict(upstream.components) if upstream else {}
        self.interfaces = dict(upstream.interfaces) if upstream else {}
        self.defaults: dict[str, dict[str, Any]] = {}
        self._being_read: list[str] = []
        self._extents: dict[str, tuple[int, int]] = {}
        self._items = 0
        self._targets = {*self._datatypes, *interfaces, *(upstream.classes if upstream else ())}
        self._targets |= {*self._links, *self.interfaces}
        for name in self._components:
            self._component(name)
        self.interfaces |= {name: self._interface(name, form) for name, form in interfaces.items()}

    def definitions(self) -> dict[str, Definition]:
        """Return the definitions of the model by name."""
        made: dict[str, Definition] = {}
        for kind, forms, make in (
            ("datatype", self._datatypes, self._datatype),
            ("link", self._links, self._link),
        ):
            for name, form in forms.items():
                if name in self.classes or name in made:
                    other = "component" if name in self.classes else "datatype"
                    raise InvalidError(f"class {name} is both a {other} and a {kind}")
                made[name] = make(name, form)
        return made

    def _component(self, name: str) -> Record:
        """Return the record of a component; components in it are defined first."""
        if name not in self._components or name in self.classes:
            return self.classes[name].__femtobarn__.record()
        if name in self._being_read:
            raise InvalidError(f"component {name} contains itself, without end")
        if len(self._being_read) >= DEPTH_MAX:
            raise InvalidError(f"component {name} is nested in more than {DEPTH_MAX - 1} others")
        self._being_read.append(name)
        where = f"component {name}"
        form = _mapping(self._components[name], where)
        # Before podio 1.0, members are keys of the component: `name: type`.
        old = [f"{type_} {each}" for each, type_ in form.items() if each not in _COMPONENT_KEYS]
        declared = section(form, "Members", where, list) or old
        fields = self._fields(name, where, [(text, self._member) for text in declared])
        self._being_read.pop()
        definition = Definition(name, self._version, fields)
        self.classes[name] = class_of(definition, self.defaults[name], self.classes)
        return definition.record

    def _datatype(self, name: str, form: Any) -> Definition:
        where = f"datatype {name}"
        form = _mapping(form, where)
        for key in form:
            if key not in (*SECTIONS_OF_DATATYPE, *_DESCRIBING):
                hint = near_misses(str(key), SECTIONS_OF_DATATYPE)
                raise InvalidError(f"{where}: section {key!r} does not exist{hint}")
        makers = (self._member, self._vector, self._one, self._many)
        declared = [
            (text, make)
            for key, make in zip(SECTIONS_OF_DATATYPE, makers, strict=True)
            for text in section(form, key, where, list)
        ]
        return Definition(name, self._version, self._fields(name, where, declared))

    def _link(self, name: str, form: Any) -> Definition:
        where = f"link {name}"
        form = _mapping(form, where)
        ends = [(f"{form.get(key)} {key.lower()}", self._one) for key in ("From", "To")]
        weight = ("float weight{1.0} // of the link", self._member)
        return Definition(name, self._version, self._fields(name, where, [*ends, weight]))

    def _interface(self, name: str, form: Any) -> tuple[str, ...]:
        where = f"interface {name}"
        types = section(_mapping(form, where), "Types", where, list)
        return tuple(self._target(type_, where) for type_ in types)

    def _fields(self, name: str, where: str, declared: list[tuple[Any, Any]]) -> tuple[Field, ...]:
        fields: dict[str, Field] = {}
        defaults: dict[str, Any] = {}
        for text, make in declared:
            member = parse_member(text, where)
            if member.name in fields:
                raise InvalidError(f"{where}: two members have the name {member.name!r}")
            node = make(member, f"{where}: member {member.name!r}")
            self._items += member.size or 0
            if self._items > ARRAY_MAX:
                raise InvalidError(
                    f"{where}: with {text!r}, the arrays of the model have {self._items:,} items; "
                    f"{ARRAY_MAX:,} are possible"
                )
            if member.default is not None:
                defaults[member.name] = member.default
            elif isinstance(node, List) and member.size is not None:
                defaults[member.name] = ((),) * member.size
            default = stored_default(member.default, node)
            fields[member.name] = Field(member.name, node, member.description, default=default)
        if not fields:
            raise InvalidError(f"{where} has no member; declare one, such as float x")
        members, depth = self._extent(Record(name, tuple(fields.values())))
        if members > MEMBERS_MAX or depth > DEPTH_MAX:
            raise InvalidError(
                f"{where} is too large: with its components written out, it has {members:,} members in "
                f"{depth} levels; {MEMBERS_MAX:,} in {DEPTH_MAX} are possible"
            )
        self.defaults[name] = defaults
        return tuple(fields.values())

    def _extent(self, record: Record) -> tuple[int, int]:
        """Return the members of a record and of the components in it, and the levels of these.

        Each component is looked at once: written out, components of components are exponentially many.
        """
        found = self._extents.get(record.class_name)
        if found is None:
            parts = [
                self._extent(node) for node in map(_innermost, record.by_name.values()) if node is not None
            ]
            members = len(record.fields) + sum(part[0] for part in parts)
            depth = 1 + max((part[1] for part in parts), default=0)
            found = self._extents[record.class_name] = members, depth
        return found

    def _member(self, member: Member, where: str) -> Node:
        item = self._value(member.type, where)
        if member.size is None:
            return item
        return Fixed(item, member.size) if isinstance(item, Primitive) else List(item)

    def _vector(self, member: Member, where: str) -> Node:
        return List(self._member(member, where))

    def _one(self, member: Member, where: str) -> Node:
        return Link(self._target(member.type, where))

    def _many(self, member: Member, where: str) -> Node:
        return List(Link(self._target(member.type, where)))

    def _value(self, name: str, where: str) -> Node:
        builtin = BUILTIN_TYPES.get(name.removeprefix("std::"))
        if builtin is not None:
            return type_from_json(builtin)
        if name in self._components or name in self.classes:
            return self._component(name)
        known = {*BUILTIN_TYPES, *self._components, *self.classes}
        also = "; use a relation for objects of a datatype" if name in self._targets else ""
        raise InvalidError(
            f"{where} is of type {name!r}, which is not a component{near_misses(name, known)}{also}"
        )

    def _target(self, name: Any, where: str) -> str:
        if isinstance(name, str) and name.removeprefix("::") in self._targets:
            return name.removeprefix("::")
        hint = near_misses(str(name), self._targets)
        raise InvalidError(f"{where} is related to {name!r}, which is not a datatype{hint}")


def _innermost(node: Node) -> Record | None:
    """Return the component that a member is of, or has many of."""
    while isinstance(node, List | Fixed):
        node = node.item
    return node if isinstance(node, Record) else None


_COMPONENT_KEYS = ("Members", "ExtraCode", "MutableExtraCode", "Description", "Author")
_DESCRIBING = ("Description", "Author", "ExtraCode", "MutableExtraCode")


def _mapping(form: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(form, Mapping):
        raise InvalidError(f"{where} is {form!r}; write its sections below it, such as Members")
    return form


def _schema_version(body: Mapping[str, Any]) -> int:
    version = body.get("schema_version", 1)
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidError(f"invalid schema_version {version!r}: must be an integer of 1 or more")
    return version


def _numbered(definition: Definition, known: list[Definition], evolution: Evolution) -> Definition:
    """Return the registered definition that differs only in descriptions and former names, else this one, if
    it is newer, with the names that its members have in the newest."""
    shape = _without_notes(definition.record)
    same = [each for each in known if _without_notes(each.record) == shape]
    if same:
        return max(same, key=lambda each: each.version)
    if not known:
        return definition
    newest = max(known, key=lambda each: each.version)
    if definition.version <= newest.version:
        raise InvalidError(
            f"class {definition.name} differs from version {newest.version}, which is registered; "
            f"raise schema_version above {newest.version}"
        )
    return evolution.applied(definition, newest)


def _without_notes(node: Node) -> Node:
    if isinstance(node, Record):
        fields = (
            replace(each, description="", was="", type=_without_notes(each.type)) for each in node.fields
        )
        return Record(node.class_name, tuple(fields))
    if isinstance(node, List):
        return List(_without_notes(node.item))
    return node
