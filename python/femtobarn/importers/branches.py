"""The branches of a tree that have data, and the path of each in the class.

The path ``("Muon", "pt")`` is the member pt of the field Muon. Paths come from

- ROOT's own splitting: branch ``BuildUpVertices`` with children ``BuildUpVertices.position.x``;
- dots in names, as in ATLAS's ``AnalysisElectronsAuxDyn.pt``;
- NanoAOD's convention, where the file confirms it: branches ``X_*`` that ``nX`` counts are one collection,
  and in a file with such collections flat branches ``Y_*`` are one record. In skims by uproot each ``X_y``
  may have its own counter ``nX_y``: if there is an ``nX``, they are one collection; if not, they are presumed
  to be, and their lengths decide.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Leaf", "leaves_of"]

AUXILIARY = re.compile(r"(AuxDyn|Aux)$")
"""ATLAS's suffixes for branches with the members of a collection; they are not part of its name."""

OBJECT_FLAGS = "fBits"
"""Bookkeeping of ROOT in every TObject, of varying size, without data."""


@dataclass(frozen=True)
class Leaf:
    """A branch that has data.

    Parameters
    ----------
    branch
        The branch of uproot; None while the file is closed.
    path
        Path in the class; the last part is the name of the member.
    class_name
        Name in C++ of the collection or record that it is a member of; "" if unknown.
    counter
        Name of the branch that counts the elements of this one; "" if there is none.
    number
        Identifies the leaf, because names of branches may be equal.
    presumed
        Whether only the name marks it as a member of a collection: the lengths of all members have to
        agree.
    name
        Name of the branch in its file, including the branches that it is a child of.
    """

    branch: Any
    path: tuple[str, ...]
    class_name: str = ""
    counter: str = ""
    number: int = 0
    presumed: bool = False
    name: str = ""


def leaves_of(tree: Any, *, grouping: bool, records: Collection[str] = ()) -> list[Leaf]:
    """Return all branches with data, in the order of the tree.

    Parameters
    ----------
    grouping
        Whether to follow conventions in names; ROOT's own splitting is always followed.
    records
        Names of records that even a single flat branch is grouped into, as in other files of the class.
    """
    found = [leaf for branch in tree.branches for leaf in _descend(branch, ())]
    if grouping:
        placed = _by_convention(found, records)
    else:
        placed = [leaf if leaf.class_name else replace(leaf, path=("_".join(leaf.path),)) for leaf in found]
    return _with_unique_paths(placed)


def _descend(branch: Any, parents: tuple[str, ...], class_name: str = "") -> Iterator[Leaf]:
    """Yield the leaves of a branch; a branch with children has no data of its own."""
    name = branch.name.rstrip(".")
    if parents and name.startswith(f"{parents[0]}."):
        name, parents = name.removeprefix(f"{parents[0]}."), parents[:1]
    path = (*parents, *(re.sub(r"\[[^\]]*\]", "", part) for part in name.split(".")))
    if not branch.branches:
        if path[-1] != OBJECT_FLAGS:
            count = branch.count_branch
            counter = "" if count is None else str(count.name)
            full_name = str(branch.object_path.split(":")[-1])
            yield Leaf(branch, _without_suffix(path), class_name, counter, name=full_name)
        return
    inner = (_element_class(branch.typename) or path[0]) if len(path) == 1 else ""
    for child in branch.branches:
        yield from _descend(child, path, class_name or inner)


def _without_suffix(path: tuple[str, ...]) -> tuple[str, ...]:
    return (AUXILIARY.sub("", path[0]) or path[0], *path[1:]) if len(path) > 1 else path


def _element_class(typename: str) -> str:
    """Return the class in "vector<edm4hep::VertexData>", without its namespace; "" if there is none."""
    inner = re.sub(r"^(std::)?vector<(.*)>$", r"\2", typename).strip()
    return inner.split("::")[-1] if re.fullmatch(r"[\w:]+", inner) and not inner.endswith("_t") else ""


def _by_convention(leaves: list[Leaf], records: Collection[str]) -> list[Leaf]:
    """Return the leaves with paths by NanoAOD's convention, where ROOT did not split the branch itself."""
    names = {leaf.path[0] for leaf in leaves if len(leaf.path) == 1}
    # A branch with its own counter is a list, so that it cannot be a collection with members.
    alone = {leaf.path[0] for leaf in leaves if _has_own_counter(leaf)}
    collections = {_counted(name): name for name in names if _counted(name) and _counted(name) not in alone}
    presumed = _presumed(leaves, collections)
    members = [(leaf, _collection_of(leaf, collections) or presumed.get(leaf.path, "")) for leaf in leaves]
    used = {collection for _, collection in members if collection}
    if not used:
        return leaves
    dropped = {collections[name] for name in used if name in collections}
    dropped |= {leaf.counter for leaf in leaves if _has_own_counter(leaf)}
    dropped |= {leaf.counter for leaf, collection in members if collection}
    prefixes = _flat_prefixes(leaves, set(collections) | used, records)
    return [
        replace(_placed(leaf, collection, prefixes), presumed=bool(collection) and leaf.path in presumed)
        for leaf, collection in members
        if leaf.path[0] not in dropped or leaf.counter
    ]


def _counted(name: str) -> str:
    """Return the collection that a branch of this name counts by convention, or ""."""
    match = re.fullmatch(r"[nN]_?([A-Za-z]\w*)", name)
    return match[1] if match else ""


def _collection_of(leaf: Leaf, collections: Mapping[str, str]) -> str:
    """Return the collection X that the leaf X_pt is a member of, or "".

    It is one if nX counts it, or if it has its own counter nX_pt, as uproot writes, and nX exists.
    """
    if not leaf.counter or len(leaf.path) != 1:
        return ""
    name = leaf.path[0]
    parts = name.split("_")
    prefixes = ["_".join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]
    owner = next((prefix for prefix in prefixes if prefix in collections), "")
    return owner if owner and leaf.counter in (collections[owner], f"n{name}") else ""


def _has_own_counter(leaf: Leaf) -> bool:
    """Tell whether the counter of a branch is named after this branch alone."""
    return len(leaf.path) == 1 and _counted(leaf.counter) == leaf.path[0]


def _presumed(leaves: list[Leaf], collections: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Return the presumed collections, by prefix, of branches with their own counters, by path."""
    alone = [leaf for leaf in leaves if _has_own_counter(leaf) and not _collection_of(leaf, collections)]
    taken = {leaf.path[0] for leaf in leaves} | set(collections)
    prefixes = Counter(leaf.path[0].split("_")[0] for leaf in alone if "_" in leaf.path[0].strip("_"))
    return {
        leaf.path: prefix
        for leaf in alone
        for prefix, underscore, rest in [leaf.path[0].partition("_")]
        if rest and prefixes[prefix] > 1 and prefix not in taken
    }


def _flat_prefixes(leaves: list[Leaf], collections: set[str], records: Collection[str]) -> set[str]:
    """Return prefixes that two flat branches share or a record has, if no branch has them as its name."""
    taken = collections | {leaf.path[0] for leaf in leaves}
    flat = [leaf.path[0] for leaf in leaves if len(leaf.path) == 1 and not leaf.counter]
    prefixes = Counter(name.split("_")[0] for name in flat if re.match(r"[A-Za-z0-9]+_\w", name))
    shared = {prefix for prefix, count in prefixes.items() if count > 1 or prefix in records}
    return shared - taken


def _placed(leaf: Leaf, collection: str, prefixes: set[str]) -> Leaf:
    """Return a leaf with its path by the convention."""
    name = leaf.path[0]
    if collection:
        return replace(leaf, path=(collection, name.removeprefix(f"{collection}_")))
    prefix, _, rest = name.partition("_")
    if len(leaf.path) == 1 and not leaf.counter and rest and prefix in prefixes:
        return replace(leaf, path=(prefix, rest))
    return leaf


def _with_unique_paths(leaves: list[Leaf]) -> list[Leaf]:
    """Rename members whose path equals that of another leaf, or begins it; number all leaves."""
    inner = {leaf.path[:end] for leaf in leaves for end in range(2, len(leaf.path))}
    seen: Counter[tuple[str, ...]] = Counter()
    result = []
    for number, leaf in enumerate(leaves):
        path = (*leaf.path[:-1], f"{leaf.path[-1]}_value") if leaf.path in inner else leaf.path
        seen[path] += 1
        if seen[path] > 1:
            path = (*path[:-1], f"{path[-1]}_{seen[path]}")
        result.append(replace(leaf, path=path, number=number))
    return result
