"""Arrays of any library, matched against a class and turned into columns of the engine.

The extension module takes a tree of buffers: tuples that mirror the columns that the engine writes.

- ``("primitive", name, values)``
- ``("string", offsets, characters)``
- ``("list", offsets, content, optional)``; an optional value is a list of one item, or none if it is missing
- ``("fixed", size, length, content)``
- ``("record", length, names, contents)``
- ``("variant", tags, positions, contents)``

Offsets and positions are ``int64``, tags ``int8``. A buffer is a NumPy array of bytes, over the caller's
memory where the layout of that fits; the extension module keeps it alive and does not copy it.

Invariants
----------
1. The members of a record are in the order of the class, in whatever order the arrays come.
2. Every value is converted by the rules of :mod:`femtobarn._data.casts`, or the call is refused before
   anything is written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .._exceptions import InvalidError, near_misses
from .._lazy import ak
from .._schema.meanings import Meaning
from .._schema.types import (
    ELEMENT_LINK_MEMBERS,
    LINK_MEMBERS,
    Bitset,
    ElementLink,
    Field,
    Fixed,
    Link,
    List,
    Node,
    Optional,
    Primitive,
    Record,
    Reduced,
    String,
    Variant,
    innermost,
)
from .casts import Values, cast_numbers
from .layouts import layout_of, named_parts

__all__ = ["Tree", "columns_of", "empty_tree", "tree_length"]

Tree = tuple[Any, ...]
"""Columns in the form that the extension module takes and returns."""

BYTES = (Primitive("byte"), Primitive("char"), Primitive("uint8"))
"""Types of the items of lists that take Python's ``bytes``."""

LINK_NAMES = ("Link", "ElementLink")
"""Names of the records of links in awkward arrays."""

LINK_RECORDS: dict[type[Node], Record] = {
    Link: Record("", tuple(Field(name, Primitive(kind)) for name, kind in LINK_MEMBERS)),
    ElementLink: Record("", tuple(Field(name, Primitive(kind)) for name, kind in ELEMENT_LINK_MEMBERS)),
}


def columns_of(data: Any, record: Record) -> Tree:
    """Match arrays against a class, and return the columns of the class.

    Parameters
    ----------
    data
        A record array of awkward, a structured NumPy array, a pandas data frame, an Arrow table or batch, an
        object with the Arrow stream interface, a mapping of field names to arrays or lists, or a list of
        dictionaries.
    record
        The class.

    Raises
    ------
    InvalidError
        If a field is missing or unknown, or has values that its type cannot hold.
    """
    parts = named_parts(data)
    if parts is not None:
        return _record_of_parts(parts, record)
    return _matched(layout_of(data, record), record, "")


def tree_length(tree: Tree) -> int:
    """Return the number of entries of columns."""
    kind = tree[0]
    if kind == "primitive":
        return int(tree[2].nbytes) // Primitive(tree[1]).dtype.itemsize
    if kind in ("string", "list"):
        return int(tree[1].nbytes) // 8 - 1
    if kind == "fixed":
        return int(tree[2])
    return int(tree[1]) if kind == "record" else int(tree[1].nbytes)


def _record_of_parts(parts: Mapping[str, Any], record: Record) -> Tree:
    _check_names([str(name) for name in parts], record, "")
    contents, lengths = [], {}
    for field in record.fields:
        tree = _matched(layout_of(parts[field.name], field.type), field.type, field.name)
        lengths[field.name] = tree_length(tree)
        contents.append(tree)
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} has {length}" for name, length in lengths.items())
        raise InvalidError(f"fields have different numbers of entries: {shown}")
    length = next(iter(lengths.values()))
    return ("record", length, tuple(record.by_name), tuple(contents))


def _check_names(given: Sequence[str], record: Record, path: str) -> None:
    expected = record.by_name
    where = f"class {record.class_name or 'of the record'}" + (f" (field {path!r})" if path else "")
    extra = [name for name in given if name not in expected]
    missing = [name for name in expected if name not in given]
    if extra:
        hint = near_misses(extra[0], missing or expected)
        raise InvalidError(f"{where} has no field {', '.join(map(repr, extra))}{hint}")
    if missing:
        raise InvalidError(
            f"{where} needs field {', '.join(map(repr, missing))}, which is missing in the data"
        )


def _matched(layout: ak.contents.Content, node: Node, path: str) -> Tree:
    """Return the columns of a layout, each of whose values has to fit the type."""
    if layout.is_indexed and not layout.is_option:
        layout = _direct(layout)
    if isinstance(layout, ak.contents.NumpyArray) and layout.purelist_depth > 1:
        layout = layout.to_RegularArray()
    if layout.is_unknown and not isinstance(node, Optional):
        return empty_tree(node)
    if isinstance(node, Optional):
        return _optional(layout, node, path)
    if isinstance(node, Link | ElementLink):
        return _link(layout, node, path)
    if isinstance(node, Variant) and layout.is_option:
        return _variant_or_none(layout, node, path)
    if layout.is_option:
        if isinstance(node, Record) and layout.purelist_parameter("__record__") in LINK_NAMES:
            # Links given for a record of their numbers: a null link is all zeros.
            return _matched(_null(layout, node), node, path)
        layout = _without_missing(layout, node, path)
        return _matched(layout, node, path)
    if isinstance(node, Variant):
        return _variant(layout, node, path)
    return _value(layout, node, path)


def _value(layout: ak.contents.Content, node: Node, path: str) -> Tree:
    if isinstance(node, Record) and node.is_tuple and layout.is_record:
        return _tuple(layout, node, path)
    if isinstance(node, Record) and layout.is_record and not layout.is_tuple:
        return _record(layout, node, path)
    kind = layout.parameter("__array__")
    if isinstance(node, String) and kind == "string":
        offsets, content = _lists(layout)
        if node.meaning is not None and node.meaning.is_enumeration:
            _check_members(set(ak.to_list(layout)), node.meaning, path)
        return ("string", _bytes_of(offsets), _bytes_of(content.data))
    as_lists = (None, "bytestring") if isinstance(node, List) and node.item in BYTES else (None,)
    if isinstance(node, List) and layout.is_list and kind in as_lists:
        if node.meaning is not None or node.is_map:
            layout = _with_unique_items(layout, node, path)
        offsets, content = _lists(layout)
        return ("list", _bytes_of(offsets), _matched(content, node.item, path), False)
    if isinstance(node, Fixed) and layout.is_list and kind is None:
        return _fixed(layout, node.item, node.size, path)
    if isinstance(node, Bitset) and layout.is_list and kind is None:
        return _fixed(layout, Primitive("bool"), node.size, path)
    if isinstance(node, Primitive | Reduced) and layout.is_numpy:
        numbers = cast_numbers(layout.data, node, path)
        if isinstance(node, Primitive) and node.meaning is not None and node.meaning.is_enumeration:
            values = set(np.unique(numbers).tolist())
            if node.meaning.kind == "flag":
                values = {value for value in values if value & ~node.meaning.mask}
            _check_members(values, node.meaning, path)
        return ("primitive", node.dtype_name, _bytes_of(numbers))
    raise InvalidError(f"{_place(path)} is {node}, which cannot hold {_described(layout)}")


def _with_unique_items(layout: ak.contents.Content, node: List, path: str) -> ak.contents.Content:
    """Return lists of sets in ascending order without duplicates; refuse equal keys of a dictionary."""
    offsets, content = _lists(layout)
    keys = _direct(content)
    if node.is_map and keys.is_record and keys.contents:
        names = keys.fields
        keys = _direct(keys.content(next((name for name in ("_0", "key", "0") if name in names), names[0])))
    if not len(keys) or keys.is_option or not (keys.is_numpy or keys.parameter("__array__") == "string"):
        return layout
    values = keys.data if keys.is_numpy else np.array(ak.to_list(keys), object)
    ranks = np.unique(values, return_inverse=True)[1].reshape(-1)
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    order = np.lexsort((ranks, owners))
    is_new = np.ones(len(order), bool)
    is_new[1:] = (owners[order][1:] != owners[order][:-1]) | (ranks[order][1:] != ranks[order][:-1])
    if node.is_map:
        if not is_new.all():
            at = int(order[np.flatnonzero(~is_new)[0]])
            raise InvalidError(f"{_place(path)}: value {int(owners[at])} has key {values[at]!r} twice")
        return layout
    kept = order[is_new]
    counts = np.bincount(owners[kept], minlength=len(offsets) - 1)
    ends = ak.index.Index64(np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))
    return ak.contents.ListOffsetArray(ends, content[kept])


def _check_members(values: set[Any], meaning: Meaning, path: str) -> None:
    wrong = sorted(values - meaning.values)
    if wrong:
        raise InvalidError(f"{_place(path)}: {wrong[0]!r} is not a member of {meaning.name}")


def _tuple(layout: ak.contents.Content, node: Record, path: str) -> Tree:
    """Return the columns of tuples: of awkward's, or of records of ``_0``..., or of ``key`` and ``value``."""
    names = list(node.by_name)
    given = dict(zip(names, layout.fields, strict=False))
    if not layout.is_tuple:
        given = {"_0": "key", "_1": "value"} if set(layout.fields) == {"key", "value"} else {}
        if not given:
            _check_names(layout.fields, node, path)
    if len(layout.contents) != len(names):
        raise InvalidError(f"{_place(path)} is {node}, but values have {len(layout.contents)} items")
    contents = tuple(
        _matched(layout.content(given.get(name, name)), node.by_name[name], f"{path}.{name}")
        for name in names
    )
    return ("record", layout.length, tuple(names), contents)


def _record(layout: ak.contents.Content, node: Record, path: str) -> Tree:
    _check_names(layout.fields, node, path)
    contents = tuple(
        _matched(layout.content(field.name), field.type, f"{path}.{field.name}" if path else field.name)
        for field in node.fields
    )
    return ("record", layout.length, tuple(node.by_name), contents)


def _fixed(layout: ak.contents.Content, item: Node, size: int, path: str) -> Tree:
    if not layout.is_regular or layout.size != size:
        offsets, content = _lists(layout)
        counts = np.diff(offsets)
        if (counts != size).any():
            wrong = int(np.flatnonzero(counts != size)[0])
            raise InvalidError(
                f"{_place(path)} takes {size} items, but value {wrong} has {int(counts[wrong])}"
            )
    else:
        content = layout.content[: layout.length * size]
    return ("fixed", size, layout.length, _matched(content, item, path))


def _optional(layout: ak.contents.Content, node: Optional, path: str) -> Tree:
    if layout.is_numpy and layout.data.dtype.kind == "M" and np.isnat(layout.data).any():
        there = ak.index.Index8((~np.isnat(layout.data)).view(np.int8))
        layout = ak.contents.ByteMaskedArray(there, layout, valid_when=True)
    if layout.is_option:
        offsets = _counted(layout.mask_as_bool(valid_when=True))
        layout = _direct(layout.project())
    else:
        offsets = np.arange(layout.length + 1, dtype=np.int64)
    return ("list", _bytes_of(offsets), _matched(layout, node.item, path), True)


def _link(layout: ak.contents.Content, node: Link | ElementLink, path: str) -> Tree:
    record = LINK_RECORDS[type(node)]
    if layout.is_unknown:
        return empty_tree(node)
    if layout.is_option:
        # A missing link is stored as a null link, all of whose members are 0.
        layout = _null(layout, record)
    if not layout.is_record:
        raise InvalidError(
            f"{_place(path)} is {node}, which cannot hold {_described(layout)}; give OIDs, or records of "
            f"{', '.join(record.by_name)}"
        )
    return _record(layout, record, path)


def _variant(layout: ak.contents.Content, node: Variant, path: str) -> Tree:
    if not layout.is_union:
        number, content = _alternative(layout, node, path)
        tags = np.full(layout.length, number, np.int8)
        return _variant_tree(node, tags, np.arange(layout.length), {number: content})
    tags, contents = np.full(layout.length, -1, np.int8), {}
    positions = layout.index.data[: layout.length].astype(np.int64)
    for given, content in enumerate(layout.contents):
        places = np.flatnonzero(layout.tags.data[: layout.length] == given)
        if content.is_option:
            # A union of awkward has missing values in its contents; here they have no tag.
            valid = content.mask_as_bool(valid_when=True)
            places = places[valid[positions[places]]]
            positions[places] = (np.cumsum(valid) - 1)[positions[places]]
            content = _direct(content.project())
        number, tree = _alternative(content, node, path)
        if number in contents:
            raise InvalidError(
                f"{_place(path)}: values of two types of the union both fit {node.alternatives[number]}"
            )
        contents[number] = tree
        tags[places] = number
    positions[tags < 0] = 0
    return _variant_tree(node, tags, positions, contents)


def _variant_or_none(layout: ak.contents.Content, node: Variant, path: str) -> Tree:
    """Return the columns of a variant with missing values, whose tags are -1."""
    valid = layout.mask_as_bool(valid_when=True)
    _, tags, positions, contents = _matched(_direct(layout.project()), node, path)
    all_tags = np.full(layout.length, -1, np.int8)
    all_positions = np.zeros(layout.length, np.int64)
    all_tags[valid] = tags.view(np.int8)
    all_positions[valid] = positions.view(np.int64)
    return ("variant", _bytes_of(all_tags), _bytes_of(all_positions), contents)


def _alternative(layout: ak.contents.Content, node: Variant, path: str) -> tuple[int, Tree]:
    for number in sorted(range(len(node.alternatives)), key=lambda at: _loss(layout, node.alternatives[at])):
        try:
            return number, _matched(layout, node.alternatives[number], path)
        except InvalidError:
            continue
    raise InvalidError(f"{_place(path)} is {node}, which cannot hold {_described(layout)}")


def _loss(layout: ak.contents.Content, node: Node) -> int:
    """Rank a type for numbers: 0 if it is their own, 1 if it keeps their precision, 2 if it rounds them."""
    while layout.is_option or layout.is_indexed or layout.is_list:
        layout = layout.content
    node = innermost(node)
    if isinstance(node, Record) and layout.is_record:
        kinds = node.by_name
        return max(
            (_loss(layout.content(name), kinds[name]) for name in layout.fields if name in kinds), default=1
        )
    if not layout.is_numpy or not isinstance(node, Primitive | Reduced):
        return 1
    source, target = layout.data.dtype, node.dtype
    if isinstance(node, Primitive) and source == target:
        return 0
    precision = target.itemsize if isinstance(node, Primitive) else 4 if node.kind == "double32" else 2
    return 2 if source.kind == "f" and source.itemsize > precision else 1


def _variant_tree(node: Variant, tags: Values, positions: Values, contents: dict[int, Tree]) -> Tree:
    alternatives = enumerate(node.alternatives)
    trees = tuple(contents[n] if n in contents else empty_tree(item) for n, item in alternatives)
    return ("variant", _bytes_of(tags), _bytes_of(positions.astype(np.int64)), trees)


def _lists(layout: ak.contents.Content) -> tuple[Values, ak.contents.Content]:
    """Return offsets that begin at 0, and only the items between the first and the last of them."""
    lists = layout.to_ListOffsetArray64(True)
    offsets = lists.offsets.data
    return np.ascontiguousarray(offsets), lists.content[: int(offsets[-1])]


def _direct(layout: ak.contents.Content) -> ak.contents.Content:
    """Return a layout without the index that awkward puts before an array that was picked from."""
    while layout.is_indexed and not layout.is_option:
        inner = layout.content
        if not inner.is_record:
            layout = layout.project()
            continue
        index = layout.index
        contents = [
            ak.contents.IndexedArray.simplified(index, inner.content(i)) for i in range(len(inner.contents))
        ]
        fields = None if inner.is_tuple else inner.fields
        layout = ak.contents.RecordArray(contents, fields, length=index.length)
    return layout


def _null(layout: ak.contents.Content, record: Record) -> ak.contents.Content:
    """Return records of links in which missing ones are null: all of their members are 0."""
    if isinstance(layout, ak.contents.UnmaskedArray):
        return _direct(layout.content)
    valid = layout.mask_as_bool(valid_when=True)
    present = _direct(layout.project())
    if not present.is_record and not present.is_unknown:
        return present
    contents = []
    for name in record.by_name if present.is_unknown else present.fields:
        members = np.zeros(layout.length, np.uint64)
        if not present.is_unknown:
            members[valid] = _direct(present.content(name)).data
        contents.append(ak.contents.NumpyArray(members))
    names = list(record.by_name) if present.is_unknown else present.fields
    return ak.contents.RecordArray(contents, names, length=layout.length)


def _without_missing(layout: ak.contents.Content, node: Node, path: str) -> ak.contents.Content:
    missing = np.flatnonzero(layout.mask_as_bool(valid_when=False))
    if missing.size:
        raise InvalidError(
            f"{_place(path)} is {node}, but {missing.size} values are missing (the first is value "
            f"{int(missing[0])}); fill them, or declare the field {node} | None"
        )
    return _direct(layout.project())


def _counted(valid: Values) -> Values:
    offsets = np.zeros(len(valid) + 1, np.int64)
    np.cumsum(valid, out=offsets[1:])
    return offsets


def empty_tree(node: Node) -> Tree:
    """Return columns of a type without entries."""
    none, start = np.empty(0, np.uint8), np.zeros(8, np.uint8)
    if isinstance(node, Primitive | Reduced):
        return ("primitive", node.dtype_name, none)
    if isinstance(node, String):
        return ("string", start, none)
    if isinstance(node, List | Optional):
        return ("list", start, empty_tree(node.item), isinstance(node, Optional))
    if isinstance(node, Fixed):
        return ("fixed", node.size, 0, empty_tree(node.item))
    if isinstance(node, Bitset):
        return ("fixed", node.size, 0, empty_tree(Primitive("bool")))
    if isinstance(node, Variant):
        return ("variant", none, none, tuple(empty_tree(item) for item in node.alternatives))
    record = node if isinstance(node, Record) else LINK_RECORDS[type(node)]
    return ("record", 0, tuple(record.by_name), tuple(empty_tree(f.type) for f in record.fields))


def _bytes_of(values: Values) -> Values:
    return np.require(values, requirements=["C", "A"]).view(np.uint8)


def _place(path: str) -> str:
    return f"field {path!r}" if path else "the class"


def _described(layout: ak.contents.Content) -> str:
    text = str(layout.form.type)
    return f"values of type {text if len(text) <= 60 else text[:57] + '...'}"
