"""Counts links in imported columns that should lead to an element, but lead nowhere.

For example, they lead to a jet that was dropped as too soft, or to a collection that a skim left out. An
index less than 0, and a key that stands for no collection, are null links and are not counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

from .._data.arrays import Tree
from .._schema.references import Reference, references_of
from .._schema.types import DTYPES, Fixed, List, Node, Optional, Record, innermost, paths_of

__all__ = ["LostLinks"]

NO_INDEX = (1 << 32) - 1
"""The index of a null link in unsigned numbers."""


class LostLinks:
    """Counts the links that lead nowhere, by the path of the index, or of its record.

    Parameters
    ----------
    record
        The class of the objects.
    """

    def __init__(self, record: Record) -> None:
        self.counts: Counter[str] = Counter()
        self._found = {name: node for name, node in record.by_name.items() if _has_references(name, node)}
        self._of_event = dict(references_of(record))
        self._record = record

    def add(self, columns: Tree) -> None:
        """Count in some objects, given as columns of the class."""
        _, length, names, contents = columns
        parts = dict(zip(names, contents, strict=True))
        self._sizes: dict[str, Any] = {}
        self._parts = parts
        each = np.arange(length)
        for reference in self._of_event.values():
            self._count(reference, parts, each, reference.index)
        for name, node in self._found.items():
            self._walk(parts[name], node, each, name)

    def _walk(self, tree: Tree, node: Node, entries: Any, path: str) -> None:
        """Count in the columns of a field; `entries` has the entry of each value."""
        if isinstance(node, List | Optional) and tree[0] == "list":
            sizes: Any = np.diff(np.frombuffer(tree[1], np.int64))
            self._walk(tree[2], node.item, np.repeat(entries, sizes), path)
        elif isinstance(node, Fixed) and tree[0] == "fixed":
            self._walk(tree[3], node.item, np.repeat(entries, node.size), path)
        elif isinstance(node, Record):
            parts = dict(zip(tree[2], tree[3], strict=True))
            for reference in dict(references_of(node)).values():
                self._count(reference, parts, entries, path if reference.key else f"{path}.{reference.index}")
            for name, member in node.by_name.items():
                if isinstance(innermost(member), Record):
                    self._walk(parts[name], member, entries, f"{path}.{name}")

    def _count(self, reference: Reference, parts: dict[str, Tree], entries: Any, path: str) -> None:
        index = _numbers(parts[reference.index])
        if index is None:
            return
        if reference.end:
            end = _numbers(parts[reference.end])
            index = np.where(end > index, end - 1, -1)
        is_meant = (index >= 0) & (index != NO_INDEX)
        if reference.key:
            keys = _numbers(parts[reference.key])
            sizes = np.zeros(len(index), np.int64)
            for name, key in reference.targets:
                chosen = keys == key
                sizes[chosen] = self._sizes_of(name)[entries[chosen]]
            is_meant &= (keys != 0) & (keys != NO_INDEX) & (keys != -1)
        else:
            sizes = self._sizes_of(reference.targets[0][0])[entries]
        lost = int(np.count_nonzero(is_meant & (index >= sizes)))
        if lost:
            self.counts[path] += lost

    def _sizes_of(self, name: str) -> Any:
        """Return the number of elements of a collection in each entry."""
        if name not in self._sizes:
            _, offsets, content, is_optional = self._parts[name]
            sizes = np.diff(np.frombuffer(offsets, np.int64))
            if is_optional:
                sizes[sizes > 0] = np.diff(np.frombuffer(content[1], np.int64))
            self._sizes[name] = sizes
        return self._sizes[name]


def _numbers(tree: Tree) -> Any:
    """Return a column of integers, or None if some may be missing."""
    return np.frombuffer(tree[2], DTYPES[tree[1]]).astype(np.int64) if tree[0] == "primitive" else None


def _has_references(name: str, node: Node) -> bool:
    return any(isinstance(each, Record) and any(references_of(each)) for each in _records(name, node))


def _records(name: str, node: Node) -> Iterator[Node]:
    yield innermost(node)
    yield from (innermost(each) for _, each in paths_of(innermost(node), f"{name}."))
