"""A TTree as a source of objects: a class definition and batches of arrays of that class."""

from __future__ import annotations

import fnmatch
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import awkward as ak

from femtobarn._exceptions import CorruptError, InvalidError, NotFoundError, UnsupportedError, near_misses
from femtobarn.definitions import Definition
from femtobarn.importers.assembly import Column, assemble, definition_fields, plan
from femtobarn.importers.branches import Leaf, leaves_of
from femtobarn.importers.files import find_tree
from femtobarn.importers.types import Unrepresentable, identifier, normalise

__all__ = ["Skipped", "TreeSource", "open_tree"]

SAMPLE_ENTRIES = 200
"""Entries on which the class is decided."""

BATCH_BYTES = 32_000_000
"""Uncompressed size of the batches."""


@dataclass(frozen=True)
class Skipped:
    """A branch that is not imported, and why."""

    branch: str
    reason: str


class TreeSource:
    """A tree, ready to be imported; made by `open_tree`.

    Attributes
    ----------
    definition
        The class of the objects, as JSON.
    entries
        Number of objects.
    skipped
        Branches that could not be read.
    """

    def __init__(self, tree: Any, leaves: list[Leaf], name: str) -> None:
        self._tree = tree
        self.entries = int(tree.num_entries)
        self.skipped: list[Skipped] = []
        sample = self._sample(leaves)
        if not sample:
            reason = self.skipped_line or "it has none"
            raise UnsupportedError(f"tree {tree.name!r} has no branch that can be imported: {reason}")
        self._fields = plan(sample)
        self.definition: Definition = {"name": name, "version": 1, "fields": definition_fields(self._fields)}
        self._leaves = [leaf for made in self._fields for leaf in made.leaves]
        self._types = {column.leaf.number: column.type for column in sample}
        # Reading a small tree with thousands of branches twice would double the time of its import.
        whole = self.entries <= SAMPLE_ENTRIES
        self._whole = {column.leaf.number: column for column in sample} if whole else {}

    def __repr__(self) -> str:
        return f"<TreeSource {self.definition['name']}: {self.entries} entries, {len(self._fields)} fields>"

    @property
    def skipped_line(self) -> str:
        """What was left out, in one line; empty if nothing was."""
        if not self.skipped:
            return ""
        names = ", ".join(skipped.branch for skipped in self.skipped[:5])
        more = f" and {len(self.skipped) - 5} more" if len(self.skipped) > 5 else ""
        return f"{len(self.skipped)} branches cannot be read: {names}{more}"

    def batches(self, *, size: int = BATCH_BYTES) -> Iterator[ak.Array]:
        """All objects in order.

        Parameters
        ----------
        size
            Uncompressed bytes of a batch, about; it has at least one entry.
        """
        stored = sum(int(leaf.branch.uncompressed_bytes) for leaf in self._leaves)
        step = max(1, size * self.entries // max(stored, 1))
        for start in range(0, self.entries, step):
            yield self.read(start, min(start + step, self.entries))

    def read(self, start: int, stop: int) -> ak.Array:
        """The objects ``start:stop``."""
        columns = {leaf.number: self._column(leaf, start, stop) for leaf in self._leaves}
        return assemble(self._fields, columns)

    def _sample(self, leaves: list[Leaf]) -> list[Column]:
        """Read the first entries of every branch, and sort out what cannot be read."""
        columns = []
        for leaf in leaves:
            try:
                columns.append(_read(leaf, 0, min(self.entries, SAMPLE_ENTRIES)))
            except Exception as error:
                self.skipped.append(Skipped(leaf.name, _reason(error)))
        return columns

    def _column(self, leaf: Leaf, start: int, stop: int) -> Column:
        if self._whole and (start, stop) == (0, self.entries):
            return self._whole[leaf.number]
        try:
            column = _read(leaf, start, stop)
        except Exception as error:
            where = f"entries {start} to {stop} of branch {leaf.name!r}"
            raise CorruptError(f"{where} cannot be read, earlier ones could: {_reason(error)}") from error
        if column.type != self._types[leaf.number]:
            raise InvalidError(f"branch {leaf.name!r} changes its type from entry {start} on")
        return column


def open_tree(
    path: str | os.PathLike[str],
    tree: str | None = None,
    *,
    name: str | None = None,
    only: list[str] | None = None,
    grouping: bool = True,
) -> TreeSource:
    """Open a TTree for import.

    Parameters
    ----------
    path
        A ROOT file, or a URL that fsspec understands.
    tree
        Name of the tree; without one the only one in the file, or the one with a usual name.
    name
        Name of the class; the tree's name by default.
    only
        Patterns such as "Muon_*" or "nMuon"; other branches are left out.
    grouping
        Make collections and records of branches with a common prefix, where the file shows that they
        belong together.
    """
    found = find_tree(path, tree)
    leaves = leaves_of(found, grouping=grouping)
    if only is not None:
        leaves = _matching(found, leaves, only)
    return TreeSource(found, leaves, name or identifier(found.name))


def _matching(tree: Any, leaves: list[Leaf], patterns: list[str]) -> list[Leaf]:
    """The leaves that any pattern matches; a pattern may also match a counter, which is no leaf."""
    names = [str(name) for name in tree.keys()]  # noqa: SIM118 - a tree iterates over its entries
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise NotFoundError(f"no branch matches {pattern!r}{near_misses(pattern, names)}")
    return [leaf for leaf in leaves if any(fnmatch.fnmatchcase(leaf.name, pattern) for pattern in patterns)]


def _read(leaf: Leaf, start: int, stop: int) -> Column:
    array = leaf.branch.array(entry_start=start, entry_stop=stop, library="ak")
    label = leaf.class_name if len(leaf.path) == 1 else ""
    if len(array) != stop - start:
        raise CorruptError(f"{stop - start} entries were expected, {len(array)} are there")
    type_, content = normalise(ak.to_packed(array).layout, label or "_".join(leaf.path))
    return Column(leaf, type_, content)


def _reason(error: Exception) -> str:
    if isinstance(error, Unrepresentable):
        return str(error)
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
