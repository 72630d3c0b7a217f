"""Content hashes: SHA-256 over columns, the same however the columns were cut into batches.

docs/format.md specifies the text that is hashed. Each buffer is hashed as batches come, with offsets that
count on from the batch before. So memory is bounded, and the hash does not depend on pages or compression.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from .._schema.types import DTYPES
from .arrays import Tree
from .casts import Values

__all__ = ["ContentHash"]


class ContentHash:
    """The hash of columns, to which batches are added.

    Examples
    --------
    >>> from femtobarn._data.arrays import columns_of
    >>> from femtobarn._schema.types import Definition
    >>> fields = [{"name": "x", "type": "float64"}, {"name": "at", "type": "string"}]
    >>> record = Definition.from_json({"name": "Spot", "fields": fields}).record
    >>> once, twice = ContentHash(), ContentHash()
    >>> once.add(columns_of({"x": [1.0, 2.0], "at": ["a", "bc"]}, record))
    >>> twice.add(columns_of({"x": [1.0], "at": ["a"]}, record))
    >>> twice.add(columns_of({"x": [2.0], "at": ["bc"]}, record))
    >>> once.hexdigest() == twice.hexdigest()
    True
    >>> [line.split()[:3] for line in once.lines()]
    [['record', '2', 'x,at'], ['primitive', '2', 'float64'], ['string', '2', '3']]
    """

    def __init__(self) -> None:
        self._root: _Column | None = None

    def add(self, columns: Tree) -> None:
        """Add a batch: columns with the same names and types as those before."""
        if self._root is None:
            self._root = _Column(columns)
        self._root.add(columns)

    def lines(self) -> list[str]:
        """Return the lines of the text that is hashed: one for each column, from the outside in."""
        return [] if self._root is None else self._root.lines()

    def hexdigest(self) -> str:
        """Return the hash as 64 hexadecimal digits."""
        return hashlib.sha256("".join(f"{line}\n" for line in self.lines()).encode()).hexdigest()


class _Column:
    """A node of the tree: the hashes of its buffers so far, and the columns below it."""

    def __init__(self, tree: Tree) -> None:
        self.count = 0
        self.kind = tree[0]
        self.attribute = _attribute(tree)
        self.first, self.second = hashlib.sha256(), hashlib.sha256()
        self.characters = 0
        self.below = [_Column(content) for content in _contents(tree)]
        if self.kind in ("string", "list"):
            self.first.update(bytes(8))

    def add(self, tree: Tree) -> None:
        if self.kind == "primitive":
            self.first.update(tree[2])
        elif self.kind in ("string", "list"):
            items = self.characters if self.kind == "string" else self.below[0].count
            self.first.update(_bytes_of(np.frombuffer(tree[1], np.int64)[1:] + items))
        elif self.kind == "variant":
            self._add_positions(np.frombuffer(tree[1], np.int8), np.frombuffer(tree[2], np.int64))
        if self.kind == "string":
            self.second.update(tree[2])
            self.characters += memoryview(tree[2]).nbytes
        self.count += _length(tree)
        for column, content in zip(self.below, _contents(tree), strict=True):
            column.add(content)

    def _add_positions(self, tags: Values, positions: Values) -> None:
        """Add values of a variant; those that are missing have the position 0."""
        before = np.array([*(column.count for column in self.below), 0], np.int64)
        self.first.update(_bytes_of(tags))
        self.second.update(_bytes_of(np.where(tags < 0, 0, positions + before[tags])))

    def lines(self) -> list[str]:
        attribute = str(self.characters) if self.kind == "string" else self.attribute
        hashes = [self.first, self.second][: BUFFERS[self.kind]]
        line = " ".join([self.kind, str(self.count), attribute, *(each.hexdigest() for each in hashes)])
        return [line, *(below for column in self.below for below in column.lines())]


BUFFERS = {"primitive": 1, "string": 2, "list": 1, "fixed": 0, "record": 0, "variant": 2}
"""How many buffers a node of each kind has."""


def _attribute(tree: Tree) -> str:
    """Return the parameters of a column's type, apart from its kind."""
    if tree[0] == "record":
        return ",".join(tree[2])
    if tree[0] == "list":
        return "optional" if tree[3] else "items"
    return str(len(tree[3])) if tree[0] == "variant" else str(tree[1]) if tree[0] != "string" else ""


def _contents(tree: Tree) -> tuple[Tree, ...]:
    if tree[0] in ("record", "variant"):
        return tuple(tree[3])
    return (tree[2],) if tree[0] == "list" else (tree[3],) if tree[0] == "fixed" else ()


def _length(tree: Tree) -> int:
    if tree[0] == "primitive":
        return memoryview(tree[2]).nbytes // DTYPES[tree[1]].itemsize
    if tree[0] in ("string", "list"):
        return memoryview(tree[1]).nbytes // 8 - 1
    if tree[0] == "fixed":
        return int(tree[2])
    return int(tree[1]) if tree[0] == "record" else memoryview(tree[1]).nbytes


def _bytes_of(values: Values) -> Any:
    return np.ascontiguousarray(values).view(np.uint8).data
