"""Objects read one by one: fields are loaded on first access, links are followed when they are used.

An object stands for an entry of a container as of a snapshot. It is not a copy, and never changes, because
snapshots do not. The objects of one loop share a block of neighbouring entries, so that a column is read once
for each block. The extension module has the class :class:`Object` and plain values; this module makes all
other values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .._data.arrays import Tree
from .._data.results import layout_of, numbers_of
from .._exceptions import InvalidError, NotFoundError, near_misses
from .._femtobarn import Object
from .._lazy import ak
from .._oid import Oid
from .._schema.types import (
    DTYPES,
    ElementLink,
    Fixed,
    Link,
    List,
    Node,
    Optional,
    Primitive,
    Record,
    Variant,
)
from .behaviours import record_class

if TYPE_CHECKING:
    from .._snapshots import Snapshot
    from .._views.view import View

__all__ = ["ElementRef", "Layouts", "LinkList", "LinkRef", "Object", "RecordValue"]


Layouts = dict[int, tuple[Tree, "ak.contents.Content"]]
"""Columns and the layouts that were made of them, by the identities of the columns."""

_set = object.__setattr__


class _Members:
    """Attributes and items by the names of a record's members; none of them can be set."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(self._unchanging(name))

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        for name, value in state[1].items():
            _set(self, name, value)

    def _unchanging(self, name: str) -> str:
        """Return the error text for setting an attribute, with the remedy."""
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        try:
            return self[name]
        except NotFoundError as error:
            if name == "keys":  # dict(record) calls this; a member of that name goes first.
                return lambda: self.fields
            raise AttributeError(str(error)) from None

    def __getitem__(self, name: str) -> Any:
        raise NotImplementedError

    @property
    def fields(self) -> list[str]:
        """Names of the members."""
        raise NotImplementedError

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.fields]

    def to_dict(self) -> dict[str, Any]:
        """Return all members as plain Python values; links become OIDs or None."""
        from .plain_values import plain_value  # That module imports this one.

        types = self._types()
        return {name: plain_value(self[name], types.get(name)) for name in self.fields}

    def _types(self) -> dict[str, Node]:
        """Return the types of members, as far as they are known."""
        return {}


def _object_at(view: View[Object], entry: int) -> Object:
    return view.object_at(entry)


class RecordValue(_Members):
    """A record inside an object."""

    __slots__ = ("_index", "_node", "_snapshot", "_tree")

    _index: int
    _node: Record
    _snapshot: Snapshot
    _tree: Tree

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    def __init__(self, tree: Tree, node: Record, index: int, snapshot: Snapshot) -> None:
        _set(self, "_tree", tree)
        _set(self, "_node", node)
        _set(self, "_index", index)
        _set(self, "_snapshot", snapshot)

    def __reduce__(self) -> tuple[Any, ...]:
        return _record_at, (self._tree, self._node, self._index, self._snapshot)

    def _unchanging(self, name: str) -> str:
        return (
            f"stored records of class {self._node.class_name} are read-only; set a new value of the object "
            "that has this record in a transaction with container.update(oid, ...)"
        )

    @property
    def fields(self) -> list[str]:
        """Names of the members."""
        return list(self._tree[2])

    def _types(self) -> dict[str, Node]:
        return self._node.by_name

    def __getitem__(self, name: str) -> Any:
        if name not in self._tree[2]:
            hint = near_misses(name, self._tree[2])
            raise NotFoundError(f"record {self._node.class_name} has no member {name!r}{hint}")
        tree = self._tree[3][self._tree[2].index(name)]
        return value_of(tree, self._node.by_name[name], self._index, self._snapshot)

    def __repr__(self) -> str:
        members = ", ".join(f"{name}={self[name]!r}" for name in self.fields)
        return f"{self._node.class_name}({members})"


class LinkRef(_Members):
    """A stored link to an object; its attributes are those of the object."""

    __slots__ = ("_snapshot", "oid")

    _snapshot: Snapshot
    oid: Oid

    def __init__(self, oid: Oid, snapshot: Snapshot) -> None:
        _set(self, "oid", oid)
        _set(self, "_snapshot", snapshot)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.get(), name, value)  # The object raises the error.

    def get(self) -> Object:
        """Return the target, as of the same snapshot.

        Raises
        ------
        NotFoundError
            If the target does not exist, or was deleted.
        """
        return self._snapshot.object(self.oid)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        # Not `self[name]`: a deleted target is a NotFoundError, a missing field an AttributeError.
        return getattr(self._snapshot.object(self.oid), name)

    @property
    def fields(self) -> list[str]:
        """Names of the fields of the target."""
        return self.get().fields

    def __getitem__(self, name: str) -> Any:
        return self.get()[name]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LinkRef) and self.oid == other.oid

    def __hash__(self) -> int:
        return hash(self.oid)

    def __repr__(self) -> str:
        return f"<link to {self.oid}>"


class ElementRef(_Members):
    """A stored link to one element of a collection; its attributes are those of the element."""

    __slots__ = ("_snapshot", "_target", "element", "oid")

    _snapshot: Snapshot
    _target: str
    element: int
    oid: Oid

    def __init__(self, oid: Oid, element: int, target: str, snapshot: Snapshot) -> None:
        _set(self, "oid", oid)
        _set(self, "element", element)
        _set(self, "_target", target)
        _set(self, "_snapshot", snapshot)

    def _unchanging(self, name: str) -> str:
        return (
            "elements of stored objects are read-only; set a new collection of the object in a "
            f"transaction with container.update({self.oid!r}, {self._collection(self.get())}=...)"
        )

    def get(self) -> Object:
        """Return the object that holds the element."""
        return self._snapshot.object(self.oid)

    @property
    def value(self) -> Any:
        """The element itself."""
        owner = self.get()
        return owner[self._collection(owner)][self.element]

    @property
    def fields(self) -> list[str]:
        """Names of the members of the element."""
        return list(getattr(self.value, "fields", []))

    def __getitem__(self, name: str) -> Any:
        if name not in self.fields:
            raise NotFoundError(f"the element has no member {name!r}{near_misses(name, self.fields)}")
        return self.value[name]

    def __getattr__(self, name: str) -> Any:
        value = None if name.startswith("_") else self.value
        if name not in getattr(value, "fields", []) and hasattr(type(value), name):
            return getattr(value, name)
        return super().__getattr__(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ElementRef) and (self.oid, self.element) == (other.oid, other.element)

    def __hash__(self) -> int:
        return hash((self.oid, self.element))

    def __repr__(self) -> str:
        return f"<link to element {self.element} of {self.oid}>"

    def _collection(self, owner: Object) -> str:
        """Return the field that holds the element: the one that the link names, or the only list."""
        _, _, named = self._target.partition(".")
        if named:
            return named
        lists = [name for name in owner.fields if isinstance(owner._view.definition.resolve(name), List)]
        if len(lists) != 1:
            raise InvalidError(
                f"class {owner.class_name} has {len(lists)} collections; take the element from one, such as "
                f"link.get().{lists[0] if lists else 'hits'}[link.element]"
            )
        return lists[0]


class LinkList(Sequence["LinkRef | ElementRef | None"]):
    """The links of a to-many relation; each is followed when it is used."""

    __slots__ = ("_make", "_records", "_snapshot")

    def __init__(self, records: Any, make: Callable[[int], Any], snapshot: Snapshot) -> None:
        self._records = records
        self._make = make
        self._snapshot = snapshot

    def __len__(self) -> int:
        return len(self._records)

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> list[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        positions = range(len(self._records))[index]
        if isinstance(positions, range):
            return [self._make(position) for position in positions]
        return self._make(positions)

    def __iter__(self) -> Iterator[Any]:
        return map(self._make, range(len(self._records)))

    @property
    def oids(self) -> list[Oid]:
        """OIDs of the targets."""
        columns = (self._records[name].tolist() for name in ("database", "container", "entry"))
        return [Oid(*members) for members in zip(*columns, strict=True)]

    def fetch(self, expressions: Any = None, *, library: str = "ak") -> Any:
        """Return fields of all targets, read at once; see :meth:`Snapshot.fetch`."""
        return self._snapshot.fetch(self._records, expressions, library=library)

    def __repr__(self) -> str:
        return f"<{len(self)} links>"


def value_of(tree: Tree, node: Node, index: int, snapshot: Snapshot, layouts: Layouts | None = None) -> Any:
    """Return the value at an index of columns as a Python object.

    Parameters
    ----------
    layouts
        Layouts that were made of columns before, to which those made now are added.
    """
    kind = tree[0]
    if kind == "primitive":
        return _meant(np.frombuffer(tree[2], DTYPES[tree[1]])[index].item(), node)
    if kind == "string":
        start, stop = np.frombuffer(tree[1], np.int64)[index : index + 2].tolist()
        return _meant(bytes(memoryview(tree[2])[start:stop]).decode(errors="replace"), node)
    if kind == "list":
        return _list_value(tree, node, index, snapshot, layouts)
    if kind == "fixed":
        item = node.item if isinstance(node, Fixed) else None
        return items_of(tree[3], item, index * tree[1], (index + 1) * tree[1], snapshot)
    if kind == "variant":
        return _variant_value(tree, node, index, snapshot)
    if isinstance(node, Link | ElementLink):
        return _link_value(_link_records(tree, index, index + 1)[0], node, snapshot)
    record = node if isinstance(node, Record) else Record("", ())
    if record.is_tuple:
        return tuple(
            value_of(member, record.by_name[name], index, snapshot)
            for name, member in zip(tree[2], tree[3], strict=True)
        )
    return _record_at(tree, record, index, snapshot)


def _meant(value: Any, node: Node) -> Any:
    """Return the meaning of a stored number or text."""
    meaning = getattr(node, "meaning", None)
    return value if meaning is None else meaning.to_python(value)


def _record_at(tree: Tree, node: Record, index: int, snapshot: Snapshot) -> RecordValue:
    made: RecordValue = object.__new__(record_class(RecordValue, node))
    RecordValue.__init__(made, tree, node, index, snapshot)
    return made


def _list_value(tree: Tree, node: Node, index: int, snapshot: Snapshot, layouts: Layouts | None) -> Any:
    start, stop = np.frombuffer(tree[1], np.int64)[index : index + 2].tolist()
    if isinstance(node, Optional):
        return value_of(tree[2], node.item, start, snapshot, layouts) if stop > start else None
    if isinstance(node, List) and node.is_bytes:
        return bytes(memoryview(tree[2][2])[start:stop])
    if isinstance(node, List) and node.is_map:
        return dict(value_of(tree[2], node.item, item, snapshot) for item in range(start, stop))
    if isinstance(node, List) and node.meaning is not None:
        items = (value_of(tree[2], node.item, item, snapshot) for item in range(start, stop))
        return node.meaning.to_python(items)
    return items_of(tree[2], node.item if isinstance(node, List) else None, start, stop, snapshot, layouts)


def _variant_value(tree: Tree, node: Node, index: int, snapshot: Snapshot) -> Any:
    tag = int(np.frombuffer(tree[1], np.int8)[index])
    if tag < 0 or not isinstance(node, Variant):
        return None
    position = int(np.frombuffer(tree[2], np.int64)[index])
    return value_of(tree[3][tag], node.alternatives[tag], position, snapshot)


def items_of(
    tree: Tree,
    node: Node | None,
    start: int,
    stop: int,
    snapshot: Snapshot,
    layouts: Layouts | None = None,
) -> Any:
    """Return a range of items.

    Numbers and times are a NumPy array; texts, links, members of enumerations, tuples, dictionaries and sets
    are a list; all others are an awkward array.
    """
    is_enumeration = isinstance(node, Primitive) and node.meaning is not None and node.meaning.is_enumeration
    if tree[0] == "primitive" and not is_enumeration:
        return numbers_of(tree, node)[start:stop]
    if node is not None and (is_enumeration or tree[0] == "string" or has_python_values(node)):
        return [value_of(tree, node, index, snapshot) for index in range(start, stop)]
    if isinstance(node, Link | ElementLink):
        records = _link_records(tree, start, stop)
        return LinkList(records, lambda index: _link_value(records[index], node, snapshot), snapshot)
    layouts = {} if layouts is None else layouts
    _, layout = layouts.get(id(tree)) or layouts.setdefault(id(tree), (tree, layout_of(tree, node)))
    if layout.is_record:
        # Awkward slices those members of indexed records that are used, but all members of a slice.
        part = ak.contents.IndexedArray(ak.index.Index64(np.arange(start, stop)), layout)
    else:
        # Slicing an array would make a second high-level object, which is costly.
        part = layout[start:stop]
    return ak.Array(part, **snapshot.array_settings)


def _is_of_python(node: Node) -> bool:
    if isinstance(node, Record):
        return node.is_tuple
    meaning = getattr(node, "meaning", None)
    if meaning is not None:
        return not meaning.is_element
    return isinstance(node, List) and node.is_map


def has_python_values(node: Node | None, *, in_records: bool = False) -> bool:
    """Tell whether values, or items of collections, are what arrays do not have: times, sets, tuples...

    Parameters
    ----------
    in_records
        Whether members of records count, too.
    """
    if isinstance(node, Optional | Fixed) or (isinstance(node, List) and not _is_of_python(node)):
        return has_python_values(node.item, in_records=in_records)
    if in_records and isinstance(node, Record) and not node.is_tuple:
        return any(has_python_values(each.type, in_records=True) for each in node.fields)
    return node is not None and _is_of_python(node)


def _link_records(tree: Tree, start: int, stop: int) -> Any:
    members = dict(zip(tree[2], tree[3], strict=True))
    dtype = [(name, DTYPES[member[1]]) for name, member in members.items()]
    records = np.empty(stop - start, dtype)
    for name, member in members.items():
        records[name] = np.frombuffer(member[2], DTYPES[member[1]])[start:stop]
    return records


def _link_value(record: Any, node: Link | ElementLink, snapshot: Snapshot) -> LinkRef | ElementRef | None:
    members = record.tolist()
    if members[1] == 0:
        return None
    oid = Oid(*members[:3])
    return ElementRef(oid, members[3], node.target, snapshot) if len(members) > 3 else LinkRef(oid, snapshot)
