"""Links from an index to an element of a collection of the same object, such as ``Muon.jetIdx`` to a jet.

The index is stored as a plain number; its type names the collection that it counts. So a link needs no space,
and no other object to be followed. There are three kinds:

- The index ``jetIdx`` leads to an element of one collection. The link is called ``jet``: it is a member
  beside the index, which is not stored.
- ``parents_begin``, beside ``parents_end``, leads to the elements from the one to before the other. The link
  is called ``parents``.
- A record of an index and a key leads to an element of the collection that has the key. The record itself is
  the link: members that it does not store are those of the element.

An index that the collection does not reach, a negative one, and an unknown key lead nowhere.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .types import Primitive, Record, innermost, paths_of

__all__ = [
    "BEGIN",
    "END",
    "INDEX",
    "Reference",
    "has_references",
    "link_name",
    "linked_paths",
    "reference_in",
    "references_by_class",
    "references_of",
]

INDEX = re.compile(r"(?P<before>\w*[a-zA-Z0-9])Idx(?P<after>[A-Z0-9]\w*)?")
"""Names of indices of one element: the target's name, ``Idx``, and a suffix that distinguishes several."""

BEGIN, END = "_begin", "_end"
"""Endings of the names of the indices of several elements."""


@dataclass(frozen=True)
class Reference:
    """A link by an index."""

    index: str
    """Name of the member with the index."""
    targets: tuple[tuple[str, int | None], ...]
    """The collections that it may lead to, with their keys; without a key if there is only one."""
    key: str = ""
    """Name of the member with the key, if there is one."""
    end: str = ""
    """Name of the member with the index after the last element, if the link is to several."""


def link_name(index: str) -> str:
    """Return the name of the link that an index is, or "" if its name is not that of an index.

    Examples
    --------
    >>> link_name("jetIdx"), link_name("muonIdx1"), link_name("genPartIdxMother"), link_name("pt")
    ('jet', 'muon1', 'genPartMother', '')
    """
    match = INDEX.fullmatch(index)
    return "" if match is None else match["before"] + (match["after"] or "")


def reference_in(record: Record, name: str) -> Reference | None:
    """Return the link of a record that a name leads through, or None; stored members go before links.

    Examples
    --------
    >>> from .types import type_from_json
    >>> index = {"meaning": {"of": "int16", "is": "element", "name": "Jet"}}
    >>> muon = type_from_json({"record": {"class": "Muon", "fields": [{"name": "jetIdx", "type": index}]}})
    >>> reference_in(muon, "jet")
    Reference(index='jetIdx', targets=(('Jet', None),), key='', end='')
    """
    if name in record.by_name:
        return None
    return next((found for link, found in references_of(record) if link in (name, "")), None)


def references_of(record: Record) -> Iterator[tuple[str, Reference]]:
    """Yield the name of each link of a record, and the link; the name is "" if the record itself is one."""
    for field in record.fields:
        node = innermost(field.type)
        meaning = node.meaning if isinstance(node, Primitive) else None
        if meaning is None or not meaning.is_element:
            continue
        if meaning.members:
            keys = tuple((name, key) for name, key in meaning.members if isinstance(key, int))
            yield "", Reference(field.name, keys, meaning.name)
        elif field.name.endswith(BEGIN):
            link = field.name.removesuffix(BEGIN)
            yield link, Reference(field.name, ((meaning.name, None),), end=link + END)
        elif link_name(field.name):
            yield link_name(field.name), Reference(field.name, ((meaning.name, None),))


def has_references(record: Record) -> bool:
    """Tell whether a class has links by indices, at any depth."""
    return any(references_of(record)) or bool(references_by_class(record))


def references_by_class(record: Record) -> dict[str, dict[str, Reference]]:
    """Return the links of the records in a class, by the name of their class and that of the link.

    Records of one name lead to all collections that one of them leads to.
    """
    found: dict[str, dict[str, Reference]] = {}
    for _, node in paths_of(record):
        inner = innermost(node)
        if not isinstance(inner, Record):
            continue
        for link, reference in references_of(inner):
            links = found.setdefault(inner.class_name, {})
            known = links.get(link, reference)
            links[link] = replace(known, targets=tuple(dict.fromkeys(known.targets + reference.targets)))
    return found


def linked_paths(record: Record, prefix: str = "") -> set[str]:
    """Return the dotted names of the links of a class, as the result of an import has them.

    Of a link to one element it is that of the index, of one to several its own, else that of its record.
    """
    found: set[str] = set()
    for link, reference in references_of(record):
        name = link if reference.end else "" if reference.key else reference.index
        found.add(f"{prefix}{name}" if name else prefix.removesuffix("."))
    for field in record.fields:
        inner = innermost(field.type)
        if isinstance(inner, Record):
            found |= linked_paths(inner, f"{prefix}{field.name}.")
    return found
