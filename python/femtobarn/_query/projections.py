"""Projections: the fields to read, their order in the result, and numbers of items.

The engine returns columns in the order in which they are stored, and knows no ``nX``. A projection arranges
them in the order of the expressions, or of the class if there are none, and makes ``nX`` of the offsets of X.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .._data.arrays import Tree
from .._schema.types import Definition, Field, Fixed, List, Node, Optional, Primitive, Record
from .paths import Expressions, counted, expand

__all__ = ["Projection", "part_of"]

COUNT = Primitive("int64")
"""Type of a number of items."""


@dataclass(frozen=True)
class Projection:
    """The fields to read.

    Examples
    --------
    >>> form = {"name": "Event", "fields": [{"name": "run", "type": "int32"},
    ...         {"name": "Muon", "type": {"list": "float32"}}]}
    >>> projection = Projection.of(["nMuon", "run"], Definition.from_json(form))
    >>> projection.paths, [str(field.type) for field in projection.record.fields]
    (['Muon.#', 'run'], ['int64', 'int32'])
    """

    record: Record
    """The type of the result, with its fields in order."""
    paths: list[str]
    """Paths for the engine: of fields, and ``X.#`` for the number of items of X."""

    @classmethod
    def of(cls, expressions: Expressions, definition: Definition) -> Projection:
        """Return the projection that expressions stand for.

        Raises
        ------
        NotFoundError
            If an expression matches no field; near misses are named.
        """
        chosen = expand(expressions, definition, counts=True)
        known = {path: _stored(path, definition) for path in chosen}
        record = _part(definition.record, [path.split(".") for path in chosen])
        return cls(record, list(known.values()))

    def as_class(self, definition: Definition) -> Definition:
        """Return the class with only these fields."""
        return Definition(definition.name, definition.version, self.record.fields)

    def arrange(self, tree: Tree) -> Tree:
        """Return columns of the engine in the order of the projection, with numbers of items."""
        return _arranged(tree, self.record)


def part_of(definition: Definition, paths: list[str]) -> Definition:
    """Return a class with only the fields at the given paths, in their order.

    Examples
    --------
    >>> form = {"name": "A", "fields": [{"name": "x", "type": "int8"}, {"name": "y", "type": "int8"}]}
    >>> [field.name for field in part_of(Definition.from_json(form), ["y", "x"]).fields]
    ['y', 'x']
    """
    record = _part(definition.record, [path.split(".") for path in paths])
    return Definition(definition.name, definition.version, record.fields)


def _stored(path: str, definition: Definition) -> str:
    """Return the path for the engine: ``X.#`` for ``nX``."""
    parent, _, name = path.rpartition(".")
    above = definition.resolve(parent) if parent else definition.record
    collection = None if name in _members(above) else counted(path, definition)
    return path if collection is None else f"{collection}.#"


def _members(node: Node) -> dict[str, Node]:
    while isinstance(node, List | Fixed | Optional):
        node = node.item
    return node.by_name if isinstance(node, Record) else {}


def _part(record: Record, wanted: Sequence[Sequence[str]]) -> Record:
    """Return a record with only the wanted fields, each a path of names, in their order."""
    known = {field.name: field for field in record.fields}
    fields = []
    for name in dict.fromkeys(path[0] for path in wanted):
        field = known.get(name, Field(name, COUNT))
        below = [path[1:] for path in wanted if path[0] == name and len(path) > 1]
        fields.append(Field(name, _inner(field.type, below), field.description) if below else field)
    return Record(record.class_name, tuple(fields))


def _inner(node: Node, wanted: Sequence[Sequence[str]]) -> Node:
    if isinstance(node, Record):
        return _part(node, wanted)
    if isinstance(node, List):
        return List(_inner(node.item, wanted))
    if isinstance(node, Optional):
        return Optional(_inner(node.item, wanted))
    return Fixed(_inner(node.item, wanted), node.size) if isinstance(node, Fixed) else node


def _arranged(tree: Tree, node: Node) -> Tree:
    if tree[0] == "list" and isinstance(node, List | Optional):
        return (*tree[:2], _arranged(tree[2], node.item), tree[3])
    if tree[0] == "fixed" and isinstance(node, Fixed):
        return (*tree[:3], _arranged(tree[3], node.item))
    if tree[0] != "record" or not isinstance(node, Record):
        return tree
    columns = dict(zip(tree[2], tree[3], strict=True))
    contents = tuple(
        _arranged(columns[name], of) if name in columns else _counts(columns[name[1:]])
        for name, of in node.by_name.items()
    )
    return ("record", tree[1], tuple(node.by_name), contents)


def _counts(column: Tree) -> Tree:
    return ("primitive", COUNT.name, np.diff(np.frombuffer(column[1], np.int64)))
