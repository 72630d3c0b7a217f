"""How podio stores a collection in an event: its fields, with the C++ classes of their records.

A collection ``C`` of the datatype ``ns::X`` is a list of ``ns::XData``: the members of the datatype, and for
each vector member and each relation to many the indices ``v_begin`` and ``v_end``. They are positions in the
list ``_C_v``: of values, or of an ``ObjectID`` for each related object, as ``_C_r`` has for a relation to
one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .._exceptions import InvalidError, UnsupportedError
from .._schema.types import Field, List, Node, Primitive, Record, String, type_from_json
from .members import BUILTIN_TYPES
from .model import Model

__all__ = ["PARAMETERS", "CollectionInfo"]

OBJECT_ID = Record(
    "podio::ObjectID", (Field("index", Primitive("int32")), Field("collectionID", Primitive("uint32")))
)
"""Which object of which collection."""

LINK_DATA = Record("podio::LinkData", (Field("weight", Primitive("float32")),))
"""The members of each link, whatever it links."""

_PARAMETER_TYPES: dict[str, Node] = {
    "Int": Primitive("int32"),
    "Float": Primitive("float32"),
    "Double": Primitive("float64"),
    "String": String(),
}

PARAMETERS: dict[str, Node] = {
    f"GP{kind}{part}": List(of)
    for kind, item in _PARAMETER_TYPES.items()
    for part, of in (("Keys", String()), ("Values", List(item)))
}
"""The fields of the parameters of an event."""


@dataclass(frozen=True)
class CollectionInfo:
    """The metadata that podio stores about a collection, under podio's own names."""

    collectionID: int
    dataType: str
    isSubset: bool
    schemaVersion: int
    name: str
    storageType: str

    def fields(self, model: Model) -> dict[str, Node]:
        """Return the fields of the collection in an event.

        Parameters
        ----------
        model
            The model that has the datatype.

        Raises
        ------
        NotFoundError
            If the model has no such datatype.
        UnsupportedError
            If a member has a type that the fields of records cannot have.

        Examples
        --------
        >>> model = Model({"datatypes": {"my::Hit": {"Members": ["float e"], "VectorMembers": ["int n"],
        ...                                          "OneToOneRelations": ["my::Hit next"]}}})
        >>> hits = CollectionInfo(7, "my::HitCollection", False, 1, "Hits", "std::vector<my::HitData>")
        >>> {name: str(node) for name, node in hits.fields(model).items()}
        {'Hits': 'list[my::HitData]', '_Hits_n': 'list[int32]', '_Hits_next': 'list[podio::ObjectID]'}
        """
        if self.isSubset:
            return {f"{self.name}_objIdx": List(OBJECT_ID)}
        if self.dataType.startswith("podio::LinkCollection"):
            ends = {f"_{self.name}_{end}": List(OBJECT_ID) for end in ("from", "to")}
            return {self.name: List(LINK_DATA), **ends}
        if self.dataType.startswith("podio::UserDataCollection"):
            return {self.name: List(_user_type(self.dataType))}
        return dict(self._of_datatype(model))

    def _of_datatype(self, model: Model) -> Iterator[tuple[str, Node]]:
        name = self.dataType.removesuffix("Collection")
        types = model[name].__femtobarn__.record().by_name
        members, vectors, one, many = model.sections(name).values()
        fields = [Field(each, types[each]) for each in members]
        for each in (*vectors, *many):
            fields += [Field(f"{each}_{end}", Primitive("uint32")) for end in ("begin", "end")]
        for field in fields:
            if isinstance(field.type, List):
                raise UnsupportedError(f"{name}: member {field.name!r} is an array of components")
        yield self.name, List(Record(f"{name}Data", tuple(fields)))
        for each in vectors:
            yield f"_{self.name}_{each}", types[each]
        for each in (*many, *one):
            yield f"_{self.name}_{each}", List(OBJECT_ID)


def _user_type(data_type: str) -> Node:
    """Return the type of the values of a collection of numbers, which no model declares."""
    inner = data_type.partition("<")[2].removesuffix(">").strip()
    if inner.removeprefix("std::") not in BUILTIN_TYPES:
        raise InvalidError(f"{data_type} is not a collection of numbers")
    return type_from_json(BUILTIN_TYPES[inner.removeprefix("std::")])
