"""Paths that lead through an index to an element of a collection: ``Muon.jet.pt`` by ``Muon.jetIdx``.

Two columns of the same objects are read, the index and a member of the collection, and the first picks from
the second, for all objects at once.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from .._exceptions import NotFoundError, near_misses
from .._schema.references import Reference, reference_in
from .._schema.types import Definition, Node, Record, innermost
from .syntax import parsed

__all__ = ["Reached", "reached"]


@dataclass(frozen=True)
class Reached:
    """The elements that a path leads to through an index."""

    targets: tuple[tuple[str, int | None], ...]
    """The paths in the collections that it may lead to, and their keys."""
    index: ast.expr
    key: ast.expr | None
    end: ast.expr | None
    """The index after the last element, if there are several."""

    @property
    def parts(self) -> Iterator[ast.expr]:
        """The fields to read: the indices, their keys, and the requested members of the collections."""
        yield from filter(None, (self.index, self.key, self.end))
        yield from (target for target, _ in self.wanted)

    @property
    def wanted(self) -> list[tuple[ast.expr, int | None]]:
        """The expression to read of each collection, and the collection's key."""
        return [(parsed(path), key) for path, key in self.targets]


def reached(node: ast.expr, definition: Definition) -> Reached | None:
    """Return the elements that a part of an expression leads to through an index, or None without an index.

    Raises
    ------
    NotFoundError
        If the elements have no such member; near misses are named.

    Examples
    --------
    >>> index = {"meaning": {"of": "int16", "is": "element", "name": "Jet"}}
    >>> jet = {"class": "Jet", "fields": [{"name": "pt", "type": "float32"}]}
    >>> muon = {"class": "Muon", "fields": [{"name": "jetIdx", "type": index}]}
    >>> lists = [{"name": of["class"], "type": {"list": {"record": of}}} for of in (jet, muon)]
    >>> event = Definition.from_json({"name": "Event", "fields": lists})
    >>> found = reached(ast.parse("Muon.jet.pt", mode="eval").body, event)
    >>> found.targets, ast.unparse(found.index)
    ((('Jet.pt', None),), 'Muon.jetIdx')
    """
    if isinstance(node, ast.Subscript):
        through = reached(node.value, definition)
        return None if through is None else _chosen(through, node)
    if isinstance(node, ast.Name):
        return _followed(definition.record, None, node.id, definition)
    if not isinstance(node, ast.Attribute):
        return None
    through = reached(node.value, definition)
    if through is not None:
        return _member(through, node.value, node.attr, definition)
    return _followed(_type_of(node.value, definition), node.value, node.attr, definition)


def _chosen(through: Reached, node: ast.Subscript) -> Reached:
    """Return some of the elements: those that some of the indices lead to."""
    index, key, end = (
        None if part is None else ast.Subscript(part, node.slice)
        for part in (through.index, through.key, through.end)
    )
    assert index is not None, "there is always an index"
    return Reached(through.targets, index, key, end)


def _member(through: Reached, above: ast.expr | None, name: str, definition: Definition) -> Reached:
    """Return a member of elements, or the targets of one of their links."""
    records = [(path, key, innermost(definition.resolve(path))) for path, key in through.targets]
    have = tuple((f"{path}.{name}", key) for path, key, record in records if name in _members(record))
    if have:
        return replace(through, targets=have)
    _, key, record = records[0]
    if len(records) == 1 and isinstance(record, Record):
        reference = reference_in(record, name)
        # A key that leads to records of keys would lead in circles.
        if reference is not None and (key is None or not reference.key):
            return _through(reference, above, name, definition)
    names = [name for _, _, record in records for name in _members(record)]
    where = " or ".join(path for path, _, _ in records)
    raise NotFoundError(f"field {name!r} does not exist in {where}{near_misses(name, names)}")


def _followed(
    record: Node | None, above: ast.expr | None, name: str, definition: Definition
) -> Reached | None:
    """Return the target of a record's link, or None if the name is not that of a link."""
    reference = reference_in(record, name) if isinstance(record, Record) else None
    return None if reference is None else _through(reference, above, name, definition)


def _through(reference: Reference, above: ast.expr | None, name: str, definition: Definition) -> Reached:
    index, key, end = (_below(above, part) for part in (reference.index, reference.key, reference.end))
    assert index is not None, "a link has an index"
    through = Reached(reference.targets, index, key, end)
    # A record with a key is the link, so that the name is one of a member of the elements.
    return _member(through, above, name, definition) if reference.key else through


def _below(above: ast.expr | None, name: str) -> ast.expr | None:
    if not name:
        return None
    return ast.Name(name, ast.Load()) if above is None else ast.Attribute(above, name, ast.Load())


def _type_of(node: ast.expr, definition: Definition) -> Node | None:
    """Return the type of the records that a part names, whatever is chosen of lists on the way."""
    names: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        names += [node.attr] if isinstance(node, ast.Attribute) else []
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    field = definition.type_at(".".join([node.id, *reversed(names)]))
    return None if field is None else innermost(field)


def _members(record: Node) -> Sequence[str]:
    return list(record.by_name) if isinstance(record, Record) else ()
