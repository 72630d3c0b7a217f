"""Assembly of the columns of a tree into the fields of a class.

A column whose path has one part is a field. Columns that share the first part of their paths become

- a collection of records, if all are lists with the same length in every event;
- a record otherwise.

A sample of the tree decides whether the lengths agree; every batch is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace

import awkward as ak
import numpy as np
from awkward.contents import Content

from femtobarn._exceptions import InvalidError
from femtobarn._schema.names import identifier
from femtobarn.definitions import Type, field, list_of
from femtobarn.importers.branches import Leaf
from femtobarn.importers.types import normalise

__all__ = ["Column", "Field", "assemble", "plan"]


@dataclass(frozen=True)
class Column:
    """A leaf with its type, and its data for a range of entries."""

    leaf: Leaf
    type: Type
    content: Content


@dataclass(frozen=True)
class Field:
    """A field of the class.

    Parameters
    ----------
    name
        Name, unique among the fields.
    type
        Type in the class definition.
    leaves
        The leaves that it is assembled from.
    shape
        "plain" for a single leaf, "collection" or "record".
    """

    name: str
    type: Type
    leaves: tuple[Leaf, ...]
    shape: str


def plan(columns: list[Column]) -> list[Field]:
    """Return the fields for the columns of a sample of entries."""
    groups: dict[str, list[Column]] = {}
    for column in columns:
        groups.setdefault(column.leaf.path[0], []).append(column)
    fields = [made for name, members in groups.items() for made in _fields_of(name, members)]
    return _unique(fields)


def assemble(fields: list[Field], columns: Mapping[int, Column]) -> ak.Array:
    """Return objects of the planned class.

    Parameters
    ----------
    columns
        Columns by the number of their leaf.
    """
    contents = [_content(made, [columns[leaf.number] for leaf in made.leaves]) for made in fields]
    return ak.Array(ak.contents.RecordArray(contents, [made.name for made in fields]))


def _fields_of(name: str, members: list[Column]) -> list[Field]:
    if len(members) == 1 and len(members[0].leaf.path) == 1:
        return [_plain(members[0])]
    lists = [member for member in members if _is_list(member)]
    if len(lists) < len(members) or not lists:
        return [_build(name, members, "record")]
    agreeing = _majority(lists)
    if members[0].leaf.presumed and len(agreeing) < len(members):
        return [_plain(member) for member in members]
    others = [member for member in lists if not any(member is agreed for agreed in agreeing)]
    if len(agreeing) == 1 and others:
        return [_build(name, members, "record")]
    return [_build(name, agreeing, "collection"), *(_plain(other) for other in others)]


def _plain(column: Column) -> Field:
    return Field(identifier("_".join(column.leaf.path)), column.type, (column.leaf,), "plain")


def _is_list(column: Column) -> bool:
    return isinstance(column.type, dict) and "list" in column.type


def _majority(lists: list[Column]) -> list[Column]:
    """Return the columns with the most common lengths."""
    keys = [np.asarray(column.content.offsets).tobytes() for column in lists]
    (most, _), *_ = Counter(keys).most_common(1)
    return [column for column, key in zip(lists, keys, strict=True) if key == most]


def _build(name: str, members: list[Column], shape: str) -> Field:
    class_name = identifier(members[0].leaf.class_name or name)
    leaves = tuple(member.leaf for member in members)
    content = _content(Field(name, "", leaves, shape), members)
    element = content.content if shape == "collection" else content
    inner, _ = normalise(element, class_name)
    return Field(identifier(name), list_of(inner) if shape == "collection" else inner, leaves, shape)


def _content(made: Field, columns: list[Column]) -> Content:
    """Return the layout of one field."""
    if made.shape == "plain":
        return columns[0].content
    if made.shape == "record":
        members = {column.leaf.path[1:]: column.content for column in columns}
        return _nest(members, columns[0].leaf.class_name or made.name)
    offsets = columns[0].content.offsets
    for column in columns[1:]:
        _check_lengths(made.name, columns[0], column)
    members = {column.leaf.path[1:]: column.content.content for column in columns}
    record = _nest(members, columns[0].leaf.class_name or made.name)
    return ak.contents.ListOffsetArray(offsets, record)


def _check_lengths(name: str, first: Column, other: Column) -> None:
    a, b = np.asarray(first.content.offsets), np.asarray(other.content.offsets)
    if np.array_equal(a, b):
        return
    entry = int(np.flatnonzero(a != b)[0]) - 1
    raise InvalidError(
        f"the members {first.leaf.name!r} and {other.leaf.name!r} of {name!r} differ in length from entry "
        f"{entry} of a batch; import with grouping=False (--no-grouping)"
    )


def _nest(members: Mapping[tuple[str, ...], Content], label: str) -> Content:
    """Return a record, with records in it for members with longer paths."""
    named: dict[str, dict[tuple[str, ...], Content]] = {}
    for path, content in members.items():
        named.setdefault(path[0] if path else "value", {})[path[1:]] = content
    contents = [
        deeper[()] if list(deeper) == [()] else _nest(deeper, f"{label}_{name}")
        for name, deeper in named.items()
    ]
    names = [identifier(name) for name in named]
    return ak.contents.RecordArray(contents, names, parameters={"__record__": label})


def _unique(fields: list[Field]) -> list[Field]:
    """Number the fields whose names are equal after invalid characters were replaced."""
    seen: Counter[str] = Counter()
    result = []
    for made in fields:
        seen[made.name] += 1
        repeat = seen[made.name]
        result.append(made if repeat == 1 else replace(made, name=f"{made.name}_{repeat}"))
    return result


def definition_fields(fields: list[Field]) -> list[dict[str, object]]:
    """Return the fields in the JSON form of class definitions."""
    return [field(made.name, made.type) for made in fields]
