"""A TTree as a source of objects: a class definition and batches of arrays of that class."""

from __future__ import annotations

import fnmatch
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import awkward as ak
import numpy as np
from awkward.contents import Content

from femtobarn._exceptions import CorruptError, InvalidError, NotFoundError, UnsupportedError, near_misses
from femtobarn._schema.names import identifier
from femtobarn.definitions import Definition, Type
from femtobarn.importers import baskets
from femtobarn.importers.assembly import Column, assemble, definition_fields, plan
from femtobarn.importers.baskets import Baskets, Numbers
from femtobarn.importers.branches import Leaf, leaves_of
from femtobarn.importers.container_keys import KeyTables
from femtobarn.importers.cross_references import CrossReferences, with_references
from femtobarn.importers.files import TreeFile, mapped, uncollected
from femtobarn.importers.types import Unrepresentable, normalise

__all__ = ["BATCH_BYTES", "Skipped", "TreeSource", "open_tree", "open_trees", "require_matches"]

SAMPLE_ENTRIES = 200
"""Entries from which the class is derived."""

BATCH_BYTES = 64_000_000
"""Default size of a batch, uncompressed."""


@dataclass(frozen=True)
class Skipped:
    """A branch that is left out, and the reason."""

    branch: str
    reason: str


@dataclass(frozen=True)
class _Place:
    """The arguments by which a tree is opened, also again: each time with the same leaves."""

    path: str
    tree: str
    grouping: bool
    records: frozenset[str]

    def open(self, file: TreeFile | None = None) -> tuple[Any, list[Leaf]]:
        tree = (file or TreeFile(self.path)).tree(self.tree)
        return tree, leaves_of(tree, grouping=self.grouping, records=self.records)


class TreeSource:
    """A tree as a source of objects; `open_tree` makes it.

    It can be pickled. An unpickled or closed source opens its file again when it is read.

    Attributes
    ----------
    path, tree
        The file, and the name of the tree in it.
    definition
        The class of the objects, as a dictionary in the JSON form of classes.
    entries
        Number of objects.
    skipped
        Branches that could not be read.
    references
        Indices that became links to elements of the same object, and those that did not.
    """

    def __init__(
        self,
        place: _Place,
        file: TreeFile,
        name: str | None,
        only: list[str] | None,
        *,
        links: bool = True,
    ) -> None:
        self._place = place
        self.path, self.tree = place.path, place.tree
        found, leaves = place.open(file)
        if only is not None:
            leaves = [leaf for leaf in leaves if any(fnmatch.fnmatchcase(leaf.name, each) for each in only)]
        self.entries = int(found.num_entries)
        self.skipped: list[Skipped] = []
        # Columns of a tree no larger than the sample. To read thousands of branches a second time would
        # double the time of such an import.
        self._whole: dict[int, Column] = {}
        self._data = file.data
        self._baskets = {} if file.data is None else _baskets_of(leaves)
        sample = self._sample(found, leaves)
        if not sample:
            reason = self.skipped_line or ("it has no branches" if only is None else "no branch matches")
            raise UnsupportedError(f"tree {found.name!r} has no branch that can be imported: {reason}")
        self._fields = plan(sample)
        self.references = CrossReferences()
        if links:
            columns = {column.leaf.number: column for column in sample}
            self._fields, self.references = with_references(
                self._fields, lambda leaf: self._sampled(columns[leaf.number]), KeyTables(file, place.tree)
            )
        fields = definition_fields(self._fields)
        self.definition: Definition = {"name": name or identifier(found.name), "version": 1, "fields": fields}
        self._types = {column.leaf.number: column.type for column in sample}
        leaves = [leaf for made in self._fields for leaf in made.leaves]
        self._bytes = sum(int(leaf.branch.uncompressed_bytes) for leaf in leaves)
        largest = max(leaves, key=lambda leaf: int(leaf.branch.uncompressed_bytes))
        baskets = self._baskets.get(largest.number)
        self._edges = np.zeros(1, np.int64) if baskets is None else baskets.edges
        self._opened: tuple[Any, list[Leaf]] | None = (found, leaves)
        self._fields = [replace(made, leaves=tuple(map(_detached, made.leaves))) for made in self._fields]
        self._leaves = [leaf for made in self._fields for leaf in made.leaves]

    def __repr__(self) -> str:
        return f"<TreeSource {self.definition['name']}: {self.entries} entries, {len(self._fields)} fields>"

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_opened": None, "_data": None, "_whole": {}}

    @property
    def skipped_line(self) -> str:
        """The branches that cannot be read, in one line; empty if there are none."""
        if not self.skipped:
            return ""
        names = ", ".join(skipped.branch for skipped in self.skipped[:5])
        more = f" and {len(self.skipped) - 5} more" if len(self.skipped) > 5 else ""
        return f"{len(self.skipped)} branches cannot be read: {names}{more}"

    def spans(self, *, size: int = BATCH_BYTES) -> list[tuple[int, int]]:
        """Return the range of entries of each batch, as start and stop, in order.

        Parameters
        ----------
        size
            Approximate size of a batch in bytes, uncompressed; it has at least one entry. If possible a batch
            ends where a basket of the largest branch ends, because baskets that two batches share are read
            twice.
        """
        count = max(1, -(-self._bytes // size))
        step = max(1, -(-self.entries // count))
        found, start = [], 0
        while start < self.entries:
            stop = min(start + step, self.entries)
            edge = int(self._edges[int(np.searchsorted(self._edges, stop, "right")) - 1])
            stop = edge if start < edge < stop else stop
            found.append((start, stop))
            start = stop
        return found

    def batches(self, *, size: int = BATCH_BYTES) -> Iterator[ak.Array]:
        """Yield all objects in order, in batches of about `size` bytes, uncompressed."""
        for start, stop in self.spans(size=size):
            yield self.read(start, stop)

    @uncollected
    def read(self, start: int, stop: int, *, threads: int = 1) -> ak.Array:
        """Return the objects ``start:stop``; as many as `threads` threads read branches of plain numbers."""
        known = self._whole if (start, stop) == (0, self.entries) else {}
        leaves = [leaf for leaf in self._leaves if leaf.number not in known]
        columns = {column.leaf.number: column for column in self._columns(leaves, start, stop, threads)}
        return assemble(self._fields, known | columns)

    def close(self) -> None:
        """Close the file, and free its memory; reading opens it again."""
        self._opened = self._data = None

    def _open(self) -> tuple[Any, list[Leaf]]:
        if self._opened is None:
            self._opened = self._place.open()
        return self._opened

    def _sample(self, tree: Any, leaves: list[Leaf]) -> list[Column]:
        """Return a column of each leaf, which gives its type.

        Leaves whose types are not certain are read, and skipped if that fails.
        """
        columns = {leaf.number: _without_entries(leaf) for leaf in _certain(leaves)}
        rest = [leaf for leaf in leaves if leaf.number not in columns]
        stop = min(self.entries, SAMPLE_ENTRIES)
        arrays = self._numbers(rest, 0, stop, 1) or _read_together(tree, rest, 0, stop)
        for leaf in rest:
            try:
                columns[leaf.number] = _column(leaf, arrays.get(leaf.number), 0, stop)
            except Exception as error:
                self.skipped.append(Skipped(leaf.name, _reason(error)))
        if stop == self.entries:
            self._whole = {leaf.number: columns[leaf.number] for leaf in rest if leaf.number in columns}
        return [columns[leaf.number] for leaf in leaves if leaf.number in columns]

    def _sampled(self, column: Column) -> Column:
        """Return a column with the entries of the sample, which one of a certain type does not have yet."""
        leaf, stop = column.leaf, min(self.entries, SAMPLE_ENTRIES)
        if len(column.content) == stop:
            return column
        return _column(leaf, self._numbers([leaf], 0, stop, 1).get(leaf.number), 0, stop)

    def _columns(self, leaves: list[Leaf], start: int, stop: int, threads: int) -> Iterator[Column]:
        numbers = self._numbers(leaves, start, stop, threads)
        for leaf in leaves:
            if leaf.number in numbers:
                yield Column(leaf, self._types[leaf.number], numbers[leaf.number])
        rest = {leaf.number for leaf in leaves if leaf.number not in numbers}
        if not rest:
            return
        # uproot opens the file only for these branches.
        tree, opened = self._open()
        unread = [leaf for leaf in opened if leaf.number in rest]
        layouts = {} if self._baskets else _read_together(tree, unread, start, stop)
        for leaf in unread:
            try:
                column = _column(leaf, layouts.pop(leaf.number, None), start, stop)
            except Exception as error:
                where = f"entries {start} to {stop} of branch {leaf.name!r} of {self.path}"
                raise CorruptError(f"{where} cannot be read: {_reason(error)}") from error
            if column.type != self._types[leaf.number]:
                raise InvalidError(f"branch {leaf.name!r} has another type from entry {start} on")
            yield column

    def _numbers(self, leaves: list[Leaf], start: int, stop: int, threads: int) -> dict[int, Content]:
        """Return the layouts of leaves of plain numbers, by the leaf's number; none if the file is remote."""
        wanted = {leaf.number: self._baskets[leaf.number] for leaf in leaves if leaf.number in self._baskets}
        if not wanted:
            return {}
        if self._data is None:
            self._data = mapped(self.path)
        return baskets.read(self._data, wanted, start, stop, threads=threads)


def open_tree(
    path: str | os.PathLike[str],
    tree: str | None = None,
    *,
    name: str | None = None,
    only: list[str] | None = None,
    grouping: bool = True,
    links: bool = True,
) -> TreeSource:
    """Open a TTree for import.

    Parameters
    ----------
    path
        A ROOT file, or a URL that fsspec understands.
    tree
        Name of the tree; if not given, the only tree of the file, or the one with a usual name.
    name
        Name of the class; that of the tree by default.
    only
        Globs such as "Muon_*" or "nMuon" of the branches to import.
    grouping
        Whether to make collections and records of branches with a common prefix, where the file shows that
        they belong together.
    links
        Whether indices in collections of the same object, such as ``Muon_jetIdx``, become links.

    Raises
    ------
    NotFoundError
        If the file or the tree does not exist, or a glob matches no branch; near misses are named.
    CorruptError
        If the file is damaged, or not a ROOT file.
    UnsupportedError
        If no branch can be imported.
    InvalidError
        If the file has several trees, none of a usual name, and `tree` is not given.
    """
    file = TreeFile(path)
    tree = tree or file.usual_tree()
    if only is not None:
        require_matches(_branch_names(file.tree(tree)), only)
    return TreeSource(_Place(file.location, tree, grouping, frozenset()), file, name, only, links=links)


@uncollected
def open_trees(
    path: str | os.PathLike[str],
    trees: Sequence[str] | None = None,
    *,
    only: list[str] | None = None,
    grouping: bool = True,
    records: Collection[str] = (),
    links: bool = True,
) -> tuple[list[TreeSource], dict[str, str], str, set[str]]:
    """Open trees of a file for import: the named ones, or all that can be imported.

    Parameters
    ----------
    path, only, grouping, links
        As for `open_tree`. Trees without a branch that ``only`` matches are left out.
    trees
        Names of the trees; all if not given.
    records
        Names of records that other trees of the class have. A branch ``name_x`` becomes a member of the
        record ``name`` even if no other branch has this prefix.

    Returns
    -------
    The sources; the reason for each other object of the file why it is left out; the UUID of the file, or "";
    and the names of all branches if ``only`` is given, else none.
    """
    file = TreeFile(path)
    file.require_trees()
    trees_asked = file.trees if trees is None else trees
    names: set[str] = set()
    if only is not None:
        names.update(name for tree in trees_asked for name in _branch_names(file.tree(tree)))
    left_out = {other: _reason_for_kind(kind) for other, kind in file.others.items()}
    if trees is not None:
        left_out |= {tree: "not asked for" for tree in file.trees if tree not in trees}
    sources: list[TreeSource] = []
    errors: list[UnsupportedError] = []
    for tree in trees_asked:
        place = _Place(file.location, tree, grouping, frozenset(records))
        try:
            sources.append(TreeSource(place, file, _unique_name(tree, file), only, links=links))
        except UnsupportedError as error:
            left_out[tree] = str(error)
            errors.append(error)
    if errors and (trees is not None or not sources):
        require_matches(names, only or [])
        raise errors[0]
    return sources, left_out, file.uuid, names


def _unique_name(tree: str, file: TreeFile) -> str:
    """Return a class name for a tree: its name, with its folder if it is not unique, then with a number."""
    own = identifier(tree.rpartition("/")[2])
    if [identifier(other.rpartition("/")[2]) for other in file.trees].count(own) < 2:
        return own
    whole = identifier(tree)
    number = [other for other in file.trees if identifier(other) == whole].index(tree)
    return whole if number == 0 else f"{whole}_{number + 1}"


def _reason_for_kind(kind: str) -> str:
    if kind == "ROOT::RNTuple":
        return "an RNTuple; attach the file, or import it as RNTuples"
    return f"a {kind}, not a tree"


def _branch_names(tree: Any) -> list[str]:
    return [str(name) for name in tree.keys()]  # noqa: SIM118 - a tree iterates over its entries


def require_matches(names: Collection[str], patterns: Sequence[str]) -> None:
    """Raise an error if a glob matches none of the names of branches, counters included."""
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise NotFoundError(f"no branch matches {pattern!r}{near_misses(pattern, sorted(names))}")


def _detached(leaf: Leaf) -> Leaf:
    """Return a leaf without its branch, which would keep the file open."""
    return replace(leaf, branch=None)


def _baskets_of(leaves: list[Leaf]) -> dict[int, Baskets]:
    """Return the baskets of the leaves of plain numbers, by the number of the leaf."""
    found = ((leaf.number, Baskets.of(leaf.branch)) for leaf in leaves)
    return {number: baskets for number, baskets in found if baskets is not None}


def _certain(leaves: list[Leaf]) -> list[Leaf]:
    """Return the leaves whose types are known without reading.

    These are numbers, single lists of numbers, and groups of lists of numbers that share a counter.
    """
    groups: dict[str, list[Leaf]] = {}
    for leaf in leaves:
        groups.setdefault(leaf.path[0], []).append(leaf)
    return [leaf for group in groups.values() if _is_certain(group) for leaf in group]


def _is_certain(group: list[Leaf]) -> bool:
    kinds = [Numbers.of(leaf.branch) for leaf in group]
    are_lists = {kind.is_list for kind in kinds if kind is not None}
    counters = {leaf.counter for leaf in group}
    agree = len(group) == 1 or (len(counters) == 1 and counters != {""})
    return None not in kinds and (are_lists == {False} or (are_lists == {True} and agree))


def _without_entries(leaf: Leaf) -> Column:
    """Return a column of a leaf of numbers without entries, which gives the type without reading."""
    numbers = Numbers.of(leaf.branch)
    assert numbers is not None, "only leaves of numbers are certain"
    return Column(leaf, *_empty(numbers))


@cache
def _empty(numbers: Numbers) -> tuple[Type, Content]:
    """Return the type of entries and a layout without any; thousands of branches have few types."""
    return normalise(numbers.layout(np.empty(0, numbers.dtype), np.zeros(1, np.int64)), "")


def _read_together(tree: Any, leaves: list[Leaf], start: int, stop: int) -> dict[int, Content]:
    """Return the layouts of leaves by number, read in one call: each call takes a round trip for a remote
    file.

    This is only for leaves of plain numbers in flat trees, because the time in which uproot looks up names
    with dots grows with the square of their number. If a leaf cannot be read, the result is empty: then
    leaves are read one by one, which shows the damaged one.
    """
    names = Counter(leaf.name for leaf in leaves)
    unique = {
        leaf.branch.cache_key: leaf
        for leaf in leaves
        if names[leaf.name] == 1 and leaf.name.isidentifier() and Numbers.of(leaf.branch) is not None
    }
    if not unique:
        return {}
    try:
        arrays = tree.arrays(
            filter_branch=lambda branch: branch.cache_key in unique,
            entry_start=start,
            entry_stop=stop,
            library="ak",
            how=dict,
        )
    except Exception:
        return {}
    return {leaf.number: arrays[leaf.name].layout for leaf in unique.values() if leaf.name in arrays}


def _column(leaf: Leaf, layout: Content | None, start: int, stop: int) -> Column:
    """Return the column of a leaf, which is read unless its layout is given."""
    if layout is None:
        layout = leaf.branch.array(entry_start=start, entry_stop=stop, library="ak").layout
    label = leaf.class_name if len(leaf.path) == 1 else ""
    if len(layout) != stop - start:
        raise CorruptError(f"expected {stop - start} entries, found {len(layout)}")
    type_, content = normalise(layout, label or "_".join(leaf.path))
    return Column(leaf, type_, content)


def _reason(error: Exception) -> str:
    if isinstance(error, Unrepresentable):
        return str(error)
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
