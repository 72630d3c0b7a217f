"""RNTuples of ROOT files as sources of an import.

The file is attached to a federation of its own, in a temporary folder, and read as a database of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from .._exceptions import InvalidError, NotFoundError, near_misses
from .._schema.names import identifier
from .._schema.types import (
    ELEMENT_LINK_MEMBERS,
    LINK_MEMBERS,
    Definition,
    ElementLink,
    Field,
    Link,
    List,
    Node,
    Optional,
    Primitive,
    Record,
    Variant,
)
from .file_source import FileSource

if TYPE_CHECKING:
    from .._snapshots import Snapshot

__all__ = ["AttachAlone", "open_ntuple"]

AttachAlone: TypeAlias = "Callable[[Path], AbstractContextManager[Snapshot]]"
"""Attaches a file, as the only database, to a federation that lasts as long as the context."""


@contextmanager
def open_ntuple(path: Path, name: str | None, attach_alone: AttachAlone) -> Iterator[FileSource]:
    """Open an RNTuple of a ROOT file.

    Parameters
    ----------
    path
        The file.
    name
        Name of the RNTuple; the only one of the file if not given.
    attach_alone
        Makes the federation through which the file is read.

    Raises
    ------
    InvalidError
        If no name is given and the file has several RNTuples.
    NotFoundError
        If the file has no RNTuple of this name; near misses are named.
    """
    with attach_alone(path) as snapshot:
        containers = {key.partition("/")[2]: key for key in snapshot}
        if name is None and len(containers) > 1:
            raise InvalidError(f"{path} has RNTuples {', '.join(containers)}; name one")
        if name is not None and name not in containers:
            raise NotFoundError(f"{path} has no RNTuple {name!r}{near_misses(name, containers)}")
        tree = name or next(iter(containers))
        view = snapshot[containers[tree]]
        record = _without_links(view.definition.record)
        fields = record.fields if isinstance(record, Record) else ()
        definition = Definition(view.definition.name, 1, fields)
        yield FileSource(identifier(tree), definition, len(view), tree, view.iterate)


def _without_links(node: Node) -> Node:
    """Return a type with its links as records of numbers, since links lead nowhere in another federation."""
    if isinstance(node, Link | ElementLink):
        members = LINK_MEMBERS if isinstance(node, Link) else ELEMENT_LINK_MEMBERS
        return Record("", tuple(Field(name, Primitive(kind)) for name, kind in members))
    if isinstance(node, Record):
        fields = (Field(each.name, _without_links(each.type), each.description) for each in node.fields)
        return Record(node.class_name, tuple(fields))
    if isinstance(node, List):
        return List(_without_links(node.item))
    if isinstance(node, Optional):
        return Optional(_without_links(node.item))
    return Variant(tuple(map(_without_links, node.alternatives))) if isinstance(node, Variant) else node
