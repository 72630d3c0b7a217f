"""Imported columns as layouts of awkward: lists, texts, maps, records and missing values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

import numpy as np

from .._lazy import ak
from .._schema.types import MAP_ITEM, Field, List, Node, Record, String

__all__ = ["BATCH_VALUES", "Numbers", "lists", "map_of", "maps", "option", "records", "texts"]

BATCH_VALUES = 1 << 16
"""Particles, vertices and weights of the events of a generator that are in memory at a time."""

Content: TypeAlias = "ak.contents.Content"
Numbers: TypeAlias = np.ndarray[Any, Any]


def map_of(value: Node) -> List:
    """Return the type of ``dict[str, value]``."""
    return List(Record(MAP_ITEM, (Field("_0", String()), Field("_1", value))))


def lists(counts: Sequence[int] | Numbers, content: Content) -> Content:
    """Return lists of consecutive items, `counts` of them in each."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return ak.contents.ListOffsetArray(ak.index.Index64(offsets), content)


def records(columns: dict[str, Any]) -> Content:
    """Return records of columns, which are layouts or NumPy arrays."""
    contents = [
        each if isinstance(each, ak.contents.Content) else ak.contents.NumpyArray(np.ascontiguousarray(each))
        for each in columns.values()
    ]
    return ak.contents.RecordArray(contents, list(columns))


def option(values: Numbers, is_there: Numbers) -> Content:
    """Return numbers of which some are missing."""
    index = np.where(is_there, np.arange(len(values)), -1)
    return ak.contents.IndexedOptionArray(ak.index.Index64(index), ak.contents.NumpyArray(values))


def texts(values: Iterable[str]) -> Content:
    """Return texts."""
    encoded = [value.encode() for value in values]
    characters = ak.contents.NumpyArray(
        np.frombuffer(b"".join(encoded), np.uint8), parameters={"__array__": "char"}
    )
    found = lists([len(each) for each in encoded], characters)
    return found.copy(parameters={"__array__": "string"})


def maps(values: Sequence[dict[str, Any]], dtype: str) -> Content:
    """Return dictionaries, of texts if `dtype` is ``str``, else of numbers of this type."""
    keys = texts(key for each in values for key in each)
    found = [value for each in values for value in each.values()]
    items = texts(found) if dtype == "str" else ak.contents.NumpyArray(np.array(found, dtype))
    return lists([len(each) for each in values], records({"_0": keys, "_1": items}))
