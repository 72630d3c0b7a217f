"""Numbers of a tree's objects that refer to elements of their own collections, found by conventions.

- NanoAOD: the integer ``Muon_jetIdx`` is an index in ``Jet``, by its name.
- podio: records of ``index`` and ``collectionID``, whose number a table of the file gives to a collection;
  ``x_begin`` and ``x_end`` of the collection ``C`` are indices in ``_C_x``.
- ATLAS: records of ``m_persIndex`` and ``m_persKey``, a hash of the name and the class of a container.

A reference that is found becomes the meaning of the index; no value changes. Otherwise the index stays a
number, and the reason is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import awkward as ak
import numpy as np

from femtobarn._schema.meanings import INTEGERS
from femtobarn._schema.references import BEGIN, END, INDEX, link_name
from femtobarn.definitions import Type
from femtobarn.importers.assembly import Column, Field, assemble
from femtobarn.importers.branches import Leaf
from femtobarn.importers.container_keys import KeyTables

__all__ = ["CrossReferences", "with_references"]

OTHER_NAMES = {"ele": "Electron", "mu": "Muon"}
"""NanoAOD's short names of collections in names of indices."""

TARGETS = {
    ("FatJetPFCand", "jetIdx"): "FatJet",
    ("FatJetPFCands", "jetIdx"): "FatJet",
    ("FatJetSVs", "jetIdx"): "FatJet",
    ("GenJetCands", "jetIdx"): "GenJet",
    ("GenJetCands", "pFCandsIdx"): "GenCands",
    ("GenJetSVs", "jetIdx"): "GenJet",
    ("GenFatJetCands", "jetIdx"): "GenJetAK8",
    ("GenFatJetCands", "pFCandsIdx"): "GenCands",
    ("GenFatJetSVs", "jetIdx"): "GenJetAK8",
    ("LHEPart", "firstMotherIdx"): "LHEPart",
    ("LHEPart", "lastMotherIdx"): "LHEPart",
}
"""Collections of indices that are named differently, by collection and index: NanoAOD's and PFNano's."""

UNRELIABLE = {"sv": "it counts the secondary vertices before those of SV were selected"}
"""Beginnings of NanoAOD's names of indices that do not count the elements of the collection as it is."""

KEYED = {("m_persIndex", "m_persKey"): "atlas", ("index", "collectionID"): "podio"}
"""Members of a record that refers to an element by index and key, and the convention of its keys."""

NO_KEYS = (0, -1, (1 << 32) - 1)
"""Keys of records that lead nowhere."""


@dataclass
class CrossReferences:
    """The indices of a class by their dotted names."""

    links: dict[str, str] = field(default_factory=dict)
    """Indices that became links, with the collections that they lead to."""
    unlinked: dict[str, str] = field(default_factory=dict)
    """Indices that stay numbers, with the reason."""


def with_references(
    fields: list[Field], sample: Callable[[Leaf], Column], tables: KeyTables
) -> tuple[list[Field], CrossReferences]:
    """Return the fields with the meanings of their indices.

    Parameters
    ----------
    sample
        Returns the column of a leaf in a sample of entries. Only keys of the sample become known.
    tables
        The keys of the collections.
    """
    finder = _Finder(fields, sample, tables)
    return [replace(made, type=finder.type_of(made)) for made in fields], finder.found


class _Finder:
    def __init__(self, fields: list[Field], sample: Callable[[Leaf], Column], tables: KeyTables) -> None:
        self.found = CrossReferences()
        self._sample = sample
        self._tables = tables
        of_records = [made for made in fields if made.shape == "collection"]
        self._collections = {made.name: made.leaves[0].path[0] for made in of_records}
        self._lists = {made.leaves[0].path[0]: made.name for made in fields if "list" in made.type}
        self._by_lower_case = {name.lower(): name for name in self._collections}

    def type_of(self, made: Field) -> Type:
        """Return the type of a field with the meanings of its indices."""
        typed: Type = self._typed(made.type, made, ())
        return typed

    def _typed(self, type_: Any, made: Field, path: tuple[str, ...]) -> Any:
        if isinstance(type_, str):
            name = path[-1] if path else made.name
            if type_ in INTEGERS and name.endswith(BEGIN):
                return self._range(type_, made, path)
            is_index = type_ in INTEGERS and INDEX.fullmatch(name) is not None
            # A list of indices that is no member of a collection has no name for its links.
            return self._indexed(type_, made, path) if is_index else type_
        [(kind, body)] = type_.items()
        if kind == "list" and (path or made.shape == "collection" or _is_record(body)):
            return {"list": self._typed(body, made, path)}
        if kind != "record":
            return type_
        names = sorted(str(each["name"]) for each in body["fields"])
        for (index, key), convention in KEYED.items():
            if names == sorted((index, key)):
                return self._keyed(type_, made, path, (index, key), convention)
        members = [
            each | {"type": self._typed(each["type"], made, (*path, each["name"]))} for each in body["fields"]
        ]
        return {"record": body | {"fields": members}}

    def _range(self, type_: str, made: Field, path: tuple[str, ...]) -> Any:
        """Return the type of the first of two indices between which elements are."""
        link = path[-1].removesuffix(BEGIN) if len(path) == 1 else ""
        target = self._lists.get(f"_{made.leaves[0].path[0]}_{link}")
        if made.shape != "collection" or target is None or link + END not in _members_of(made.type):
            return type_
        self.found.links[f"{made.name}.{link}"] = target
        return _element(type_, target)

    def _indexed(self, type_: str, made: Field, path: tuple[str, ...]) -> Type:
        """Return the type of an integer whose name marks it as an index."""
        shown, name = ".".join((made.name, *path)), path[-1] if path else made.name
        collection, reason = self._collection_of(made.name, name)
        if collection and path and made.shape != "collection":
            reason = "its record is not a member of a collection"
        elif collection and path and link_name(name) in _members_of(made.type):
            reason = f"{made.name} has a member {link_name(name)!r}"
        if reason:
            self.found.unlinked[shown] = reason
            return type_
        self.found.links[shown] = collection
        return _element(type_, collection)

    def _collection_of(self, owner: str, name: str) -> tuple[str, str]:
        """Return the collection that an index of NanoAOD counts, or the reason why there is none."""
        match = INDEX.fullmatch(name)
        assert match is not None, "the name is that of an index"
        if match["after"] == "G":
            return "", "it counts the elements of all events"
        # An index of the event itself may have the name of a group in front.
        stem = match["before"].rpartition("_")[2]
        if stem in UNRELIABLE:
            return "", UNRELIABLE[stem]
        wanted = TARGETS.get((owner, name)) or OTHER_NAMES.get(stem, stem)
        found = self._by_lower_case.get(wanted.lower(), "")
        return found, "" if found else f"the tree has no collection {wanted!r}"

    def _keyed(
        self, type_: Any, made: Field, path: tuple[str, ...], names: tuple[str, str], convention: str
    ) -> Any:
        """Return the type of records of an index and a key."""
        index, key = names
        shown = ".".join((made.name, *path))
        table = self._tables.of(convention, self._collections)
        used = self._values(made, (*path, key))
        members = sorted((table[each], each) for each in used if each in table)
        if not members:
            self.found.unlinked[shown] = _reason(table, used)
            return type_
        self.found.links[shown] = " | ".join(name for name, _ in members)

        def meant(each: dict[str, Any]) -> dict[str, Any]:
            form = {"of": each["type"], "is": "element", "name": key, "members": list(map(list, members))}
            return each | {"type": {"meaning": form}} if each["name"] == index else each

        body = type_["record"]
        return {"record": body | {"fields": [meant(each) for each in body["fields"]]}}

    def _values(self, made: Field, path: tuple[str, ...]) -> list[int]:
        """Return the values of a member in the sample; none if it is damaged, which reading it reports."""
        try:
            return [int(each) for each in np.unique(self._flat(made, path))]
        except Exception:
            return []

    def _flat(self, made: Field, path: tuple[str, ...]) -> Any:
        alone = [leaf for leaf in made.leaves if leaf.path[1:] == path]
        if alone:
            values = ak.Array(self._sample(alone[0]).content)
        else:
            columns = {leaf.number: self._sample(leaf) for leaf in made.leaves}
            values = assemble([made], columns)[made.name]
            for name in path:
                values = values[name]
        return ak.to_numpy(ak.flatten(values, axis=None))


def _reason(table: Mapping[int, str], used: list[int]) -> str:
    """Return why records with these keys lead nowhere."""
    if not table:
        return "the file does not say which collections the keys stand for"
    if all(key in NO_KEYS for key in used):
        return "none of the first links leads anywhere"
    return "the collections that the first links lead to are not in the tree"


def _element(type_: str, collection: str) -> dict[str, Any]:
    return {"meaning": {"of": type_, "is": "element", "name": collection}}


def _is_record(type_: Type) -> bool:
    return isinstance(type_, dict) and "record" in type_


def _members_of(type_: Any) -> list[str]:
    return [each["name"] for each in type_["list"]["record"]["fields"]]
